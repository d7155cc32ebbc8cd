"""nsys_steps: where the window's time goes, on small traces with known answers and on a recording of an H200."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profzoo.range_names import make_nvtx_name
from profzoo.tools.nsys import steps as nsys_steps

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
) -> pd.Series:
    """The one row of a trace of ranges (name, start, end), calls (name, start, end, correlation), kernels (start, end,
    correlation, name), copies (start, end, correlation, kind), and graphs that were traced whole, as kernels."""  # fmt: skip
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


def test_a_full_queue_leaves_only_latency(tmp_path: Path) -> None:
    calls = [(LAUNCH, start, start + 1, start) for start in (0, 1, 2, 3)]
    row = trace(tmp_path, [("step", 0, 10)], calls, [(2 + 10 * index, 10 + 10 * index, index) for index in range(4)])
    assert idle(row) == {"latency": 1 + 3 * 2, "launch": 1}
    assert row["queue_depth"] == 1.5  # Of 0, 1, 2 and 2: the first had begun before the fourth was made.
    assert row["launch_latency_ns"] == 2  # The others met a busy GPU.


def test_the_first_step_is_left_out_and_what_it_left_running_is_no_part_of_the_window(tmp_path: Path) -> None:
    row = trace(
        tmp_path,
        [("step", 0, 100), ("step", 100, 200), ("step", 200, 300)],
        [(LAUNCH, 10, 20, 1), (LAUNCH, 110, 120, 2), (LAUNCH, 210, 220, 3)],
        [(50, 150, 1), (150, 250, 2), (250, 340, 3)],
    )
    assert (row["steps"], row["wall_ns"], row["busy_ns"], row["launches"]) == (2, 190 / 2, 190 / 2, 1)


def test_what_comes_after_the_last_step_is_no_part_of_the_window(tmp_path: Path) -> None:
    calls = [(LAUNCH, 10, 20, 1), (LAUNCH, 150, 160, 2)]
    row = trace(tmp_path, [("step", 0, 100)], calls, [(30, 40, 1), (170, 180, 2)])
    assert (row["wall_ns"], row["launches"]) == (100, 1)


def test_copies_and_communication_beside_other_kernels(tmp_path: Path) -> None:
    calls = [(LAUNCH, 0, 1, 1), (LAUNCH, 1, 2, 2), (COPY, 2, 3, 3)]
    row = trace(tmp_path, [("step", 0, 100)], calls, [(10, 50, 1), (30, 70, 2, 2)], [(60, 90, 3)])
    assert (row["kernel_ns"], row["copy_ns"], row["communication_ns"], row["overlap_ns"]) == (60, 20, 40, 20)
    assert row["busy_ns"] == 80 and row["launches"] == 2


def test_kernels_of_one_graph_share_its_launch(tmp_path: Path) -> None:
    row = trace(tmp_path, [("step", 0, 50)], [(LAUNCH, 0, 5, 1)], [(10, 20, 1), (22, 30, 1)])
    assert row["launches"] == 2 and idle(row) == {"launch": 5, "latency": 5 + 2, "host": 20}


def test_a_graph_that_was_traced_whole_is_busy(tmp_path: Path) -> None:
    calls = [(LAUNCH, 0, 5, 1), (LAUNCH, 45, 48, 2)]
    row = trace(tmp_path, [("step", 0, 100)], calls, [(50, 60, 2)], graphs=[(10, 40, 1), (50, 60, 2)])
    # The kernel that the trace has of the second graph stands for it.
    assert (row["busy_ns"], row["kernel_ns"], row["copy_ns"], row["launches"]) == (40, 40, 0, 2)
    assert row["idle_ns"] == 60


def test_the_first_of_two_calls_launches_whatever_their_order(tmp_path: Path) -> None:
    calls = [(LAUNCH, 10, 20, 1), (LAUNCH, 13, 16, 1)]
    rows = [
        trace(tmp_path, [("step", 0, 100)], given, [(30, 40, 1)], name=f"{number}.sqlite")
        for number, given in enumerate((calls, calls[::-1]))
    ]
    for row in rows:
        assert (row["launches"], row["launch_call_ns"], row["launch_latency_ns"]) == (1, 10, 20)


def test_a_step_without_gpu_work_is_all_the_cpus(tmp_path: Path) -> None:
    row = trace(tmp_path, [("step", 0, 50), ("data", 0, 10)])
    assert idle(row) == {"input": 10, "host": 40} and row["launches"] == 0 and pd.isna(row["queue_depth"])


def simulated(path: Path, step: list[tuple[int, int, bool]], waits: bool, steps: int = 6) -> pd.Series:
    """The row of a program whose every step is this list: what the CPU takes to come to a launch, what the GPU takes to
    carry it out, and whether the CPU waits for it before it goes on."""  # fmt: skip
    call, way, clock, free = 2, 3, 0, 0
    ranges, calls, kernels = [], [], []
    for _ in range(steps):
        began = clock
        for host, device, wait in step:
            clock += host
            calls.append((LAUNCH, clock, clock + call, len(kernels)))
            clock += call
            start = max(clock + way, free)
            free = start + device
            kernels.append((start, free, len(kernels)))
            if wait and waits:
                calls.append((SYNCHRONIZE, clock, max(clock, free) + 1, -len(calls)))
                clock = calls[-1][2]
        ranges.append(("step", began, clock))
    return trace(path, ranges, calls, kernels, name=f"{waits}.sqlite")


@pytest.mark.parametrize(
    "step",
    [
        # Six waits a step, of a GPU that is the slower one, the faster one, or now one and then the other.
        [(4, 20, index % 5 == 4) for index in range(30)],
        [(20, 4, index % 5 == 4) for index in range(30)],
        [(4, 20, False)] * 10 + [(4, 20, True)] + [(20, 4, False)] * 10,
        [(20, 4, False)] * 20 + [(4, 40, False)] * 9 + [(4, 40, True)],
        [(10, 12, True)] * 10,
    ],
)
def test_what_waits_cost_is_what_a_step_takes_less_without_them(
    tmp_path: Path, step: list[tuple[int, int, bool]]
) -> None:
    with_waits, without = simulated(tmp_path, step, True), simulated(tmp_path, step, False)
    saved = with_waits["wall_ns"] - without["wall_ns"]
    assert with_waits["idle_synchronisation_ns"] == pytest.approx(saved, abs=0.05 * with_waits["wall_ns"])
    assert without["idle_synchronisation_ns"] == 0
    assert sum(idle(with_waits).values()) == pytest.approx(with_waits["wall_ns"] - with_waits["busy_ns"])


def test_a_gap_between_launches_that_were_queued_is_no_waits_doing(tmp_path: Path) -> None:
    calls = [(LAUNCH, 0, 1, 1), (LAUNCH, 1, 2, 2), (SYNCHRONIZE, 2, 50, 3)]
    row = trace(tmp_path, [("step", 0, 50)], calls, [(2, 20, 1), (24, 50, 2)])
    assert idle(row) == {"latency": 4, "synchronisation": 2}


def test_a_copy_that_returns_when_it_is_done_is_a_wait(tmp_path: Path) -> None:
    # The CPU is ahead until it copies a result: a copy to pageable memory, and one that goes on by itself.
    for ends, waited in ((60, 10), (16, 0)):
        calls = [(LAUNCH, 0, 5, 1), (COPY, 14, ends, 2), (LAUNCH, 80, 85, 3)]
        row = trace(
            tmp_path,
            [("step", 0, 100)],
            calls,
            [(10, 50, 1), (90, 100, 3)],
            [(50, 60, 2, TO_HOST)],
            name=f"{ends}.sqlite",
        )
        assert (row["copy_ns"], row["transfer_ns"]) == (10, 10)
        assert row["idle_synchronisation_ns"] == pytest.approx(min(60 - 14, 40) if waited else 0)


def test_what_the_cpu_takes_without_waiting_for_a_busy_gpu(tmp_path: Path) -> None:
    unit = 100_000
    row = trace(
        tmp_path,
        [("step", 0, 10 * unit)],
        # A launch; one that waits for room in the queue; a wait of which the GPU is busy for the first half.
        [(LAUNCH, 0, unit // 2, 1), (LAUNCH, unit, 3 * unit, 2), (SYNCHRONIZE, 5 * unit, 9 * unit, 3)],
        [(unit // 2, 3 * unit, 1), (3 * unit, 7 * unit, 2)],
    )
    assert row["host_ns"] == (10 - 2 - 2) * unit


def test_a_recording(recording: Callable) -> None:
    (_, row), = nsys_steps.where_time_goes(recording("nsys/train.sqlite")).iterrows()  # fmt: skip
    assert row["launches"] == 475 and row["steps"] == 9
    assert row["busy_ns"] + row["idle_ns"] == pytest.approx(row["wall_ns"])
    assert sum(idle(row).values()) == pytest.approx(row["idle_ns"])
    # The GPU works a fifth of the time; Python and autograd take most of the rest.
    assert 0.15 < row["busy_ns"] / row["wall_ns"] < 0.25 and row["idle_host_ns"] > 0.5 * row["wall_ns"]
    # So the CPU hardly ever waits for it.
    assert 0.95 < row["host_ns"] / row["wall_ns"] <= 1
