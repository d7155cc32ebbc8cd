"""The tables of streams and copies: a program with known overlaps, a sweep ns by ns, and a recording of an H200."""

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from profzoo.foreign_reports import nsys_of_torch
from profzoo.io import csv_tables
from profzoo.range_names import STEP, make_torch_name
from profzoo.tables import step_timeline
from profzoo.tools import stream_overlap
from profzoo.tools.nsys.events.trace import open_trace
from profzoo.tools.nsys.steps import streams
from profzoo.tools.stream_overlap import CASES, KINDS
from profzoo.tools.torch import streams as torch_streams
from tests.traced_programs import DEVICE, PAGEABLE, PINNED, PROCESS, TO_DEVICE, TO_HOST, Traced

US, MS = 1000, 1_000_000


def known_program() -> Traced:
    """Three steps of 10 ms alike. In each, stream 7 runs a kernel from 1 to 5 ms and one from 6 to 8 ms, and copies
    from 8 to 8.5 ms; stream 20 copies from 3 to 7 ms; stream 21 runs a kernel from 2 to 2.5 ms, and sets memory from 9
    to 9.25 ms."""  # fmt: skip
    program = Traced()
    for begin in (0, 10 * MS, 20 * MS):
        program.step(begin, begin + 10 * MS)
        program.kernel(begin + 1 * MS, begin + 5 * MS, 7)
        program.kernel(begin + 2 * MS, begin + 2500 * US, 21)
        program.copy(begin + 3 * MS, begin + 7 * MS, 20, 80_000_000, TO_DEVICE, PINNED, DEVICE)
        program.kernel(begin + 6 * MS, begin + 8 * MS, 7)
        program.copy(begin + 8 * MS, begin + 8500 * US, 7, 1_000_000, TO_HOST, DEVICE, PAGEABLE)
        program.memset(begin + 9 * MS, begin + 9250 * US, 21, 4096)
    return program


@pytest.fixture
def tables(tmp_path: Path, recording: Callable[[str], Path]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tables of streams and copies of the known program."""
    return streams.tabulate_streams(known_program().write(tmp_path / "t.sqlite", recording("nsys/train.sqlite")))


def test_a_program_with_known_overlaps(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    table = tables[0].set_index("stream")
    assert table["steps"].eq(2).all() and table["process"].eq(1234).all() and table["gpu"].eq(0).all()
    expected = {
        # kernels, copies, memsets; busy, kernel, copy, memset; alone, copy beside kernel, kernel beside kernel.
        "7": (2, 1, 0, 6.5, 6, 0.5, 0, 1 + 0.5 + 1 + 0.5, 2 + 1, 0.5),
        "20": (0, 1, 0, 4, 0, 4, 0, 1, 3, 0),
        "21": (1, 0, 1, 0.75, 0.5, 0, 0.25, 0.25, 0, 0.5),
        "all": (3, 2, 1, 7.75, 6, 1.5, 0.25, 3 + 1 + 0.25, 3, 0.5),
    }
    columns = ["kernels", "copies", "memsets", *(f"{name}_ns" for name in ("busy", *KINDS, *CASES[:3]))]
    for stream, (kernels, copies, memsets, *ms) in expected.items():
        assert table.loc[stream, columns].to_list() == [kernels, copies, memsets, *(one * MS for one in ms)], stream
    assert table["copy_beside_copy_ns"].eq(0).all()
    # Alone, and half of what two streams are busy in.
    assert table["part_ns"].to_dict() == {"7": 4.75 * MS, "20": 2.5 * MS, "21": 0.5 * MS, "all": 7.75 * MS}


def test_what_copies_of_a_known_program_moved(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    into, out = tables[1].sort_values("stream").to_dict("records")
    assert [into[name] for name in ("kind", "source", "target")] == ["host to device", "pinned", "device"]
    assert [out[name] for name in ("kind", "source", "target")] == ["device to host", "device", "pageable"]
    assert (into["copies"], into["bytes"], into["total_ns"], into["beside_kernel_ns"]) == (1, 80e6, 4 * MS, 3 * MS)
    # 80 MB in 4 ms, and 1 MB in half a ms.
    assert into["bytes_per_s"] == into["largest_bytes_per_s"] == pytest.approx(20e9)
    assert out["bytes_per_s"] == pytest.approx(2e9) and out["beside_kernel_ns"] == 0


def swept(rows: list[tuple[int, int, int, str]], begin: int, end: int) -> dict[str, dict[str, float]]:
    """What the table has to say, by a look at every single ns; rows: start, end, stream, kind."""
    names = [*map(str, sorted({stream for _, _, stream, _ in rows})), "all"]
    found = {name: dict.fromkeys(stream_overlap.TIMES, 0.0) for name in names}
    for moment in range(begin, end):
        running: dict[int, set[str]] = {}
        for start, stop, stream, kind in rows:
            if start <= moment < stop:
                running.setdefault(stream, set()).add(kind)
        if not running:
            continue
        does = {stream: next(kind for kind in KINDS if kind in kinds) for stream, kinds in running.items()}
        computing = sum(kind == "kernel" for kind in does.values())
        moving = len(does) - computing
        case = ("alone" if len(does) == 1 else "copy_beside_kernel" if computing and moving
                else "kernel_beside_kernel" if computing else "copy_beside_copy")  # fmt: skip
        for stream, kind in does.items():
            for name in ("busy", kind, case):
                found[str(stream)][f"{name}_ns"] += 1
            found[str(stream)]["part_ns"] += 1 / len(does)
        kinds = {kind for own in running.values() for kind in own}
        for name in ("busy_ns", "part_ns", f"{case}_ns", f"{next(kind for kind in KINDS if kind in kinds)}_ns"):
            found["all"][name] += 1
    return found


@pytest.mark.parametrize("seed", range(8))
def test_any_program_is_split_as_a_look_at_every_ns_says(seed: int) -> None:
    dice = random.Random(seed)
    rows = []
    for _ in range(dice.randint(1, 25)):
        start = dice.randint(0, 120)
        rows.append((start, start + dice.randint(0, 30), dice.choice([7, 13, 14]), dice.choice(KINDS)))
    spans = pd.DataFrame(rows, columns=["start", "end", "stream", "kind"])
    table = stream_overlap.tabulate_streams(spans, np.array([[20, 110]])).set_index("stream")
    expected = pd.DataFrame.from_dict(swept(rows, 20, 110), orient="index")
    assert table.index.to_list() == expected.index.to_list()
    assert np.allclose(table[expected.columns].to_numpy(dtype=float), expected.to_numpy(), atol=1e-9)
    assert table["kernels"].sum() == 2 * sum(row[3] == "kernel" for row in rows)
    copies = spans[spans["kind"] == "copy"]
    beside = [
        sum(
            any(start <= moment < stop and kind == "kernel" and stream != own for start, stop, stream, kind in rows)
            for moment in range(begin, end)
        )
        for begin, end, own, _ in copies.itertuples(index=False)
    ]
    assert stream_overlap.time_beside_kernels(copies, spans).tolist() == beside


def test_times_that_do_not_add_up_are_found(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    good = tables[0]
    assert streams.find_gaps(good) is None
    for column, said in (("copy_ns", "kernel_ns, copy_ns, memset_ns are not busy_ns"), ("alone_ns", "alone_ns, "),
                         ("part_ns", "the parts of its streams")):  # fmt: skip
        assert said in str(streams.find_gaps(good.assign(**{column: good[column] + 2000.0 * (good["stream"] == "7")})))


def written(folder: Path, export: Path) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """The tables as the rule writes them, read back by their declarations, and what was said."""
    told: list[str] = []
    (folder / "s.json").write_text(json.dumps({"capture": "window"}))
    made = folder / "streams.csv", folder / "copies.csv"
    streams.main(str(export), str(folder / "s.json"), *map(str, made), lambda line: told.append(str(line)))
    return csv_tables.read(made[0], streams.TABLE), csv_tables.read(made[1], streams.COPIES), told


def test_an_export_without_bytes_and_gpus_says_so_and_shows_no_zeros(
    tmp_path: Path, recording: Callable[[str], Path]
) -> None:
    export = known_program().write(tmp_path / "t.sqlite", recording("nsys/train.sqlite"))
    with closing(sqlite3.connect(export)) as database:
        for kind, columns in (("MEMCPY", ("bytes", "dstKind", "deviceId")), ("KERNEL", ("deviceId",)),
                              ("MEMSET", ("bytes", "deviceId"))):  # fmt: skip
            for column in columns:
                database.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_{kind} DROP COLUMN {column}")
        database.commit()
    table, copies, told = written(tmp_path, export)
    assert "does not tell how many bytes copies moved" in told[0]
    assert copies[["bytes", "bytes_per_s", "largest_bytes", "gpu"]].isna().all(axis=None)
    assert set(copies["target"]) == {"unknown"} and table["gpu"].isna().all() and len(table) == 4


def test_a_trace_without_steps_or_gpu_work_has_no_rows(tmp_path: Path, recording: Callable[[str], Path]) -> None:
    layout = recording("nsys/train.sqlite")
    idle = Traced()
    idle.step(0, MS)
    table, copies, told = written(tmp_path, idle.write(tmp_path / "idle.sqlite", layout))
    assert table.empty and copies.empty and not told
    none = Traced()
    none.kernel(5000, 6000)
    table, _, told = written(tmp_path, none.write(tmp_path / "none.sqlite", layout))
    assert table.empty and "holds no step of the window" in told[0]


def test_a_graph_that_was_traced_whole_runs_on_its_stream(tmp_path: Path, recording: Callable[[str], Path]) -> None:
    program = Traced()
    program.step(0, 1000)
    program.call("cudaGraphLaunch_v10000", 10, 20, 1)
    program.kernel(300, 400, 9, launched=30)
    export = program.write(tmp_path / "t.sqlite", recording("nsys/train.sqlite"))
    with closing(sqlite3.connect(export)) as database:
        columns = "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, graphId"
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE ({columns})")
        process = 281_474_976_710_656 + (1234 << 24)
        row = (100, 350, 0, 1, None, 8, 77, process, 3)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.commit()
    table = streams.tabulate_streams(export)[0].set_index("stream")
    assert table.loc[["8", "9", "all"], "busy_ns"].to_list() == [250, 100, 300]
    assert table.loc["all", "kernel_beside_kernel_ns"] == 50 and table.loc["8", "kernels"] == 1


def test_a_trace_of_torch_tells_gpus_apart_and_bytes_of_copies(tmp_path: Path) -> None:
    """Stream 7 of each of two GPUs runs a kernel at the same time, and GPU 1 then copies 3 GB: nothing is beside it."""

    def event(category: str, name: str, start: int, us: int, **arguments: int) -> dict:
        return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": us, "pid": 1, "tid": 1, "args": arguments}

    launched = [
        ("kernel", "k", 20, 30, {"device": 0, "stream": 7}),
        ("kernel", "k", 20, 40, {"device": 1, "stream": 7}),
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 60, 20, {"device": 1, "stream": 7, "bytes": 3_000_000_000}),
    ]
    events = [event("user_annotation", make_torch_name(STEP), 0, 100)]
    for number, (category, name, start, us, where) in enumerate(launched, 1):
        events.append(event("cuda_runtime", "cudaLaunchKernel", number, 1, correlation=number))
        events.append(event(category, name, start, us, correlation=number, context=1, **where))
    (trace := tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    torch_streams.main(str(trace), str(tmp_path / "s.csv"))
    table = csv_tables.read(tmp_path / "s.csv", torch_streams.TABLE)
    columns = ["gpu", "stream", "kernels", "copies", "busy_ns", "alone_ns"]
    expected = [(0, 1, 0, 30_000), (1, 1, 1, 60_000)]
    assert table[columns].to_numpy().tolist() == [
        [gpu, stream, kernels, copies, busy, busy] for gpu, kernels, copies, busy in expected for stream in ("7", "all")
    ]
    # The same of such a trace that is imported.
    facts = {"device_type": "cuda", "imported": {}}
    (tmp_path / "f.json").write_text(json.dumps(facts))
    nsys_of_torch.main(str(trace), str(tmp_path / "f.json"), str(tmp_path / "n.sqlite"), str(tmp_path / "n.json"))
    found, copies = streams.tabulate_streams(tmp_path / "n.sqlite")
    assert found[["gpu", "busy_ns"]].to_numpy().tolist() == [[0, 30_000], [0, 30_000], [1, 60_000], [1, 60_000]]
    assert copies[["gpu", "kind", "bytes", "bytes_per_s"]].to_numpy().tolist() == [[1, "host to device", 3e9, 1.5e14]]


def test_a_trace_of_a_cpu_has_no_streams(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": []}))
    told: list[str] = []
    torch_streams.main(str(tmp_path / "t.json"), str(tmp_path / "s.csv"), lambda line: told.append(str(line)))
    assert csv_tables.read(tmp_path / "s.csv", torch_streams.TABLE).empty
    assert told == [f"{tmp_path / 's.csv'} {torch_streams.NO_STEP}"]


FEW_NS, LATE_NS, MORE_NS = stream_overlap.SHORT_NS, stream_overlap.SKEW_NS, stream_overlap.BEHIND_NS


@pytest.mark.parametrize(
    ("rows", "span", "wrong"),
    [
        # Rows are of start, ns, when they were launched, and stream. A time of 0 is one if it lasts.
        ([(0, 0, -1, 0), (0, 5, -1, 0), (5, 0, -1, 0)], None, {0: "begins and ends at 0"}),
        ([(9, -2_500_000, -1, 0), (9, -1, -1, 0)], None,
         {0: "ends 2.500 ms before it begins", 1: "ends 0.000 ms before it begins"}),
        # A second longer than the trace is as long as it can be.
        ([(9, 10 + MORE_NS, -1, -1)], 10, {}),
        ([(9, 11 + MORE_NS, -1, -1)], 10, {0: "lasts 1.000 s, in a trace of 0.000 s"}),
        ([(9, 3 * MORE_NS, -1, -1)], None, {}),
        # Clocks differ by a millisecond.
        ([(5 * MS, 1, 5 * MS + LATE_NS, 0)], None, {}),
        ([(5 * MS, 1, 5 * MS + LATE_NS + 1, 0)], None, {0: "begins 1.000 ms before it is launched"}),
        ([(5 * MS, 1, 0, 0)], None, {}),
        # Three in a row, of which the first ends with the last, or more than a microsecond later.
        ([(10 * US, 50 * US, -1, 0), (20 * US, 5 * US, -1, 0), (30 * US, 5 * US, -1, 0)], None,
         {0: "runs over 2 that follow it in its stream, 0.000050 s"}),
        ([(10 * US, 25 * US + FEW_NS, -1, 0), (20 * US, 5 * US, -1, 0), (30 * US, 5 * US, -1, 0)], None, {}),
        ([(10 * US, 26 * US + FEW_NS, -1, 0), (20 * US, 5 * US, -1, 0), (30 * US, 5 * US, -1, 0)], None,
         {0: "runs over 2 that follow it in its stream, 0.000027 s"}),
        # One that follows may begin early; and those of other streams, or of none, run beside it.
        ([(10 * US, 50 * US, -1, 0), (20 * US, 5 * US, -1, 0)], None, {}),
        ([(10 * US, 50 * US, -1, 0), (20 * US, 5 * US, -1, 0), (30 * US, 5 * US, -1, 1)], None, {}),
        ([(10 * US, 50 * US, -1, -1), (20 * US, 5 * US, -1, -1), (30 * US, 5 * US, -1, -1)], None, {}),
        ([(10 * US, 500 * MS, -1, 1), (20 * US, 5 * US, -1, 1), (30 * US, 5 * US, -1, 1), (30 * US, 9, -1, 0)], None,
         {0: "runs over 2 that follow it in its stream, 0.500 s"}),
        # What has no times itself is run over by nothing.
        ([(10 * US, 50 * US, -1, 0), (20 * US, 5 * US, -1, 0), (30 * US, -5, -1, 0)], None,
         {2: "ends 0.000 ms before it begins"}),
    ],
)  # fmt: skip
def test_times_that_cannot_be(rows: list[tuple], span: int | None, wrong: dict[int, str]) -> None:
    start, ns, called, queue = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    assert stream_overlap.find_impossible(start, ns, called, queue, span) == wrong


@pytest.mark.parametrize(
    ("time", "covered"), [(-5, 0), (0, 0), (5, 5), (10, 10), (15, 10), (20, 10), (22, 12), (30, 20), (99, 20)]
)
def test_time_that_spans_cover_until_a_moment(time: int, covered: int) -> None:
    spans = np.array([[0, 10], [20, 30]])
    assert stream_overlap._covered_until(spans, np.array([time])).tolist() == [covered]
    assert stream_overlap._covered_until(spans[:0], np.array([time])).tolist() == [0]


class Step(NamedTuple):
    process: int
    begin: int
    end: int


def supplied(export: Path, step: Step) -> pd.DataFrame | str:
    with open_trace(export) as trace:
        return step_timeline.supply_stream_tracks(trace, step)


def test_the_streams_of_a_known_step(tmp_path: Path, recording: Callable[[str], Path]) -> None:
    export = known_program().write(tmp_path / "t.sqlite", recording("nsys/train.sqlite"))
    # From within the first kernel of the second step.
    found = supplied(export, Step(PROCESS, 14 * MS, 20 * MS))
    assert isinstance(found, pd.DataFrame) and list(found) == step_timeline.COLUMNS
    assert found["value"].isna().all() and found["unit"].eq("").all()
    assert found[["track", "label", "start_ns", "end_ns"]].to_numpy().tolist() == [
        ["stream 7", "gemm", 0, 1 * MS],
        ["stream 7", "gemm", 2 * MS, 4 * MS],
        ["stream 7", "copy device to host", 4 * MS, 4500 * US],
        ["stream 20", "copy host to device", 0, 3 * MS],
        ["stream 21", "memset", 5 * MS, 5250 * US],
    ]
    assert supplied(export, Step(PROCESS + (1 << 24), 0, 20 * MS)) == step_timeline.NO_WORK
    assert supplied(export, Step(PROCESS, 9600 * US, 9700 * US)) == step_timeline.NO_WORK


def test_spans_of_many_launches_are_joined(monkeypatch: pytest.MonkeyPatch, recording: Callable[[str], Path]) -> None:
    export = recording("nsys/train.sqlite")
    monkeypatch.setattr(step_timeline, "MOST", 100)
    with closing(sqlite3.connect(export)) as database:
        ((process, first, last),) = database.execute(
            "SELECT globalPid, min(start), max(end) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        )
    found = supplied(export, Step(process, first, last))
    assert isinstance(found, pd.DataFrame)
    assert set(found["track"]) == {"stream 7"} and {"convolution", "normalisation"} <= set(found["label"])
    busy = (found["end_ns"] - found["start_ns"]).sum()
    # Joined spans hold short gaps too; the launches take 45,778,504 ns.
    assert len(found) < 5150 and 45_778_504 < busy < 0.75 * (last - first)
    assert (found["start_ns"].to_numpy()[1:] >= found["end_ns"].to_numpy()[:-1]).all()
