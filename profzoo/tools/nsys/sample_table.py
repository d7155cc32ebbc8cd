"""Counts the CPU samples of an nsys export (SQLite) by thread, function and module."""

import sqlite3

import numpy as np
import pandas as pd

from profzoo.tools.nsys.call_stacks import read_stacks
from profzoo.tools.nsys.host_events import SAMPLE_CHAINS, HostEvents

COLUMNS = ["process", "thread", "name", "function", "module", "samples", "share", "stack_samples", "stack_share"]
# A function that no sample was in itself is listed from this share of its thread's samples on.
LEAST_SHARE = 0.01


def read_frames(database: sqlite3.Connection, tables: set[str], events: HostEvents) -> pd.DataFrame:
    """Return one row per sample and function of its stack: `thread`, `start`, `sample`, `function`, `module`, `depth`.

    `depth` is 0 for the function that ran. Only samples within steps are returned; of one without a stack nothing is.
    """
    starts, ends = (np.sort(events.steps[column].to_numpy()) for column in ("start", "end"))
    times = events.samples["start"].to_numpy()
    # Samples in steps are those before which more steps began than ended.
    inside = np.searchsorted(starts, times, side="right") > np.searchsorted(ends, times, side="right")
    within = events.samples[inside]
    frames = read_stacks(database, tables, SAMPLE_CHAINS, within["sample"].tolist())
    return frames.rename(columns={"stack": "sample"}).merge(within, on="sample")


def innermost_functions(frames: pd.DataFrame) -> pd.DataFrame:
    """Return the function that ran in each sample, a row per sample; frames: rows of read_frames."""
    return frames.sort_values("depth", kind="stable").drop_duplicates("sample")


def tabulate_samples(frames: pd.DataFrame, events: HostEvents) -> pd.DataFrame:
    """Return one row per thread and function of samples in steps, the most sampled first; COLUMNS.

    `samples` are those in which the function itself ran, and add up to the thread's samples; `stack_samples` are those
    in which it ran or waited for what it called.
    """
    who = ["thread", "function", "module"]
    totals = frames.groupby("thread")["sample"].nunique()
    leaves = innermost_functions(frames).groupby(who).size().rename("samples")
    stacks = frames.drop_duplicates(["sample", *who]).groupby(who).size().rename("stack_samples")
    table = pd.concat([leaves, stacks], axis=1).fillna(0).reset_index()
    all_of = table["thread"].map(totals)
    table = table.assign(share=table["samples"] / all_of, stack_share=table["stack_samples"] / all_of)
    table = table[(table["samples"] > 0) | (table["stack_share"] >= LEAST_SHARE)]
    table = events.identify(table).astype({"samples": "int64", "stack_samples": "int64"})
    order = ["process", "thread", "samples", "stack_samples", "function", "module"]
    ascending = [True, True, False, False, True, True]
    return table.sort_values(order, ascending=ascending, kind="stable", ignore_index=True)[COLUMNS]
