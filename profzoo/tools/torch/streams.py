"""Tabulates what each stream of a GPU did per step, beside what else, by a trace of torch.profiler."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.range_names import STEP
from profzoo.tools import stream_overlap
from profzoo.tools.nsys import streams as nsys_streams
from profzoo.tools.stream_overlap import COPY, COUNTS, KERNEL, MEMSET, TIMES
from profzoo.tools.torch import host_calls, losses
from profzoo.tools.torch.trace import DEVICE_KINDS, Trace, read_trace

KINDS = {"kernel": KERNEL, "memcpy": COPY, "memset": MEMSET}
COLUMNS = ["stream", "steps", *COUNTS.values(), *TIMES]
NO_STEP = "has no rows: the trace holds no step with work on a GPU"


def find_gaps(table: pd.DataFrame) -> str | None:
    """Return which times of a table do not add up, or None."""
    return nsys_streams.find_gaps(table.assign(process=0, gpu=0)) if len(table) else None


TABLE = Table(
    columns={"stream": column_types.TEXT, "steps": column_types.COUNT}
    | dict.fromkeys([*COUNTS.values(), *TIMES], column_types.AMOUNT),
    key=["stream"],
    holds=find_gaps,
    # The same columns, by another tool.
    about={
        name: replace(column, tool=column.tool and "torch")
        for name, column in nsys_streams.TABLE.about.items()
        if name in COLUMNS
    },
)


def tabulate_streams(events: Trace) -> pd.DataFrame:
    """Return one row per stream and one of all, with all times and counts per step.

    Work belongs to the step in which it was launched. All steps of the trace count. They end when host and GPU have
    finished the last one. A trace does not tell GPUs apart, so streams of several GPUs of a process are taken together.
    """
    launches = events.launches
    begins, ends, _ = host_calls.range_spans(events, (STEP,))
    inside = host_calls.find_steps(host_calls.launch_times(events), events) >= 0
    if not len(begins) or not inside.any():
        return TABLE.empty()
    kinds = np.array([KINDS[kind] for kind in DEVICE_KINDS.values()])
    own = {name: launches[name][inside].astype(np.int64) for name in ("start", "ns", "kind", "queue", "stream")}
    spans = pd.DataFrame({"start": own["start"], "end": own["start"] + own["ns"], "stream": own["queue"]})
    spans["kind"] = kinds[own["kind"]]
    window = np.array([[begins[0], max(ends[-1], spans["end"].max())]], dtype=np.int64)
    table = stream_overlap.tabulate_streams(spans, window)
    table[[*COUNTS.values(), *TIMES]] /= len(begins)
    return table.assign(steps=len(begins), stream=_name_streams(table["stream"], own["queue"], own["stream"]))[COLUMNS]


def _name_streams(rows: pd.Series, queues: np.ndarray, streams: np.ndarray) -> pd.Series:
    """Return the names of streams by the numbers of their queues; of queues with the same name all but one say so."""
    names: dict[str, str] = {}
    for queue, stream in sorted(set(zip(queues.tolist(), streams.tolist(), strict=True))):
        name = str(stream) if stream >= 0 else "unknown"
        names[str(queue)] = name if name not in names.values() else f"{name} (queue {queue})"
    return rows.map(lambda row: names.get(row, row)).astype("str")


def main(traced: str, csv: str, say: Callable[[str], object] = print) -> None:
    """Read a trace and write the table, without steps of which the profiler lost kernels."""
    events = read_trace(traced, say)
    lacking = losses.find_losses(events).lacking
    if lacking and len(lacking) < host_calls.count_steps(events):
        say(f"{csv}: without {len(lacking)} steps of which torch.profiler lost kernels")
        events = losses.drop_steps(events, sorted(lacking))
    table = tabulate_streams(events)
    if table.empty:
        say(f"{csv} {NO_STEP}")
    write_csv(table, csv)
