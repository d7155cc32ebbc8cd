"""Divides the traced steps' time among them: a step lasts until the next one starts, the last until the GPU is done."""

import sqlite3

import numpy as np
import pandas as pd

from profzoo.tools.nsys import intervals, timeline
from profzoo.tools.nsys import steps as where
from profzoo.tools.nsys.trace import read_window_steps
from profzoo.tools.stream_overlap import KERNEL

COLUMNS = ["process", "step", "start", "end"]


def read_step_spans(database: sqlite3.Connection, tables: set[str], whole_run: bool = False) -> pd.DataFrame:
    """Return one row per process and step: its number from 0, and its start and end in ns on the clock of the export.

    The GPU may still work on a step when the next one starts; that work then counts for the next one, so that no moment
    counts twice.

    whole_run: the trace holds more than the window; only whole steps count.
    """
    steps = read_window_steps(database, tables, whole_run).sort_values(["process", "start"], ignore_index=True)
    work, calls = timeline.activity(database, tables), timeline.calls(database, tables)
    ends = steps.groupby("process")["start"].shift(-1)
    for place in np.flatnonzero(ends.isna()):
        process = steps.loc[place, "process"]
        launching = timeline.outermost(calls[calls["process"] == process])
        done = work[work["process"] == process].merge(launching, on="correlation", how="left", suffixes=("", "_call"))
        ends[place] = where.counted_steps(steps.iloc[[place]], done).span[0, 1]
    spans = steps.assign(end=ends.astype("int64"), step=steps.groupby("process").cumcount())
    return spans[COLUMNS].astype("int64")


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
