"""Runs of ncu whose programs are forks of a server below ncu, by the recorded stand-in, and whatever may fail."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profzoo.machine import fork_client, process_tree, profiled_forks, surroundings
from profzoo.machine.gpu_slots import TURN, TurnGate
from profzoo.tools.ncu import command as ncu
from tests import slow
from tests.faults.jobs import wait, wait_for_ends

PYTHON = f"{Path(sys.executable).parent}/python"
STANDINS = Path(__file__).parents[1] / "tools" / "standins"
# A module of a program, which ends as it is told. It tells ncu's stand-in of the moment in which CUDA would start.
# The plan of a sample.
SAMPLED: Any = {"error": 0.02}
PROGRAM = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
out, ends = sys.argv[1:]
if ends == "hang":
    forked = os.environ.get("NV_STANDIN_PORT")
    time.sleep(60 if forked else 0)
if ends == "early":
    sys.exit(3)
if ends != "none":
    sys.audit("standin.cuda")
child = subprocess.Popen(["sleep", "60"]).pid if ends in ("late", "left") else 0
told = {
    "imported": "wave" in sys.modules, "words": [sys.orig_argv, sys.argv], "folder": os.getcwd(), "path": sys.path,
    "variables": {name: value for name, value in os.environ.items() if name != "NV_STANDIN_PORT"},
    "session": os.getsid(0) == os.getpid(), "signals": str(signal.getsignal(signal.SIGINT)), "ids": [os.getpid(), child],
}
Path(out + ".new").write_text(json.dumps(told))
Path(out + ".new").rename(out)
print("said", flush=True)
print("an error", file=sys.stderr)
if ends == "exit":
    os._exit(3)
if ends == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
if ends == "silent" and os.environ.get("NV_STANDIN_PORT"):
    time.sleep(60)
if ends == "late":
    time.sleep(60)
"""
# The command with shorter limits than its own.
QUICK = "import sys; from profzoo.tools.ncu import multi_run as m; m.IDLE_S = m.SILENT_S = m.LEFT_S = 1.5; sys.exit(m.main(sys.argv[1:]))"


class Below:
    """A server below the stand-in for ncu, and runs of ncu by it or by themselves."""

    def __init__(self, folder: Path) -> None:
        (folder / "told.py").write_text(PROGRAM)
        own = [STANDINS, Path(sys.executable).parent, os.environ["PATH"]]
        self.variables = {
            "PATH": os.pathsep.join(map(str, own)), "LC_ALL": "C", "PYTHONSAFEPATH": "1",
            "PYTHONPATH": f"{folder}{os.pathsep}{Path(__file__).parents[2]}",
        }  # fmt: skip
        self.folder, claimed = folder, profiled_forks._claimed_ports()
        assert claimed
        self.port, self.claim = claimed
        self.process, self.path = self.start()

    def start(self, **variables: str) -> "tuple[subprocess.Popen[bytes], str]":
        """Start another server, with more variables, which the commands then have as well."""
        self.variables |= variables
        profiler = [str(STANDINS / "ncu"), *ncu.launch_server(self.port)[1:]]
        return profiled_forks.start(profiler, ["wave"], self.variables, PYTHON)

    def begin(self, ends: str, options: str = "", **variables: str) -> "subprocess.Popen[str]":
        """Begin a run or, by options with --then, several."""
        made = {"report": self.folder / "x.ncu-rep", "more": self.folder / "more"}
        launch = "--force-overwrite --target-processes all --nvtx --nvtx-push-pop-scope process --clock-control none"
        plain = [*ncu.wrap_command([*options.split(), *launch.split()], made, 1),
                 "python", "-m", "told", str(self.folder / "out"), ends]  # fmt: skip
        server = [self.path, str(self.process.pid), str(self.port)]
        words = ncu.attach_command(plain, server, self.folder / "note", SAMPLED)
        assert words
        return subprocess.Popen(
            [sys.executable, "-c", QUICK, *words[len(ncu.SEVERAL) :]],
            env=self.variables | {"TMPDIR": "/tmp", **variables},
            cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, ends: str, options: str = "", **variables: str) -> tuple[int, str, dict]:
        """Exit code, output, and what the program told."""
        for name in ("out", "note", "x.ncu-rep"):
            (self.folder / name).unlink(missing_ok=True)
        with self.begin(ends, options, **variables) as command:
            said, _ = command.communicate(timeout=60)
        out = self.folder / "out"
        return command.returncode, said, json.loads(out.read_text()) if out.exists() else {}

    def attached(self) -> str:
        return (self.folder / "note").read_text()


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Below]:
    monkeypatch.chdir(tmp_path)
    made = Below(tmp_path)
    yield made
    made.process.communicate()
    made.claim.close()


WHY = "ncu starts the program itself, not from a fork: "


def test_a_fork_takes_over_what_a_program_of_ncus_has_and_is_attached_to(below: Below) -> None:
    code, said, forked = below.run("well")
    assert (code, below.attached(), forked["imported"]) == (0, "1", True), said
    lines = said.splitlines()
    assert {"said", "an error"} <= {*lines} and lines[-1] == f"==PROF== Report: {below.folder / 'x.ncu-rep'}"
    assert not any("No attachable process" in line for line in lines)
    below.process.communicate()
    code, said, alone = below.run("well")
    assert (code, below.attached(), alone["imported"]) == (0, "0", False)
    assert f"{WHY}the ncu that was to start it has ended" in said.splitlines()
    # One has a process of its own, and no group of one.
    assert {name: forked[name] for name in ("words", "folder", "path", "variables", "signals")} == {
        name: alone[name] for name in ("words", "folder", "path", "variables", "signals")
    }


def test_each_of_several_runs_is_of_a_fork(below: Below) -> None:
    code, said, _ = below.run("well", "-c 1 --then -c 2 --in-all")
    assert (code, below.attached()) == (0, "2"), said
    made = [json.loads((below.folder / name).read_bytes()[4:]) for name in ("x.ncu-rep", "more/2.ncu-rep")]
    assert [one["stand-in"][one["stand-in"].index("-c") + 1] for one in made] == ["1", "2"]


@pytest.mark.parametrize(("ends", "code"), slow.first([("exit", 3), ("crash", 139), ("early", 3)]))
def test_a_fork_that_fails_ends_the_command_with_its_exit_code(below: Below, ends: str, code: int) -> None:
    found, said, _ = below.run(ends, "-c 1 --then -c 2 --in-all")
    assert found == code and WHY not in said and not (below.folder / "more" / "2.ncu-rep").exists()
    assert below.run("well")[0] == 0 and below.attached() == "1"


def test_a_program_that_does_not_start_cuda_is_told_of_as_by_ncu(below: Below) -> None:
    code, said, told = below.run("none")
    assert (code, told["imported"]) == (0, True) and "==WARNING== No kernels were profiled." in said


@pytest.mark.parametrize(
    ("mode", "code", "line"),
    slow.first(
        [("permission", 1, "==ERROR== ERR_NVGPUCTRPERM"), ("nothing", 0, "==WARNING== No kernels were profiled.")]
    ),
)
def test_what_ncu_says_of_a_fork_is_passed_on(below: Below, mode: str, code: int, line: str) -> None:
    below.process.communicate()
    below.process, below.path = below.start(STANDIN_NCU=mode)
    found, said, told = below.run("well")
    assert (found, told["imported"]) == (code, True) and any(one.startswith(line) for one in said.splitlines())


def test_what_a_fork_leaves_ends_with_it(below: Below) -> None:
    code, _, told = below.run("left")
    assert code == 0 and told["imported"] and not process_tree.is_alive(told["ids"][1])


@pytest.mark.parametrize(
    ("ends", "variables", "why"),
    slow.first(
        [
            ("silent", {}, "it did nothing for 2 s"),
            ("well", {"OMP_NUM_THREADS": "3"}, "the process that was to fork it is busy, or has begun otherwise"),
            ("hang", {}, "it did not wait for ncu to attach"),
        ],
        2,
    ),
)
def test_where_no_fork_can_be_profiled_ncu_starts_the_program(
    below: Below, ends: str, variables: dict[str, str], why: str
) -> None:
    code, said, told = below.run(ends, **variables)
    assert (code, told["imported"], below.attached()) == (0, False, "0")
    assert [line for line in said.splitlines() if line.startswith(WHY + why)], said
    assert below.run("well")[0] == 0 and below.attached() == "1"


@pytest.mark.parametrize(
    ("mode", "why"),
    slow.first(
        [("refused", "ncu could not attach: ==ERROR== Failed to attach"), ("lost", "the ncu that attached to it ended")]
    ),
)
def test_where_ncu_cannot_attach_it_starts_the_program(below: Below, mode: str, why: str) -> None:
    below.process.communicate()
    below.process, below.path = below.start(STANDIN_ATTACH=mode)
    code, said, told = below.run("silent")
    assert (code, told["imported"], below.attached()) == (0, False, "0")
    assert [line for line in said.splitlines() if line.startswith(WHY + why)], said


def test_one_program_at_a_time_uses_a_server(below: Below) -> None:
    below.run("well")
    around = surroundings.describe(PYTHON)
    words = ["python", "-m", "told", str(below.folder / "other"), "none"]
    sleeping = ["python", "-m", "told", str(below.folder / "late"), "late"]
    with closing(fork_client.Profiled(below.path, sleeping, below.variables, around, [])) as first:
        assert first.process
        with closing(fork_client.Profiled(below.path, words, below.variables, around, [])) as second:
            assert second.process == 0
    wait_for_ends([first.process])


def test_a_program_is_forked_in_its_turn(below: Below, tmp_path: Path) -> None:
    (tmp_path / "turn").mkdir()
    with closing(TurnGate(tmp_path / "turn")) as gate, below.begin("well", **{TURN: str(tmp_path / "turn")}) as command:
        wait(gate.wanted)
        assert not (tmp_path / "out").exists()
        gate.open()
        said, _ = command.communicate(timeout=60)
    assert (command.returncode, below.attached()) == (0, "1"), said


@pytest.mark.parametrize("number", slow.only([signal.SIGTERM, signal.SIGKILL, None], signal.SIGTERM, None))
def test_a_fork_ends_with_its_command_or_its_server(below: Below, number: int | None) -> None:
    with below.begin("late") as command:
        wait((below.folder / "out").exists)
        ids = json.loads((below.folder / "out").read_text())["ids"]
        if number:
            command.send_signal(number)
        else:
            # The server ends with its run.
            below.process.communicate(timeout=20)
        command.communicate(timeout=20)
    wait_for_ends(ids)
    if number:
        assert below.run("well")[0] == 0 and below.attached() == "1"
    else:
        assert command.returncode == 137


@pytest.mark.parametrize("more", ["--call-stack", "--replay-mode application", "--replay-mode app-range"])
def test_options_with_which_ncu_starts_the_program(more: str) -> None:
    words = f"ncu {more} --target-processes all --nvtx --nvtx-push-pop-scope process --export x run".split()
    assert not ncu.attach_command(words, ["s", "1", "2"], Path("n"), SAMPLED)


def test_only_samples_have_their_ranges_from_the_census() -> None:
    words = ["ncu", "--target-processes", "all", "--nvtx", "--nvtx-push-pop-scope", "process", "--export", "x", "run"]
    assert ncu.attach_command(words, ["s", "1", "2"], Path("n"), SAMPLED)
    assert not ncu.attach_command(words, ["s", "1", "2"], Path("n"), None)
    assert not ncu.attach_command(words, ["s", "1", "2"], Path("n"), {**SAMPLED, "error": None})
