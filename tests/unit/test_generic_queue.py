"""The scripts of profiles/generic, against programs that print what those of LSF and PBS Pro print."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.generic.bin.submit import Job, bsub_words, job_id, job_of, qsub_words
from tests.faults.jobs import wait

BIN = Path(__file__).parents[2] / "profiles" / "generic" / "bin"
ASKED = {"mem_mb": 16000, "runtime": 90, "cpus_per_task": 4, "gpu": 1, "tmpdir": "/tmp"}
FORGOTTEN = "echo 'Job <7> is not found' >&2; exit 255"
# As recorded from LSF 10: lines of at most 80 columns, broken in the middle of words.
HISTORY = """
Job <7>, Job Name <profile_ncu>, User <someone>, Project <default>, Command <#!
                     /bin/sh;# Exited with exit code 9 is only a comment>
Tue Dec 23 14:46:43: Dispatched 12 Task(s) on Host(s) <12*node>, Allocate
                     d 12 Slot(s) on Host(s) <12*node>;
Tue Dec 23 14:46:43: Starting (Pid 258999);
"""
DONE = "Tue Dec 23 14:47:43: Done successfully. The CPU time used is 31911.0 seco\n                     nds;\n"
EXITED = "Tue Dec 23 14:47:43: Exited with exit code 1. The CPU time used is 31911.0 seco\n                     nds;\n"
KILLED = "Tue Dec 23 14:47:43: Exited by signal 9. The CPU time used is 0.1 seconds;\n"
SUMMARY = (
    "\nSummary of time in seconds spent in various states by  Tue Dec 23 14:47:43\n  PEND     RUN\n  1        60\n"
)
# As recorded from PBS Pro: long values go on behind a tab.
FULL = """Job Id: 7.server
    Job_Name = profile_ncu
    job_state = {state}
    exec_vnode = (node:ncpus=4:mem=16384000kb:jobfs=104857600kb:
\tngpus=1)
    Variable_List = PBS_O_HOME=/home/someone,PBS_O_SHELL=/bin/bash,
\tjob_state = Q,PBS_O_HOST=login
{more}"""
UNKNOWN = "echo 'qstat: Unknown Job Id 7.server' >&2; exit 153"
FINISHED = "echo 'qstat: 7.server Job has finished, use -x or -H to obtain historical job information' >&2; exit 35"
UNKEPT = "echo 'qstat: PBS is not configured to maintain job history 7.server' >&2; exit 1"
AWAY = "echo 'Connection refused\nqstat: cannot connect to server server (errno=111)' >&2; exit 255"


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def printed(text: str) -> str:
    return f"cat <<'EOF'\n{text}\nEOF"


def status(folder: Path, job: str) -> str:
    words, variables = [str(BIN / "status"), job], {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.check_output(words, cwd=folder, env=variables, text=True)


@pytest.mark.parametrize(
    ("bjobs", "bhist", "expected"),
    [
        ("echo PEND", "exit 1", "running"),
        ("echo SSUSP", "exit 1", "running"),
        ("echo UNKWN", "exit 1", "running"),
        ("echo DONE", "exit 1", "success"),
        ("echo EXIT", "exit 1", "failed"),
        ("echo ZOMBI", "exit 1", "failed"),
        ("echo 'LSF is down. Please wait ...' >&2; exit 255", "exit 1", "running"),
        # A job that it forgot is looked up in its history.
        (FORGOTTEN, printed(HISTORY + DONE + SUMMARY), "success"),
        (FORGOTTEN, printed(HISTORY + EXITED + SUMMARY), "failed"),
        (FORGOTTEN, printed(HISTORY + KILLED + SUMMARY), "failed"),
        # Requeued after it failed.
        (FORGOTTEN, printed(HISTORY + EXITED + DONE + SUMMARY), "success"),
        (FORGOTTEN, "echo 'No matching job found' >&2; exit 255", "failed"),
        (FORGOTTEN, "echo 'Failed in an LSF library call' >&2; exit 255", "running"),
    ],
)
def test_what_lsf_says_of_a_job(tmp_path: Path, bjobs: str, bhist: str, expected: str) -> None:
    program(tmp_path, "bjobs", bjobs)
    program(tmp_path, "bhist", bhist)
    assert status(tmp_path, "7") == f"{expected}\n"


@pytest.mark.parametrize(
    ("now", "past", "expected"),
    [
        (printed(FULL.format(state="R", more="")), "exit 9", "running"),
        (printed(FULL.format(state="E", more="    Exit_status = 0")), "exit 9", "running"),
        (FINISHED, printed(FULL.format(state="F", more="    Exit_status = 0")), "success"),
        (FINISHED, printed(FULL.format(state="F", more="    Exit_status = 1")), "failed"),
        (FINISHED, printed(FULL.format(state="F", more="    Exit_status = -29")), "failed"),
        # Deleted before it ran.
        (FINISHED, printed(FULL.format(state="F", more="")), "failed"),
        (FINISHED, AWAY, "running"),
        (AWAY, AWAY, "running"),
    ],
)
def test_what_pbs_says_of_a_job(tmp_path: Path, now: str, past: str, expected: str) -> None:
    program(tmp_path, "qstat", f'if [ "$1" = -x ]; then\n{past}\nelse\n{now}\nfi')
    assert status(tmp_path, "7.server") == f"{expected}\n"


@pytest.mark.parametrize("past", [UNKNOWN, UNKEPT])
@pytest.mark.parametrize(("left", "expected"), [("0", "success"), ("1", "failed")])
def test_a_job_that_pbs_forgot_has_left_its_exit_code(tmp_path: Path, past: str, left: str, expected: str) -> None:
    program(tmp_path, "qstat", f'if [ "$1" = -x ]; then\n{past}\nelse\n{UNKNOWN}\nfi')
    (tmp_path / ".snakemake" / "generic").mkdir(parents=True)
    (tmp_path / ".snakemake" / "generic" / "7.server.exit").write_text(f"{left}\n")
    assert status(tmp_path, "7.server") == f"{expected}\n"


def test_a_job_that_was_killed_and_forgotten_has_failed(tmp_path: Path) -> None:
    program(tmp_path, "qstat", UNKNOWN)
    program(tmp_path, "sleep", "exit 0")
    assert status(tmp_path, "7.server") == "failed\n"


def test_what_a_job_asks_for() -> None:
    told = json.dumps({"rule": "profile_ncu", "threads": 1, "resources": ASKED})
    assert job_of(f"#!/bin/sh\n# properties = {told}\nexit 0\n") == Job(
        "profile_ncu", cores=4, mem_mb=16000, minutes=90, gpus=1
    )
    group = {"groupid": "export", "threads": 2, "resources": {"mem_mb": 1, "runtime": 2, "queue": "cpu"}}
    assert job_of(f"# properties = {json.dumps(group)}\n") == Job("export", cores=2, mem_mb=1, minutes=2, queue="cpu")
    with pytest.raises(ValueError, match="no line with the job's properties"):
        job_of("#!/bin/sh\n")


def test_the_commands_for_both_queues(tmp_path: Path) -> None:
    job = Job("profile_ncu", 4, 16000, 90, 1, "NVIDIAH200", "gpu", "science", "gpu_type=h200", "-x -m 'a b'")
    asked = " ".join(bsub_words(job, tmp_path))
    assert "-n 4 -R span[hosts=1] -R rusage[mem=16000MB] -M 16000MB -W 90" in asked
    assert "-gpu num=1:gmodel=NVIDIAH200 -q gpu -P science -x -m a b" in asked
    asked = " ".join(qsub_words(job, tmp_path))
    assert "-l select=1:ncpus=4:mem=16000mb:ngpus=1:gpu_type=h200 -l walltime=01:30:00" in asked
    assert asked.startswith("qsub -V -N profile_ncu -j oe") and "-q gpu -P science -x" in asked
    plain = Job("tabulate", 1, 4000, 20)
    assert "gpu" not in " ".join([*bsub_words(plain, tmp_path), *qsub_words(plain, tmp_path)])


def test_the_id_is_found_among_what_a_site_prints() -> None:
    assert job_id("bsub", "INFO: 3 GPUs\nJob <4838563> is submitted to queue <gpu>.\n") == "4838563"
    assert job_id("qsub", "Your project has 7.5 hours left\n12345.gadi-pbs\n") == "12345.gadi-pbs"
    with pytest.raises(ValueError, match="bsub printed no job id: nothing"):
        job_id("bsub", "")


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("bsub", "echo 'gpu: No such queue. Not submitted.' >&2; exit 255", "gpu: No such queue. Not submitted."),
        ("qsub", "echo 'qsub: Unknown queue' >&2; exit 170", "profzoo: not submitted: exit code 170 of qsub"),
        ("other", "exit 0", "neither bsub nor qsub in PATH"),
    ],
)
def test_a_job_that_is_not_taken_says_why(tmp_path: Path, name: str, body: str, said: str) -> None:
    program(tmp_path, name, body)
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    script = f"#!/bin/sh\n# properties = {json.dumps({'rule': 'tabulate', 'resources': ASKED})}\nexit 0\n"
    (tmp_path / "job").write_text(script)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    run = subprocess.run([str(BIN / "submit.py"), "job"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert run.returncode == 1 and not run.stdout and said in run.stderr


@pytest.mark.parametrize(("name", "jobs"), [("bkill", ["7", "8"]), ("qdel", ["7.server", "8.server"])])
def test_cancelling_outlives_the_time_that_the_plugin_gives_it(tmp_path: Path, name: str, jobs: list[str]) -> None:
    program(tmp_path, name, 'sleep 0.4; echo "$@" > cancelled')
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.check_call([str(BIN / "cancel"), *jobs], cwd=tmp_path, env=variables, timeout=0.1)
    wait((tmp_path / "cancelled").exists)
    assert (tmp_path / "cancelled").read_text().split() == jobs
