"""What the host waited for while a real GPU was idle, by a program whose own clocks measure its waits.

The runs of nsys take about a minute together. `-s` shows what was found beside what the program measured.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from profzoo.cli import session_run
from profzoo.config import configuration
from profzoo.foreign_reports import nsys_import
from profzoo.machine import external_programs
from profzoo.tools.nsys import command, sessions
from profzoo.tools.nsys.events.host_events import SWITCHES, HostEvents
from profzoo.tools.nsys.events.trace import open_trace, read_window_steps
from profzoo.tools.nsys.host import host_tables
from profzoo.tools.nsys.pictures import tracks
from profzoo.tools.nsys.steps import steps as nsys_steps
from tests.scripts import known_waits

PROGRAM = known_waits.__file__
DEVICE, ON_GPU = "cuda", True
STEPS = 6
FILES = "--osrt-file-access"
# The first step is left out of what is told per step.
COUNTED = slice(1, None)
# Python's part of a wait, which the program's clock measures and nsys does not.
PYTHON_NS = 2e5


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the program, by the options that the workflow gives nsys; measured.json lies beside it."""
    folder = tmp_path_factory.mktemp("host")
    given = {"sample": "process-tree", "cpuctxsw": "process-tree", "backtrace": "fp", "capture": "run"}
    if FILES in external_programs.ask_program(["nsys", "profile", "--help"]).stdout:
        given["extra"] = [f"{FILES}=true"]
    words = command.options(configuration.normalise_config({"nsys": given})["nsys"])
    program = [sys.executable, PROGRAM, "--device", DEVICE, "--steps", str(STEPS)]
    whole = [*command.wrap_command(words, {"report": folder / "t.nsys-rep"}, 1), *program]
    run = subprocess.run(
        [*command.adapt_command(whole, ON_GPU), "--measured", str(folder / "measured.json")],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    print(run.stdout[-2000:] + run.stderr[-2000:])
    return folder / "t.sqlite"


@pytest.fixture(scope="module")
def measured(export: Path) -> dict:
    return json.loads((export.parent / "measured.json").read_text())


@pytest.fixture(scope="module")
def made(export: Path) -> tuple[dict[str, pd.DataFrame], HostEvents]:
    return host_tables.make_tables(str(export), whole_run=True)


@pytest.fixture(scope="module")
def tables(made: tuple[dict[str, pd.DataFrame], HostEvents]) -> dict[str, pd.DataFrame]:
    return made[0]


def mean(measured: dict, wait: str) -> float:
    own = measured[wait][COUNTED]
    return sum(own) / len(own)


def test_idle_time_by_call_is_what_the_program_waited(
    made: tuple[dict[str, pd.DataFrame], HostEvents], measured: dict
) -> None:
    tables, events = made
    idle = tables["idle"]
    print(idle.to_string())
    main = idle[idle["thread"] == measured["threads"]["main"]]
    found = {
        "sleep": main.loc[main["os_call"] == "clock_nanosleep", "idle_ns"].sum(),
        # Which call a lock of Python uses differs between its versions.
        "lock": main.loc[main["kind"] == "lock", "idle_ns"].sum(),
        "read": main.loc[main["os_call"] == "read", "idle_ns"].sum(),
        "poll": main.loc[main["os_call"] == "poll", "idle_ns"].sum(),
    }
    for wait, ns in found.items():
        print(f"{wait}: {ns / 1e6:.3f} ms by nsys, {mean(measured, wait) / 1e6:.3f} ms by the program")
    for wait, ns in found.items():
        assert ns == pytest.approx(mean(measured, wait), rel=0.02, abs=PYTHON_NS), wait
    lock = main[main["kind"] == "lock"].sort_values("idle_ns").iloc[-1]
    reader = main[main["os_call"] == "read"].sort_values("idle_ns").iloc[-1]
    print(f"accesses by file: {events.files['file'].value_counts().head(10).to_dict()}")
    # Whether nsys tells pipes with names is its own affair.
    assert reader["file"] == (known_waits.PIPE if known_waits.PIPE in set(events.files["file"]) else "")
    print(f"woken by: lock {lock['woken_by']}, reader {reader['woken_by']}; threads {measured['threads']}")
    # A release of nsys may leave out calls as short as those that end the wait for a lock; a write takes microseconds.
    assert lock["woken_by"] == measured["threads"]["holder"] or pd.isna(lock["woken_by"])
    assert reader["woken_by"] == measured["threads"]["writer"]


def test_autograds_thread_is_the_one_that_is_waited_for_in_the_backward_pass(
    tables: dict[str, pd.DataFrame], measured: dict
) -> None:
    """Meanwhile the main thread waits for autograd's, which is no reason for anything."""
    idle = tables["idle"]
    own = idle[(idle["thread"] == measured["threads"]["autograd"]) & (idle["os_call"] == "clock_nanosleep")]
    assert own["idle_ns"].sum() == pytest.approx(mean(measured, "backward"), rel=0.02, abs=PYTHON_NS)
    assert own["name"].str.contains("autograd").all()
    main = idle[(idle["thread"] == measured["threads"]["main"]) & (idle["kind"] == "condition")]
    assert main["idle_ns"].sum() < 0.1 * mean(measured, "backward")


def test_calls_add_up_to_the_idle_time(tables: dict[str, pd.DataFrame], export: Path) -> None:
    (row,) = nsys_steps.where_time_goes(export, whole_run=True).itertuples()
    sums = tables["idle"].groupby("cause")["idle_ns"].sum()
    for cause in nsys_steps.CAUSES:
        assert sums.get(cause, 0) == pytest.approx(getattr(row, f"idle_{cause}_ns"), rel=1e-6, abs=1), cause
    assert sums.sum() == pytest.approx(row.idle_ns) and row.busy_ns > 0


def test_time_on_the_cpu_is_what_the_kernel_accounts(
    made: tuple[dict[str, pd.DataFrame], HostEvents], measured: dict
) -> None:
    tables, events = made
    threads = tables["threads"]
    mine = threads[threads["thread"] == measured["threads"]["main"]]
    print(mine.T.to_string())
    assert len(mine) == STEPS and mine["runs_step"].all() and (mine["cuda_calls"] > 5).all()
    if SWITCHES in events.lacking:
        assert mine["running_ns"].isna().all()
        pytest.skip(f"this machine does not let nsys trace context switches: {events.lacking[SWITCHES]}")
    print(
        f"on the CPU: {mine['running_ns'].sum() / 1e6:.3f} ms by nsys, {sum(measured['cpu']) / 1e6:.3f} ms by the kernel"
    )
    assert mine["running_ns"].sum() == pytest.approx(sum(measured["cpu"]), rel=0.02, abs=PYTHON_NS * STEPS)
    assert (mine["running_ns"] + mine["off_ns"] + mine["lost_ns"]).tolist() == mine["wall_ns"].tolist()
    assert mine["switches"].sum() == pytest.approx(sum(measured["switches"]), rel=0.02, abs=STEPS)
    print(tables["off_cpu"].to_string())
    off = tables["off_cpu"]
    slept = off[(off["thread"] == measured["threads"]["main"]) & (off["os_call"] == "clock_nanosleep")]
    assert slept["off_ns"].sum() == pytest.approx(sum(measured["sleep"]), rel=0.02, abs=PYTHON_NS * STEPS)
    print(f"states in which threads leave: {sorted(events.switches['state'].unique().tolist())}")


def test_samples_name_functions(made: tuple[dict[str, pd.DataFrame], HostEvents], measured: dict) -> None:
    tables, events = made
    samples = tables["samples"]
    if events.samples.empty:
        pytest.skip("this machine does not let nsys sample the CPU")
    mine = samples[samples["thread"] == measured["threads"]["main"]]
    print(mine.head(15).to_string())
    assert mine["samples"].sum() > 0.3 * sum(measured["cpu"]) / 1e6
    assert mine["share"].sum() == pytest.approx(1)


def test_tracks_show_the_sleep(export: Path, measured: dict) -> None:
    with open_trace(export) as trace:
        steps = read_window_steps(trace, True)
        _, step = list(steps.iterrows())[2]

        class Shown:
            process, begin, end = int(step["process"]), int(step["start"]), int(step["end"])

        calls = tracks.supply_os_calls(trace, Shown())
        states = tracks.supply_thread_states(trace, Shown())
    assert isinstance(calls, pd.DataFrame)
    slept = calls[(calls["track"] == "calls: main thread") & (calls["label"] == "clock_nanosleep")]
    length = (slept["end_ns"] - slept["start_ns"]).sum()
    assert length == pytest.approx(measured["sleep"][2], rel=0.02, abs=PYTHON_NS)
    print(calls["track"].unique(), states if isinstance(states, str) else states["track"].unique())
    if isinstance(states, pd.DataFrame):
        main = states[states["track"] == "main thread"]
        assert (main["end_ns"] - main["start_ns"]).sum() == int(step["end"] - step["start"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The session of the program, which runs until the tests are done."""
    name = f"server{os.getpid()}"
    words = ["nsys", "launch", f"--session-new={name}", "--trace=cuda,nvtx,osrt", sys.executable, PROGRAM]
    with (tmp_path_factory.mktemp("server") / "log").open("w") as log:
        launched = subprocess.Popen(
            [*words, "--device", DEVICE, "--seconds", "240"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + 60
        while not any(one.name == name and one.programs for one in sessions.list_sessions()):
            assert launched.poll() is None and time.monotonic() < until, Path(log.name).read_text()
            time.sleep(0.5)
        # What imports PyTorch has no steps yet.
        time.sleep(20)
        yield name
    finally:
        subprocess.run(["nsys", "shutdown", f"--session={name}", "--kill=sigterm"], check=False, timeout=60)
        launched.wait(60)


def test_a_window_of_a_running_program_is_recorded_and_imported(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert session_run.main(["no" + server, "--seconds", "1"]) == 2
    assert f"did you mean '{server}'?" in capsys.readouterr().err
    assert session_run.main([server, "--seconds", "2", "--name", "run7"]) == 0
    with capsys.disabled():
        print(capsys.readouterr().out)
    assert sessions.find_session(server).state == sessions.LAUNCHED
    outputs = {name: str(tmp_path / f"imported.{name}") for name in ("sqlite", "sidecar")}
    nsys_import.main("run7.nsys-rep", "run7", None, outputs)
    told = json.loads(Path(outputs["sidecar"]).read_text())
    assert told["device_type"] == ("cuda" if ON_GPU else "cpu")
    assert told["imported"]["steps_from"] == "profzoo's own ranges" and told["steps"] >= 5
    idle = host_tables.make_tables(outputs["sqlite"], whole_run=True)[0]["idle"]
    print(idle.to_string())
    main = idle[idle["name"] != "pt_autograd_0"]
    # What the program is told to sleep; a machine wakes it a little later.
    assert 50e6 <= main.loc[main["os_call"] == "clock_nanosleep", "idle_ns"].sum() < 51.5e6
