"""Why jobs failed: every known cause, what batch systems say, what jobs of a run tell each other, and the run's last words."""

import asyncio
import errno
import importlib
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from profzoo import tools
from profzoo.cell import rerun_commands
from profzoo.collect import failures
from profzoo.collect.failures import Failure
from profzoo.machine import job_child
from profzoo.run import _summarise

# Those of a tool may stand in its own test module, under the same name.
MODULES = [importlib.import_module(f"tests.unit.test_{tool}") for tool in tools.failures()]
LINES = [
    ("the command was ended by SIGKILL in step 3", "took too much memory"),
    *(line for module in MODULES for line in getattr(module, "LINES", ())),
    (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
        "root",
    ),
    (
        "==ERROR== Driver resource was unavailable. Ensure that no other tool (like DCGM) is concurrently collecting",
        "DCGM",
    ),
    ("==ERROR== Profiling failed because a driver resource was unavailable.", "DCGM"),
    ("==ERROR== LibraryNotLoaded", "profiling library"),
    ("==ERROR== Failed to find metric sm__foo.sum", "ncu.sets"),
    ("==ERROR== Could not find section Rofline", "ncu --list-sections"),
    ("==ERROR== unrecognised option '--pytorch'. Use --help for further details.", "ncu.extra"),
    ("unrecognized option '--cuda-graph-trace'", "nsys.extra"),
    ("==ERROR== Unsupported API during capture (cuMemAlloc_v2)", "app-range"),
    ("==ERROR== An error was reported by the driver:\n==ERROR== LaunchFailed", "ncu.kernel_name"),
    ("OSError: [Errno 28] No space left on device", "TMPDIR"),
    ("sqlite3.OperationalError: Disk quota exceeded", "TMPDIR"),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", "lower workers"),
    ("Bus error. It is possible that dataloader's workers are out of shared memory.", "/dev/shm"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "smaller batch"),
    ("RuntimeError: CUDA error: out of memory", "smaller batch"),
    ("CUDA error: an illegal memory access was encountered", "compute-sanitizer"),
    ("RuntimeError: CUDA error: device-side assert triggered", "device=cpu"),
    ("MemoryError", "mem_mb"),
    ("OSError: [Errno 12] Cannot allocate memory", "mem_mb"),
    ("terminate called after throwing an instance of 'std::bad_alloc'", "mem_mb"),
    (
        "Illegal --gpu-metrics-devices arguments.\nNone of the installed GPUs are supported:\n\tTesla V100 - Unsupported "
        "architecture",
        "unset nsys.gpu_metrics",
    ),
    ("Illegal --gpu-metrics-devices argument: 0.\nInsufficient privilege, see https://x/ERR_NVGPUCTRPERM.", "root"),
    ("Importer error status: An unknown error occurred.", "QdstrmImporter"),
    ("/opt/nsys/QdstrmImporter: error while loading shared libraries: libxcb.so.1", "ldd"),
    ("[QuadDCommon::tag_message*] = Local Endpoint is not available.", "--retries"),
    ("Connection to Agent lost. This is most likely a bug. Internal reason: 'End of file'.", "--retries"),
    ("lstm train on CPU, 2 threads: 10 steps of batch 4, 36.4 ms per step, loss 0.1\nGenerated:", "snakemake doctor"),
    ("==WARNING== No kernels were profiled.", "ncu.kernel_name"),
]


@pytest.mark.parametrize(("line", "words"), LINES)
def test_cause(line: str, words: str) -> None:
    assert words in (failures.find_cause(f"$ ncu ...\n==PROF== Connected\n{line}\n") or "")


def test_no_cause_is_left_untested() -> None:
    advices = {failures.find_cause(line) for line, _ in LINES}
    assert advices == {advice for _, advice in failures.known_patterns()}


def test_the_last_of_the_programs_own_lines_wins() -> None:
    log = "profzoo: first\nsay profzoo: not at the start\nprofzoo: last\nERR_NVGPUCTRPERM\n"
    assert failures.find_cause(log) == "last"


def test_a_line_without_end_is_cut() -> None:
    assert failures.find_cause(f"profzoo: {'x' * 10**6}\n") == "x" * failures.LONGEST + " …"


def test_a_line_of_the_program_gains_what_to_do_once() -> None:
    line = "unet train failed with AcceleratorError: CUDA error: an illegal memory access was encountered"
    advised = failures.find_cause(f"profzoo: {line}\n")
    assert advised and advised.startswith(f"{line}; a kernel reads or writes outside its tensors: ")
    assert failures.find_cause(f"profzoo: {advised}\n") == advised


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_what_the_system_refuses_has_a_cure(number: int) -> None:
    line = failures.explain_os_error(OSError(number, os.strerror(number), "results/a"))
    assert line.startswith(f"results/a: {os.strerror(number)}; ") and "pathvars" in line
    assert failures.explain_os_error(OSError(errno.EIO, "Input/output error")) == "[Errno 5] Input/output error"


@pytest.mark.parametrize("log", ["all is well", "Permission denied", "metric found"])
def test_unknown_causes_are_not_guessed(log: str) -> None:
    assert failures.find_cause(log) is None


def test_warnings_of_every_tool_once_and_in_order() -> None:
    log = "WARNING: b\n==WARNING== a\nWarning: c\n  WARNING: inside\n==WARNING== a\n==PROF== d\n"
    assert failures.find_warnings(log) == ["b", "a", "c"]


def test_the_programs_own_reason_goes_first() -> None:
    assert failures.find_cause("profzoo: the loss is nan\n==WARNING== No kernels were profiled.") == "the loss is nan"
    assert failures.find_cause("nothing odd") is None


def failure(log: Path, **more: object) -> Failure:
    given = {"rule": "time_training", "wildcards": {"model": "unet"}, "outputs": ["results/unet/train.time.csv"]}
    job = '{"tool": "time", "cell": {"phase": "train"}}'
    return Failure(**{**given, "job": job, "logs": [str(log)], **more})


def test_a_block_a_failure(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(f"$ python -m models.run\nTraceback\nprofzoo: the cat is on the keyboard (log: {log})\n")
    words = ["/usr/bin/snakemake", "-j4", "all", "--config", "tool=nsys torch"]
    said = failures.format_failures([failure(log)], 3, words, {"all"}).splitlines()
    assert said == [
        "1 job failed, and 3 jobs did not run because of it:",
        "  unet train: time",
        "    why      the cat is on the keyboard",
        f"    log      {log}",
        "    repeat   snakemake results/unet/train.time.csv -j4 --config 'tool=nsys torch'",
    ]
    assert failures.format_failures([], 0, words, {"all"}) == ""


def test_a_user_of_advise_repeats_the_command_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rerun_commands.ADVISED, "--window 40 -- python 'my script.py'")
    words = ["snakemake", "report", "--workflow-profile", "none", "--cores", "1"]
    typed = ["profzoo", "advise", "--window", "40", "--", "python", "my script.py"]
    assert failures.rerun_command("report", words, {"report"}, "collect=false") == typed
    assert failures.rerun_command("results/my/train.time.csv", words, {"report"}) == typed


def test_blocks_are_in_order_whatever_that_of_the_failures(tmp_path: Path) -> None:
    several = [failure(tmp_path / "no", wildcards={"model": name}) for name in ("vgg16", "lstm", "unet")]
    said = failures.format_failures(several, 0, [], ())
    assert said.startswith("3 jobs failed:\n")
    assert [line.strip() for line in said.splitlines() if line.endswith(": time")] == [
        "lstm train: time", "unet train: time", "vgg16 train: time"
    ]  # fmt: skip


def test_a_block_a_cause(tmp_path: Path) -> None:
    """Three models: one fails wherever it is looked at, two for the same thing, each at a line of its own."""
    cat = "gpt train failed with RuntimeError: the cat is on the keyboard"
    lines = {
        ("gpt", "torch"): cat,
        ("gpt", "time"): f"not run under time, because it failed under torch: {cat}",
        ("gpt", "nsys"): f"not run under nsys, because it failed under torch: {cat}",
        ("lstm", "ncu"): "lstm train: no permission to read counters (models/lstm.py:3)",
        ("unet", "ncu"): "unet train: no permission to read counters (models/unet.py:4)",
        ("vgg16", "torch"): "vgg16 train failed with RuntimeError: the dog is under the desk",
    }
    several = []
    for (model, tool), line in lines.items():
        (log := tmp_path / f"{model}.{tool}.log").write_text(f"profzoo: {line}\n")
        job = f'{{"tool": "{tool}", "cell": {{"phase": "train"}}}}'
        unrun = ["gpt inference: time", "gpt train: time"] if (model, tool) == ("gpt", "torch") else []
        outputs = [f"results/{model}/train.{tool}.csv"]
        several.append(failure(log, wildcards={"model": model}, job=job, outputs=outputs, unrun=unrun))
    said = failures.format_failures(several, 5, ["snakemake"], ()).splitlines()
    assert said == [
        # Five that wait, and two that were spared.
        "4 jobs failed of 3 causes, and 7 jobs did not run because of them:",
        "  gpt train: torch",
        f"    why      {cat}",
        f"    log      {tmp_path}/gpt.torch.log",
        "    repeat   snakemake results/gpt/train.torch.csv",
        "    not run  gpt train: nsys; gpt train: time; gpt inference: time",
        "  lstm train: ncu",
        "    why      lstm train: no permission to read counters (models/lstm.py:3)",
        f"    log      {tmp_path}/lstm.ncu.log",
        "    repeat   snakemake results/lstm/train.ncu.csv",
        "    also     unet train: ncu",
        "  vgg16 train: torch",
        "    why      vgg16 train failed with RuntimeError: the dog is under the desk",
        f"    log      {tmp_path}/vgg16.torch.log",
        "    repeat   snakemake results/vgg16/train.torch.csv",
    ]


# As a model's program ends that ran to its end.
SUCCESS = "lstm train on CPU: 2 steps of batch 10, 1.03 ms per step, 9701.3 samples/s, loss 0.6931, 93,570 parameters"


def test_a_programs_success_is_known_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {
        "steps": 2, "step_ns": 1.03e6, "items": 20, "loss": 0.6931, "device": "CPU", "device_why": "", "batch": 10,
        "parameters": 93570,
    }  # fmt: skip
    for changes in ({}, {"loss": None}, {"steps": 0}, {"device_why": "no GPU: here"}):
        _summarise({"model": "lstm@two", "phase": "train", "gpus": 2, "nodes": 1}, facts | changes)
        assert failures.ENDED_WELL.match(capsys.readouterr().out.strip())


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (
            "Job 7 completed successfully, but some output files are missing. Missing files after 5 seconds. This "
            "might be due to filesystem latency. If that is the case, consider to increase the wait time with "
            "--latency-wait:\nresults/a.csv (missing locally, parent dir contents: b)\nresults/c d.csv",
            "its program succeeded but left no results/a.csv, results/c d.csv",
        ),
        ("Output files\n  are odd\n", "Output files; are odd"),
    ],
)
def test_what_snakemake_refuses_is_one_line(message: str, why: str) -> None:
    assert failures.explain_refusal(message) == why


def test_what_snakemake_refuses_is_in_the_jobs_log(tmp_path: Path) -> None:
    """As a line that a log ends with whose job failed, whatever the program said; once, however often it is heeded."""

    class Dag:
        async def check_and_touch_output(self, job: object, wait: int = 3) -> None:
            if wait != 3:
                raise OSError(f"refused {wait}")

    for _ in range(2):
        failures.note_refusals(Dag)
    log, good = tmp_path / "log", tmp_path / "good"
    for path in (log, good):
        path.write_text(f"{SUCCESS}\n")
    asyncio.run(Dag().check_and_touch_output(SimpleNamespace(log=[good])))
    with pytest.raises(OSError, match="refused 5"):
        asyncio.run(Dag().check_and_touch_output(SimpleNamespace(log=[log, tmp_path / "none/log"]), wait=5))
    assert log.read_text() == f"{SUCCESS}\nprofzoo: refused 5\n" and good.read_text() == f"{SUCCESS}\n"
    assert failures.read_cause([str(log)]) == "refused 5"


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("profzoo: first\nprofzoo: last\n", "last"),
        ("OSError: [Errno 28] No space left on device\n", failures.FULL),
        ("Traceback\n  File\nKeyError: 'kernel'\n\n", "KeyError: 'kernel'"),
        ("$ python -m models.run\n", failures.UNSAID),
        ("", failures.UNSAID),
        ("x" * 10_000, "x" * failures.WHY_CHARACTERS + " …"),
        (f"$ python\n{SUCCESS}\n", failures.AFTER),
        (f"$ python\n{SUCCESS}\nprofzoo: out is older\n", "out is older"),
        ("profzoo: a \x1b[2Jcleared\x07 screen \x1b]0;title\x07\n", "a cleared screen "),
    ],
)
def test_why(tmp_path: Path, log: str, why: str) -> None:
    (tmp_path / "log").write_text(log)
    assert failures.read_cause([str(tmp_path / "log")]) == why


def test_a_log_of_any_size_takes_no_more_memory(tmp_path: Path) -> None:
    """A sparse file of 3 GB, as a model leaves that prints all it does, with what matters at both ends."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.write(b"begins\n")
        file.seek(3 << 30)
        file.write(b"\nprofzoo: it ended\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = failures.read_excerpt(log)
    assert text.startswith("begins\n") and text.endswith("profzoo: it ended\n")
    assert len(text) <= failures.READ_BYTES + 1
    # In KB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("size", [1, failures.READ_BYTES // 2, failures.READ_BYTES])
def test_a_log_within_bounds_is_read_whole(tmp_path: Path, size: int) -> None:
    text = ("0123456789" * (size // 10 + 1))[:size]
    (tmp_path / "log").write_text(text)
    assert failures.read_excerpt(tmp_path / "log").replace("\n", "") == text


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
    assert failures.explain_failure(message, "profile_nsys", ASKED) == line


def batch_job(number: int, rule: str) -> SimpleNamespace:
    return SimpleNamespace(jobid=number, rule=SimpleNamespace(name=rule), is_group=lambda: False, resources=ASKED)


class Executor:
    """An executor's way to tell of a job; heard: what comes through."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def print_job_error(self, job_info: object, msg: str | None = None, **more: object) -> None:
        self.heard.append((job_info, msg, more))


def test_every_job_of_a_group_is_told_and_the_executor_tells_on() -> None:
    """Snakemake itself drops the words on a group."""
    members = [batch_job(3, "export_nsys"), batch_job(4, "join_kernels")]
    group = SimpleNamespace(is_group=lambda: True, jobs=members, resources=ASKED)
    executor, heard = Executor(), failures.BatchMessages()
    heard.heed(executor)
    message = STATUS.format("TIMEOUT")
    for one, words in ((group, message), (batch_job(5, "time_training"), None)):
        executor.print_job_error(SimpleNamespace(job=one), words, aux_logs=["a"])
    said = {number: line.rpartition(" ")[2] for number, line in heard.said.items()}
    assert said == {3: "export_nsys:runtime=60", 4: "join_kernels:runtime=60"}
    assert [(words, more) for _, words, more in executor.heard] == [
        (one, {"aux_logs": ["a"]}) for one in (message, None)
    ]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of the test's own, as a job of a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(job_child.OWNER, "12:34:pid:[56]")


def job(tool: str, **more: object) -> dict:
    return {"tool": tool, "cell": {"phase": "train"}, **more}


WHY = "mine train failed with RuntimeError: the cat is on the keyboard"
SIDECAR = Path("results/mine/train.time.csv.json")


@pytest.mark.usefixtures("run")
def test_a_line_is_said_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failures.is_first_time("of the CPU") and failures.is_first_time("another")
    assert not failures.is_first_time("of the CPU")
    monkeypatch.setenv(job_child.OWNER, "13:34:pid:[56]")
    assert failures.is_first_time("of the CPU")
    monkeypatch.delenv(job_child.OWNER)
    assert failures.is_first_time("of the CPU") and failures.is_first_time("of the CPU")


@pytest.mark.usefixtures("run")
def test_a_model_that_failed_is_known_to_other_tools_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    failures.note_failure(job("nsys"), SIDECAR, WHY)
    assert (
        failures.find_known_failure(job("torch"), SIDECAR)
        == f"not run under torch, because it failed under nsys: {WHY}"
    )
    # The same again, as batch systems do.
    assert failures.find_known_failure(job("nsys"), SIDECAR) is None
    assert failures.find_known_failure(job("torch"), Path("results/mine@bf16/train.time.csv.json")) is None
    assert failures.find_known_failure(job("torch") | {"cell": {"phase": "inference"}}, SIDECAR) is None
    assert failures.find_known_failure(job("torch", trials={}), SIDECAR) is None
    monkeypatch.setenv(job_child.OWNER, "13:34:pid:[56]")
    assert failures.find_known_failure(job("torch"), SIDECAR) is None


@pytest.mark.parametrize(
    ("tool", "why", "known"),
    [
        ("train", WHY, True),
        ("time", "mine train: the loss is nan at step 1 of 3; try another seed, precision fp32 or", True),
        ("time", "mine train failed with RuntimeError: CUDA error: an illegal memory access", True),
        ("ncu", "mine train failed with RuntimeError: CUDA error: an illegal memory access", False),
        ("torch", "mine train ran out of memory at batch 8: set a smaller batch", False),
        ("ncu", "ncu is not on PATH: install NVIDIA Nsight Compute", False),
        ("time", "python was killed (SIGKILL): by a user", False),
    ],
)
@pytest.mark.usefixtures("run")
def test_only_what_the_model_does_by_itself_counts(tool: str, why: str, known: bool) -> None:
    failures.note_failure(job(tool), SIDECAR, why)
    assert (failures.find_known_failure(job("sample"), SIDECAR) is not None) == known


@pytest.mark.usefixtures("run")
def test_what_a_run_left_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    failures.note_failure(job("nsys"), SIDECAR, WHY)
    monkeypatch.setenv(job_child.OWNER, "13:34:pid:[56]")
    assert failures.is_first_time("of the CPU")
    failures.forget_run()
    assert len(list(failures.FOLDER.iterdir())) == 1
    failures.forget_run(others=True)
    assert not failures.FOLDER.exists()
