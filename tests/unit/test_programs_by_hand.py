"""How a program is made of a trace, taken apart and kept, each number worked out by hand."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.range_names import PARTS
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.nsys import intervals
from profzoo.tools.nsys.launches import PACKS
from profzoo.what_if import host_time, kernel_matching, storage, tables, trace_events
from profzoo.what_if import program as programs
from profzoo.what_if.program import BEGIN, CALL, END
from profzoo.what_if.trace_events import COPY, GRAPH, KERNEL, SET, Events
from tests.simulated import MAIN, PROCESS
from tests.written_programs import BEGINS, ENDS, call, kernel, program


def at(start: float, end: float, **more: Any) -> dict[str, Any]:
    """A call that was measured from then to then."""
    return {"start": start, "end": end, **more}


def test_every_moment_of_the_cpus_time_is_one_part() -> None:
    """Two steps of 100 ns, of which the first does not count; in the second each part is another number of ns."""
    first = [BEGINS | at(0, 0), call(**at(0, 30)), ENDS | at(100, 100)]
    second = [BEGINS | at(100, 100), call(**at(110, 120, input=7)), call(**at(125, 145, waited=12, library=2)),
              call(**at(130, 150)), call(**at(160, 162, input=9, library=9)), ENDS | at(170, 170)]  # fmt: skip
    gpu = [kernel(1, **at(5, 99)), kernel(4, **at(112, 132)), kernel(6, **at(140, 149)), kernel(6, **at(145, 155))]
    found = host_time.host_time_parts(program(first + second, gpu))
    assert found["steps"] == 1 and found["cpu_ns"] == 70
    # From 100: 3 of 10 ns, then 3 of 5, 1 of the 10 that 9 of input leave, and 8 to the end.
    assert found["input_ns"] == 7 + 9 and found["waiting_ns"] == 12
    # The first call launches, the second does not, the third does from 145 on, and the last does not.
    assert found["launch_ns"] == 10 + 5 and found["library_ns"] == 2 + 1 + 8 + 2
    assert found["framework_ns"] == 3 + 3 + 0 + 8
    assert sum(found[f"{part}_ns"] for part in host_time.PARTS) == 70
    # The GPU is busy from 112 to 132, and from 140 to 155: 35 ns, while the CPU works 58.
    assert found["busy_ns"] == 35 and found["balance"] == pytest.approx(58 / 35)
    # Calls of 10 and 20 ns launch; the first finds the GPU idle, and 2 ns after it begins that works.
    assert found["launches"] == 2 and found["launch_call_ns"] == 15 and found["latency_ns"] == 2


def test_time_is_per_step_that_counts() -> None:
    """Three steps of 100 ns; in the two that count kernels of 10 and 30 ns, 4 ns after calls of 20 ns, and 6 of 40."""
    rows: list[dict[str, Any]] = []
    for step, took in enumerate((77, 20, 40)):
        begin = 100 * step
        rows += [
            BEGINS | at(begin, begin),
            call(**at(begin + 10, begin + 10 + took)),
            ENDS | at(begin + 100, begin + 100),
        ]
    gpu = [kernel(1, **at(11, 19)), kernel(4, **at(114, 124)), kernel(7, **at(216, 246))]
    found = host_time.host_time_parts(program(rows, gpu))
    assert (found["steps"], found["cpu_ns"], found["busy_ns"], found["launches"]) == (2, 100, 20, 1)
    assert (found["launch_ns"], found["framework_ns"]) == (30, 70)
    assert (found["launch_call_ns"], found["latency_ns"], found["balance"]) == (30, 5, 5)


def test_what_began_before_the_steps_that_count_is_none_of_theirs() -> None:
    """A call of another thread from 90 to 130, when the second step begins at 100 and its own call at 120 ends at 140."""
    rows = [BEGINS | at(0, 0), call(**at(90, 130)), ENDS | at(100, 100), BEGINS | at(100, 100), call(**at(120, 140)),
            ENDS | at(150, 150)]  # fmt: skip
    found = host_time.host_time_parts(program(rows, [kernel(4, **at(141, 142))]))
    assert (found["launch_ns"], found["framework_ns"], found["cpu_ns"]) == (20, 30, 50)


def test_a_single_step_counts_and_a_gpu_that_does_nothing_has_no_balance() -> None:
    rows = [BEGINS | at(10, 10), call(**at(20, 25)), ENDS | at(40, 40)]
    found = host_time.host_time_parts(program(rows, []))
    assert (found["steps"], found["cpu_ns"], found["busy_ns"], found["launches"]) == (1, 30, 0, 0)
    assert all(np.isnan(found[name]) for name in ("balance", "launch_call_ns", "latency_ns"))
    assert (found["library_ns"], found["framework_ns"]) == (5, 25)


def test_calls_that_take_longer_than_100_us_are_waits_and_busy_gpus_tell_no_latency() -> None:
    rows = [BEGINS | at(0, 0), call(**at(0, 100_000)), call(**at(200_000, 300_001)), call(**at(400_000, 400_010)),
            ENDS | at(500_000, 500_000)]  # fmt: skip
    gpu = [kernel(1, **at(7, 200_000)), kernel(2, **at(200_011, 400_001)), kernel(3, **at(400_500, 400_600))]
    found = host_time.host_time_parts(program(rows, gpu))
    # 100,000 and 10 ns; 7 ns and 11, as the second found the GPU just done, and the third did not.
    assert found["launch_call_ns"] == 50_005 and found["latency_ns"] == 9
    gpu[1]["node"] = True
    assert host_time.host_time_parts(program(rows, gpu))["latency_ns"] == 7


@pytest.mark.parametrize(("gain", "best"), [(1.05, "graph"), (1.049, "none"), (1.07, "graph")])
def test_a_twentieth_is_worth_a_change(gain: float, best: str) -> None:
    assert host_time.best_host_change({"graph": gain, "host_2x": 1.0, "kernels_2x": 9.0}) == best
    assert host_time.best_host_change({"kernels_2x": 9.0}) == "none"


def trace(calls: list[tuple[int, ...] | tuple[Any, ...]], operations: list[dict[str, Any]], **more: Any) -> Events:
    """Two steps, from 1,000 to 2,000 and from 2,000 to 3,000; calls: start, end, correlation, thread, name."""
    given = dict.fromkeys(PACKS, 0) | {"stream": 7, "kind": KERNEL, "talking": False, "crossing": False}
    parts = [("transfer", 1_000, 1_100), ("forward", 1_100, 2_000), ("forward", 2_000, 3_000)]
    return replace(
        Events(
            process=PROCESS,
            steps=pd.DataFrame({"start": [1_000, 2_000], "end": [2_000, 3_000]}),
            parts=pd.DataFrame(parts, columns=["name", "start", "end"]).assign(thread=MAIN, process=PROCESS, depth=0),
            calls=pd.DataFrame(calls, columns=["start", "end", "correlation", "thread", "name"]),
            operations=pd.DataFrame([given | one for one in operations]),
            waits=pd.DataFrame(columns=["correlation", "kind", "stream", "event", "record"]),
            records=pd.DataFrame(columns=["correlation", "stream", "event", "record"]),
            library=np.array([[1_205, 1_215]]),
            kernels={},
        ),
        **more,
    )


LAUNCH, GRAPHED, FREE = "cudaLaunchKernel_v7000", "cudaGraphLaunch_v10000", "cudaFree_v3020"


def work(correlation: int, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"correlation": correlation, "start": start, "end": end, **more}


def test_a_program_has_the_outermost_calls_of_threads_that_launch() -> None:
    """What another call of its thread contains is that call's, whose end it may share; other threads' are not here."""
    calls = [(900, 990, 1, MAIN, LAUNCH), (1_200, 1_300, 2, MAIN, LAUNCH), (1_210, 1_300, 3, MAIN, "cuLaunchKernel"),
             (1_250, 1_400, 4, MAIN + 1, LAUNCH), (1_260, 1_270, 5, MAIN + 2, "cudaEventQuery"),
             (1_420, 1_430, 6, MAIN, "cuKernelGetName"), (3_000, 3_010, 7, MAIN, FREE), (3_001, 3_020, 8, MAIN, LAUNCH)]  # fmt: skip
    gpu = [work(1, 1_000, 1_010), work(3, 1_500, 1_600), work(4, 1_700, 1_800), work(99, 1, 2)]
    one = programs.build_program(trace(calls, gpu))
    assert one is not None and one.steps == 2
    rows = one.host[["kind", "start", "end", "correlation"]].to_numpy().tolist()
    assert rows == [
        [BEGIN, 1_000, 1_000, -1], [CALL, 1_200, 1_300, 2], [CALL, 1_250, 1_400, 4], [CALL, 1_420, 1_430, 6],
        [END, 2_000, 2_000, -1], [BEGIN, 2_000, 2_000, -1], [END, 3_000, 3_000, -1], [CALL, 3_000, 3_010, 7],
    ]  # fmt: skip
    # 200 ns from the step's beginning, 50 from the start of a call that it overlaps, and 20 from the end of that.
    assert one.host["gap"].tolist() == [0, 200, 50, 20, 570, 0, 1_000, 0]
    assert one.host["overlaps"].tolist() == [False, False, True, *[False] * 5]
    assert one.gpu[["host", "start", "ns"]].to_numpy().tolist() == [[1, 1_500, 100], [2, 1_700, 100]]
    assert one.host["launches"].tolist() == [False, True, True, *[False] * 5]
    assert one.host["step"].tolist() == [0] * 5 + [1] * 3
    assert programs.build_program(trace(calls, [work(99, 1, 2)])) is None


def test_rows_say_what_kind_of_call_they_are_and_where() -> None:
    names = {LAUNCH: "", GRAPHED: "graphs", "cuGraphLaunch_v10000": "graphs", FREE: "syncs allocates", "cudaMalloc_v3020": "allocates",
             "cudaHostAlloc_v3020": "allocates", "cuMemAlloc_v2": "allocates", "cuMemFree_v2": "syncs allocates",
             "cudaFreeAsync_v11020": "allocates", "cudaMemcpyAsync_v3020": "copies", "cudaEventSynchronize_v3020": "syncs"}  # fmt: skip
    calls = [(1_050 + 100 * place, 1_060 + 100 * place, place, MAIN, name) for place, name in enumerate(names)]
    one = programs.build_program(trace(calls, [work(0, 1_070, 1_080)]))
    assert one is not None
    rows = one.host[one.host["kind"] == CALL].set_index("name")
    for name, expected in names.items():
        assert [kind for kind in ("graphs", "copies", "syncs", "allocates") if rows.loc[name, kind]] == sorted(
            expected.split(), key=["graphs", "copies", "syncs", "allocates"].index
        )
    # The first is in the range transfer, the next in forward, the edge of a step where it lies.
    assert [PARTS[part - 1] for part in rows["part"].iloc[:2]] == ["transfer", "forward"]
    # Of the 50 ns before the first all are input, of the 90 before the second 40, and 10 in a library before the third.
    assert rows["input"].tolist()[:3] == [50, 40, 0] and rows["library"].tolist()[:3] == [0, 0, 10]


def test_a_graphs_nodes_are_on_the_stream_of_its_first() -> None:
    calls = [(1_200, 1_300, 1, MAIN, GRAPHED), (1_310, 1_320, 2, MAIN, LAUNCH)]
    gpu = [work(1, 1_500, 1_600, stream=9), work(1, 1_400, 1_450, stream=8), work(2, 1_700, 1_710, stream=5)]
    one = programs.build_program(trace(calls, gpu))
    assert one is not None
    assert one.gpu[["start", "stream", "node"]].to_numpy().tolist() == [
        [1_400, 8, True],
        [1_500, 8, True],
        [1_700, 5, False],
    ]


def test_spans_cover_what_of_an_interval_they_share() -> None:
    spans = np.array([[40, 50], [10, 20], [15, 30]])
    asked = [(0, 5), (0, 12), (12, 45), (30, 40), (35, 100), (60, 70), (45, 15)]
    starts, ends = np.array(asked).T
    assert intervals.covered_ns(spans, starts, ends).tolist() == [0, 2, 18 + 5, 0, 10, 0, 0]
    assert intervals.covered_ns(np.zeros((0, 2), dtype=np.int64), starts, ends).tolist() == [0] * 7


def test_kernels_are_chosen_by_configuration_and_part() -> None:
    backward = PARTS.index("backward") + 1
    gpu = [
        kernel(0, pack1=1),
        kernel(1, pack1=1),
        kernel(1, pack1=2),
        kernel(1, pack1=1, kind=COPY),
        kernel(2, pack1=2),
    ]
    one = program([call(), call(part=backward), call(part=1)], gpu)
    packs = pd.DataFrame({name: [1 if name == "pack1" else 0] for name in PACKS})
    chosen = {
        part: np.flatnonzero(programs.choose_operations(one, packs, part)).tolist()
        for part in (None, "", "backward", "data")
    }
    assert chosen == {None: [0, 1], "": [0], "backward": [1], "data": []}
    both = pd.concat([packs, packs.assign(pack1=2)])
    assert np.flatnonzero(programs.choose_operations(one, both, "data")).tolist() == [4]


def table(launches: list[float], **columns: Any) -> pd.DataFrame:
    """Rows of a table of kernels of the configuration whose numbers are all 0, but for what is said."""
    return pd.DataFrame({name: [0] * len(launches) for name in CONFIGURATION}
                        | {"mangled": [""] * len(launches), "launches": launches} | columns)  # fmt: skip


def test_as_many_operations_are_a_rows_as_it_was_launched() -> None:
    """Two steps of three kernels in forward and one in backward; a copy, and one that communicates, are none."""
    forward, backward = (PARTS.index(part) + 1 for part in ("forward", "backward"))
    host = [BEGINS, call(part=forward), call(part=backward)] * 2
    gpu = [kernel(1), kernel(1), kernel(1), kernel(1, kind=COPY), kernel(2), kernel(4), kernel(4, talking=True), kernel(4),
           kernel(4), kernel(5)]  # fmt: skip
    found = kernel_matching.Operations(replace(program(host, gpu), kernels={0: ""}))
    assert found.of(table([3, 1], range=["forward", "backward"])).tolist() == [0, 0, 0, -1, 1, 0, -1, 0, 0, 1]
    # Of all that are alike, wherever they are: two a step of four, every second of eight.
    assert found.of(table([2])).tolist() == [-1, 0, -1, -1, 0, -1, -1, 0, -1, 0]
    # Rows alike are one; a range that the trace does not have leaves the configuration alone.
    assert found.of(table([1, 1])).tolist() == found.of(table([2])).tolist()
    assert found.of(table([4], range=["loss"])).tolist() == [0, 0, 0, -1, 0, 0, -1, 0, 0, 0]
    assert (found.of(table([4], mangled=["other"])) == -1).all()


def test_programs_are_kept_for_ten_steps() -> None:
    """What was launched later is neither there nor waited for."""
    host = [BEGINS, call(), ENDS] * 12
    gpu = [kernel(3 * step + 1, dep=dep) for step, dep in enumerate([9, 10, 8, *[-1] * 9])]
    short = storage.shorten(program(host, gpu))
    assert short.steps == 10 and len(short.host) == 30 and short.gpu["dep"].tolist() == [9, -1, 8, *[-1] * 7]
    assert storage.shorten(program(host[:6], gpu[:2])).steps == 2
    assert storage.process_number((3 << 48) + (1082 << 24) + 77) == 1082


def test_programs_are_read_as_they_were_written(tmp_path: Path) -> None:
    one = replace(program([BEGINS, call(2, 3), ENDS], [kernel(1, 4)], after=5.5), kernels={6: "k"}, apart=0.25)
    storage.write([one, replace(one, process=8 << 24)], tmp_path / "p.npz")
    found = storage.read(tmp_path / "p.npz")
    assert list(found) == [7, 8]
    assert [(back.after, back.kernels, back.apart) for back in found.values()] == [(5.5, {6: "k"}, 0.25)] * 2
    assert (found[8].host["gap"].tolist(), found[8].gpu["ns"].tolist()) == ([0, 2, 0], [4])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"cpu_ns": 101.0, "traced_ns": 201.0}, None),
        (
            {"cpu_ns": [100.0, 98.9]},
            "row 2: framework_ns, input_ns, library_ns, launch_ns, waiting_ns do not add up to cpu_ns",
        ),
        ({"ahead_ns": 102.0}, "row 1: cpu_ns, ahead_ns do not add up to traced_ns"),
    ],
)
def test_parts_of_the_cpus_time_add_up(changed: dict[str, Any], said: str | None) -> None:
    """100 ns in five parts and 100 more until the GPU is done; one ns is rounding."""
    whole = dict.fromkeys(tables.PARTS, 20.0) | {"cpu_ns": 100.0, "ahead_ns": 100.0, "traced_ns": 200.0}
    holds = tables.TAX.holds
    assert holds is not None and holds(pd.DataFrame(whole | changed, index=[0, 1])) == said
    # Of a second a microsecond and one ns more.
    for off, closes in ((1_000.9, True), (1_002.0, False)):
        second = dict.fromkeys(tables.PARTS, 2e8) | {"cpu_ns": 1e9 + off, "ahead_ns": -off, "traced_ns": 1e9}
        assert (holds(pd.DataFrame(second, index=[0])) is None) == closes


def test_what_the_cpu_takes_is_told_by_steps_but_the_last() -> None:
    steps = pd.DataFrame({"process": [0, 0, 0, 1, 1, 2, 2, 3], "wall_ns": [8, 9, 1, 20, 1, 11, 1, 5]})
    assert tables.host_step_ns(steps) == 11 and tables.host_step_ns(steps.iloc[-1:]) is None
    assert tables.host_step_ns(steps.iloc[:3].drop(columns="process")) == 8
    assert tables.process_spread({"processes": [{"step_ns": 9.0}]}) == 0
    # Of two the logarithms lie 0.2 apart: 6.3138 times their deviation, 0.1414, by the square root of 2 over 2.
    two = {"processes": [{"step_ns": ns} for ns in (1.0, np.exp(0.2))]}
    assert tables.process_spread(two) == pytest.approx(6.3138 * 0.141421, rel=1e-4)


def test_events_of_the_gpu_have_their_kinds(tmp_path: Path) -> None:
    """A copy to the GPU crosses, one on it does not, and a set has no kind of copying; libraries are those on the CPU."""
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as database:
        for name, columns, rows in (
            ("CUPTI_ACTIVITY_KIND_MEMCPY", "start, end, correlationId, streamId, globalPid, copyKind",
             [(1, 2, 3, 7, PROCESS, 1), (2, 3, 4, 7, PROCESS, 8), (3, 4, 5, 7, PROCESS, 2)]),
            ("CUPTI_ACTIVITY_KIND_MEMSET", "start, end, correlationId, streamId, globalPid", [(5, 6, 6, 8, PROCESS)]),
            ("CUBLAS_EVENTS", "start, end, globalTid", [(1, 9, MAIN)]),
        ):  # fmt: skip
            database.execute(f"CREATE TABLE {name} ({columns})")
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        found = trace_events._operations(database, {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"}, {})
        library = trace_events._library(database, {"CUBLAS_EVENTS"})
    assert found["kind"].tolist() == [COPY, COPY, COPY, SET] and not found["talking"].any()
    assert found["crossing"].tolist() == [True, False, True, False] and found["stream"].tolist() == [7, 7, 7, 8]
    assert (KERNEL, COPY, SET, GRAPH) == (0, 1, 2, 3) and (found[PACKS] == 0).all(axis=None)
    assert library[["start", "end", "process"]].to_numpy().tolist() == [[1, 9, PROCESS]]


def test_rows_of_a_process_are_counted_afresh() -> None:
    both = pd.DataFrame({"process": [7, 8, 8], "start": [1, 2, 3]})
    pd.testing.assert_frame_equal(trace_events._of(both, 8), pd.DataFrame({"process": [8, 8], "start": [2, 3]}))
