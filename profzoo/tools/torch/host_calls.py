"""Finds the launching call, the range and the step of each launch in a trace."""

from collections.abc import Sequence

import numpy as np

from profzoo.range_names import LAUNCHING, STEP, make_torch_name
from profzoo.tools.torch.trace import Trace


def launching_calls(trace: Trace) -> np.ndarray:
    """Return, per launch, the index of its launching call; -1 if the trace has none."""
    calls, launches = trace.calls, trace.launches
    # A runtime call may share its ID with the driver's call inside it.
    order = np.lexsort((calls["start"], calls["correlation"]))
    order = order[calls["correlation"][order] >= 0]
    return look_up(launches["correlation"], calls["correlation"][order], order)


def look_up(wanted: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the value for each wanted key: the first one if a key repeats, -1 if it is missing.

    keys: in ascending order.
    """
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], -1)


def launch_times(trace: Trace) -> np.ndarray:
    """Return the time of each launching call in ns; -1 if unknown."""
    return np.append(trace.calls["start"], -1)[launching_calls(trace)]


def find_ranges(times: np.ndarray, trace: Trace) -> np.ndarray:
    """Return, per time, 1 + the index in LAUNCHING of the range open on any thread; 0 if none was."""
    codes, begins = _open_at(times, trace, LAUNCHING)
    return np.where(begins >= 0, codes + 1, 0)


def find_steps(times: np.ndarray, trace: Trace) -> np.ndarray:
    """Return, per time, the index of its step, from 0; -1 outside all steps."""
    return _open_at(times, trace, (STEP,))[1]


def count_steps(trace: Trace) -> int:
    """Count the project's steps in a trace."""
    return len(range_spans(trace, (STEP,))[0])


def range_spans(trace: Trace, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, end and name index of the project's ranges of these names, sorted by start."""
    known = {text: code for code, text in enumerate(trace.texts)}
    # Names carry profzoo's prefix, because a program may open ranges of its own with the plain names.
    code_of = {known[make_torch_name(one)]: index for index, one in enumerate(names) if make_torch_name(one) in known}
    chosen = np.flatnonzero(np.isin(trace.ranges["name"], list(code_of)))
    starts = trace.ranges["start"][chosen]
    ends = starts + trace.ranges["ns"][chosen]
    order = np.lexsort((ends, starts))
    codes = np.array([code_of[name] for name in trace.ranges["name"][chosen[order]]], dtype=np.int64)
    return starts[order], ends[order], codes


def _open_at(times: np.ndarray, trace: Trace, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return per time (ns) the index of the name of an open range, and the number of the range; -1 if none was."""
    starts, ends, codes = range_spans(trace, names)
    if not len(starts):
        return np.full(len(times), -1), np.full(len(times), -1)
    last = np.searchsorted(starts, times, side="right") - 1
    there = (last >= 0) & (times < ends[last])
    return np.where(there, codes[last], -1), np.where(there, last, -1)
