"""Writes an nsys trace as a trace that Perfetto opens.

Arrows lead from each launching call to the work that it launched.
"""

import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeAlias

import pandas as pd

from profzoo.tools.nsys.events.export_columns import UNKNOWN
from profzoo.tools.nsys.events.trace import CALL_TABLE, COPY_KINDS, MEMORY_KINDS, PROCESS, UNNAMED, Trace, open_trace
from profzoo.tools.stream_overlap import COPY, KERNEL

# Writes traces in the Trace Event Format (JSON) that Perfetto and chrome://tracing open, event by event, gzipped.
#
# The format is Google's "Trace Event Format":
# https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times in a trace are in us; all times
# here are in ns. They are written with three decimals, so that nothing is rounded.

# Values beside a slice: texts and numbers by name.
Arguments: TypeAlias = Mapping[str, str | int | float]
NO_ARGUMENTS: Arguments = {}
# Perfetto shows no arrow unless its two ends agree in this name.
FLOW = "launch"


@dataclass
class Track:
    """A row of the picture.

    Slices on one row must lie within one another or apart, or Perfetto drops them. A slice that does neither goes to a
    further lane: a row of its own below.

    nested: whether slices that lie within one another are calls within calls. Otherwise they are drawn side by side, on
    lanes.
    """

    process: int
    name: str
    nested: bool
    # By lane, the ends of the slices that are open; and the numbers of the lanes' rows.
    open_ends: list[list[int]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def find_lane(self, start: int, end: int) -> int:
        """Return the first lane that has room for a slice; slices come by start, of equal ones the longer first."""
        for lane, ends in enumerate(self.open_ends):
            while ends and ends[-1] <= start:
                ends.pop()
            if not ends or (self.nested and end <= ends[-1]):
                ends.append(end)
                return lane
        self.open_ends.append([end])
        return len(self.open_ends) - 1


class TraceWriter:
    """Writes the events of a trace; use open_writer to make one. Processes are numbered as in the picture."""

    def __init__(self, file: TextIO) -> None:
        """file: where the events go, behind the beginning of their list."""
        self._file, self._begun, self._rows = file, False, 0
        self._texts: dict[str, str] = {}
        # Number of slices that were written.
        self.slices = 0

    def name_process(self, process: int, name: str, order: int) -> None:
        """Name a process, under which its tracks stand; order: its place in the picture."""
        self._name("process_name", process, 0, {"name": name})
        self._name("process_sort_index", process, 0, {"sort_index": order})

    def add_slice(self, track: Track, name: str, start: int, end: int, arguments: Arguments = NO_ARGUMENTS) -> int:
        """Write a slice and return its row; on each track slices come by start, of equal ones the longer first."""
        lane = track.find_lane(start, end)
        if lane == len(track.rows):
            self._add_row(track)
        row = track.rows[lane]
        more = f',"args":{json.dumps(arguments)}' if arguments else ""
        head = f'{{"ph":"X","pid":{track.process},"tid":{row},"name":{self._text(name)}'
        self._write(f'{head},"ts":{format_us(start)},"dur":{format_us(end - start)}{more}}}')
        self.slices += 1
        return row

    def begin_flow(self, process: int, row: int, start: int, number: int) -> None:
        """Begin an arrow at the slice that was written last, which starts at `start`; number: of the arrow."""
        self._write(f'{{"ph":"s",{self._flow(process, row, start, number)}}}')

    def end_flow(self, process: int, row: int, start: int, number: int) -> None:
        """End an arrow at the slice that was written last; one that begins once may end several times."""
        self._write(f'{{"ph":"f","bp":"e",{self._flow(process, row, start, number)}}}')

    def add_value(self, process: int, counter: str, when: int, value: float) -> None:
        """Write the value that a counter has from a time on."""
        head = f'{{"ph":"C","pid":{process},"tid":0,"name":{self._text(counter)}'
        self._write(f'{head},"ts":{format_us(when)},"args":{{"value":{json.dumps(value)}}}}}')

    def _flow(self, process: int, row: int, start: int, number: int) -> str:
        place = f'"pid":{process},"tid":{row},"ts":{format_us(start)}'
        return f'{place},"id":{number},"cat":"{FLOW}","name":"{FLOW}"'

    def _add_row(self, track: Track) -> None:
        # Numbers of rows begin at 1, as 0 is the idle thread to Perfetto.
        self._rows += 1
        track.rows.append(self._rows)
        place = len(track.rows)
        name = track.name if place == 1 else f"{track.name} ({place})"
        self._name("thread_name", track.process, self._rows, {"name": name})
        self._name("thread_sort_index", track.process, self._rows, {"sort_index": self._rows})

    def _name(self, kind: str, process: int, row: int, arguments: Arguments) -> None:
        self._write(json.dumps({"ph": "M", "pid": process, "tid": row, "name": kind, "args": arguments}))

    def _text(self, text: str) -> str:
        if text not in self._texts:
            self._texts[text] = json.dumps(text)
        return self._texts[text]

    def _write(self, event: str) -> None:
        self._file.write(f",\n{event}" if self._begun else f"\n{event}")
        self._begun = True


@contextmanager
def open_writer(path: str | Path) -> Iterator[TraceWriter]:
    """Open a gzipped trace for writing; the file is complete at the end of the `with` block."""
    # Without a time of writing, so that the same trace is the same file.
    with (
        Path(path).open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as file,
    ):
        # Without `displayTimeUnit`: Perfetto's trace processor (seen in 20.1) takes it for the unit of all times.
        file.write('{"traceEvents":[')
        yield TraceWriter(file)
        file.write("\n]}\n")


def format_us(ns: int) -> str:
    """Return a time in ns as a number of us, exactly.

    >>> format_us(1234567), format_us(5), format_us(-1500)
    ('1234.567', '0.005', '-1.500')
    """
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{rest:03d}"


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

    trace: Trace
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
        DataError: the file is not an export of nsys.
    """
    with open_trace(sqlite) as trace, open_writer(path) as writer:
        picture = _Picture(trace, writer)
        launching = _find_launching(trace)
        names = _read_names(trace)
        for table, title in THREAD_TABLES.items():
            if table in trace.tables:
                _write_threads(picture, table, title, launching, names)
        _write_streams(picture)
        _write_counters(picture)
    unclosed = [f"{picture.unclosed} ranges were never closed and are left out"] if picture.unclosed else []
    return (
        unclosed
        + picture.lacking
        + ([] if writer.slices else ["the trace is empty: it holds neither calls nor ranges nor kernels"])
    )


def _find_launching(trace: Trace) -> set[tuple[int, int]]:
    """Return process and correlation of all GPU work; a graph's kernels share one."""
    pairs = (table[["process", "correlation"]] for table in (trace.operations, trace.graph_launches))
    return {pair for table in pairs for pair in table.itertuples(index=False, name=None)}


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
    ranges = picture.trace.ranges
    # Exports of schema 2 have 0 where later ones have NULL.
    closed = ranges[ranges["end"] >= ranges["start"]]
    picture.unclosed += len(ranges) - len(closed)
    for row in _in_order(closed[["name", "start", "end", "thread", "shared"]]).itertuples(index=False):
        of_its_own = "ranges (start and end)" if row.shared else ""
        yield _Span((row.thread, of_its_own), row.name or "(no name)", row.start, row.end, UNKNOWN)


def _read_calls(picture: _Picture, table: str) -> Iterator[_Span]:
    """Yield calls by start."""
    trace = picture.trace
    if missing := {"globalTid", "nameId"} - trace.find_columns(table):
        picture.lacking.append(f"calls of {table} are left out, because it has no column {min(missing)}")
        return
    columns = {"start": "start", "end": "end", "thread": "globalTid", "name": "nameId"}
    calls = trace.calls if table == CALL_TABLE else trace.read_numbers(table, columns).assign(correlation=UNKNOWN)
    for row in _in_order(calls[[*columns, "correlation"]]).itertuples(index=False):
        name = _without_version(trace.texts.get(row.name) or "(no name)")
        yield _Span((row.thread, ""), name, row.start, row.end, row.correlation)


def _in_order(spans: pd.DataFrame) -> pd.DataFrame:
    """Return spans by start; of those that begin together the longest comes first."""
    return spans.sort_values(["start", "end"], ascending=[True, False], kind="stable")


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
            named = UNNAMED if stream == UNKNOWN else stream
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
    picture.trace.check_streams()
    spans = _in_order(picture.trace.operations)
    for row in spans.itertuples(index=False):
        if row.kind == KERNEL:
            name = picture.trace.texts.get(row.name, WHOLE_GRAPH)
        else:
            moved = COPY_KINDS.get(row.copy_kind, UNNAMED)
            name = f"copy {moved}" if row.kind == COPY else "memset"
        yield _Span((row.process, row.gpu, row.stream), name, row.start, row.end, row.correlation, _describe_work(row))


def _describe_work(row: Any) -> Arguments:
    """Return what a copy or memset moved; row: of Trace.operations."""
    size = {} if row.bytes == UNKNOWN else {"bytes": row.bytes}
    if row.kind != COPY:
        return size
    sides = {"from": row.source, "to": row.target}
    memory = {side: MEMORY_KINDS.get(number, UNNAMED) for side, number in sides.items()}
    rate = {"GB/s": round(row.bytes / (row.end - row.start), 3)} if size and row.end > row.start else {}
    return {**size, **memory, **rate}


def _write_counters(picture: _Picture) -> None:
    """Write the GPU's metrics over time, if they were sampled."""
    if GPU_METRICS not in picture.trace.tables:
        return
    needs = {
        GPU_METRICS: {"typeId", "metricId", "timestamp", "value"},
        METRIC_NAMES: {"typeId", "metricId", "metricName"},
    }
    for table, columns in needs.items():
        if missing := columns - picture.trace.find_columns(table):
            picture.lacking.append(f"GPU metrics are left out, because {table} has no column {min(missing)}")
            return
    rows = picture.trace.database.execute(
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


def _read_names(trace: Trace) -> _Names:
    """Read the names of processes and threads, as far as the export has them."""
    threads = trace.read_numbers("ThreadNames", ["globalTid", "nameId"])
    processes = trace.read_rows("PROCESSES", "globalPid", "name")
    return _Names(dict(processes), {thread: trace.texts.get(name, "") for thread, name in threads.to_numpy().tolist()})


def _as_int(value: object) -> int:
    assert isinstance(value, int)
    return value


def main(sqlite: str, trace: str, say: Callable[[str], object] = print) -> None:
    """Read an export; write the trace for Perfetto."""
    notes: Sequence[str] = write_trace(sqlite, trace)
    for note in notes:
        say(f"{trace}: {note}")
