"""Opens an nsys export (SQLite) and reads its events in one form, from which all that is made of a trace starts.

Rows of an export have no order since nsys 2025.6 (before, they were ordered by time). No code here relies on an order.
"""

import itertools
import sqlite3
import urllib.parse
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from profzoo.errors import DataError
from profzoo.range_names import PREFIX, STEP, WINDOW, make_nvtx_name
from profzoo.tools import stream_overlap
from profzoo.tools.kernel_signature import communicates
from profzoo.tools.nsys.events import export_columns
from profzoo.tools.nsys.events.export_columns import AGAIN, NO_CALL, PACKED, UNKNOWN, existing_columns, sql_for_numbers
from profzoo.tools.stream_overlap import COPY, KERNEL, MEMSET

KERNEL_TABLE, COPY_TABLE, SET_TABLE, GRAPH_TABLE, CALL_TABLE = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME")
)
# Beginnings of the names of CUDA runtime and driver calls that launch kernels.
LAUNCHING_KERNELS = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchCooperativeKernel",
                     "cudaGraphLaunch", "cuGraphLaunch")  # fmt: skip
# Beginnings of the names of all that launch, copy or wait; a version may follow (cudaLaunchKernel_v7000).
LAUNCHING = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch",
             "cudaMemcpy", "cuMemcpy", "cudaMemset", "cuMemset",
             # Of traces that torch.profiler made on GPUs of AMD.
             "hipLaunch", "hipExtLaunch", "hipModuleLaunch", "hipExtModuleLaunch", "hipGraphLaunch", "hipMemcpy",
             "hipMemset")  # fmt: skip
WAITING = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
           "cuCtxSynchronize", "cuEventSynchronize", "hipStreamSynchronize", "hipDeviceSynchronize",
           "hipEventSynchronize")  # fmt: skip
COPYING = ("cudaMemcpy", "cuMemcpy", "hipMemcpy")
# CUPTI's kinds of copies between host and device: to and from device memory, and arrays.
CROSSING = (1, 2, 3, 4)
# CUPTI's kinds of copies, and of memory, in words (CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind).
COPY_KINDS: Mapping[int, str] = {
    1: "host to device", 2: "device to host", 3: "host to array", 4: "array to host", 5: "array to array",
    6: "array to device", 7: "device to array", 8: "device to device", 9: "host to host", 10: "peer to peer",
    11: "unified host to device", 12: "unified device to host", 13: "unified device to device",
}  # fmt: skip
MEMORY_KINDS: Mapping[int, str] = {
    0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static", 6: "managed static",
}  # fmt: skip
UNNAMED = "unknown"
# Event types of ranges in NVTX_EVENTS, in ENUM_NSYS_EVENT_TYPE of every export, and that of names of domains.
PUSH_POP, START_END, DOMAIN_NAMES = 59, 60, 75
# The SQL of a range's name.
RANGE_TEXT = "coalesce(nullif(text, ''), (SELECT value FROM StringIds WHERE id = textId))"
NO_WHOLE_STEP = (
    "holds no whole step of the window, so no values per step are known: raise nsys.duration, lower nsys.delay, and "
    "have nvtx among nsys.traces"
)
NO_STEP = (
    "holds no step of the window, so no values per step are known, and launches have no range: this nsys did not see "
    "the program's NVTX ranges (`snakemake doctor` checks this), or the program never began a step (see its log)"
)
EARLIER = (
    f"its ranges named {STEP} are the program's own, or those of an earlier profzoo: such traces must be made again"
)
# The bits of a globalTid that name the process, as the signed integer that SQLite computes with.
PROCESS = 0xFFFFFFFFFF000000 - (1 << 64)
# The integers into which SQLite packs the launch configuration of a kernel.
PACKS = [f"pack{index}" for index in range(len(PACKED))]
# Columns of operations, by their names in the export; those of one kind of operation alone are UNKNOWN for others.
SHARED = {"row": "rowid", "start": "start", "end": "end", "correlation": "correlationId", "process": "globalPid",
          "gpu": "deviceId", "context": "contextId", "stream": "streamId", "node": "graphNodeId"}  # fmt: skip
OF_KIND = {
    KERNEL_TABLE: {"name": "demangledName"},
    COPY_TABLE: {"bytes": "bytes", "copy_kind": "copyKind", "source": "srcKind", "target": "dstKind",
                 "from_gpu": "srcDeviceId", "to_gpu": "dstDeviceId"},
    SET_TABLE: {"bytes": "bytes"},
    GRAPH_TABLE: {"graph": "graphId"},
}  # fmt: skip
KINDS = {KERNEL_TABLE: KERNEL, GRAPH_TABLE: KERNEL, COPY_TABLE: COPY, SET_TABLE: MEMSET}
NUMBERS = [*SHARED, *dict.fromkeys(name for own in OF_KIND.values() for name in own)]


class DamagedError(ValueError):
    """The content of an export is impossible; the message says why, without the file's name."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The events of an export, each kind of which is read when it is first needed, and once.

    Times are in ns. A thread is nsys's globalTid, a process its globalPid. `name` of operations and calls is a number
    in `texts`.

    database: connection to the export. tables: names of its tables. path: of the export, by which messages name it.
    """

    database: sqlite3.Connection
    tables: Collection[str]
    path: str | Path = ""

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def find_columns(self, table: str) -> set[str]:
        """Return the names of a table's columns; none if the export lacks the table."""
        return existing_columns(self.database, table)

    def read_numbers(self, table: str, columns: Mapping[str, str] | Sequence[str], where: str = "") -> pd.DataFrame:
        """Return declared columns of a table as integers, a row per entry; no row if the export lacks the table.

        The values are streamed, so that a million rows do not become Python objects at the same time.

        columns: names in the export, or these by new names. where: further SQL.
        """
        named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
        rows: Iterable[tuple] = ()
        if table in self.tables:
            read = sql_for_numbers(self.database, table, [name for name in named.values() if name != "rowid"])
            wanted = ", ".join(read.get(name, name) for name in named.values())
            rows = self.database.execute(f"SELECT {wanted} FROM {table} {where}")
        return pd.DataFrame(read_integers(rows).reshape(-1, len(named)), columns=list(named))

    def read_rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return columns of a table as they are, a row per entry; no row if the export lacks one of them."""
        if not set(columns) <= self.find_columns(table):
            return []
        return self.database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()

    @cached_property
    def texts(self) -> Mapping[int, str]:
        """All texts of the export by their numbers."""
        return dict(self.database.execute("SELECT id, value FROM StringIds"))

    @cached_property
    def operations(self) -> pd.DataFrame:
        """What the GPU did: kernels, CUDA graphs that were traced as a whole, copies and memsets, a row for each.

        Columns: `start`, `end`, `correlation`, which the launching call shares, and `process`; `gpu`, `context` and
        `stream`; `kind`, one of stream_overlap.KINDS; `row` in its table; `node`, that of a CUDA graph, or 0; `name` of
        a kernel; `graph`, the number of a whole graph; `bytes` that a copy or memset moved; and of a copy the numbers
        `copy_kind`, `source` and `target`, which COPY_KINDS and MEMORY_KINDS name, and `from_gpu` and `to_gpu`. A
        number that is not known is UNKNOWN. Flags: `kernel`, of kernels and whole graphs; `talking`, of kernels that
        communicate; `crossing`, of copies between host and device. It is not known what a whole graph does.
        """
        kernels = self._read_operations(KERNEL_TABLE)
        # Graphs whose kernels are in the trace, and those that CUPTI could not time, are not operations of their own.
        graphs = self.graph_launches
        pairs, known = (
            pd.MultiIndex.from_frame(one[["process", "correlation"]])
            for one in (graphs, kernels[kernels["correlation"] != NO_CALL])
        )
        whole = graphs[(graphs["end"] > 0) & (graphs["end"] >= graphs["start"]) & ~pairs.isin(known)]
        frames = [kernels, whole, self._read_operations(COPY_TABLE), self._read_operations(SET_TABLE)]
        found = pd.concat(frames, ignore_index=True)
        numbers = found["name"].unique().tolist()
        return found.assign(
            kernel=found["kind"] == KERNEL,
            talking=found["name"].isin([one for one in numbers if communicates(self.texts.get(one, ""))]),
            crossing=found["copy_kind"].isin(CROSSING),
        )

    def check_streams(self) -> None:
        """Check that the export tells the streams of operations, for what cannot be made without them.

        Raises:
            sqlite3.OperationalError: it does not.
        """
        for table in (KERNEL_TABLE, COPY_TABLE, SET_TABLE):
            if table in self.tables:
                self.database.execute(f"SELECT streamId FROM {table} LIMIT 0")

    @cached_property
    def graph_launches(self) -> pd.DataFrame:
        """All launches of CUDA graphs in the trace, with the columns of operations but for the flags."""
        return self._read_operations(GRAPH_TABLE)

    def _read_operations(self, table: str) -> pd.DataFrame:
        """Return the operations in a table, with the columns of operations but for the flags."""
        wanted = SHARED | OF_KIND[table]
        if wanted["stream"] not in self.find_columns(table):
            del wanted["stream"]
        found = self.read_numbers(table, wanted)
        lacking = dict.fromkeys([name for name in NUMBERS if name not in wanted], UNKNOWN)
        return found.assign(**lacking, kind=pd.Series(KINDS[table], found.index, dtype="str"))

    @cached_property
    def calls(self) -> pd.DataFrame:
        """CUDA calls of the CPU, a row for each.

        Columns: `start`, `end`, `correlation`, `thread`, `process` and `name`; and the flags `launches`, `copies` and
        `waits`.
        """
        columns = {"start": "start", "end": "end", "correlation": "correlationId", "thread": "globalTid",
                   "name": "nameId"}  # fmt: skip
        found = self.read_numbers(CALL_TABLE, columns)
        names = {number: self.texts.get(number, "") for number in found["name"].unique().tolist()}
        flags = {"launches": LAUNCHING, "copies": COPYING, "waits": WAITING}
        return found.assign(
            process=found["thread"] & PROCESS,
            **{
                flag: found["name"].isin([number for number, name in names.items() if name.startswith(beginnings)])
                for flag, beginnings in flags.items()
            },
        )

    @cached_property
    def launching_calls(self) -> pd.DataFrame:
        """The calls of which each has a correlation of its own in its process, with the columns of calls.

        A runtime call may share its correlation with the driver's call inside it; the outermost one is here.
        """
        pair = ["process", "correlation"]
        calls = self.calls
        if calls.duplicated(pair).any():
            calls = calls.sort_values(["start", "end"], ascending=[True, False])
        return calls.drop_duplicates(pair)

    def find_called(self, process: int) -> pd.DataFrame:
        """Return the operations of a process with `start_call` and `end_call` of the launching call.

        These are NaN where the call was not traced.
        """
        mine, calls = (table[table["process"] == process] for table in (self.operations, self.launching_calls))
        made = calls[["correlation", "start", "end"]]
        return mine.merge(made, on="correlation", how="left", suffixes=("", "_call"))

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Launches of kernels, and of CUDA graphs that were traced as a whole, a row for each.

        Columns: those of operations but `kernel`; PACKS, the packed launch configuration; `ns`, the time on the GPU;
        `launched`, the start of the launching call, -1 minus the start on the GPU if it was not traced; and `thread` of
        that call, 0 if it was not traced.
        """
        found = self.operations[self.operations["kernel"]].drop(columns="kernel")
        packs = self._read_configurations().set_index(found.index[: (found["graph"] == UNKNOWN).sum()])
        return self.add_calls(found).assign(
            **packs.reindex(found.index, fill_value=0), ns=found["end"] - found["start"]
        )

    def add_calls(self, operations: pd.DataFrame) -> pd.DataFrame:
        """Return operations with `launched` and `thread` of their launching calls, as launches have them."""
        calls = self.launching_calls
        known = pd.MultiIndex.from_frame(calls[["process", "correlation"]])
        at = known.get_indexer(pd.MultiIndex.from_frame(operations[["process", "correlation"]]))
        made, thread = (np.append(calls[name].to_numpy(), 0)[at] for name in ("start", "thread"))
        return operations.assign(
            launched=np.where(at < 0, -1 - operations["start"], made), thread=np.where(at < 0, 0, thread)
        )

    def _read_configurations(self) -> pd.DataFrame:
        """Return the packed launch configuration of each kernel; PACKS.

        A kernel without a mangled name is identified by its demangled name.
        """
        if KERNEL_TABLE not in self.tables:
            return pd.DataFrame(columns=PACKS, dtype="int64")
        names = [column for group in PACKED for _, column, _ in group]
        read = sql_for_numbers(self.database, KERNEL_TABLE, names) | {"mangledName": self._kernel_identity}
        columns = dict.fromkeys(PACKS, "0")
        for name, group in zip(PACKS, PACKED, strict=True):
            for _, column, bits in group:
                columns[name] = f"(({columns[name]}) << {bits}) | {read[column]}"
        rows = self.database.execute(f"SELECT {', '.join(columns.values())} FROM {KERNEL_TABLE}")
        return pd.DataFrame(read_integers(rows).reshape(-1, len(columns)), columns=PACKS)

    @property
    def _kernel_identity(self) -> str:
        """The SQL that identifies a kernel: the number of its mangled name, or else of its demangled name."""
        mangled = sql_for_numbers(self.database, KERNEL_TABLE, ["mangledName"])["mangledName"]
        return f"coalesce(nullif({mangled}, 0), demangledName)"

    @cached_property
    def kernel_names(self) -> Mapping[int, tuple[str, str, str]]:
        """The mangled, demangled and short names of each kernel, by the number that identifies it in PACKS.

        The mangled name is empty if the trace does not have it.

        Raises:
            DamagedError: a name is missing from the export.
        """
        if KERNEL_TABLE not in self.tables:
            return {}
        mangled = sql_for_numbers(self.database, KERNEL_TABLE, ["mangledName"])["mangledName"]
        shown = self.database.execute(
            f"SELECT {self._kernel_identity}, max({mangled}), min(demangledName), min(shortName) FROM {KERNEL_TABLE} "
            "GROUP BY 1"
        )
        try:
            return {
                number: (self.texts[own] if own else "", self.texts[long], self.texts[short])
                for number, own, long, short in shown
            }
        except KeyError as error:
            raise DamagedError(f"a kernel's name is string {error}, and there is none of that number") from None

    @cached_property
    def ranges(self) -> pd.DataFrame:
        """Ranges of NVTX, closed or not, a row for each.

        Columns: `name` (None without one), `start` and `end`, which is before the start of a range that was never
        closed; `thread` and `process` that opened it; `domain`, its number, 0 for none; and `shared`: whether it was
        opened for the process, not for one thread.
        """
        rows = self._read_texts("eventType IN (?, ?)", (PUSH_POP, START_END))
        found = pd.DataFrame(rows, columns=["name", "start", "end", "thread", "domain", "kind"])
        found = found.astype(dict.fromkeys(["start", "end", "thread", "domain"], "int64") | {"name": "object"})
        return found.assign(process=found["thread"] & PROCESS, shared=found.pop("kind") == START_END)

    @cached_property
    def domains(self) -> Mapping[int, str]:
        """The names of domains of NVTX by their numbers; a domain that was created before the trace has none."""
        return {domain: name for name, *_, domain, _ in self._read_texts("eventType = ?", (DOMAIN_NAMES,)) if name}

    def _read_texts(self, where: str, values: Sequence[int]) -> list[tuple]:
        """Return name, start, end, thread, domain and type of events of NVTX; where: SQL with values."""
        if "NVTX_EVENTS" not in self.tables:
            return []
        read = sql_for_numbers(self.database, "NVTX_EVENTS", ["globalTid", "domainId"])
        return self.database.execute(
            f"SELECT {RANGE_TEXT}, start, coalesce(end, start - 1), {', '.join(read.values())}, eventType "
            f"FROM NVTX_EVENTS WHERE {where}",
            values,
        ).fetchall()


# The path of an export, or a trace that is open already.
Source: TypeAlias = str | Path | Trace


@contextmanager
def open_trace(source: Source) -> Iterator[Trace]:
    """Open an export for reading, or go on with the one that this process opened last, so that jobs read a file once.

    Raises:
        DataError: the file is not an export, or is damaged; also if only the body of the `with` block finds the damage.
    """
    if isinstance(source, Trace):
        yield source
        return
    trace = _open_once(source)
    try:
        yield trace
    except (sqlite3.Error, DamagedError) as error:
        raise DataError(f"{source} {_unread(trace.database, error)}") from error


# The export that was opened last, by path and state of the file. Its connection closes when nothing refers to it.
_last: dict[tuple[str, int, int, int], Trace] = {}


def _open_once(path: str | Path) -> Trace:
    """Open an export, or return it if it was opened last and its file has not changed."""
    try:
        state = Path(path).stat()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    key = str(path), state.st_ino, state.st_size, state.st_mtime_ns
    if key not in _last:
        trace = _open_file(path)
        _last.clear()
        _last[key] = trace
    return _last[key]


def _open_file(path: str | Path) -> Trace:
    try:
        database = sqlite3.connect(f"file:{urllib.parse.quote(str(path))}?mode=ro", uri=True)
    except sqlite3.OperationalError as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    try:
        tables = list_tables(database)
        damage = export_columns.find_damage(Path(path))
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        database.close()
        raise DataError(f"{path} is not an SQLite export of nsys, or damaged: {_line(error)}: {AGAIN}") from error
    if damage or "StringIds" not in tables:
        database.close()
        raise DataError(
            f"{path}: {damage}" if damage else f"{path} is not an export of nsys, as it has no table StringIds: {AGAIN}"
        )
    trace = Trace(database, tables, path)
    weakref.finalize(trace, database.close)
    return trace


def list_tables(database: sqlite3.Connection) -> set[str]:
    """Return the names of an export's tables."""
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _unread(database: sqlite3.Connection, error: Exception) -> str:
    """Explain why an undamaged export could not be read, and what to do."""
    if "no such column" in str(error):
        writer = export_columns.exporting_version(database)
        return f"has another layout ({_line(error)}): {writer} writes it so, {export_columns.OTHER}"
    return f"is damaged, or of an nsys that this workflow does not know: {_line(error)}: {export_columns.ONCE}"


def _line(error: Exception) -> str:
    """Return an error's message in one short line, because SQLite quotes a whole schema."""
    return " ".join(str(error).split())[:200]


def read_integers(rows: Iterable[tuple]) -> np.ndarray:
    """Return all values of the rows as one flat array of integers, shape (rows * columns,).

    The values are streamed, so that a million rows do not become Python objects at the same time.

    Raises:
        DamagedError: a value is empty, or text.
    """
    try:
        return np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedError(f"a number is none: {error}") from error


def count_traced_steps(source: Source, whole_run: bool) -> tuple[int, bool]:
    """Return the number of complete steps of the window per process, and whether the trace has the window's beginning.

    whole_run: the trace holds more than the window.
    """
    with open_trace(source) as trace:
        counts = read_window_steps(trace, whole_run).groupby("process").size()
        return int(counts.max()) if len(counts) else 0, len(_named(trace, map(make_nvtx_name, (WINDOW,)))) > 0


def explain_no_steps(source: Source, whole_run: bool) -> str | None:
    """Explain why a trace contains no complete step, as text to follow its name, or return None."""
    with open_trace(source) as trace:
        if len(read_window_steps(trace, whole_run)):
            return None
        why = NO_WHOLE_STEP if whole_run else NO_STEP
        earlier = _named(trace, [make_nvtx_name(STEP)]).empty and len(_named(trace, [STEP]))
    return f"{why}; {EARLIER}" if earlier else why


def read_window_steps(trace: Trace, whole_run: bool) -> pd.DataFrame:
    """Return the complete steps of the window, with the columns of read_ranges.

    In a trace of the window, these are all steps. In a trace of a whole run, these are the steps after the window's
    beginning, or all steps if the trace lacks it. Steps are left out if the trace ended before them or their work.
    """
    steps = read_ranges(trace, (STEP,))
    if not whole_run or steps.empty:
        return steps
    if "ANALYSIS_DETAILS" in trace.tables:
        # When nsys stops, it closes open ranges at that moment.
        (stopped,) = trace.database.execute("SELECT max(duration) FROM ANALYSIS_DETAILS").fetchone()
        steps = steps[steps["end"] < (np.inf if stopped is None else stopped)]
    begins = _named(trace, [make_nvtx_name(WINDOW)]).groupby("process")["start"].min()
    steps = steps[steps["start"] >= steps["process"].map(begins).fillna(-np.inf)]
    return steps[steps["end"] <= steps["process"].map(_first_lost(trace)).fillna(np.inf)].reset_index(drop=True)


def _first_lost(trace: Trace) -> pd.Series:
    """Return by process the time in ns of the first launching call whose kernel had not run when the trace ended.

    Only calls after the last one with a kernel count; an earlier call without a kernel was captured into a graph.
    """
    pair = ["process", "correlation"]
    names = [
        number for number in trace.calls["name"].unique() if trace.texts.get(number, "").startswith(LAUNCHING_KERNELS)
    ]
    made = trace.calls[trace.calls["name"].isin(names)]
    ran = pd.concat([trace.operations.loc[trace.operations["kernel"], pair], trace.graph_launches[pair]])
    done = pd.MultiIndex.from_frame(made[pair]).isin(pd.MultiIndex.from_frame(ran))
    last = made[done].groupby("process")["start"].max()
    after = made["start"] > made["process"].map(last).fillna(-np.inf)
    return made[after].groupby("process")["start"].min()


def read_ranges(trace: Trace, names: Sequence[str]) -> pd.DataFrame:
    """Return profzoo's ranges with these names (step, forward, ...) on the CPU, ordered by start.

    Columns: `name`, `start` and `end` in ns, `process`, `thread`. Ranges that were never closed are left out. Ranges of
    the program itself are not among them, even if they have the same names.
    """
    found = _named(trace, map(make_nvtx_name, names))
    found = found.assign(name=found["name"].astype("str").str.removeprefix(PREFIX))
    # Exports of schema 2 have 0 where later ones have NULL.
    return found[found["end"] >= found["start"]].reset_index(drop=True)


def _named(trace: Trace, names: Iterable[str]) -> pd.DataFrame:
    """Return ranges of threads by their names in the trace, ordered by start."""
    found = trace.ranges[trace.ranges["name"].isin(list(names)) & ~trace.ranges["shared"]]
    ordered = found.sort_values(["start", "end", "name"], ignore_index=True)
    return ordered[["name", "start", "end", "process", "thread"]]


def find_impossible(trace: Trace) -> tuple[pd.DataFrame, int]:
    """Return the kernels, copies and memsets that have times that they cannot have had, and the number of all.

    Columns: `table` and `row` in it, `place` among all, `name`, and `why`.
    """
    found = trace.operations[trace.operations["graph"] == UNKNOWN].reset_index(drop=True)
    called = trace.add_calls(found)["launched"].clip(lower=-1).to_numpy()
    # Branches of a graph run beside each other; without its own stream, an operation is held against no other.
    apart = (found["node"] == 0) & (found["stream"] != UNKNOWN)
    queue = found.groupby(["process", "gpu", "context", "stream"], sort=False).ngroup().where(apart, -1)
    span = int(trace.calls["end"].max() - trace.calls["start"].min()) if len(trace.calls) else None
    ns = found["end"] - found["start"]
    wrong = stream_overlap.find_impossible(found["start"].to_numpy(), ns.to_numpy(), called, queue.to_numpy(), span)
    chosen = found.iloc[[*wrong]]
    tables = chosen["kind"].map({kind: table for table, kind in KINDS.items() if table != GRAPH_TABLE})
    shown = [trace.texts.get(number, table.rpartition("_")[2].lower())
             for number, table in zip(chosen["name"], tables, strict=True)]  # fmt: skip
    return chosen[["row"]].assign(table=tables, place=[*wrong], name=shown, why=[*wrong.values()]), len(found)
