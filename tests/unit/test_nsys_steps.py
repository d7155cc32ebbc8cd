"""Where the window's time goes: on small traces, also where two things happen at one ns, and on a recording of an H200."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.range_names import make_nvtx_name
from profzoo.tools.nsys.events import trace as nsys_trace
from profzoo.tools.nsys.steps import steps as nsys_steps

NAMES = {1: "k", 2: "ncclDevKernel_AllReduce", 10: "cudaLaunchKernel_v7000", 11: "cudaDeviceSynchronize_v3020",
         12: "cudaMemcpyAsync_v3020", 13: "cudaGetDevice_v3020"}  # fmt: skip
LAUNCH, SYNCHRONIZE, COPY, OTHER = 10, 11, 12, 13
TO_HOST, WITHIN = 2, 8
PROCESS = 7 << 24


def trace(
    path: Path,
    ranges: list[tuple],
    calls: list[tuple] = (),
    kernels: list[tuple] = (),
    copies: list[tuple] = (),
    name: str = "t.sqlite",
    graphs: list[tuple] = (),
    gpus: dict[int, int] | None = None,
) -> pd.Series:
    """The one row of a trace of ranges (name, start, end), calls (name, start, end, correlation), kernels (start, end,
    correlation, name), copies (start, end, correlation, kind), and graphs that were traced whole, as kernels; gpus: GPU
    of each kernel by its correlation."""  # fmt: skip
    columns = "start, end, correlationId, globalPid"
    with closing(sqlite3.connect(path / name)) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns}, demangledName)")
        rows = [(start, end, correlation, PROCESS, *(name or (1,))) for start, end, correlation, *name in kernels]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)", rows)
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY ({columns}, copyKind)")
        rows = [(start, end, correlation, PROCESS, *(kind or (WITHIN,))) for start, end, correlation, *kind in copies]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?)", rows)
        if gpus:
            database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN deviceId")
            change = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = ? WHERE correlationId = ?"
            database.executemany(change, [(gpu, number) for number, gpu in gpus.items()])
        if graphs:
            database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE ({columns}, graphId)")
            rows = [(*graph, PROCESS, 3) for graph in graphs]
            database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, correlationId, globalTid, nameId)")
        rows = [(start, end, correlation, PROCESS + 1, name) for name, start, end, correlation in calls]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE NVTX_EVENTS (start, end, globalTid, text, textId, eventType, domainId)")
        rows = [(start, end, PROCESS + 1, make_nvtx_name(name)) for name, start, end in ranges]
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, NULL, 59, 0)", rows)
        database.commit()
    (_, row), = nsys_steps.where_time_goes(path / name).iterrows()  # fmt: skip
    return row


def idle(row: pd.Series) -> dict[str, float]:
    """The causes of idleness that there are."""
    return {cause: row[f"idle_{cause}_ns"] for cause in nsys_steps.CAUSES if row[f"idle_{cause}_ns"]}


def test_two_gpus_of_a_process_that_work_in_turn_idle_half_each(tmp_path: Path) -> None:
    """Of a step of 100 ns, one GPU works from 5 to 50 and the other from 50 to 95."""
    ranges = [("step", 0, 100), ("step", 100, 200)]
    calls = [(LAUNCH, 101, 103, 1), (LAUNCH, 146, 148, 2)]
    kernels = [(105, 150, 1), (150, 195, 2)]
    row = trace(tmp_path, ranges, calls, kernels, gpus={1: 0, 2: 1})
    assert (row["wall_ns"], row["busy_ns"], row["kernel_ns"], row["idle_ns"], row["launches"]) == (100, 45, 45, 55, 2)
    # Latency, launch and host are 2, 2 and 6 ns on the first GPU, and 0, 2 and 8 on the second.
    assert idle(row) == {"turn": 45, "latency": 1, "launch": 2, "host": 7}
    # The same on one GPU, which is idle at both ends alone.
    alone = trace(tmp_path, ranges, calls, kernels, name="alone.sqlite", gpus={1: 0, 2: 0})
    assert (alone["busy_ns"], alone["idle_ns"]) == (90, 10) and "turn" not in idle(alone)
    # At the same time, both work all of it.
    both = trace(tmp_path, ranges, calls, [(105, 195, 1), (105, 195, 2)], name="both.sqlite", gpus={1: 0, 2: 1})
    assert (both["busy_ns"], both["idle_ns"]) == (90, 10) and "turn" not in idle(both)


def test_every_cause_of_idleness(tmp_path: Path) -> None:
    row = trace(
        tmp_path,
        [("step", 0, 100), ("data", 0, 20), ("forward", 20, 90)],
        [(LAUNCH, 30, 35, 1), (SYNCHRONIZE, 50, 75, 2), (OTHER, 80, 85, 3)],
        [(40, 60, 1)],
    )
    # Data 0-20, host 20-30, launch 30-35, on its way 35-40, busy 40-60, waiting 60-75, host 75-100. The CPU waited 10
    # for the busy GPU, so 10 of the 45 for which the queue was empty are the wait's as well.
    left = 35 / 45
    expected = {"input": 20, "host": (10 + 25) * left, "launch": 5 * left, "latency": 5 * left}
    assert idle(row) == pytest.approx({**expected, "synchronisation": 15 + 10})
    assert (row["wall_ns"], row["busy_ns"], row["idle_ns"], row["launches"]) == (100, 20, 80, 1)
    assert (row["launch_call_ns"], row["launch_latency_ns"], row["queue_depth"]) == (5, 10, 0)
    assert (row["cpu_data_ns"], row["cpu_forward_ns"], row["process"]) == (20, 70, 7)


def test_copies_and_communication_beside_other_kernels(tmp_path: Path) -> None:
    calls = [(LAUNCH, 0, 1, 1), (LAUNCH, 1, 2, 2), (COPY, 2, 3, 3)]
    row = trace(tmp_path, [("step", 0, 100)], calls, [(10, 50, 1), (30, 70, 2, 2)], [(60, 90, 3)])
    assert (row["kernel_ns"], row["copy_ns"], row["communication_ns"], row["overlap_ns"]) == (60, 20, 40, 20)
    assert row["busy_ns"] == 80 and row["launches"] == 2


def test_a_graph_that_was_traced_whole_is_busy(tmp_path: Path) -> None:
    calls = [(LAUNCH, 0, 5, 1), (LAUNCH, 45, 48, 2)]
    row = trace(tmp_path, [("step", 0, 100)], calls, [(50, 60, 2)], graphs=[(10, 40, 1), (50, 60, 2)])
    # The kernel that the trace has of the second graph stands for it.
    assert (row["busy_ns"], row["kernel_ns"], row["copy_ns"], row["launches"]) == (40, 40, 0, 2)
    assert row["idle_ns"] == 60


def test_a_step_without_gpu_work_is_all_the_cpus(tmp_path: Path) -> None:
    row = trace(tmp_path, [("step", 0, 50), ("data", 0, 10)])
    assert idle(row) == {"input": 10, "host": 40} and row["launches"] == 0 and pd.isna(row["queue_depth"])


@pytest.mark.parametrize(("off", "closes"), [(0, True), (2, True), (-2, True), (2.5, False), (-2.5, False)])
def test_idle_and_busy_time_close_to_a_ns_and_a_millionth(off: float, closes: bool) -> None:
    """Of a step of 1 ms, 2 ns may be lost by rounding: one, and a millionth."""
    row = pd.DataFrame({"busy_ns": [400_000.0, 400_000.0], "idle_ns": [600_000.0, 600_000.0 + off], "wall_ns": 1e6})
    said = nsys_steps._adds_up(row)
    assert said is None if closes else said == "row 2: busy_ns and idle_ns are not wall_ns"


@pytest.mark.parametrize(("call", "host"), [(100_000, 200_000), (100_001, 100_000)])
def test_a_launch_that_waits_for_room_is_no_work_of_the_cpu(tmp_path: Path, call: int, host: int) -> None:
    """Longer than 100 us only: of the step of 200 us the GPU is busy from 10 ns on, for as long as the call lasts."""
    calls = [(LAUNCH, 0, 5, 1), (LAUNCH, 9, 9 + call, 2)]
    row = trace(tmp_path, [("step", 0, 200_000)], calls, [(10, 200_000, 1), (200_000, 200_100, 2)])
    # Its first ns, before the GPU began, is the CPU's own.
    assert row["host_ns"] == host
    assert (row["wall_ns"], row["launches"]) == (200_100, 2)


def test_which_copies_cross_and_which_calls_wait(tmp_path: Path) -> None:
    """Each kind of copy for 10 ns: those between host and device, and arrays, cross."""
    kinds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    copies = [(20 * kind, 20 * kind + 10, kind, kind) for kind in kinds]
    row = trace(tmp_path, [("step", 0, 300)], [(SYNCHRONIZE, 5, 295, 99)], [], copies)
    assert (row["copy_ns"], row["transfer_ns"], row["kernel_ns"]) == (100, 40, 0)
    with nsys_trace.open_trace(tmp_path / "t.sqlite") as opened:
        waits = opened.calls
    assert waits[["launches", "copies", "waits"]].to_numpy().tolist() == [[False, False, True]]


def launched(*rows: tuple[float, float, float, float]) -> pd.DataFrame:
    """Kernels by when their call began and ended, and when they did."""
    return pd.DataFrame(rows, columns=["start_call", "end_call", "start", "end"])


@pytest.mark.parametrize(
    ("rows", "latency", "depth"),
    [
        # The second is launched at the very ns at which the GPU has done the first: it waits 6, the first 10.
        ([(10, 12, 20, 40), (40, 42, 46, 50)], 8, 0),
        # One ns earlier the GPU is busy.
        ([(10, 12, 20, 40), (39, 42, 46, 50)], 10, 0),
        # The GPU runs the first until 100, though the second, beside it, has ended: the third meets a busy one.
        ([(10, 12, 20, 100), (25, 26, 30, 40), (50, 52, 130, 140)], 10, 0),
        # The third is made as the second begins, which has not begun before that: 0, 1 and 1 wait.
        ([(10, 12, 20, 60), (15, 16, 60, 70), (60, 62, 80, 90)], 10, 1),
        # The first meets an idle GPU, the second is made while that runs, the third before both began, and one later.
        ([(10, 14, 20, 80), (40, 46, 80, 120), (45, 47, 120, 130), (200, 212, 230, 240)], 20, 0),
        # Two calls at one ns: neither is made before the other.
        ([(10, 12, 20, 30), (10, 12, 24, 30)], 12, 0),
    ],
)
def test_a_launch_meets_an_idle_gpu_once_that_is_done(rows: list[tuple], latency: float, depth: float) -> None:
    for order in (rows, rows[::-1]):
        found = nsys_steps._queue(launched(*order))
        assert (found["launch_latency_ns"], found["queue_depth"]) == (latency, depth)


def test_without_a_call_nothing_is_known_of_the_queue() -> None:
    found = nsys_steps._queue(launched((np.nan, np.nan, 20, 30)))
    assert list(found) == nsys_steps.MISSING and all(np.isnan(value) for value in found.values())
    # One that has none is in no median.
    both = nsys_steps._queue(launched((np.nan, np.nan, 5, 8), (10, 14, 20, 30)))
    assert both == {"launch_call_ns": 4, "launch_latency_ns": 10, "queue_depth": 0}


@pytest.mark.parametrize(
    ("calls", "counts", "begins", "ends"),
    [
        # Of steps from 100 to 200 and from 200 to 300: launched in the first, as the second begins, as it ends, behind it.
        ([199, 200, 300, 301], [200, 300], 250, 420),
        ([np.nan, 200, 300, 301], [200, 300], 200, 420),
    ],
)
def test_a_step_has_what_is_launched_from_its_first_ns_to_its_last(
    calls: list[float], counts: list[float], begins: int, ends: int
) -> None:
    """It begins once the GPU is done with what was launched before, and ends once it is done with its own."""
    steps = pd.DataFrame({"start": [100, 200], "end": [200, 300]})
    activity = pd.DataFrame({"start_call": calls, "start": [210, 260, 400, 500], "end": [250, 300, 420, 510]})
    activity.loc[activity["start_call"].isna(), ["start", "end"]] = [310, 320]
    found = nsys_steps.counted_steps(steps, activity)
    assert found.steps == 1 and found.on_cpu.tolist() == [[200, 300]]
    assert found.activity["start_call"].dropna().tolist() == counts and found.span.tolist() == [[begins, ends]]


def test_a_step_that_is_alone_begins_with_itself() -> None:
    """Whatever the GPU was still at, and it ends with the CPU's part where that is later."""
    steps = pd.DataFrame({"start": [100], "end": [200]})
    activity = pd.DataFrame({"start_call": [50, 120], "start": [90, 130], "end": [140, 150]})
    found = nsys_steps.counted_steps(steps, activity)
    assert (found.steps, found.span.tolist(), found.on_cpu.tolist()) == (1, [[100, 200]], [[100, 200]])
    assert found.activity["start_call"].tolist() == [120]


def spans(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@pytest.mark.parametrize(
    ("waited", "causes"),
    [
        # 40 ns idle with nothing queued: 10 of latency, 10 of a launch, 20 of the host; a wait takes equal parts.
        (0, {"synchronisation": 0, "latency": 10, "launch": 10, "host": 20}),
        (20, {"synchronisation": 20, "latency": 5, "launch": 5, "host": 10}),
        (40, {"synchronisation": 40, "latency": 0, "launch": 0, "host": 0}),
        # The CPU cannot be further ahead than that.
        (50, {"synchronisation": 40, "latency": 0, "launch": 0, "host": 0}),
    ],
)
def test_what_a_wait_costs_is_taken_from_what_was_idle_with_nothing_queued(waited: int, causes: dict) -> None:
    whole = spans((0, 40))
    covers = {"input": spans(), "turn": spans(), "synchronisation": spans(), "latency": spans((0, 10)), "launch": spans((5, 20)),
              "host": whole}  # fmt: skip
    assert nsys_steps._causes(whole, covers, whole, waited) == {"input": 0, "turn": 0, **causes}
    # Where something was queued, it is the GPU's own.
    kept = nsys_steps._causes(whole, covers, spans(), waited)
    assert kept == {"input": 0, "turn": 0, "synchronisation": 0, "latency": 10, "launch": 10, "host": 20}


def test_idleness_is_queued_where_something_was_launched_before_it_began() -> None:
    """Idle to 20, from 30 to 50, from 60 to 80, and from 90 on; launched at 5, 30, 55 and nothing."""
    gaps = spans((0, 20), (30, 50), (60, 80), (90, 100))
    activity = launched((5, 6, 20, 30), (30, 31, 50, 60), (55, 56, 80, 90))[["start_call", "start"]]
    # As the gap from 30 to 50 begins, its launch is being made: nothing was queued before.
    assert nsys_steps.unqueued_spans(gaps, activity).tolist() == [[0, 20], [30, 50], [90, 100]]
    # What was launched at 10 and comes last was queued all the time from then on.
    late = pd.concat([activity, pd.DataFrame({"start_call": [10.0], "start": [100]})])
    assert nsys_steps.unqueued_spans(gaps, late).tolist() == [[0, 20]]
    # Without a call it was launched when it began.
    alone = pd.DataFrame({"start_call": [np.nan], "start": [20]})
    assert nsys_steps.unqueued_spans(spans((0, 20)), alone).tolist() == [[0, 20]]


@pytest.mark.parametrize(
    ("call", "ends", "results", "at_all"),
    [
        # The GPU is busy from 10 to 300,000. Another call is not a wait however long it takes, nor is a launch of 100 us.
        ((OTHER, 20, 200_020), 300_000, 0, 0),
        ((LAUNCH, 20, 100_020), 300_000, 0, 0),
        ((LAUNCH, 20, 100_021), 300_000, 0, 100_001),
        # A copy is one where it returns with what it copied, or behind; a launch is not.
        ((COPY, 20, 120), 120, 100, 100),
        ((COPY, 20, 120), 121, 0, 0),
        ((LAUNCH, 20, 120), 120, 0, 0),
        ((SYNCHRONIZE, 20, 120), 300_000, 100, 100),
        # Only in the window, and while the GPU is busy.
        ((SYNCHRONIZE, 0, 120), 300_000, 110, 110),
        ((SYNCHRONIZE, 20, 500_000), 300_000, 299_980, 299_980),
    ],
)
def test_in_which_calls_the_cpu_waits(call: tuple[int, int, int], ends: int, results: int, at_all: int) -> None:
    kind, begin, end = call
    calls = pd.DataFrame({"start": [begin], "end": [end], "correlation": [1], "launches": [kind in (LAUNCH, COPY)],
                          "copies": [kind == COPY], "waits": [kind == SYNCHRONIZE]})  # fmt: skip
    activity = pd.DataFrame({"start": [10, 15], "end": [300_000, ends], "correlation": [2, 1]})
    assert nsys_steps.waited_ns(calls, activity, spans((0, 400_000))) == (results, at_all)


def test_what_the_gpu_did_is_a_kernel_one_that_communicates_or_crosses(tmp_path: Path) -> None:
    """A kernel is not a copy though the number of its name is a kind of copy's, and the other way round."""
    kernels, copies = [(10, 20, 1), (20, 30, 2, 2)], [(30, 40, 3, TO_HOST), (40, 50, 4, WITHIN)]
    trace(tmp_path, [("step", 0, 100)], [], kernels, copies, graphs=[(50, 60, 5)])
    with nsys_trace.open_trace(tmp_path / "t.sqlite") as opened:
        found = opened.operations
    assert found[["start", "end", "correlation", "process", "kernel", "talking", "crossing"]].to_numpy().tolist() == [
        [10, 20, 1, PROCESS, True, False, False], [20, 30, 2, PROCESS, True, True, False],
        [50, 60, 5, PROCESS, True, False, False],
        [30, 40, 3, PROCESS, False, False, True], [40, 50, 4, PROCESS, False, False, False],
    ]  # fmt: skip


def test_a_graph_that_was_traced_whole_is_work_of_its_gpu(tmp_path: Path) -> None:
    """One GPU runs a kernel and the other one a graph, for 10 ns each."""
    trace(tmp_path, [("step", 0, 100)], [], [(10, 20, 1)], graphs=[(50, 60, 5)])
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as database:
        for gpu, kind in enumerate(("KERNEL", "GRAPH_TRACE")):
            database.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_{kind} ADD COLUMN deviceId DEFAULT {gpu}")
        database.commit()
    (row,) = nsys_steps.where_time_goes(tmp_path / "t.sqlite").to_dict("records")
    assert (row["busy_ns"], row["idle_ns"], row["launches"]) == (10, 90, 2)


def test_of_calls_that_begin_together_the_longer_one_is_around_the_other(tmp_path: Path) -> None:
    calls = [(LAUNCH, 10, 12, 1), (LAUNCH, 10, 20, 1), (COPY, 5, 7, 2)]
    trace(tmp_path, [("step", 0, 100)], calls, [(30, 40, 1)])
    with nsys_trace.open_trace(tmp_path / "t.sqlite") as opened:
        found = opened.launching_calls.sort_values("correlation")
    assert found[["correlation", "start", "end"]].to_numpy().tolist() == [[1, 10, 20], [2, 5, 7]]
