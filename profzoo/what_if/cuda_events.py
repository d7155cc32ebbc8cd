"""Resolves CUDA events: each stands for the last operation on its stream when it was recorded."""

import bisect
from collections import defaultdict

import numpy as np
import pandas as pd

from profzoo.what_if.trace_events import NONE, Events


class Records:
    """The recorded events of a program's calls, by event and, where a trace tells them apart, one by one."""

    def __init__(self, events: Events, host: pd.DataFrame, gpu: pd.DataFrame):
        """host, gpu: of a program, of which correlations, streams and the rows of calls are needed."""
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
        """Return the operation that a call waits for by an event or a record; -1 if unknown."""
        key = ("event", event) if record in (0, NONE) else ("record", record)
        place = bisect.bisect_left(self._made.get(key, []), row)
        return self._operation[key][place - 1] if place else -1


def last_before(gpu: pd.DataFrame, streams: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return for each stream the last operation that was launched on it before that row of the host, or -1."""
    last, launched = np.full(len(streams), -1), gpu["host"].to_numpy()
    for stream, at in gpu.groupby("stream").indices.items():
        mine = streams == stream
        place = np.searchsorted(launched[at], rows[mine]) - 1
        last[mine] = np.where(place >= 0, at[np.maximum(place, 0)], -1)
    return last
