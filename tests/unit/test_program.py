"""How a program is made of a trace, taken apart and kept in a file, each number worked out by hand."""

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.range_names import PARTS
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.launches import PACKS
from profzoo.tools.nsys.events.trace import Trace, list_tables
from profzoo.what_if import changes, predicted_gains, simulator, tables, trace_events
from profzoo.what_if import program as programs
from profzoo.what_if.program import (
    BEGIN,
    CALL,
    END,
    Program,
    build_program,
    choose_operations,
    process_number,
    read_programs,
    shorten_program,
    write_programs,
)
from profzoo.what_if.trace_events import COPY, GRAPH, KERNEL, SET, Events
from tests.simulated import MAIN, PROCESS
from tests.written_programs import BEGINS, ENDS, call, kernel, program


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
    one = build_program(trace(calls, gpu))
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
    assert build_program(trace(calls, [work(99, 1, 2)])) is None


def test_rows_say_what_kind_of_call_they_are_and_where() -> None:
    names = {LAUNCH: "", GRAPHED: "graphs", "cuGraphLaunch_v10000": "graphs", FREE: "syncs allocates", "cudaMalloc_v3020": "allocates",
             "cudaHostAlloc_v3020": "allocates", "cuMemAlloc_v2": "allocates", "cuMemFree_v2": "syncs allocates",
             "cudaFreeAsync_v11020": "allocates", "cudaMemcpyAsync_v3020": "copies", "cudaEventSynchronize_v3020": "syncs"}  # fmt: skip
    calls = [(1_050 + 100 * place, 1_060 + 100 * place, place, MAIN, name) for place, name in enumerate(names)]
    one = build_program(trace(calls, [work(0, 1_070, 1_080)]))
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
    made = trace(calls, [work(0, 1_070, 1_080)])
    loaded = build_program(replace(made, parts=made.parts.replace("transfer", "data")))
    assert loaded is not None and rows["data"].sum() == 0
    assert (loaded.host["data"] == one.host["input"]).all() and (loaded.host["input"] == one.host["input"]).all()


def test_a_graphs_nodes_are_on_the_stream_of_its_first() -> None:
    calls = [(1_200, 1_300, 1, MAIN, GRAPHED), (1_310, 1_320, 2, MAIN, LAUNCH)]
    gpu = [work(1, 1_500, 1_600, stream=9), work(1, 1_400, 1_450, stream=8), work(2, 1_700, 1_710, stream=5)]
    one = build_program(trace(calls, gpu))
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
        part: np.flatnonzero(choose_operations(one, packs, part)).tolist() for part in (None, "", "backward", "data")
    }
    assert chosen == {None: [0, 1], "": [0], "backward": [1], "data": []}
    both = pd.concat([packs, packs.assign(pack1=2)])
    assert np.flatnonzero(choose_operations(one, both, "data")).tolist() == [4]


def test_programs_are_kept_for_ten_steps() -> None:
    """What was launched later is neither there nor waited for."""
    host = [BEGINS, call(), ENDS] * 12
    gpu = [kernel(3 * step + 1, dep=dep) for step, dep in enumerate([9, 10, 8, *[-1] * 9])]
    short = shorten_program(program(host, gpu))
    assert short.steps == 10 and len(short.host) == 30 and short.gpu["dep"].tolist() == [9, -1, 8, *[-1] * 7]
    assert shorten_program(program(host[:6], gpu[:2])).steps == 2
    assert process_number((3 << 48) + (1082 << 24) + 77) == 1082


def test_programs_are_read_as_they_were_written(tmp_path: Path) -> None:
    one = replace(
        program([BEGINS, call(2, 3), ENDS], [kernel(1, 4)], after=5.5), kernels={6: "k"}, apart=0.25, waiting=0.5
    )
    write_programs([one, replace(one, process=8 << 24, waiting=None)], tmp_path / "p.npz")
    found = read_programs(tmp_path / "p.npz")
    assert list(found) == [7, 8]
    kept = [(back.after, back.kernels, back.apart, back.waiting) for back in found.values()]
    assert kept == [(5.5, {6: "k"}, 0.25, 0.5), (5.5, {6: "k"}, 0.25, None)]
    assert (found[8].host["gap"].tolist(), found[8].gpu["ns"].tolist()) == ([0, 2, 0], [4])


def test_events_of_the_gpu_have_their_kinds(tmp_path: Path) -> None:
    """A copy to the GPU crosses, one on it does not, and a set has no kind of copying; libraries are those on the CPU."""
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as database:
        for name, columns, rows in (
            ("CUPTI_ACTIVITY_KIND_MEMCPY", "start, end, correlationId, streamId, globalPid, copyKind",
             [(1, 2, 3, 7, PROCESS, 1), (2, 3, 4, 7, PROCESS, 8), (3, 4, 5, 7, PROCESS, 2)]),
            ("CUPTI_ACTIVITY_KIND_MEMSET", "start, end, correlationId, streamId, globalPid", [(5, 6, 6, 8, PROCESS)]),
            ("CUBLAS_EVENTS", "start, end, globalTid", [(1, 9, MAIN)]),
            ("CUDNN_EVENTS", "start, end, globalTid", [(11, 19, MAIN)]), ("StringIds", "id, value", [(1, "")]),
        ):  # fmt: skip
            database.execute(f"CREATE TABLE {name} ({columns})")
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        trace = Trace(database, list_tables(database))
        found, library = trace_events._operations(trace), trace_events._library(trace)
    assert found["kind"].tolist() == [COPY, COPY, COPY, SET] and not found["talking"].any()
    assert found["crossing"].tolist() == [True, False, True, False] and found["stream"].tolist() == [7, 7, 7, 8]
    assert (KERNEL, COPY, SET, GRAPH) == (0, 1, 2, 3) and (found[PACKS] == 0).all(axis=None)
    assert sorted(library[["start", "end", "process"]].to_numpy().tolist()) == [[1, 9, PROCESS], [11, 19, PROCESS]]


def test_rows_of_a_process_are_counted_afresh() -> None:
    both = pd.DataFrame({"process": [7, 8, 8], "start": [1, 2, 3]})
    pd.testing.assert_frame_equal(trace_events._of(both, 8), pd.DataFrame({"process": [8, 8], "start": [2, 3]}))


@pytest.fixture(scope="module")
def recorded(recording) -> Program:
    (one,) = tables.read_programs(recording("nsys/train.sqlite"))
    return one


def test_a_program_runs_again_from_its_file(recorded: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "KEPT", 6)
    write_programs([recorded], tmp_path / "p.npz")
    (found,) = read_programs(tmp_path / "p.npz").values()
    assert found.steps == programs.KEPT < recorded.steps
    assert list(found.gpu["room"]) == list(recorded.gpu["room"][: len(found.gpu)])
    assert list(read_programs(tmp_path / "p.npz")) == [1082]
    whole, kept = (simulator.step_times(one, simulator.simulate(one)) for one in (recorded, found))
    # But for the last, whose end is another where nothing follows.
    assert np.allclose(kept[:-1], whole[: programs.KEPT - 2])
    assert set(found.kernels.values()) == set(recorded.kernels.values())
    for change in (predicted_gains.PANEL[name] for name in ("host_2x", "kernels_2x")):
        before, after = (predicted_gains.predict_gain(one, change(one)).gain for one in (recorded, found))
        assert after == pytest.approx(before, rel=0.1)
    assert predicted_gains.predict_gain(found, changes.capture_as_graph(found)).gain > 3


def test_what_is_no_file_of_programs_is_said(tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    for content in (b"", b"PK\x03\x04 cut off"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"p\.npz: no programs of steps"):
            read_programs(path)
    np.savez(path, other=np.zeros(2))
    with pytest.raises(DataError, match="no programs of steps"):
        read_programs(path)
    write_programs([], path)
    assert read_programs(path) == {}


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path) -> None:
    written = program([BEGINS, call(), ENDS] * 3, [kernel(1)])
    write_programs([written], tmp_path / "whole.npz")
    whole, path = (tmp_path / "whole.npz").read_bytes(), tmp_path / "p.npz"
    chance, refused = random.Random(0), 0
    for _ in range(60):
        content = bytearray(whole)
        # Most of what tells what is where stands at the end.
        at = chance.choice([chance.randrange(len(whole)), len(whole) - chance.randrange(1, 4000)])
        content[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(content[: chance.randrange(len(whole))] if chance.random() < 0.2 else content))
        try:
            read_programs(path)
        except DataError as error:
            assert "no programs of steps" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 40
