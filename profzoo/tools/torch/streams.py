"""Tabulates what each stream of a GPU did per step, beside what else, by a trace of torch.profiler."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from profzoo.io.columns import COUNT, Column, select
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.range_names import STEP
from profzoo.tools import stream_overlap
from profzoo.tools.nsys.steps import streams as nsys_streams
from profzoo.tools.stream_overlap import COPY, COUNTS, KERNEL, MEMSET, TIMES
from profzoo.tools.torch import losses, trace
from profzoo.tools.torch.trace import DEVICE_KINDS, Trace, read_trace

KINDS = {"kernel": KERNEL, "memcpy": COPY, "memset": MEMSET}
NO_STEP = "has no rows: the trace holds no step with work on a GPU"


def find_gaps(table: pd.DataFrame) -> str | None:
    """Return which times of a table do not add up, or None."""
    return nsys_streams.find_gaps(table.assign(process=0)) if len(table) else None


TABLE = Table(
    # The same columns, by another tool, but for the steps, which are all.
    columns={
        **select(nsys_streams.TABLE.columns, "gpu", "stream", tool="torch"),
        "steps": Column(
            COUNT, "Steps of the trace that the row is of, without those of which kernels are lost.",
            "count", "torch"),
        **select(nsys_streams.TABLE.columns, *COUNTS.values(), *TIMES, tool="torch"),
    },
    key=["gpu", "stream"],
    holds=find_gaps,
)  # fmt: skip
COLUMNS = [*TABLE.columns]


def tabulate_streams(events: Trace) -> pd.DataFrame:
    """Return one row per stream and one of all for each GPU, with all times and counts per step.

    Work belongs to the step in which it was launched. All steps of the trace count. They end when the host and the GPU
    have finished the last one.
    """
    launches = events.launches
    begins, ends, _ = trace.range_spans(events, (STEP,))
    inside = trace.find_steps(trace.launch_times(events), events) >= 0
    if not len(begins) or not inside.any():
        return TABLE.empty()
    kinds = np.array([KINDS[kind] for kind in DEVICE_KINDS.values()])
    own = {name: launches[name][inside].astype(np.int64) for name in ("start", "ns", "kind", "queue", "stream", "gpu")}
    spans = pd.DataFrame({"start": own["start"], "end": own["start"] + own["ns"], "stream": own["queue"]})
    spans = spans.assign(kind=kinds[own["kind"]], gpu=own["gpu"], name=own["stream"])
    found = []
    for gpu, mine in spans.groupby("gpu"):
        window = np.array([[begins[0], max(ends[-1], mine["end"].max())]], dtype=np.int64)
        table = stream_overlap.tabulate_streams(mine, window)
        table[[*COUNTS.values(), *TIMES]] /= len(begins)
        names = _name_streams(table["stream"], mine["stream"].to_numpy(), mine["name"].to_numpy())
        found.append(table.assign(steps=len(begins), stream=names, gpu=gpu if gpu >= 0 else np.nan))
    return pd.concat(found, ignore_index=True)[COLUMNS]


def _name_streams(rows: pd.Series, queues: np.ndarray, streams: np.ndarray) -> pd.Series:
    """Return the names of a GPU's streams by the numbers of their queues; of those with one name all but one say so."""
    names: dict[str, str] = {}
    for queue, stream in sorted(set(zip(queues.tolist(), streams.tolist(), strict=True))):
        name = str(stream) if stream >= 0 else "unknown"
        names[str(queue)] = name if name not in names.values() else f"{name} (queue {queue})"
    return rows.map(lambda row: names.get(row, row)).astype("str")


def main(traced: str, csv: str, say: Callable[[str], object] = print) -> None:
    """Read a trace and write the table, without steps of which the profiler lost kernels."""
    events = read_trace(traced, say)
    lacking = losses.find_losses(events).lacking
    if lacking and len(lacking) < trace.count_steps(events):
        say(f"{csv}: without {len(lacking)} steps of which torch.profiler lost kernels")
        events = losses.drop_steps(events, sorted(lacking))
    table = tabulate_streams(events)
    if table.empty:
        say(f"{csv} {NO_STEP}")
    write_csv(table, csv)
