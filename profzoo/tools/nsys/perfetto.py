"""Writes an nsys export (SQLite) as a trace for Perfetto: threads with their ranges and calls, streams, and counters.

Arrows lead from each launching call to the work that it launched.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from profzoo.io.trace_writer import NO_ARGUMENTS, Arguments, TraceWriter, Track, open_writer
from profzoo.tools.nsys import gpu_spans
from profzoo.tools.nsys.export_columns import UNKNOWN, existing_columns, sql_for_numbers
from profzoo.tools.nsys.gpu_spans import COPY_TABLE, SET_TABLE
from profzoo.tools.nsys.trace import (
    CALL_TABLE,
    GRAPH_TABLE,
    KERNEL_TABLE,
    PROCESS,
    PUSH_POP,
    RANGE_TEXT,
    START_END,
    open_export,
)

# Tables that hold spans of threads, in the order in which their tracks stand in the picture, and names of the tracks.
THREAD_TABLES = {
    "NVTX_EVENTS": "ranges",
    CALL_TABLE: "CUDA calls",
    "CUDNN_EVENTS": "cuDNN",
    "CUBLAS_EVENTS": "cuBLAS",
    "OSRT_API": "system calls",
}
# Streams and counters stand in processes of their own, with numbers beyond those that Linux gives.
FIRST_GPU = 1 << 24
STRING = "(SELECT value FROM StringIds WHERE id = {})"
GPU_METRICS, METRIC_NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
WHOLE_GRAPH = "CUDA graph"
# The bits of a metric's type that number the GPU.
METRIC_GPU = 0xFF


class _Span(NamedTuple):
    """A slice of the picture: what it is on, and when."""

    place: tuple[object, ...]
    name: str
    start: int
    end: int
    correlation: int
    arguments: Arguments = NO_ARGUMENTS


@dataclass
class _Picture:
    """A trace that is being written."""

    database: sqlite3.Connection
    tables: set[str]
    writer: TraceWriter
    tracks: dict[tuple[object, ...], Track] = field(default_factory=dict)
    processes: dict[tuple[object, ...], int] = field(default_factory=dict)
    # Numbers of arrows by process and correlation, of calls that launched something.
    begun: dict[tuple[int, int], int] = field(default_factory=dict)
    # Ranges that were never closed, and lines about what else is not shown.
    unclosed: int = 0
    lacking: list[str] = field(default_factory=list)

    def process(self, key: tuple[object, ...], number: int, name: str, order: int) -> int:
        """Return the number of a process in the picture, which is named when it is first needed."""
        if key not in self.processes:
            self.processes[key] = number
            self.writer.name_process(number, name, order)
        return self.processes[key]


def write_trace(sqlite: str | Path, path: str | Path) -> list[str]:
    """Write the trace for Perfetto and return notes on what it does not show.

    Raises:
        DataError: the file is no export of nsys.
    """
    with open_export(sqlite) as (database, tables), open_writer(path) as writer:
        picture = _Picture(database, tables, writer)
        launching = _find_launching(picture)
        names = _read_names(database, tables)
        for table, title in THREAD_TABLES.items():
            if table in tables:
                _write_threads(picture, table, title, launching, names)
        _write_streams(picture)
        _write_counters(picture)
    unclosed = [f"{picture.unclosed} ranges were never closed and are left out"] if picture.unclosed else []
    return (
        unclosed
        + picture.lacking
        + ([] if writer.slices else ["the trace is empty: it holds neither calls nor ranges nor kernels"])
    )


def _find_launching(picture: _Picture) -> set[tuple[int, int]]:
    """Return process and correlation of all GPU work; a graph's kernels share one."""
    found: set[tuple[int, int]] = set()
    for table in (KERNEL_TABLE, COPY_TABLE, SET_TABLE, GRAPH_TABLE):
        if table in picture.tables:
            read = sql_for_numbers(picture.database, table, ["globalPid", "correlationId"])
            found.update(picture.database.execute(f"SELECT DISTINCT {', '.join(read.values())} FROM {table}"))
    return found


def _write_threads(picture: _Picture, table: str, title: str, launching: set[tuple[int, int]], names: "_Names") -> None:
    """Write the spans of threads in one table; calls that are in `launching` begin an arrow."""
    spans = _read_ranges(picture) if table == "NVTX_EVENTS" else _read_calls(picture, table)
    for span in spans:
        thread, kind = span.place
        if (table, thread, kind) not in picture.tracks:
            process = _as_int(thread) & PROCESS
            number = process >> 24 & 0xFFFFFF
            shown = picture.process((process,), number, names.process(process), number)
            name = f"{names.thread(_as_int(thread))}: {kind or title}"
            picture.tracks[table, thread, kind] = Track(shown, name, nested=not kind)
        track = picture.tracks[table, thread, kind]
        row = picture.writer.add_slice(track, span.name, span.start, span.end, span.arguments)
        key = (_as_int(thread) & PROCESS, span.correlation)
        # A call of the driver within one of the runtime has the same correlation.
        if table == CALL_TABLE and key in launching and key not in picture.begun:
            picture.begun[key] = len(picture.begun) + 1
            picture.writer.begin_flow(track.process, row, span.start, picture.begun[key])


def _read_ranges(picture: _Picture) -> Iterator[_Span]:
    """Yield NVTX ranges by start; those that need not lie within one another are of a kind of their own."""
    thread = sql_for_numbers(picture.database, "NVTX_EVENTS", ["globalTid"])["globalTid"]
    rows = picture.database.execute(
        f"SELECT {RANGE_TEXT}, start, end, {thread}, eventType FROM NVTX_EVENTS "
        f"WHERE eventType IN ({PUSH_POP}, {START_END}) ORDER BY start, end DESC"
    )
    for name, start, end, owner, kind in rows:
        # Exports of schema 2 have 0 where later ones have NULL.
        if end is None or end < start:
            picture.unclosed += 1
        else:
            of_its_own = "" if kind == PUSH_POP else "ranges (start and end)"
            yield _Span((owner, of_its_own), name or "(no name)", start, end, UNKNOWN)


def _read_calls(picture: _Picture, table: str) -> Iterator[_Span]:
    """Yield calls by start."""
    if missing := {"globalTid", "nameId"} - existing_columns(picture.database, table):
        picture.lacking.append(f"calls of {table} are left out, because it has no column {min(missing)}")
        return
    thread = sql_for_numbers(picture.database, table, ["globalTid"])["globalTid"]
    known = table == CALL_TABLE
    correlation = sql_for_numbers(picture.database, table, ["correlationId"])["correlationId"] if known else UNKNOWN
    rows = picture.database.execute(
        f"SELECT {STRING.format('nameId')}, start, end, {thread}, {correlation} FROM {table} ORDER BY start, end DESC"
    )
    for name, start, end, owner, number in rows:
        yield _Span((owner, ""), _without_version(name or "(no name)"), start, end, number)


def _without_version(name: str) -> str:
    """Return the name of a call of CUDA without its version.

    >>> _without_version("cudaLaunchKernel_v7000"), _without_version("pthread_cond_wait")
    ('cudaLaunchKernel', 'pthread_cond_wait')
    """
    head, _, version = name.rpartition("_v")
    return head if head and version.isdigit() else name


def _write_streams(picture: _Picture) -> None:
    """Write the work of each stream; the arrow of its call ends there."""
    for span in _read_work(picture):
        process, gpu, stream = (_as_int(one) for one in span.place)
        if span.place not in picture.tracks:
            shown = _gpu_process(picture, process, gpu)
            named = gpu_spans.UNNAMED if stream == UNKNOWN else stream
            picture.tracks[span.place] = Track(shown, f"stream {named}", nested=False)
        track = picture.tracks[span.place]
        row = picture.writer.add_slice(track, span.name, span.start, span.end, span.arguments)
        if (number := picture.begun.get((process, span.correlation))) is not None:
            picture.writer.end_flow(track.process, row, span.start, number)


def _gpu_process(picture: _Picture, process: int, gpu: int) -> int:
    """Return the process of the picture in which the streams of a GPU stand."""
    number = FIRST_GPU + len(picture.processes)
    which = "" if gpu == UNKNOWN else f" {gpu}"
    return picture.process(("gpu", process, gpu), number, f"GPU{which} of process {process >> 24 & 0xFFFFFF}", number)


def _read_work(picture: _Picture) -> Iterator[_Span]:
    """Yield kernels, copies, memsets and whole graphs by stream and start."""
    spans = gpu_spans.read_spans(picture.database, picture.tables)
    spans = spans.sort_values(["start", "end"], ascending=[True, False], kind="stable")
    names: dict[int, str] = {}
    if KERNEL_TABLE in picture.tables:
        used = f"SELECT demangledName FROM {KERNEL_TABLE}"
        names = dict(picture.database.execute(f"SELECT id, value FROM StringIds WHERE id IN ({used})").fetchall())
    for row in spans.itertuples(index=False):
        if row.kind == gpu_spans.KERNEL:
            name = names.get(row.name, WHOLE_GRAPH)
        else:
            moved = gpu_spans.COPY_KINDS.get(row.copy_kind, gpu_spans.UNNAMED)
            name = f"copy {moved}" if row.kind == gpu_spans.COPY else "memset"
        yield _Span((row.process, row.gpu, row.stream), name, row.start, row.end, row.correlation, _describe_work(row))


def _describe_work(row: Any) -> Arguments:
    """Return what a copy or memset moved; row: of gpu_spans."""
    size = {} if row.bytes == UNKNOWN else {"bytes": row.bytes}
    if row.kind != gpu_spans.COPY:
        return size
    sides = {"from": row.source, "to": row.target}
    memory = {side: gpu_spans.MEMORY_KINDS.get(number, gpu_spans.UNNAMED) for side, number in sides.items()}
    rate = {"GB/s": round(row.bytes / (row.end - row.start), 3)} if size and row.end > row.start else {}
    return {**size, **memory, **rate}


def _write_counters(picture: _Picture) -> None:
    """Write the GPU's metrics over time, if they were sampled."""
    if GPU_METRICS not in picture.tables:
        return
    needs = {
        GPU_METRICS: {"typeId", "metricId", "timestamp", "value"},
        METRIC_NAMES: {"typeId", "metricId", "metricName"},
    }
    for table, columns in needs.items():
        if missing := columns - existing_columns(picture.database, table):
            picture.lacking.append(f"GPU metrics are left out, because {table} has no column {min(missing)}")
            return
    rows = picture.database.execute(
        f"SELECT DISTINCT m.typeId, n.metricName, m.timestamp, m.value FROM {GPU_METRICS} m "
        f"JOIN {METRIC_NAMES} n ON n.typeId = m.typeId AND n.metricId = m.metricId ORDER BY m.timestamp"
    )
    for kind, name, when, value in rows:
        gpu = kind & METRIC_GPU
        number = FIRST_GPU + len(picture.processes)
        process = picture.process(("metrics", kind), number, f"metrics of GPU {gpu}", number)
        picture.writer.add_value(process, name, when, value)


@dataclass(frozen=True)
class _Names:
    """Names of processes and threads, by their numbers in the export."""

    processes: dict[int, str]
    threads: dict[int, str]

    def process(self, number: int) -> str:
        """Return the name of a process for the picture."""
        shown = f"process {number >> 24 & 0xFFFFFF}"
        return f"{shown} ({self.processes[number]})" if self.processes.get(number) else shown

    def thread(self, number: int) -> str:
        """Return the name of a thread for the picture."""
        shown = f"thread {number & 0xFFFFFF}"
        return f"{shown} ({self.threads[number]})" if self.threads.get(number) else shown


def _read_names(database: sqlite3.Connection, tables: set[str]) -> _Names:
    """Read the names of processes and threads, as far as the export has them."""
    queries = {
        "PROCESSES": ({"globalPid", "name"}, "SELECT globalPid, name FROM PROCESSES WHERE globalPid IS NOT NULL"),
        "ThreadNames": (
            {"globalTid", "nameId"},
            f"SELECT globalTid, {STRING.format('nameId')} FROM ThreadNames WHERE globalTid IS NOT NULL",
        ),
    }
    found: list[dict[int, str]] = [
        dict(database.execute(query).fetchall())
        if table in tables and needs <= existing_columns(database, table)
        else {}
        for table, (needs, query) in queries.items()
    ]
    return _Names(*found)


def _as_int(value: object) -> int:
    assert isinstance(value, int)
    return value


def main(sqlite: str, trace: str, say: Callable[[str], object] = print) -> None:
    """Read an export; write the trace for Perfetto."""
    notes: Sequence[str] = write_trace(sqlite, trace)
    for note in notes:
        say(f"{trace}: {note}")
