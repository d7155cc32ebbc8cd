"""Reads from an nsys export (SQLite) what each process with steps did: ranges, GPU operations and CUDA calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools.nsys import timeline
from profzoo.tools.nsys.trace import open_export, read_ranges, read_window_steps


@dataclass(frozen=True)
class ProcessEvents:
    """What a process that ran steps did; times in ns.

    process: number of the process in the export. ranges: steps and their parts on the CPU, with the columns of
    trace.read_ranges. activity: operations of the GPU by timeline.activity, with `start_call` and `end_call` of the
    launching call. calls: CUDA calls by timeline.calls.
    """

    process: int
    ranges: pd.DataFrame
    activity: pd.DataFrame
    calls: pd.DataFrame


def read_processes(path: str | Path, whole_run: bool = False) -> Iterator[ProcessEvents]:
    """Yield the events of each process that ran steps.

    whole_run: the trace holds more than the window; only whole steps count.

    Raises:
        DataError: the file is no export of nsys.
    """
    with open_export(path) as (database, tables):
        steps = read_window_steps(database, tables, whole_run)
        ranges = pd.concat([steps, read_ranges(database, tables, PARTS)], ignore_index=True)
        ranges = ranges[ranges["process"].isin(steps["process"])]
        activity = timeline.activity(database, tables)
        calls = timeline.calls(database, tables)
    for process, own in ranges.groupby("process"):
        made = calls[calls["process"] == process]
        mine = activity[activity["process"] == process].merge(
            timeline.outermost(made), on="correlation", how="left", suffixes=("", "_call")
        )
        yield ProcessEvents(int(str(process)), own, mine, made)
