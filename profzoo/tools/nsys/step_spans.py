"""Divides the traced steps' time among them: a step lasts until the next one starts, the last until the GPU is done."""

import sqlite3

import numpy as np
import pandas as pd

from profzoo.tools.nsys import intervals, timeline
from profzoo.tools.nsys import steps as where
from profzoo.tools.nsys.trace import read_window_steps

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


def shares_of_work(database: sqlite3.Connection, tables: set[str], spans: pd.DataFrame) -> dict[str, list[float]]:
    """Return the parts of each span in which a kernel of its process ran, and in which it used the GPU, by column.

    spans: rows of read_step_spans, by process.
    """
    work = timeline.activity(database, tables)
    shares: dict[str, list[float]] = {"kernel_share": [], "busy_share": []}
    for process, mine in spans.groupby("process", sort=False):
        own = work[work["process"] == process]
        for name, rows in (("kernel_share", own[own["kernel"]]), ("busy_share", own)):
            ran = intervals.union(rows[["start", "end"]].to_numpy(dtype=np.int64))
            for start, end in mine[["start", "end"]].to_numpy(dtype=np.int64):
                busy = intervals.total(intervals.intersect(ran, np.array([[start, end]])))
                shares[name].append(busy / (end - start) if end > start else np.nan)
    return shares
