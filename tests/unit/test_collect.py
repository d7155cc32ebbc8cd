"""The wrapper of collecting commands: environment, sidecar, failures in plain words; doctor beside it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from profzoo.collect import environment, job_run
from profzoo.errors import CollectError
from profzoo.machine import program_variables, scratch_folder
from tests.unit.collected import collected


def call(folder: Path, code: str, tool: str = "time", command: str = sys.executable) -> int:
    """Collect with a small Python program in the place of the model."""
    return collected(folder, command, "-c", code, tool=tool, environment=["KEPT"])


def leave(folder: Path, text: str = "x") -> str:
    """A program that leaves its output and facts."""
    facts = '{"torch": "2", "device_type": "cpu"}'
    return f"open({str(folder / 'out')!r}, 'w').write({text!r}); open({str(folder / 's.json')!r}, 'w').write('''{facts}''')"


# What a program of the user's own finds by name, in a copy, from C, and in a child process.
FINDS = """
import ctypes, json, os, subprocess
from profzoo.machine import job_child, program_variables
job_child.enter_job()
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
names = ("MODE", "MY_TOKEN", "RANK", "LD_AUDIT", "KEPT", "NOT_SET")
found = {
    "named": [name for name in names if os.environ.get(name)], "copied": [name for name in names if name in {**os.environ}],
    "of C": [name for name in names if getenv(name.encode())],
    "of a child": [line.split("=")[0] for line in subprocess.run(["env"], capture_output=True, text=True).stdout.split("\\n")],
}
"""


@pytest.mark.parametrize("tool", ["time", "ncu"])
def test_a_program_of_ones_own_gets_the_users_variables_inside_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """A profiler records the environments of processes: their children get no secret then."""
    given = {"MODE": "fast", "MY_TOKEN": "opensesame-opensesame", "RANK": "1", "LD_AUDIT": "", "KEPT": "k"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(job_run.namespace, "why_unavailable", lambda: "of a test")
    monkeypatch.setattr(job_run, "command_words", lambda asked, gpu: [*asked.profiler, *asked.program])
    code = f"{FINDS}facts = dict(torch='2', device_type='cpu', read_variables=program_variables.describe_reads())"
    code += f"; json.dump(facts, open({str(tmp_path / 's.json')!r}, 'w')); json.dump(found, open({str(tmp_path / 'out')!r}, 'w'))"
    profiler = tmp_path / "ncu"
    profiler.write_text('#!/bin/sh\nenv > $0.started\nexec "$@"\n')
    profiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wrapped = [str(profiler)] if tool == "ncu" else []
    words = [sys.executable, "-c", code]
    cell = {"device": "cpu", "module": "mine", "model": "mine", "phase": "train"}
    assert collected(tmp_path, *words, tool=tool, profiler=wrapped, cell=cell, environment=["KEPT"]) == 0
    found = json.loads((tmp_path / "out").read_text())
    own = ["MODE", "KEPT"] if tool == "ncu" else ["MODE", "MY_TOKEN", "KEPT"]
    assert found["named"] == ["MODE", "MY_TOKEN", "KEPT"] and found["copied"] == found["of C"] == own
    assert {*own} <= {*found["of a child"]} and ("MY_TOKEN" in found["of a child"]) == (tool == "time")
    facts = json.loads((tmp_path / "s.json").read_text())
    # A profiler is started with the fixed list, and what the configuration names.
    assert facts["read_variables"] == {"MODE": environment.variable_digest("MODE", "fast"), "NOT_SET": None}
    assert facts["withheld_variables"] == ["LD_AUDIT", "RANK"]
    if tool == "ncu":
        started = (tmp_path / "ncu.started").read_text()
        assert "KEPT=k" in started and "MODE=" not in started and "opensesame" not in started


def test_reads_are_noted_by_name_but_not_those_of_a_copy(tmp_path: Path) -> None:
    given = program_variables.hand_over_variables(tmp_path, {"A": "1", "B": "2", "C": "3", "D": "4"}, [], False)
    code = (
        "import os; from profzoo.machine import program_variables as own; own.restore_variables(); copy = dict(os.environ); "
        "[os.environ[name] for name, value in os.environ.items() if value == '1']; os.getenv('B'); 'X' in os.environ; "
        "os.environ['E'] = '1'; os.environ['E']; os.environ.setdefault('F', '1'); print(sorted(own.describe_reads()))"
    )
    run = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True)
    # A is asked for once more by its name.
    assert run.stdout == "['A', 'B', 'F', 'X']\n"
    assert (tmp_path / program_variables.NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("given", "threads"),
    [
        ({}, None),
        ({"OMP_NUM_THREADS": "3"}, ("3", None)),
        ({"MKL_NUM_THREADS": "5", "OMP_NUM_THREADS": "3"}, ("3", "5")),
    ],
)
def test_numbers_of_threads_that_the_user_sets_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], threads: tuple[str | None, ...] | None
) -> None:
    """Also where Snakemake has set others for the job; without them half of the cores count, or all without a GPU."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "77")
    own = environment.thread_variables(len(os.sched_getaffinity(0)), 0, 1)
    code = f"import json, os; {leave(tmp_path)}; names = ('OMP_NUM_THREADS', 'MKL_NUM_THREADS'); "
    code += f"json.dump([os.environ.get(name) for name in names], open({str(tmp_path / 'out')!r}, 'w'))"
    more = {"variables": given} if given else {}
    assert collected(tmp_path, sys.executable, "-c", code, **more) == 0
    assert json.loads((tmp_path / "out").read_text()) == list(threads or own.values())


def test_temporary_files_lie_in_the_nodes_folder_under_a_name_of_the_jobs_own(tmp_path: Path, monkeypatch) -> None:
    # Of a path that is short enough for the sockets of a job's workers.
    node = Path(tempfile.mkdtemp())
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(node))
    # A process of the same id on another host must not get the same name.
    monkeypatch.setattr(os, "getpid", lambda: 4242)
    seen = []
    for _ in range(2):
        code = f"import os, tempfile; said = os.environ['TMPDIR'] + ' ' + tempfile.gettempdir(); {leave(tmp_path)}; "
        assert call(tmp_path, code + f"open({str(tmp_path / 'out')!r}, 'w').write(said)") == 0
        own, taken = (tmp_path / "out").read_text().split()
        assert own == taken and Path(own).parent == node
        seen.append(own)
    assert len(set(seen)) == 2 and not list(node.iterdir())
    node.rmdir()


def test_what_is_compiled_outlasts_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", tempfile.mkdtemp())
    monkeypatch.delenv(scratch_folder.COMPILED, raising=False)

    def seen() -> Path:
        code = f"import os; {leave(tmp_path)}; open({str(tmp_path / 'out')!r}, 'w').write(os.environ.get('{scratch_folder.COMPILED}', '-'))"
        cell = {"device": "cpu", "compile": "default"}
        assert collected(tmp_path, sys.executable, "-c", code, cell=cell) == 0
        return Path((tmp_path / "out").read_text())

    first = seen()
    assert first.is_dir() and first.stat().st_mode & 0o777 == 0o700 and seen() == first
    # What others could write to is not run.
    first.chmod(0o777)
    assert seen() == Path("-")
    monkeypatch.setenv(scratch_folder.COMPILED, str(tmp_path / "mine"))
    assert seen() == tmp_path / "mine"


def test_more_gpus_than_there_are_is_refused() -> None:
    with pytest.raises(CollectError, match="gpus = 2, and 1 visible here"):
        environment.hold_gpus(2, ["GPU-a"])


@pytest.mark.parametrize("tool", ["ncu", "nsys"])
def test_a_missing_tool_is_named(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch, tool: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert call(tmp_path, "pass", tool, tool) == 1
    assert f"{tool} is not on PATH: install NVIDIA Nsight" in capsys.readouterr().err
