"""collect/batch: what a batch system says of jobs, in one line, with what to do; messages as Slurm 22.05 prints them."""

from types import SimpleNamespace

import pytest

from profzoo.collect import batch_system

SBATCH = """SLURM sbatch failed. The error message was '{}'.
    sbatch call:
        sbatch --parsable --job-name a --wrap="it's 'this'."
For further error details see the cluster/cloud log and the log files of the involved rule(s)."""
STATUS = (
    "SLURM-job '12' failed, SLURM status is: '{}'. Detailed failure reason unavailable (status command is not 'sacct')."
)
ASKED = {"gpu": 1, "mem_mb": 16000, "runtime": 30, "_cores": 4}


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            SBATCH.format(
                "sbatch: error: invalid partition specified: nowhere\n"
                "sbatch: error: Batch job submission failed: Invalid partition name specified"
            ),
            "Slurm refused it: invalid partition specified: nowhere; Batch job submission failed: Invalid partition name "
            "specified: `sinfo` lists the partitions; slurm_partition names one, under default-resources or set-resources",
        ),
        (
            SBATCH.format("sbatch: error: Memory specification can not be satisfied"),
            "Slurm refused it: Memory specification can not be satisfied: ask for less, by --set-resources "
            "profile_nsys:mem_mb=MB, or for another partition by slurm_partition",
        ),
        (
            SBATCH.format("sbatch: error: Batch job submission failed: Requested time limit is invalid"),
            "Slurm refused it: Batch job submission failed: Requested time limit is invalid: ask for less, by "
            "--set-resources profile_nsys:runtime=MINUTES, or for another partition",
        ),
        (
            SBATCH.format("sbatch: error: Batch job submission failed: Requested node configuration is not available"),
            "Slurm refused it: Batch job submission failed: Requested node configuration is not available: no node there "
            "has so much: gpu=1, mem_mb=16000, runtime=30",
        ),
        (SBATCH.format("sbatch: error: the site is closed"), "Slurm refused it: the site is closed"),
        (
            STATUS.format("TIMEOUT"),
            "Slurm ended it at its limit of 30 minutes: give it more by --set-resources profile_nsys:runtime=60",
        ),
        (
            STATUS.format("OUT_OF_MEMORY"),
            "Slurm ended it because it took more than 16000 MB: give it more by --set-resources profile_nsys:mem_mb=32000",
        ),
        (STATUS.format("CANCELLED"), "Slurm ended it because it was cancelled (scancel)"),
        # Its own log says why.
        (STATUS.format("FAILED"), ""),
        ("", ""),
    ],
)
def test_what_slurm_says(message: str, line: str) -> None:
    assert batch_system.explain_failure(message, "profile_nsys", ASKED) == line


class Executor:
    """An executor's way to tell of a job; heard: what comes through."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def print_job_error(self, job_info: object, msg: str | None = None, **more: object) -> None:
        self.heard.append((job_info, msg, more))


def job(number: int, rule: str) -> SimpleNamespace:
    return SimpleNamespace(jobid=number, rule=SimpleNamespace(name=rule), is_group=lambda: False, resources=ASKED)


def test_every_job_of_a_group_is_told_and_the_executor_tells_on() -> None:
    """Snakemake itself drops the words on a group."""
    members = [job(3, "export_nsys"), job(4, "join_kernels")]
    group = SimpleNamespace(is_group=lambda: True, jobs=members, resources=ASKED)
    executor, heard = Executor(), batch_system.BatchMessages()
    heard.heed(executor)
    message = STATUS.format("TIMEOUT")
    for one, words in ((group, message), (job(5, "time_training"), None)):
        executor.print_job_error(SimpleNamespace(job=one), words, aux_logs=["a"])
    assert {number: line.rpartition(" ")[2] for number, line in heard.said.items()} == {
        3: "export_nsys:runtime=60",
        4: "join_kernels:runtime=60",
    }
    assert [(words, more) for _, words, more in executor.heard] == [
        (message, {"aux_logs": ["a"]}),
        (None, {"aux_logs": ["a"]}),
    ]
