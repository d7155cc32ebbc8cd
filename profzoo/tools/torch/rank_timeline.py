"""Tells how long a process spent in each part of its step until any moment, from its trace.

While the GPU computes, the time belongs to the part that launched the kernel; while it does not, to the part that the
host is in. Communication kernels do not count as computing, as they also wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profzoo.range_names import LAUNCHING
from profzoo.tools.communication_kernels import communicates
from profzoo.tools.torch.host_calls import find_ranges, launch_times, range_spans
from profzoo.tools.torch.trace import Trace

# The parts that time is told apart by; the first is outside of all.
PARTS = ("", *LAUNCHING)


@dataclass(frozen=True)
class Timeline:
    """The part of the step of a process at each time.

    begins: times in ns at which the part changes. parts: index in PARTS from each of them on. spent: time in each part
    before each of them, of shape (times, parts). first_ns: when the process was first in a part or a kernel.
    """

    begins: np.ndarray
    parts: np.ndarray
    spent: np.ndarray
    first_ns: int

    def until(self, moments: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the time in ns spent in each part before the moments; shape (moments, parts)."""
        times = np.asarray(moments, dtype=np.int64)
        last = np.searchsorted(self.begins, times, side="right") - 1
        found = self.spent[np.maximum(last, 0)].copy()
        # Before the first time, the process is outside all parts.
        parts = np.where(last >= 0, self.parts[np.maximum(last, 0)], 0)
        found[np.arange(len(times)), parts] += times - self.begins[np.maximum(last, 0)]
        return found


def make_timeline(trace: Trace, base_ns: int) -> Timeline:
    """Make the timeline of a process; base_ns: what the times of its trace begin from."""
    host = range_spans(trace, LAUNCHING)
    busy = _busy(trace)
    edges = np.unique(np.concatenate([*host[:2], *busy[:2], np.zeros(1, dtype=np.int64)]))
    parts = np.where((computing := _part_at(edges, busy)) >= 0, computing, np.maximum(_part_at(edges, host) + 1, 0))
    lengths = np.diff(edges, append=edges[-1])
    spent = np.zeros((len(edges) + 1, len(PARTS)), dtype=np.int64)
    spent[np.arange(1, len(edges) + 1), parts] = lengths
    first = min((int(starts[0]) for starts, _, _ in (host, busy) if len(starts)), default=0)
    return Timeline(edges + base_ns, parts, np.cumsum(spent, axis=0)[:-1], first + base_ns)


def _busy(trace: Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, end and part of the launches that compute, without their overlaps."""
    launches = trace.launches
    texts = np.array([communicates(text) for text in trace.texts] or [False])
    chosen = np.flatnonzero(~texts[launches["name"]]) if len(launches["name"]) else np.zeros(0, dtype=np.int64)
    chosen = chosen[np.argsort(launches["start"][chosen], kind="stable")]
    starts = launches["start"][chosen].astype(np.int64)
    ends = starts + launches["ns"][chosen]
    parts = find_ranges(launch_times(trace)[chosen], trace)
    before = np.maximum.accumulate(np.concatenate([[np.iinfo(np.int64).min], ends]))[:-1]
    starts = np.maximum(starts, before)
    kept = starts < ends
    return starts[kept], ends[kept], parts[kept]


def _part_at(times: np.ndarray, spans: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the code of the span that holds each time; -1 if none does."""
    starts, ends, codes = spans
    if not len(starts):
        return np.full(len(times), -1)
    last = np.searchsorted(starts, times, side="right") - 1
    return np.where((last >= 0) & (times < ends[last]), codes[last], -1)
