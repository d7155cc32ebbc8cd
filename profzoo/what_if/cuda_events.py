"""Resolves CUDA events: each stands for the last operation on its stream when it was recorded."""

import bisect
from collections import defaultdict

import numpy as np
import pandas as pd

from profzoo.what_if.trace_events import NONE, Events


class Records:
    """The recordings of CUDA events by a program's calls: by event and, if the trace numbers them, by recording."""

    def __init__(self, events: Events, host: pd.DataFrame, gpu: pd.DataFrame):
        """Find the operation that each recording stands for.

        Args:
            events: the traced events of one process.
            host: the host's table of the program; `correlation` is read.
            gpu: the GPU's table of the program; `stream` and `host` are read.
        """
        rows = pd.Series(host.index, index=host["correlation"])
        made = events.records["correlation"].map(rows[~rows.index.duplicated()])
        known = events.records[made.notna()].assign(made=made.dropna().astype(np.int64)).sort_values("made")
        at = last_before(gpu, known["stream"].to_numpy(), known["made"].to_numpy())
        self._made: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._operation: dict[tuple[str, int], list[int]] = defaultdict(list)
        for event, record, row, operation in zip(known["event"], known["record"], known["made"], at, strict=True):
            for key in (("event", event), ("record", record)):
                self._made[key].append(row)
                self._operation[key].append(int(operation))

    def meant(self, event: int, record: int, row: int) -> int:
        """Return the index of the operation that a call waits for; -1 if unknown.

        Args:
            event, record: numbers of the event and of its recording; a record of 0 or NONE means unknown.
            row: row of the waiting call in the host's table.
        """
        key = ("event", event) if record in (0, NONE) else ("record", record)
        place = bisect.bisect_left(self._made.get(key, []), row)
        return self._operation[key][place - 1] if place else -1


def last_before(gpu: pd.DataFrame, streams: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return for each pair of stream and host row the last operation launched on the stream before the row, or -1."""
    last, launched = np.full(len(streams), -1), gpu["host"].to_numpy()
    for stream, at in gpu.groupby("stream").indices.items():
        mine = streams == stream
        place = np.searchsorted(launched[at], rows[mine]) - 1
        last[mine] = np.where(place >= 0, at[np.maximum(place, 0)], -1)
    return last
