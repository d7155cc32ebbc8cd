"""Tabulates what each stream of a GPU did per step, beside what else, and what its copies moved, by an nsys trace."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io import sidecars as fact
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools import stream_overlap
from profzoo.tools.nsys import dictionary, gpu_spans, timeline
from profzoo.tools.nsys.export_columns import UNKNOWN
from profzoo.tools.nsys.steps import Counted, counted_steps
from profzoo.tools.nsys.trace import explain_no_steps, open_export, read_window_steps
from profzoo.tools.stream_overlap import ALL, CASES, COPY, COUNTS, KINDS, TIMES

STREAM = ["process", "gpu", "stream"]
COLUMNS = [*STREAM, "steps", *COUNTS.values(), *TIMES]
MOVED = ["kind", "source", "target"]
COPY_COLUMNS = [
    *STREAM, *MOVED, "steps", "copies", "bytes", "total_ns", "beside_kernel_ns", "bytes_per_s", "largest_bytes",
    "largest_bytes_per_s",
]  # fmt: skip
# The numbers of processes and GPUs are not in every trace.
KNOWN = column_types.or_missing(column_types.COUNT)
AMOUNT, MAYBE = column_types.AMOUNT, column_types.or_missing(column_types.AMOUNT)


def find_gaps(table: pd.DataFrame) -> str | None:
    """Return which times of a table of streams do not add up, or None."""
    slack = 1 + 1e-6 * table["busy_ns"]
    for names in (KINDS, CASES):
        off = (table[[f"{name}_ns" for name in names]].sum(axis=1) - table["busy_ns"]).abs() > slack
        if off.any():
            return (
                f"row {int(off.to_numpy().argmax()) + 1}: {', '.join(f'{name}_ns' for name in names)} are not busy_ns"
            )
    # Not by groupby, which leaves rows with a missing GPU out unless told otherwise.
    for (process, _), rows in table.groupby(["process", "gpu"], dropna=False):
        whole = rows["stream"] == ALL
        parts, busy = rows.loc[~whole, "part_ns"].sum(), rows.loc[whole, "busy_ns"].sum()
        if abs(parts - busy) > 1 + 1e-6 * busy:
            return f"process {process}: the parts of its streams are not the busy time of all"
    return None


TABLE = Table(
    columns={"process": column_types.COUNT, "gpu": KNOWN, "stream": column_types.TEXT, "steps": column_types.COUNT}
    | dict.fromkeys([*COUNTS.values(), *TIMES], AMOUNT),
    key=STREAM,
    holds=find_gaps,
    about=dictionary.STREAMS,
)
COPIES = Table(
    columns={"process": column_types.COUNT, "gpu": KNOWN, **dict.fromkeys(["stream", *MOVED], column_types.TEXT)}
    | {"steps": column_types.COUNT}
    | dict.fromkeys(["copies", "total_ns", "beside_kernel_ns"], AMOUNT)
    | dict.fromkeys(["bytes", "bytes_per_s", "largest_bytes", "largest_bytes_per_s"], MAYBE),
    key=[*STREAM, *MOVED],
    about=dictionary.COPIES,
)


def tabulate_streams(path: str | Path, whole_run: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of streams and of copies, with all times, counts and bytes per step.

    Steps and their time are those of steps.where_time_goes: without the window's first step if there are more.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is no export of nsys.
    """
    streams, copies = [], []
    for process, counted in read_counted(path, whole_run):
        for gpu, spans in counted.activity.groupby("gpu"):
            place = {"process": process >> 24 & 0xFFFFFF, "gpu": np.nan if gpu == UNKNOWN else gpu}
            table = stream_overlap.tabulate_streams(spans, counted.span)
            table[[*COUNTS.values(), *TIMES]] /= counted.steps
            streams.append(table.assign(**place, steps=counted.steps))
            copies.append(_tabulate_copies(spans, counted.steps).assign(**place))
    joined = (pd.concat(found, ignore_index=True) if found else None for found in (streams, copies))
    first, second = joined
    return (
        TABLE.empty() if first is None else _name_streams(first)[COLUMNS],
        COPIES.empty() if second is None else _name_streams(second)[COPY_COLUMNS],
    )


def read_counted(path: str | Path, whole_run: bool) -> Iterator[tuple[int, Counted]]:
    """Yield each process that ran steps, with the counted steps; their activity has the columns of gpu_spans."""
    with open_export(path) as (database, tables):
        steps = read_window_steps(database, tables, whole_run)
        spans = gpu_spans.read_spans(database, tables)
        calls = timeline.calls(database, tables)
    for process, own in steps.groupby("process"):
        made = timeline.outermost(calls[calls["process"] == process])
        mine = spans[spans["process"] == process].merge(made, on="correlation", how="left", suffixes=("", "_call"))
        yield int(process), counted_steps(own.sort_values("start"), mine)


def _tabulate_copies(spans: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Return one row per stream and kind of copy of one GPU, with the columns COPY_COLUMNS but for the place."""
    copies = spans[spans["kind"] == COPY].drop(columns="kind")
    copies = copies.assign(
        beside=stream_overlap.time_beside_kernels(copies, spans),
        ns=copies["end"] - copies["start"],
        bytes=copies["bytes"].where(copies["bytes"] != UNKNOWN).astype(float),
        kind=_name(copies["copy_kind"], gpu_spans.COPY_KINDS),
        **{side: _name(copies[side], gpu_spans.MEMORY_KINDS) for side in ("source", "target")},
    )
    rows = []
    for key, own in copies.groupby(["stream", *MOVED], sort=True):
        moved, took = own["bytes"].sum(min_count=len(own)), own["ns"].sum()
        largest = own.loc[[own["bytes"].fillna(0).idxmax()]]
        rows.append(
            dict(zip(["stream", *MOVED], key, strict=True))
            | {"steps": steps, "copies": len(own) / steps, "bytes": moved / steps, "total_ns": took / steps}
            | {"beside_kernel_ns": own["beside"].sum() / steps, "bytes_per_s": _rate(moved, took)}
            | {"largest_bytes": largest["bytes"].iloc[0]}
            | {"largest_bytes_per_s": _rate(largest["bytes"].iloc[0], largest["ns"].iloc[0])}
        )
    columns = [name for name in COPY_COLUMNS if name not in STREAM or name == "stream"]
    return pd.DataFrame(rows, columns=columns).astype({"stream": "str"})


def _rate(moved: float, ns: float) -> float:
    """Return bytes per s; NaN without a time.

    >>> _rate(3e6, 1e6)
    3000000000.0
    """
    return moved / ns * 1e9 if ns else np.nan


def _name(numbers: pd.Series, words: Mapping[int, str]) -> pd.Series:
    return numbers.map(words).fillna(gpu_spans.UNNAMED)


def _name_streams(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(stream=table["stream"].astype("str").replace(str(UNKNOWN), gpu_spans.UNNAMED))


def main(sqlite: str, report_sidecar: str, streams: str, copies: str, say: Callable[[str], object] = print) -> None:
    """Read an export and its report's sidecar; write the tables of streams and of copies."""
    whole_run = read_json(report_sidecar, {"capture": fact.TEXT})["capture"] == "run"
    if lacking := explain_no_steps(sqlite, whole_run):
        say(f"{streams} has no rows: {sqlite} {lacking}")
    of_streams, of_copies = tabulate_streams(sqlite, whole_run)
    if len(of_copies) and of_copies["bytes"].isna().any():
        say(f"{copies}: this trace does not tell how many bytes copies moved, so their bandwidth is not known")
    write_csv(of_streams, streams)
    write_csv(of_copies, copies)
