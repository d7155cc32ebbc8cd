"""Windows of a program that goes on: sessions of a real Nsight Systems, recorded by `python -m profzoo session`."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo.cli import session_run
from profzoo.tools.nsys import sessions
from profzoo.tools.nsys.host import host_tables
from tests.workflow.project import CHECKOUT, copy, use_nsys
from tests.workflow.test_nsys import NSYS
from tests.workflow.test_nsys import pytestmark as pytestmark

PROGRAM = CHECKOUT / "tests" / "scripts" / "known_waits.py"
# A step of the program takes 130 ms.
SECONDS = 1.3
# The program's own time, longer than any test of it.
LIVES_S = 600


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The session of a program that runs until the tests are done."""
    assert NSYS
    name = f"server{os.getpid()}"
    folder = tmp_path_factory.mktemp("server")
    environment = os.environ | {"PYTHONPATH": str(NSYS.parent / "python")}
    words = [NSYS / "nsys", "launch", f"--session-new={name}", "--trace=nvtx,osrt", sys.executable, PROGRAM]
    with (folder / "log").open("w") as log:
        launched = subprocess.Popen(
            [*words, "--seconds", str(LIVES_S)], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{NSYS}:{os.environ['PATH']}")
            until = time.monotonic() + 60
            while not any(one.name == name and one.programs for one in sessions.list_sessions()):
                assert launched.poll() is None and time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.2)
            yield name
    finally:
        subprocess.run([NSYS / "nsys", "shutdown", f"--session={name}", "--kill=sigterm"], check=False, timeout=60)
        launched.wait(60)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which commands are typed."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_window_is_recorded_and_the_program_goes_on(
    server: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert session_run.main([server, "--seconds", str(SECONDS), "--name", "run7"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"recording session {server} for {SECONDS:g} s",
        "report  run7.nsys-rep",
        "import  snakemake import --config nsys=run7.nsys-rep name=run7",
    ]
    assert sessions.find_session(server).state == sessions.LAUNCHED
    export = here / "run7.sqlite"
    words = [NSYS / "nsys", "export", "--type", "sqlite", "--output", export, "run7.nsys-rep"]
    subprocess.run(words, check=True, capture_output=True, timeout=120)
    idle = host_tables.make_tables(str(export), whole_run=True)[0]["idle"].set_index("os_call")["idle_ns"]
    # What the program is told to wait for, each step; a busy machine wakes it later.
    assert 50e6 <= idle["clock_nanosleep"] < 100e6 and 30e6 <= idle["sem_wait"] < 100e6
    # Once more under the same name would replace the first.
    assert session_run.main([server, "--seconds", "1", "--name", "run7"]) == 2
    assert capsys.readouterr().err.startswith("profzoo: run7.nsys-rep exists already: ")


def test_a_window_is_begun_and_ended_by_hand(server: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert session_run.main([server, "--start", "--output", "by-hand.nsys-rep"]) == 0
    assert sessions.find_session(server).state == sessions.COLLECTING
    assert session_run.main([server, "--seconds", "1", "--name", "other"]) == 2
    assert "is being recorded already" in capsys.readouterr().err
    assert session_run.main([]) == 0
    assert f"{server}  is being recorded" in capsys.readouterr().out.splitlines()
    assert session_run.main([server, "--stop"]) == 0 and (here / "by-hand.nsys-rep").stat().st_size
    assert "name=by-hand" in capsys.readouterr().out
    assert session_run.main([server, "--stop"]) == 2
    assert "is not being recorded: begin with --start" in capsys.readouterr().err


def test_a_wrong_name_names_the_right_one_and_makes_no_session(
    server: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """nsys itself would make a session of that name, and record nothing."""
    assert session_run.main([server.upper() + "x", "--seconds", "1"]) == 2
    assert f"did you mean '{server}'?" in capsys.readouterr().err
    assert server.upper() + "x" not in [one.name for one in sessions.list_sessions()]
    assert not list(here.iterdir())


def test_nsys_refuses_in_its_own_words(server: str, here: Path) -> None:
    with pytest.raises(sessions.CollectError, match=r"^`nsys start` failed: Illegal --sample argument: none at all\."):
        sessions.start_window(server, here / "a.nsys-rep", ["--sample=none at all"])


@pytest.mark.slow
def test_an_interrupt_ends_the_window_with_a_report(server: str, here: Path) -> None:
    def interrupted() -> None:
        time.sleep(0.5)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sessions.record_window(server, here / "a.nsys-rep", ["--sample=none", "--cpuctxsw=none"], interrupted)
    assert (here / "a.nsys-rep").stat().st_size and sessions.find_session(server).state == sessions.LAUNCHED


@pytest.mark.slow
def test_the_report_is_imported_at_once(server: str, tmp_path: Path) -> None:
    assert NSYS
    project = copy(tmp_path / "project")
    use_nsys(project, NSYS)
    project.draw_one()
    words = ["session", server, "--seconds", str(SECONDS), "--name", "run7", "--import"]
    run = subprocess.run(
        [sys.executable, "-m", "profzoo", *words],
        cwd=project.root, env=project.environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert {"run7/imported.nsys-idle.csv", "run7/imported.nsys-steps.csv", "report.html"} <= project.files()
    told = json.loads(project.read("results/run7/imported.nsys-rep.json"))
    assert told["imported"]["steps_from"] == "profzoo's own ranges" and told["device"] == "cpu"
    (steps,) = csv.DictReader(io.StringIO(project.read("results/run7/imported.nsys-steps.csv")))
    assert float(steps["wall_ns"]) > 130e6 and float(steps["steps"]) >= 1
