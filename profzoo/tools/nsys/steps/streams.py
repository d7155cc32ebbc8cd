"""Tabulates what each stream of a GPU did per step, beside what else, and what its copies moved, by an nsys trace."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd

from profzoo.io import sidecars as fact
from profzoo.io.columns import AMOUNT, COUNT, GPU, TEXT, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv
from profzoo.tools import stream_overlap
from profzoo.tools.nsys.events.export_columns import UNKNOWN
from profzoo.tools.nsys.events.trace import (
    COPY_KINDS,
    MEMORY_KINDS,
    UNNAMED,
    Source,
    explain_no_steps,
    open_trace,
    read_window_steps,
)
from profzoo.tools.nsys.steps import steps as nsys_steps
from profzoo.tools.nsys.steps.steps import Counted, counted_steps
from profzoo.tools.stream_overlap import ALL, CASES, COPY, COUNTS, KINDS, TIMES

STREAM = ["process", "gpu", "stream"]
MOVED = ["kind", "source", "target"]
COPY_COLUMNS = [
    *STREAM, *MOVED, "steps", "copies", "bytes", "total_ns", "beside_kernel_ns", "bytes_per_s", "largest_bytes",
    "largest_bytes_per_s",
]  # fmt: skip


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
    columns={
        **select(nsys_steps.TABLE.columns, "process"),
        "gpu": Column(
            COUNT.or_missing, "Number of the GPU in the process, counted from 0; empty if the trace does not tell it.",
            tool="nsys"),
        "stream": Column(
            TEXT, "Number of the CUDA stream in the trace; `all` in the row of all streams together.", tool="nsys"),
        **select(nsys_steps.TABLE.columns, "steps"),
        "kernels": Column(
            AMOUNT, "Kernels per step; a CUDA graph that was traced whole counts as one.", "count", "nsys"),
        "copies": Column(AMOUNT, "Copies per step.", "count", "nsys"),
        "memsets": Column(AMOUNT, "Memsets per step.", "count", "nsys"),
        "busy_ns": Column(AMOUNT, "Time per step in which the stream did anything.", "ns", "nsys", GPU),
        "kernel_ns": Column(AMOUNT, "Time per step in which a kernel of the stream ran.", "ns", "nsys", GPU),
        "copy_ns": Column(AMOUNT, "Time per step in which the stream copied and ran no kernel.", "ns", "nsys", GPU),
        "memset_ns": Column(AMOUNT, "Time per step in which the stream did nothing but set memory.", "ns", "nsys", GPU),
        "alone_ns": Column(AMOUNT, "Part of `busy_ns` in which one stream of the GPU is busy.", "ns", "nsys", GPU),
        "copy_beside_kernel_ns": Column(
            AMOUNT, "Part of `busy_ns` in which a stream of the GPU copies or sets memory and another one runs a "
            "kernel.", "ns", "nsys", GPU),
        "kernel_beside_kernel_ns": Column(
            AMOUNT, "Part of `busy_ns` in which several streams of the GPU run kernels, none copies.",
            "ns", "nsys", GPU),
        "copy_beside_copy_ns": Column(
            AMOUNT, "Part of `busy_ns` in which several streams of the GPU copy or set memory, and none runs a "
            "kernel.", "ns", "nsys", GPU),
        "part_ns": Column(
            AMOUNT, "Share of the stream in the busy time of the GPU: a moment in which several streams are busy is "
            "split equally among them, so that the streams add up to `busy_ns` of `all`.", "ns", "nsys", GPU),
    },
    key=STREAM,
    holds=find_gaps,
)  # fmt: skip
COLUMNS = [*TABLE.columns]
COPIES = Table(
    columns={
        **select(TABLE.columns, "process", "gpu", "stream"),
        "kind": Column(
            TEXT, "Direction of the copies, such as `host to device`, `device to device` or `peer to peer` (between "
            "GPUs).", tool="nsys"),
        "source": Column(
            TEXT, "Memory that is read: `pageable`, `pinned`, `device`, `managed` or another kind.", tool="nsys"),
        "target": Column(TEXT, "Memory that is written, in the same words.", tool="nsys"),
        **select(TABLE.columns, "steps", "copies"),
        "total_ns": Column(AMOUNT, "Time per step that these copies take, one after another.", "ns", "nsys", GPU),
        "beside_kernel_ns": Column(
            AMOUNT, "Part of `total_ns` in which a kernel of another stream ran on the same GPU.", "ns", "nsys", GPU),
        "bytes": Column(
            AMOUNT.or_missing, "Bytes copied per step; empty if the trace does not tell them.", "byte", "nsys"),
        "bytes_per_s": Column(
            AMOUNT.or_missing, "Bandwidth of these copies: their bytes by their time.", "byte/s", "nsys", GPU),
        "largest_bytes": Column(AMOUNT.or_missing, "Bytes of the largest of these copies.", "byte", "nsys"),
        "largest_bytes_per_s": Column(
            AMOUNT.or_missing, "Bandwidth of the largest of these copies, which start-up time lowers least.",
            "byte/s", "nsys", GPU),
    },
    key=[*STREAM, *MOVED],
)  # fmt: skip


def tabulate_streams(source: Source, whole_run: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the tables of streams and of copies, with all times, counts and bytes per step.

    Steps and their time are those of steps.where_time_goes: without the window's first step if there are more.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is not an export of nsys.
    """
    streams, copies = [], []
    for process, counted in read_counted(source, whole_run):
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


def read_counted(source: Source, whole_run: bool) -> Iterator[tuple[int, Counted]]:
    """Yield each process that ran steps, with the counted steps; their activity is of Trace.find_called."""
    with open_trace(source) as trace:
        trace.check_streams()
        for process, own in read_window_steps(trace, whole_run).groupby("process"):
            yield int(process), counted_steps(own.sort_values("start"), trace.find_called(process))


def _tabulate_copies(spans: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Return one row per stream and kind of copy of one GPU, with the columns COPY_COLUMNS but for the place."""
    copies = spans[spans["kind"] == COPY].drop(columns="kind")
    copies = copies.assign(
        beside=stream_overlap.time_beside_kernels(copies, spans),
        ns=copies["end"] - copies["start"],
        bytes=copies["bytes"].where(copies["bytes"] != UNKNOWN).astype(float),
        kind=_name(copies["copy_kind"], COPY_KINDS),
        **{side: _name(copies[side], MEMORY_KINDS) for side in ("source", "target")},
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
    return numbers.map(words).fillna(UNNAMED)


def _name_streams(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(stream=table["stream"].astype("str").replace(str(UNKNOWN), UNNAMED))


def main(sqlite: str, report_sidecar: str, streams: str, copies: str, say: Callable[[str], object] = print) -> None:
    """Read an export and its report's sidecar; write the tables of streams and of copies."""
    whole_run = read_json(report_sidecar, {"capture": fact.TEXT})["capture"] == "run"
    with open_trace(sqlite) as trace:
        if lacking := explain_no_steps(trace, whole_run):
            say(f"{streams} has no rows: {sqlite} {lacking}")
        of_streams, of_copies = tabulate_streams(trace, whole_run)
    if len(of_copies) and of_copies["bytes"].isna().any():
        say(f"{copies}: this trace does not tell how many bytes copies moved, so their bandwidth is not known")
    write_csv(of_streams, streams)
    write_csv(of_copies, copies)
