"""Tables of threads: time on and off the CPU, the calls in which they left, and samples, on traces known by heart."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables
from profzoo.tables import step_timeline
from profzoo.tools.nsys import host_schema, host_tables
from tests.written_threads import AUTOGRAD, HOLDER, MAIN, RUNS, SLEEPS, WORKER, Trace

TABLES = {
    "threads": host_schema.THREADS,
    "off_cpu": host_schema.OFF_CPU,
    "samples": host_schema.SAMPLES,
    "idle": host_schema.IDLE,
}
STACK = [("dot", "libblas.so"), ("forward", "libtorch.so"), ("[Max depth]", "[Max depth]")]
# Two steps. In the first, the main thread is on core 0, waits for a file, goes on on core 1, and is taken from it. A
# worker of another process runs in the second step alone.
TRACE = Trace(
    ranges=[("step", 0, 1000, MAIN), ("step", 1000, 2000, MAIN)],
    os_calls=[("read", 190, 510, MAIN), ("fopen", 195, 300, MAIN), ("poll", 1100, 1800, AUTOGRAD)],
    calls=[("cudaStreamSynchronize_v3020", 1400, 1600, 5, MAIN)],
    switches=[
        (200, MAIN, 0, False, SLEEPS), (500, MAIN, 1, True, 0),
        (700, MAIN, 1, False, RUNS), (750, MAIN, 1, True, 0),
        (1450, MAIN, 1, False, SLEEPS), (1550, MAIN, 1, True, 0),
        (1100, AUTOGRAD, 2, True, 0), (1120, AUTOGRAD, 2, False, SLEEPS),
        (1200, WORKER, 3, True, 0), (1900, WORKER, 3, False, SLEEPS),
    ],
    samples=[(100, MAIN, STACK), (600, MAIN, STACK), (650, MAIN, STACK[1:]), (1700, MAIN, [("0xbeef", "libx.so")]),
             (1500, WORKER, [("decode", "libjpeg.so")]), (2500, MAIN, STACK)],
    names={MAIN: "python3", AUTOGRAD: "pt_autograd_0", WORKER: "pt_data_worker"},
)  # fmt: skip


def made(path: Path, trace: Trace = TRACE, without: tuple[str, ...] = ()) -> dict[str, pd.DataFrame]:
    """The tables of a trace as they are written and read again, with all checks of their declarations."""
    export = trace.write(path / "t.sqlite", without)
    (path / "t.json").write_text(json.dumps({"capture": "window"}))
    outputs = {name: str(path / f"{name}.csv") for name in TABLES}
    host_tables.main(str(export), str(path / "t.json"), outputs)
    return {name: csv_tables.read(outputs[name], table) for name, table in TABLES.items()}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    return made(tmp_path_factory.mktemp("threads"))


def row(table: pd.DataFrame, step: int, thread: int) -> pd.Series:
    (_, found), = table[(table["step"] == step) & (table["thread"] == thread)].iterrows()  # fmt: skip
    return found


def test_a_thread_is_on_the_cpu_or_off_it(tables: dict[str, pd.DataFrame]) -> None:
    threads = tables["threads"]
    first = row(threads, 0, 7)
    assert (first["running_ns"], first["off_ns"], first["lost_ns"]) == (200 + 200 + 250, 300 + 50, 0)
    assert (first["preempted_ns"], first["switches"], first["cores"], first["migrations"]) == (50, 2, 2, 1)
    # For 200 ns on core 0, and then for 450 ns on core 1.
    assert first["core"] == 1 and row(threads, 1, 9)["core"] == 3
    assert (first["name"], first["runs_step"], first["process"], first["wall_ns"]) == ("python3", True, 7, 1000)
    # What is within another call is no call of its own.
    assert (first["os_calls"], first["os_call_ns"], first["cuda_calls"]) == (1, 320, 0)
    assert (first["left_in"], first["left_in_ns"]) == ("read", 300)
    second = row(threads, 1, 7)
    assert (second["running_ns"], second["off_ns"], second["left_in"]) == (900, 100, "cudaStreamSynchronize")
    assert (second["cuda_calls"], second["cuda_call_ns"], second["os_calls"]) == (1, 200, 0)


def test_threads_have_rows_in_steps_in_which_they_did_anything(tables: dict[str, pd.DataFrame]) -> None:
    threads = tables["threads"]
    assert list(zip(threads["process"], threads["step"], threads["thread"], strict=True)) == [
        (7, 0, 7), (7, 1, 7), (7, 1, 8), (9, 1, 9),
    ]  # fmt: skip
    worker, autograd = row(threads, 1, 9), row(threads, 1, 8)
    assert (worker["running_ns"], worker["off_ns"], worker["name"]) == (700, 300, "pt_data_worker")
    assert (worker["left_in"], worker["runs_step"]) == ("", False)
    # Off the CPU it polled but for the time before.
    assert (autograd["running_ns"], autograd["left_in"], autograd["left_in_ns"]) == (20, "poll", 880)


def test_numbers_of_cores_and_threads_are_whole(tmp_path: Path) -> None:
    """Others are missing beside them: those of a thread that did not run, and of a wait that nobody ended."""
    wakes = [*TRACE.os_calls, ("pthread_cond_wait", 1610, 1700, MAIN), ("pthread_cond_signal", 1650, 1660, HOLDER)]
    made(tmp_path, replace(TRACE, os_calls=wakes))
    for name, column, number in (("threads", "core", "1"), ("idle", "woken_by", "11")):
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            assert {row[column] for row in csv.DictReader(file)} >= {"", number}, name


def test_threads_of_nsys_itself_are_left_out(tmp_path: Path) -> None:
    """They run in the traced process, too, and nothing of the program depends on them."""
    tool = WORKER + 1
    own = replace(
        TRACE,
        switches=[*TRACE.switches, (1300, tool, 3, True, 0), (1400, tool, 3, False, SLEEPS)],
        samples=[*TRACE.samples, (1350, tool, STACK)],
        os_calls=[*TRACE.os_calls, ("poll", 1310, 1390, tool)],
        names={**TRACE.names, tool: "[NSys]"},
    )
    found = made(tmp_path, own)
    for name, table in found.items():
        assert len(table) and "[NSys]" not in set(table["name"]), name
        assert not set(table["thread"]) - {7, 8, 9}


def test_calls_add_up_to_the_time_off_the_cpu(tables: dict[str, pd.DataFrame]) -> None:
    off = tables["off_cpu"]
    sums = off.groupby(["process", "step", "thread"])["off_ns"].sum()
    threads = tables["threads"].set_index(["process", "step", "thread"])["off_ns"]
    assert threads[threads > 0].to_dict() == sums.to_dict()
    main = off[(off["thread"] == 7) & (off["step"] == 0)].set_index("os_call")
    assert main["off_ns"].to_dict() == {"read": 300, "": 50}
    assert main["preempted_ns"].to_dict() == {"read": 0, "": 50} and main["switches"].to_dict() == {"read": 1, "": 1}
    waited = off[off["cuda_call"] == "cudaStreamSynchronize"]
    assert waited[["step", "os_call", "off_ns", "longest_ns"]].values.tolist() == [[1, "", 100, 100]]


def test_samples_name_functions_and_who_called_them(tables: dict[str, pd.DataFrame]) -> None:
    samples = tables["samples"]
    mine = samples[samples["thread"] == 7].set_index("function")
    # Three of the four within steps are in the first step; the one after the last step counts nowhere.
    assert mine["samples"].to_dict() == {"dot": 2, "forward": 1, "[unresolved]": 1}
    assert mine["stack_samples"].to_dict() == {"dot": 2, "forward": 3, "[unresolved]": 1}
    assert mine["share"].sum() == 1 and mine.loc["forward", "stack_share"] == 0.75
    assert mine["module"].to_dict() == {"dot": "libblas.so", "forward": "libtorch.so", "[unresolved]": "libx.so"}
    first = row(tables["threads"], 0, 7)
    assert (first["samples"], first["function"], first["function_share"]) == (3, "dot", pytest.approx(2 / 3))
    assert row(tables["threads"], 1, 8)["samples"] == 0


def test_a_lost_switch_leaves_time_of_which_nothing_is_known(tmp_path: Path) -> None:
    switches = [(100, MAIN, 0, True, 0), (400, MAIN, 1, True, 0), (900, MAIN, 1, False, SLEEPS)]
    trace = Trace(ranges=[("step", 0, 1000, MAIN)], switches=switches)
    found = row(made(tmp_path, trace)["threads"], 0, 7)
    assert (found["off_ns"], found["lost_ns"], found["running_ns"]) == (100 + 100, 300, 500)


@pytest.mark.parametrize("lacking", ["SCHED_EVENTS", "SCHED_EVENTS.isSchedIn"])
def test_without_switches_nothing_is_said_of_time_on_the_cpu(
    tmp_path: Path, lacking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = made(tmp_path, without=(lacking,))
    first = row(tables["threads"], 0, 7)
    unknown = [
        "running_ns",
        "off_ns",
        "lost_ns",
        "preempted_ns",
        "switches",
        "core",
        "cores",
        "migrations",
        "left_in_ns",
    ]
    assert first[unknown].isna().all() and first["os_call_ns"] == 320 and tables["off_cpu"].empty
    said = capsys.readouterr().out
    assert ("set nsys.cpuctxsw" if lacking == "SCHED_EVENTS" else "has no column isSchedIn") in said


def test_what_an_older_nsys_does_not_tell_stays_empty(tmp_path: Path) -> None:
    """nsys 2023 has neither states of threads that leave, nor cycles of samples in every export."""
    tables = made(
        tmp_path,
        without=(
            "SCHED_EVENTS.threadState",
            "SCHED_EVENTS.threadBlock",
            "SCHED_EVENTS.cpu",
            "COMPOSITE_EVENTS.cpuCycles",
        ),
    )
    assert tables["threads"]["core"].isna().all()
    first = row(tables["threads"], 0, 7)
    assert np.isnan(first["preempted_ns"]) and first["off_ns"] == 350 and first["samples"] == 3
    assert tables["off_cpu"]["preempted_ns"].isna().all()


def test_without_samples_or_calls_the_rest_is_as_before(tmp_path: Path) -> None:
    tables = made(tmp_path, without=("COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS", "OSRT_API"))
    first = row(tables["threads"], 0, 7)
    assert first[["samples", "os_calls", "os_call_ns", "function_share"]].isna().all() and first["function"] == ""
    assert (first["running_ns"], first["left_in"]) == (650, "") and tables["samples"].empty


def test_samples_without_stacks_have_no_function(tmp_path: Path) -> None:
    tables = made(tmp_path, without=("SAMPLING_CALLCHAINS",))
    assert tables["samples"].empty and row(tables["threads"], 0, 7)["function"] == ""


def test_only_what_was_asked_for_and_is_not_there_goes_to_the_console(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = TRACE.write(tmp_path / "t.sqlite", ["SCHED_EVENTS", "COMPOSITE_EVENTS"])
    command = ["nsys", "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=process-tree"]
    (tmp_path / "t.json").write_text(json.dumps({"capture": "window", "command": command}))
    said: list[str] = []
    host_tables.main(
        str(export), str(tmp_path / "t.json"), {name: str(tmp_path / name) for name in TABLES}, said.append
    )
    # Whoever has set nsys.cpuctxsw is not told to set it, neither here nor below the typical step.
    why = (
        "the trace holds no context switches, so time on and off the CPU is unknown: nsys was asked for them and "
        "recorded none; `snakemake doctor` says whether this machine allows it"
    )
    assert said == [f"{export}: {why}"]
    assert "set nsys.sample to process-tree" in capsys.readouterr().out
    step_timeline.main(str(export), str(tmp_path / "t.json"), str(tmp_path / "step.json"), str(tmp_path / "tracks.csv"))
    not_collected = json.loads((tmp_path / "step.json").read_text())["not_collected"]
    assert why in not_collected and not any("set nsys.cpuctxsw" in line for line in not_collected)
    # Nor to trace CUDA who traces it, and on a CPU nobody misses streams.
    for facts, streams in (({}, ["the step has no work on a GPU"]), ({"device_type": "cpu"}, [])):
        (tmp_path / "t.json").write_text(json.dumps({"capture": "window", "command": command, **facts}))
        step_timeline.main(*(str(tmp_path / name) for name in ("t.sqlite", "t.json", "step.json", "tracks.csv")))
        not_collected = json.loads((tmp_path / "step.json").read_text())["not_collected"]
        assert [line for line in not_collected if "work on a GPU" in line] == streams


def test_a_trace_without_steps_has_empty_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = made(tmp_path, Trace(os_calls=TRACE.os_calls, switches=TRACE.switches))
    assert all(table.empty for table in tables.values())
    assert "has no row, as" in capsys.readouterr().out
