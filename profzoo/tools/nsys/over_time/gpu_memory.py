"""Reads the GPU memory in use over time, by kind of memory, from the allocations that nsys traced.

nsys 2025.3 begins a trace with all that was allocated and freed before it, at the time 0. If a release does not, and
only the window is traced (`nsys.capture: window`), memory that was allocated before it is not known, unless the trace
sees it freed. `in_use_bytes` then is the least that was in use; with `nsys.capture: run` it is all. torch takes memory
from CUDA in large blocks and keeps them, so that these are the blocks of its allocator, and not its tensors.
"""

import numpy as np
import pandas as pd

from profzoo.io.columns import COUNT, CPU, FLAG, TEXT, WHOLE, Column
from profzoo.io.csv_tables import Table
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.export_columns import has_option
from profzoo.tools.nsys.events.trace import Source, Trace, open_trace, read_window_steps
from profzoo.tools.nsys.steps import steps as where
from profzoo.tools.stream_overlap import KERNEL

# Divides the traced steps' time among them: a step lasts until the next one starts, the last until the GPU is done.

SPAN_COLUMNS = ["process", "step", "start", "end"]


def read_step_spans(trace: Trace, whole_run: bool = False) -> pd.DataFrame:
    """Return one row per process and step: its number from 0, and its start and end in ns on the clock of the export.

    The GPU may still work on a step when the next one starts; that work then counts for the next one, so that no moment
    counts twice.

    whole_run: the trace holds more than the window; only whole steps count.
    """
    steps = read_window_steps(trace, whole_run).sort_values(["process", "start"], ignore_index=True)
    ends = steps.groupby("process")["start"].shift(-1)
    for place in np.flatnonzero(ends.isna()):
        done = trace.find_called(int(steps.loc[place, "process"]))
        ends[place] = where.counted_steps(steps.iloc[[place]], done).span[0, 1]
    spans = steps.assign(end=ends.astype("int64"), step=steps.groupby("process").cumcount())
    return spans[SPAN_COLUMNS].astype("int64")


def shares_of_work(spans: pd.DataFrame, work: pd.DataFrame) -> dict[str, list[float]]:
    """Return the parts of each span in which a kernel ran, and in which the GPU did anything, by column.

    spans: rows of read_step_spans. work: operations of a GPU, with `start` and `end` in ns and their `kind`.
    """
    starts, ends = (spans[edge].to_numpy(dtype=np.int64) for edge in ("start", "end"))
    lengths = np.where(ends > starts, ends - starts, np.nan)
    shares: dict[str, list[float]] = {}
    for name, rows in (("kernel_share", work[work["kind"] == KERNEL]), ("busy_share", work)):
        ran = intervals.union(rows[["start", "end"]].to_numpy(dtype=np.int64))
        shares[name] = (intervals.covered_ns(ran, starts, ends) / lengths).tolist()
    return shares


EVENTS = "CUDA_GPU_MEMORY_USAGE_EVENTS"
NEEDED = ("start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType")
NOT_COLLECTED = "no GPU memory was traced over time: set nsys.cuda_memory_usage to true"
NOTHING = (
    "no GPU memory was taken or freed while nsys traced, as torch keeps its blocks: set nsys.capture to run for what "
    "was taken before"
)
# What an export names the option by which it was collected, and its value.
OPTION = ("%COLLECT_GPU_MEMORY_USAGE", "true")
# Numbers of ENUM_CUDA_DEV_MEM_EVENT_OPER and ENUM_CUDA_MEM_KIND in every export.
ALLOCATION, FREE = 0, 1
# The time that nsys gives to what happened before it began to trace.
BEGINNING = 0
KINDS = ("pageable", "pinned", "device", "array", "managed", "device static", "managed static", "unknown")
BEFORE, TAKEN, FREED = "before", "allocation", "free"
COLUMNS = [
    "process", "gpu", "kind", "operation", "step", "t_ns", "bytes", "in_use_bytes", "peak_bytes", "allocated_before"
]  # fmt: skip
GROUP = ["process", "gpu", "kind"]
IDENTITY = ["process", "gpu", "start", "bytes"]


def _adds_up(table: pd.DataFrame) -> str | None:
    if table.empty:
        return None
    signed = _signed_bytes(table).groupby([table[name] for name in GROUP]).cumsum()
    wrong = (signed != table["in_use_bytes"]) | (table["in_use_bytes"] > table["peak_bytes"])
    return f"row {int(wrong.argmax()) + 1}: in_use_bytes is not what was taken and not freed" if wrong.any() else None


TABLE = Table(
    columns={
        "kind": Column(
            TEXT, "Kind of memory: `device`, `pinned` (of the host), `managed` and others of CUPTI.", tool="nsys"),
        "operation": Column(
            TEXT, "`allocation` or `free`; `before` for all memory that was allocated before the trace.", tool="nsys"),
        "process": Column(COUNT, "Process ID in the trace.", tool="nsys"),
        "bytes": Column(COUNT, "Bytes that were taken or freed.", "byte", "nsys"),
        "in_use_bytes": Column(
            COUNT, "Bytes of this kind in use after the event. Where nsys does not tell what was allocated before "
            "the trace, such memory is in it only if the trace sees it freed.", "byte", "nsys"),
        "peak_bytes": Column(COUNT, "Largest `in_use_bytes` up to here.", "byte", "nsys"),
        "gpu": Column(
            WHOLE, "CUDA's number of the GPU in the process; -1 where the export does not tell.", tool="nsys"),
        "step": Column(COUNT.or_missing, "Step of the window, counted from 0; empty outside all steps.", tool="nsys"),
        "t_ns": Column(WHOLE, "Time of the event, from the start of the first traced step on.", "ns", "nsys", CPU),
        "allocated_before": Column(FLAG, "Whether the memory was allocated before the trace.", tool="nsys"),
    },
    holds=_adds_up,
)  # fmt: skip


def explain_missing(trace: Trace) -> str | None:
    """Return one line that says why an export has no memory over time that can be read, or None."""
    if EVENTS not in trace.tables:
        return NOTHING if has_option(trace.database, *OPTION) else NOT_COLLECTED
    lacking = [name for name in NEEDED if name not in trace.find_columns(EVENTS)]
    if lacking:
        return (
            f"GPU memory over time cannot be read, as the export has no column {lacking[0]} in {EVENTS}: use an nsys "
            "from 2021 to 2026"
        )
    return None


def read_memory(trace: Trace) -> pd.DataFrame | str:
    """Return one row per allocation or free by time, with what was in use after it; or one line why there is none.

    Columns: `process` (`globalPid`), `gpu` (CUDA's number of the device in the process), `kind` of memory, `operation`,
    `start` in ns, `bytes`, `in_use_bytes`, `peak_bytes` so far, and `allocated_before`: whether the memory was
    allocated before nsys began to trace. All such memory of a group is one row of the operation BEFORE: at BEGINNING
    if nsys tells what was allocated, else at the time of the group's first event, and of memory that was freed alone.
    """
    if why := explain_missing(trace):
        return why
    names = ["start", "process", "gpu", "address", "bytes", "kind", "freed"]
    events = trace.read_numbers(EVENTS, dict(zip(names, NEEDED, strict=True)))
    events = events.sort_values("start", kind="stable", ignore_index=True)
    events["kind"] = [KINDS[number] if 0 <= number < len(KINDS) else KINDS[-1] for number in events["kind"]]
    events = _match_frees(events)
    history, traced = events[events["start"] <= BEGINNING], events[events["start"] > BEGINNING]
    before = pd.concat([history.assign(bytes=_signed_bytes(history)), _find_unseen_allocations(events)])
    before = before.groupby(GROUP, as_index=False).agg({"start": "min", "bytes": "sum"})
    before = before[before["bytes"] > 0].assign(operation=BEFORE, allocated_before=True)
    table = pd.concat([before, traced.drop(columns="known")], ignore_index=True)
    if table.empty:
        return NOTHING
    table = table.astype(dict.fromkeys(IDENTITY, "int64")).sort_values("start", kind="stable", ignore_index=True)
    table["in_use_bytes"] = _signed_bytes(table).groupby([table[name] for name in GROUP]).cumsum()
    return table.assign(peak_bytes=table.groupby(GROUP)["in_use_bytes"].cummax())


def _match_frees(events: pd.DataFrame) -> pd.DataFrame:
    """Return the events with `operation`, `allocated_before`, and `known`: whether the export has the allocation.

    A free has the bytes, GPU and kind of its allocation. An allocation at an address that is in use, and a free without
    bytes of memory from before the trace, are left out.
    """
    held: dict[tuple[int, int], dict] = {}
    rows = []
    for row in events.to_dict("records"):
        # Addresses are unique in a process, also across its GPUs.
        place = (row["process"], row["address"])
        if row["freed"] == ALLOCATION and place not in held:
            held[place] = row
            early = row["start"] <= BEGINNING
            rows.append({**row, "operation": TAKEN, "allocated_before": early, "known": True})
        elif row["freed"] == FREE:
            taken = held.pop(place, None)
            own = {} if taken is None else {name: taken[name] for name in ("bytes", "gpu", "kind")}
            early = taken is None or taken["start"] <= BEGINNING
            rows.append({**row, **own, "operation": FREED, "allocated_before": early, "known": taken is not None})
    found = pd.DataFrame(rows, columns=[*events.columns, "operation", "allocated_before", "known"])
    return found[found["bytes"] > 0].astype({"allocated_before": "bool", "known": "bool"})


def _signed_bytes(events: pd.DataFrame) -> pd.Series:
    """Return the bytes of each event: negative where memory is freed."""
    return events["bytes"] * np.where(events["operation"] == FREED, -1, 1)


def _find_unseen_allocations(events: pd.DataFrame) -> pd.DataFrame:
    """Return the memory of which the export has the free alone, from the first event of its group on."""
    return events.assign(start=events.groupby(GROUP)["start"].transform("min"))[~events["known"]]


def tabulate_memory(source: Source, whole_run: bool = False) -> tuple[pd.DataFrame, list[str]]:
    """Return the table of memory over time, aligned with the traced steps, and what is to be said about it.

    whole_run: the trace holds more than the window.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        found = read_memory(trace)
        spans = read_step_spans(trace, whole_run)
    if isinstance(found, str):
        return TABLE.empty(), [found]
    origin = int(spans["start"].min()) if len(spans) else int(found["start"].min())
    table = found.assign(t_ns=found["start"] - origin, step=_steps_at(found, spans))
    notes = []
    if not whole_run and not (found["start"] == BEGINNING).any():
        notes.append(
            "GPU memory that was allocated before the window is not in the trace unless it is freed there, so "
            "in_use_bytes is the least; set nsys.capture to run for all of it"
        )
    return table.assign(process=table["process"] // 2**24 % 2**24)[COLUMNS], notes


def _steps_at(events: pd.DataFrame, spans: pd.DataFrame) -> pd.Series:
    """Return the number of the step in which each event was; missing outside all steps."""
    found = pd.Series(pd.NA, index=events.index, dtype="Int64")
    for span in spans.itertuples():
        inside = (events["process"] == span.process) & events["start"].between(span.start, span.end, inclusive="left")
        found[inside] = span.step
    return found
