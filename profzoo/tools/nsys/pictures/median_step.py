"""Reads one typical step of an nsys export (SQLite): ranges and calls of the CPU, the GPU's streams, gaps by cause."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS, STEP
from profzoo.tools.nsys.events.export_columns import UNKNOWN
from profzoo.tools.nsys.events.trace import Source, Trace, open_trace, read_ranges, read_window_steps
from profzoo.tools.nsys.pictures.tracks import Supplier, Track, TypicalStep, collect_tracks, condense_tracks
from profzoo.tools.nsys.steps import steps as where
from profzoo.tools.stream_overlap import COPY, KERNEL, MEMSET

COPIES = {1: "copy host to device", 2: "copy device to host", 8: "copy on the device", 10: "copy between devices"}
# More operations or calls than this are merged with their neighbours of the same name or class.
MOST = 5000


# Start and length in ns, the place of a name or cause, and of operations how many were merged.
Span = Sequence[int]


class Timeline(TypedDict):
    """One step in time; starts are relative to the step's start, and names are places in `names`."""

    # Number of the step, from 1, and how many there are.
    step: int
    steps: int
    # How long the step took in ns, until CPU and GPU were done.
    ns: int
    names: Sequence[str]
    ranges: Sequence[Span]
    calls: Sequence[Span]
    # By stream.
    streams: Mapping[str, Sequence[Span]]
    # By cause, a place in steps.CAUSES.
    gaps: Sequence[Span]
    # What was collected over time, and one line about each kind that was not.
    tracks: Sequence[Track]
    not_collected: Sequence[str]


def read_step_with_tracks(
    source: Source, whole_run: bool = False, suppliers: Sequence[Supplier] = ()
) -> tuple[Timeline, pd.DataFrame] | None:
    """Return the step of median length of the first process, without the window's first step, and the spans of tracks.

    None without steps. whole_run: the trace holds more than the window; only whole steps count. suppliers: of tracks.

    Returns: `step`, the number of the step, from 1; `steps`, the number of all steps; `ns`, the time until CPU and GPU
    had finished the step; `names`; and lists of rows. Each row begins with its start and duration in ns, counted from
    the step's begin. Rows of `ranges` and `calls` continue with a name. `streams` holds a list per stream, whose rows
    continue with a name and the number of merged operations. Rows of `gaps` continue with an index into steps.CAUSES;
    merged gaps of a cause take as long as all its gaps. A name is an index into `names`. The spans of tracks, with
    tracks.COLUMNS, are all; those in `tracks` are merged to be drawn.

    Raises:
        DataError: the file is not an export of nsys.
    """
    with open_trace(source) as trace:
        steps = read_window_steps(trace, whole_run)
        if steps.empty:
            return None
        process = int(steps["process"].min())
        own = steps[steps["process"] == process].sort_values("start", ignore_index=True)
        ranges = read_ranges(trace, PARTS)
        mine = trace.calls[trace.calls["process"] == process]
        operations, named = _name_operations(trace, process), _name_calls(trace, mine)
        place = _median(own)
        counted = where.counted_steps(own.iloc[max(place - 1, 0) : place + 1], trace.find_called(process))
        begin, end = int(counted.on_cpu[0, 0]), int(counted.span[0, 1])
        spans, missing = collect_tracks(suppliers, trace, TypicalStep(process, begin, end))
    parts = pd.concat([own.iloc[[place]], ranges[ranges["process"] == process]], ignore_index=True)
    causes = where.spans(counted, parts[parts["name"] != STEP], mine)
    names: dict[str, int] = {}
    # The picture has rows of streams anyway.
    inside, again = _name_streams(_within(operations, begin, end))
    found: Timeline = {
        "step": place + 1,
        "steps": len(own),
        "ns": end - begin,
        "ranges": _rows(_within(parts, begin, end), begin, names),
        "calls": _rows(merge_neighbours(_within(named, begin, end)), begin, names),
        "streams": {
            str(stream): _rows(merge_neighbours(rows), begin, names) for stream, rows in inside.groupby("stream")
        },
        "gaps": _gaps(causes, begin, end),
        "tracks": condense_tracks(spans[~spans["track"].isin(again)]),
        "not_collected": missing,
        "names": list(names),
    }
    return found, spans


def _median(steps: pd.DataFrame) -> int:
    """Return the position of the step of median length; the first step is left out if there are several."""
    length = (steps["end"] - steps["start"]).to_numpy(dtype=float)
    if len(length) > 1:
        length[0] = np.inf
    finite = length[np.isfinite(length)]
    return int(np.abs(length - np.quantile(finite, 0.5, method="lower")).argmin())


def _name_operations(trace: Trace, process: int) -> pd.DataFrame:
    """Return start and end in ns, GPU, stream, and the name of each kernel, copy and memset of a process."""
    trace.check_streams()
    found = trace.operations
    mine = found[(found["process"] == process) & (found["graph"] == UNKNOWN)]
    texts = {KERNEL: trace.texts, COPY: COPIES}
    otherwise = {KERNEL: "kernel", COPY: "copy", MEMSET: "fill"}
    numbers = mine["name"].where(mine["kind"] == KERNEL, mine["copy_kind"])
    names = [
        texts.get(kind, {}).get(number) or otherwise[kind] for kind, number in zip(mine["kind"], numbers, strict=True)
    ]
    return mine[["start", "end", "gpu", "stream"]].assign(name=pd.Series(names, mine.index, dtype="str"))


def _name_streams(operations: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return operations with the name of their row in the picture as `stream`, and the names of the same tracks."""
    places = operations[["gpu", "stream"]].drop_duplicates()
    if places["gpu"].nunique() < 2:
        return operations, [f"stream {stream}" for stream in places["stream"]]
    rows = [f"{stream} of GPU {gpu}" for gpu, stream in zip(operations["gpu"], operations["stream"], strict=True)]
    return operations.assign(stream=rows), [f"GPU {gpu} stream {stream}" for gpu, stream in places.to_numpy().tolist()]


def _name_calls(trace: Trace, calls: pd.DataFrame) -> pd.DataFrame:
    """Return calls with their names without versions; calls: rows of Trace.calls."""
    names = calls["name"].map({number: trace.texts.get(number) for number in calls["name"].unique()})
    return calls[["start", "end"]].assign(name=names.astype("str").str.replace(r"_v\d+$", "", regex=True))


def _within(table: pd.DataFrame, begin: int, end: int) -> pd.DataFrame:
    """Return the rows that begin in a span, by start; of rows with equal starts, the longer one comes first."""
    inside = table[(table["start"] >= begin) & (table["start"] < end)]
    return inside.sort_values(["start", "end", "name"], ascending=[True, False, True])


def merge_neighbours(table: pd.DataFrame, most: int = MOST) -> pd.DataFrame:
    """Return at most about `most` rows: if there are more, rows that begin in the same slot of time are merged.

    table: start, end, name, and `merged` if rows were merged before.
    """
    table = table if "merged" in table else table.assign(merged=1)
    if len(table) <= most:
        return table
    begin, end = table["start"].min(), table["end"].max()
    slot = (table["start"] - begin) * (most // 2) // max(end - begin, 1)
    # A merged row has the name of its longest row.
    longest = (table["end"] - table["start"]).groupby(slot).transform("max") == table["end"] - table["start"]
    names = table[longest].groupby(slot[longest])["name"].first()
    found = table.groupby(slot).agg(start=("start", "min"), end=("end", "max"), merged=("merged", "sum"))
    return found.assign(name=names)


def _gaps(causes: Sequence[np.ndarray], begin: int, end: int) -> list[list[int]]:
    """Return [start, duration, cause] of each gap in ns; if there are more than MOST, gaps in a slot are added up.

    causes: for each cause, starts and ends of its gaps in ns, shape (n, 2).
    """
    spans = [np.column_stack([gaps, np.full(len(gaps), code)]) for code, gaps in enumerate(causes)]
    table = pd.DataFrame(np.concatenate(spans), columns=["start", "end", "code"]).astype(np.int64)
    table = table.assign(start=table["start"] - begin, ns=table["end"] - table["start"])
    return merge_gaps(table, end - begin).to_numpy().tolist()


def merge_gaps(table: pd.DataFrame, whole: int, most: int = MOST) -> pd.DataFrame:
    """Return start, ns and code of gaps; if there are more than `most`, those of a cause in a slot are added up.

    whole: the length of the step in ns.
    """
    if len(table) > most:
        slot = table["start"] * (most // 4) // max(whole, 1)
        together = table.groupby(["code", slot.rename("slot")], as_index=False)
        table = together.agg(start=("start", "min"), ns=("ns", "sum"))
    return table[["start", "ns", "code"]]


def _rows(table: pd.DataFrame, begin: int, names: dict[str, int]) -> list[list[int]]:
    """Return [start, duration, index of the name] per row, and the number of merged rows if any; extends `names`."""
    columns = ["start", "end", "name", *(["merged"] if "merged" in table and table["merged"].gt(1).any() else [])]
    return [
        [int(start - begin), int(end - start), names.setdefault(name, len(names)), *map(int, merged)]
        for start, end, name, *merged in table[columns].itertuples(index=False, name=None)
    ]
