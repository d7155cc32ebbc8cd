"""machine/results_lock: one run at a time on a results folder; by processes of their own, as a lock ends with one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo.errors import ConfigError
from profzoo.machine import results_lock

PROJECT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from profzoo.machine import results_lock
results = Path(sys.argv[1])
results_lock.lock_results(results, results_lock.inspect_folder(results))
print("held", flush=True)
sys.stdin.read()
"""


def holder(results: Path) -> subprocess.Popen[str]:
    """A process that holds the folder until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(results)],
        cwd=PROJECT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout and process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    results = tmp_path / "results"
    planned = results_lock.inspect_folder(results)
    first = holder(results)
    said = f"process {first.pid} on {os.uname().nodename} in {PROJECT}, since "
    # Whether it was there when this was planned, or came then.
    for seen in (results_lock.inspect_folder(results), results_lock.FolderState(None, results.stat().st_mtime_ns)):
        with pytest.raises(ConfigError, match=f"is in use by another run, {said}.*wait until it has ended") as refused:
            results_lock.lock_results(results, seen)
        assert "\n" not in str(refused.value)
    first.communicate()
    assert first.returncode == 0 and not results.exists()
    assert planned == results_lock.inspect_folder(results) == results_lock.FolderState(None, None)


def test_what_was_planned_while_another_ran_is_planned_again(tmp_path: Path) -> None:
    (tmp_path / "own.csv").touch()
    planned = results_lock.inspect_folder(tmp_path)
    holder(tmp_path).communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["own.csv"]
    with pytest.raises(ConfigError, match=r"another run has used .* while this one was planned: run it again"):
        results_lock.lock_results(tmp_path, planned)


def test_a_holder_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    killed = holder(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert (tmp_path / results_lock.NAME).exists()
    assert holder(tmp_path).communicate() == ("", None) and not tmp_path.exists()


def test_programs_that_the_holder_starts_do_not_hold_it_on(tmp_path: Path) -> None:
    script = HOLD.replace('print("held"', 'import subprocess; subprocess.Popen(["sleep", "60"]); print("held"')
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], cwd=PROJECT, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout and process.stdout.readline() == "held\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    holder(tmp_path).communicate()
    os.killpg(process.pid, signal.SIGKILL)


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(ConfigError, match="results cannot be locked for this run: "):
        results_lock.lock_results(tmp_path / "results", results_lock.inspect_folder(tmp_path / "results"))


def test_a_fork_of_the_holder_that_ends_leaves_the_lock(tmp_path: Path) -> None:
    """With all that Python does at its end, as workers that were forked do."""
    code = HOLD.replace("sys.stdin.read()", "import os\nif not os.fork():\n    sys.exit()\nos.wait()\nprint('waited', flush=True)\n"
                        "sys.stdin.read()")  # fmt: skip
    results = tmp_path / "results"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(results)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert [process.stdout.readline() for _ in range(2)] == ["held\n", "waited\n"]
        assert (results / results_lock.NAME).exists() and results_lock.inspect_folder(results).holder
        process.stdin.close()
    assert not results.exists()
