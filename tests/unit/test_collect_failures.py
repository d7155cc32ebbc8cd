"""collect and its processes: what is seen of the GPU, signals, leftovers, and one line for each failure."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from profzoo.collect import failures, job_run
from profzoo.machine import external_programs, gpu_slots, gpus, supervisor
from tests import slow
from tests.faults import family
from tests.unit.collected import collected

PROJECT = Path(__file__).parents[2]
STANDINS = PROJECT / "tests/tools/standins"


def test_the_commands_facts_and_output_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = '{"torch": "2.11", "device_type": "cpu", "loss": 1.5}'
    code = f"echo x > {tmp_path}/out; echo '{facts}' > {tmp_path}/s.json; echo '==WARNING== odd'; echo $SECRET_TOKEN"
    monkeypatch.setenv("SECRET_TOKEN", "hidden-token")
    assert collected(tmp_path, "sh", "-c", code) == 0
    sidecar = json.loads((tmp_path / "s.json").read_text())
    assert sidecar["loss"] == 1.5 and sidecar["warnings"] == ["odd"] and sidecar["command"][:2] == ["sh", "-c"]
    assert sidecar["tool_version"] == "torch 2.11" and sidecar["started"].endswith("+00:00")
    log = (tmp_path / "log").read_text()
    assert log.startswith("$ sh -c ") and "hidden-token" not in log


@pytest.mark.parametrize("plan", ["[]", "{", '{"options": [1], "estimate_s": 2, "set": "full"}'])
def test_a_damaged_plan_is_no_plan_without_options(tmp_path: Path, capsys: pytest.CaptureFixture, plan: str) -> None:
    (tmp_path / "plan.json").write_text(plan)
    assert collected(tmp_path, "true", plan=tmp_path / "plan.json") == 1
    line = capsys.readouterr().err
    assert line.startswith(f"profzoo: {tmp_path / 'plan.json'}") and line.count("\n") == 1
    assert "delete it" in line or "`snakemake --force " in line


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("exit 9", "sh ended with exit code 9"),
        ("kill -9 $$", "sh was killed (SIGKILL): by a user, or by a batch system"),
        (": > {0}/out", "sh ended well but left no out"),
        ("echo 'No space left on device'; exit 1", "no space is left on the disk"),
        ("echo x > {0}/out", "s.json"),
    ],
)
def test_a_failure_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture, command: str, line: str) -> None:
    for name in ("out", "s.json"):
        (tmp_path / name).write_text("of an earlier run")
    assert collected(tmp_path, "sh", "-c", command.format(tmp_path)) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("profzoo: ") and printed.count("\n") == 1 and line in printed
    assert f"(log: {tmp_path / 'log'})" in printed and (tmp_path / "log").read_text().endswith(printed)
    # Snakemake removes these.
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != "log"} == {
        "out": "of an earlier run", "s.json": "of an earlier run",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "line"),
    [(-signal.SIGSEGV, "crashed (SIGSEGV)"), (-signal.SIGBUS, "crashed (SIGBUS)"), (-signal.SIGABRT, "crashed (SIGABRT)"),
     (-signal.SIGTERM, "was ended by SIGTERM"), (128 + signal.SIGSEGV, "crashed (SIGSEGV)"), (250, "ended with exit code 250")],
)  # fmt: skip
def test_an_exit_code_tells_how_a_program_ended(code: int, line: str) -> None:
    assert failures.explain_exit("sh", code) == f"sh {line}"


def test_a_program_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert collected(tmp_path, "no_such_program") == 1
    assert "no_such_program" in capsys.readouterr().err


def test_ncu_needs_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    assert collected(tmp_path, "true", profiler=["ncu"], tool="ncu") == 1
    assert "ncu profiles GPUs only, and this cell has none" in capsys.readouterr().err


@pytest.mark.parametrize(("visible", "name"), [(None, "NVIDIA H200"), ("0", "NVIDIA H200"), ("", None)])
def test_gpu_facts_are_of_a_visible_gpu(monkeypatch: pytest.MonkeyPatch, visible: str | None, name: str | None) -> None:
    monkeypatch.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu["gpu"] for gpu in gpus.list_visible_gpus(os.environ)] == [name] * (name is not None)


def test_commit_is_that_of_the_checkout_and_empty_elsewhere(tmp_path: Path) -> None:
    assert job_run.git_commit(tmp_path) == {}
    clean = {"commit": repository(tmp_path, "one"), "commit_changed": False}
    assert job_run.git_commit(tmp_path) == clean
    # Results, wherever they are, and notes are not code.
    for name in ("results2/lstm/train.time.csv", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert job_run.git_commit(tmp_path, "mine.net") == clean
    # A known file that differs is a change, and so is code that git does not know.
    known = tmp_path / "models/one.py"
    known.write_text("x")
    assert job_run.git_commit(tmp_path)["commit_changed"] is True
    known.write_text("")
    for name in ("models/new.py", "profzoo/new.py", "config/new.yaml", "Snakefile", "mine.py", "mine/new.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        assert job_run.git_commit(tmp_path, "mine.net") == {**clean, "commit_changed": True}
        (tmp_path / name).unlink()


def repository(folder: Path, name: str) -> str:
    """A repository of one commit, and that."""
    (folder / "models").mkdir(parents=True)
    (folder / "models" / f"{name}.py").touch()
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", name]):
        subprocess.run([*git, *command], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def test_an_environment_that_leads_git_elsewhere_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook of git's, or where somebody works on two repositories."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    known = {"commit": repository(mine, "mine"), "commit_changed": False}
    repository(other, "other")
    leading = {
        "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": str(other / ".git/index"),
        "GIT_CEILING_DIRECTORIES": str(mine), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.worktree",
        "GIT_CONFIG_VALUE_0": str(other), "GIT_OBJECT_DIRECTORY": str(other / ".git/objects"),
        "GIT_CONFIG_PARAMETERS": f"'core.worktree={other}'",
    }  # fmt: skip
    for name, value in leading.items():
        monkeypatch.setenv(name, value)
    assert job_run.git_commit(mine) == known


def test_a_copy_in_a_repository_that_knows_nothing_of_it_is_of_no_commit(tmp_path: Path) -> None:
    outer = repository(tmp_path / "outer", "outer")
    copied, part = tmp_path / "outer/tools/profzoo", tmp_path / "outer/part"
    for folder in (copied, part):
        (folder / "models").mkdir(parents=True)
        (folder / "models/net.py").touch()
    assert job_run.git_commit(copied) == {}
    subprocess.run(["git", "-C", str(part), "add", "."], check=True)
    assert job_run.git_commit(part) == {"commit": outer, "commit_changed": True}


GOOD = """echo x > {0}/out; echo '{{"torch": "2"}}' > {0}/s.json"""


@pytest.mark.parametrize("program", slow.only(["absent", "exit 1", "not executable", "hangs"], "exit 1", "hangs"))
def test_a_silent_git_costs_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    tools, out = tmp_path / "tools", tmp_path / "results"
    tools.mkdir()
    out.mkdir()
    for name in ("sh", "sleep"):
        (tools / name).symlink_to(shutil.which(name))
    if program != "absent":
        (tools / "git").write_text(f"#!/bin/sh\n{'exec sleep 60' if program == 'hangs' else 'exit 1'}\n")
        (tools / "git").chmod(0o644 if program == "not executable" else 0o755)
    monkeypatch.setenv("PATH", str(tools))
    answer = external_programs.ask_program
    monkeypatch.setattr(
        external_programs, "ask_program", lambda command, seconds=60, **more: answer(command, 0.5, **more)
    )
    assert collected(out, "sh", "-c", GOOD.format(out)) == 0
    sidecar = json.loads((out / "s.json").read_text())
    assert sidecar["torch"] == "2" and "commit" not in sidecar


def test_a_profiler_without_a_version_costs_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs the program but hangs, or is gone, when it is asked for its version."""
    export = "import sqlite3; sqlite3.connect('$out.sqlite').execute('CREATE TABLE steps (end INT)')"
    (tmp_path / "nsys").write_text(
        "#!/bin/sh\ncase $1 in --version) exec sleep 60;; esac\n"
        "while [ $1 != -- ]; do [ $1 = --output ] && out=${2%.nsys-rep}; shift; done\nshift\n"
        f'echo x > "$out.nsys-rep"\n{sys.executable} -c "{export}"\nexec "$@"\n'
    )
    (tmp_path / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    answer = external_programs.ask_program
    monkeypatch.setattr(
        external_programs, "ask_program", lambda command, seconds=60, **more: answer(command, 0.5, **more)
    )
    made = {"report": tmp_path / "report.nsys-rep", "sqlite": tmp_path / "report.nsys.sqlite"}
    profiler = ["nsys", "profile", "--output", str(made["report"]), "--"]
    assert collected(tmp_path, "sh", "-c", GOOD.format(tmp_path), profiler=profiler, tool="nsys", made=made) == 0
    assert made["sqlite"].read_bytes().startswith(b"SQLite format 3")
    assert json.loads((tmp_path / "s.json").read_text())["torch"] == "2"


WAITING = """
import sys
from pathlib import Path
from tests.unit.collected import collected
sys.exit(collected(Path(sys.argv[1]), "true", cell={"device": "auto"}))
"""


def test_a_job_that_is_told_to_end_as_it_waits_for_a_gpu_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    given = family.environment(tmp_path)
    (present,) = gpus.list_gpus()
    terms = gpu_slots.LockTerms(tmp_path / "locks")
    with gpu_slots.hold_gpus(1, [present["gpu_uuid"]], print, terms):
        words = [sys.executable, "-c", WAITING, str(tmp_path)]
        with subprocess.Popen(words, env=given, stderr=subprocess.PIPE, text=True, preexec_fn=family.heed) as job:
            assert job.stderr and "waiting for 1 of 1 GPU" in job.stderr.readline()
            job.send_signal(signal.SIGTERM)
            assert job.wait(timeout=family.SECONDS) == 128 + signal.SIGTERM
    assert failures.read_cause([str(tmp_path / "log")]) == supervisor.TOLD_TO_END
    assert not list(Path(given["TMPDIR"]).iterdir())
