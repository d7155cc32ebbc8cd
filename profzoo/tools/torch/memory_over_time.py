"""Follows allocated and reserved memory through the traced steps, by the part of the step that allocated it."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.columns import COUNT, CPU, TEXT, WHOLE, Column
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.range_names import LAUNCHING, REST, STEP
from profzoo.tools.torch.nesting import MARK, classify_operators, nest_operators
from profzoo.tools.torch.trace import Trace, find_ranges, find_steps, range_spans, read_trace

# Numbers by which a trace names the kind of device of an allocation.
DEVICES = {"cpu": 0, "cuda": 1}
# Operators that allocate memory for the operator that calls them.
ALLOCATING = ("aten::empty", "aten::new_empty", "aten::resize_")
EARLIER = "earlier"
# What memory is counted by: before the first step, parts of the step, the replay of a graph, and the rest of the step.
HELD = (EARLIER, *LAUNCHING, REST)
TABLE = Table(
    columns={
        "step": Column(
            COUNT.or_missing, "Number of the step in the trace, counted from 0; empty between steps.", tool="torch"),
        "ns": Column(WHOLE, "Time since the first traced step began.", "ns", "torch", CPU),
        "device": Column(TEXT, "Device of the memory: `cuda:0` and so on, or `cpu`.", tool="torch"),
        "range": Column(TEXT, "Part of the step that was open; empty outside all parts.", tool="torch"),
        "operator": Column(TEXT, "Operator that allocated or released; empty outside all operators.", tool="torch"),
        "bytes": Column(WHOLE, "Bytes that were allocated; below 0 for bytes that were released.", "byte", "torch"),
        "allocated_bytes": Column(
            WHOLE, "Bytes that are allocated after it. On a CPU they are counted from the beginning of the trace.",
            "byte", "torch"),
        "reserved_bytes": Column(
            COUNT.or_missing, "Bytes that the GPU's allocator holds after it; empty on a CPU.", "byte", "torch"),
        "earlier_bytes": Column(
            WHOLE, "Of the allocated bytes, those from before the first traced step.", "byte", "torch"),
        **{
            f"{part}_bytes": Column(
                WHOLE, f"Of the allocated bytes, those that were allocated in `{part}`.", "byte", "torch")
            for part in LAUNCHING
        },
        "other_bytes": Column(
            WHOLE, "Of the allocated bytes, those that were allocated in the traced steps outside their parts.",
            "byte", "torch"),
    },
)  # fmt: skip
FACTS: fact.Needs = {"device_type": fact.TEXT}
NOT_RECORDED = "holds no event of memory: set torch.memory to true, and collect the trace again"


def main(traced: str, sidecar: str, csv: str, say: Callable[[str], object] = print) -> None:
    """Read a trace and write the table of its memory.

    Raises:
        DataError: the trace was recorded without memory, or holds no step.
    """
    facts = read_facts(sidecar, FACTS)
    found = read_trace(traced, say)
    if not len(found.memory["start"]):
        raise DataError(f"{traced} {NOT_RECORDED}")
    table = tabulate_memory(found, facts["device_type"])
    if table.empty:
        raise DataError(f"{traced} holds no event of {facts['device_type']} memory within its steps")
    write_csv(table, csv)


def tabulate_memory(trace: Trace, device_type: str) -> pd.DataFrame:
    """Return one row per allocation and release of a device's memory, in order, from the first step to the last.

    Columns: `step`, empty between steps; `ns` since the first step began; `device`; `range`, the part of the step, and
    `operator`, outside of those that only allocate; `bytes` that were allocated, below 0 for a release; after it
    `allocated_bytes`, and on a GPU `reserved_bytes`, of the allocator; and how many of the allocated bytes were
    allocated in which part of these steps. Those of `earlier` were allocated before; on a CPU they may be below 0, as
    its total begins at 0 with the trace.

    device_type: of the cell, `cuda` or `cpu`.
    """
    memory, (starts, ends, _) = trace.memory, range_spans(trace, (STEP,))
    if not len(starts):
        return TABLE.empty()
    at = memory["start"]
    chosen = np.flatnonzero((memory["device_type"] == DEVICES[device_type]) & (at >= starts[0]) & (at <= ends.max()))
    # Events of several threads are in no order, those of one moment in the order of the trace.
    chosen = chosen[np.argsort(at[chosen], kind="stable")]
    parts = find_ranges(at[chosen], trace)
    steps = find_steps(at[chosen], trace)
    gpu = device_type == "cuda"
    names = np.array(["", *LAUNCHING], dtype=object)
    frame = pd.DataFrame(
        {
            "step": pd.Series(steps, dtype="Int64").where(steps >= 0),
            "ns": at[chosen] - starts[0],
            "device": [f"cuda:{number}" if gpu else "cpu" for number in memory["device"][chosen]],
            "range": names[parts],
            "operator": _operators_at(trace, at[chosen], memory["thread"][chosen]),
            "bytes": memory["bytes"][chosen],
            "allocated_bytes": memory["allocated"][chosen],
            "reserved_bytes": pd.array(memory["reserved"][chosen] if gpu else [None] * len(chosen), dtype="Int64"),
        }
    )
    return frame.assign(**_held(frame, memory["address"][chosen]))[list(TABLE.columns)]


def _held(frame: pd.DataFrame, addresses: np.ndarray) -> dict[str, np.ndarray]:
    """Return allocated bytes after each event, by the part of the step in which they were allocated."""
    columns = {part: np.zeros(len(frame), dtype=np.int64) for part in HELD[1:]}
    alive: dict[tuple[str, int], str] = {}
    places = zip(frame["device"], addresses.tolist(), frame["bytes"], frame["range"], strict=True)
    for row, (device, address, size, part) in enumerate(places):
        if size > 0:
            alive[device, address] = part or REST
            columns[part or REST][row] = size
        elif before := alive.pop((device, address), None):
            columns[before][row] = size
    # Several devices have their own totals.
    by = frame["device"].to_numpy()
    sums = {part: pd.Series(moved).groupby(by).cumsum().to_numpy() for part, moved in columns.items()}
    earlier = frame["allocated_bytes"].to_numpy() - np.sum(list(sums.values()), axis=0)
    return {f"{part}_bytes": sums.get(part, earlier) for part in HELD}


def _operators_at(trace: Trace, times: np.ndarray, threads: np.ndarray) -> list[str]:
    """Return the operator that was open at each time on a thread, outside of operators that only allocate."""
    operators = trace.operators
    parent = nest_operators(trace).parent
    ends = operators["start"] + operators["ns"]
    is_owner = np.array([not text.startswith(ALLOCATING) for text in trace.texts] + [True])[operators["name"]]
    is_owner &= classify_operators(trace) != MARK
    places = np.full(len(times), -1, dtype=np.int64)
    for thread in np.unique(threads):
        # The last operator that began before, of those of one thread, which are in the order of their starts.
        mine, own = np.flatnonzero(operators["thread"] == thread), np.flatnonzero(threads == thread)
        before = np.searchsorted(operators["start"][mine], times[own], side="right") - 1
        places[own] = np.append(mine, -1)[before]
    found = []
    for time, place in zip(times.tolist(), places.tolist(), strict=True):
        while place >= 0 and not (ends[place] >= time and is_owner[place]):
            place = int(parent[place])
        found.append(trace.texts[operators["name"][place]] if place >= 0 else "")
    return found


def find_peaks(table: pd.DataFrame) -> pd.DataFrame:
    """Return, per step, the row after which most bytes were allocated; rows between steps are left out."""
    inside = table[table["step"].notna()]
    return table.loc[inside.groupby("step")["allocated_bytes"].idxmax()]
