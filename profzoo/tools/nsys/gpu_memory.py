"""Reads the GPU memory in use over time, by kind of memory, from the allocations that nsys traced.

nsys 2025.3 begins a trace with all that was allocated and freed before it, at the time 0. If a release does not, and
only the window is traced (`nsys.capture: window`), memory that was allocated before it is not known, unless the trace
sees it freed. `in_use_bytes` then is the least that was in use; with `nsys.capture: run` it is all. torch takes memory
from CUDA in large blocks and keeps them, so that these are the blocks of its allocator, and not its tensors.
"""

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tools.nsys import dictionary, step_spans
from profzoo.tools.nsys.export_columns import existing_columns, has_option, sql_for_numbers
from profzoo.tools.nsys.trace import open_export, read_integers

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
WHOLE = ["process", "gpu", "start", "bytes"]


def _adds_up(table: pd.DataFrame) -> str | None:
    if table.empty:
        return None
    signed = _signed_bytes(table).groupby([table[name] for name in GROUP]).cumsum()
    wrong = (signed != table["in_use_bytes"]) | (table["in_use_bytes"] > table["peak_bytes"])
    return f"row {int(wrong.argmax()) + 1}: in_use_bytes is not what was taken and not freed" if wrong.any() else None


TABLE = Table(
    columns={
        **dict.fromkeys(["kind", "operation"], column_types.TEXT),
        **dict.fromkeys(["process", "bytes", "in_use_bytes", "peak_bytes"], column_types.COUNT),
        # -1 where the export does not tell.
        "gpu": column_types.WHOLE,
        "step": column_types.or_missing(column_types.COUNT),
        "t_ns": column_types.WHOLE,
        "allocated_before": column_types.FLAG,
    },
    holds=_adds_up,
    about=dictionary.GPU_MEMORY,
)


def explain_missing(database: sqlite3.Connection, tables: set[str]) -> str | None:
    """Return one line that says why an export has no memory over time that can be read, or None."""
    if EVENTS not in tables:
        return NOTHING if has_option(database, *OPTION) else NOT_COLLECTED
    lacking = [name for name in NEEDED if name not in existing_columns(database, EVENTS)]
    if lacking:
        return (
            f"GPU memory over time cannot be read, as the export has no column {lacking[0]} in {EVENTS}: use an nsys "
            "from 2021 to 2026"
        )
    return None


def read_memory(database: sqlite3.Connection, tables: set[str]) -> pd.DataFrame | str:
    """Return one row per allocation or free by time, with what was in use after it; or one line why there is none.

    Columns: `process` (`globalPid`), `gpu` (CUDA's number of the device in the process), `kind` of memory, `operation`,
    `start` in ns, `bytes`, `in_use_bytes`, `peak_bytes` so far, and `allocated_before`: whether the memory was
    allocated before nsys began to trace. All such memory of a group is one row of the operation BEFORE: at BEGINNING
    if nsys tells what was allocated, else at the time of the group's first event, and of memory that was freed alone.
    """
    if why := explain_missing(database, tables):
        return why
    read = sql_for_numbers(database, EVENTS, NEEDED)
    rows = read_integers(database.execute(f"SELECT {', '.join(read.values())} FROM {EVENTS}"))
    events = pd.DataFrame(rows.reshape(-1, len(NEEDED)), columns=["start", "process", "gpu", "address", "bytes", "kind",
                                                                  "freed"])  # fmt: skip
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
    table = table.astype(dict.fromkeys(WHOLE, "int64")).sort_values("start", kind="stable", ignore_index=True)
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


def tabulate_memory(path: str | Path, whole_run: bool = False) -> tuple[pd.DataFrame, list[str]]:
    """Return the table of memory over time, aligned with the traced steps, and what is to be said about it.

    whole_run: the trace holds more than the window.

    Raises:
        DataError: the file is no export of nsys.
    """
    with open_export(path) as (database, tables):
        found = read_memory(database, tables)
        spans = step_spans.read_step_spans(database, tables, whole_run)
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
