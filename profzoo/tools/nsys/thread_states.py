"""Makes of context switches when each thread was on a CPU and when it was not, and in which call it left."""

import numpy as np
import pandas as pd

from profzoo.tools.nsys.export_columns import UNKNOWN

# Times before and after any event of a trace, in ns.
BEFORE, AFTER = -(2**61), 2**61
# What a thread does: it is on a CPU, or off it. Where a switch was lost, neither is known.
RUNNING, OFF, LOST = "running", "off", "lost"
# The state in which a thread leaves the CPU that it was taken from: it could have gone on.
COULD_RUN = 1


def find_states(switches: pd.DataFrame) -> pd.DataFrame:
    """Return one row per stretch of a thread on or off the CPU, from before the trace to after it.

    switches: HostEvents.switches, by thread and start.

    Returns: `thread`, `start`, `end` (ns), `doing` (RUNNING, OFF or LOST), `cpu` (of RUNNING), and `state`, the state
    in which the thread left the CPU (of OFF). Before its first switch a thread did the opposite of what it did after
    it. Two switches in a row that both come to a CPU, or both leave one, are a lost switch between them.

    >>> switches = pd.DataFrame({"thread": 1, "start": [10, 30, 60], "cpu": [0, 2, 2], "enters": [0, 1, 1], "state": 2})
    >>> found = find_states(switches)
    >>> found[["start", "end"]].clip(0, 100).to_numpy().tolist(), found["doing"].tolist(), found["cpu"].tolist()
    ([[0, 10], [10, 30], [30, 60], [60, 100]], ['running', 'off', 'lost', 'running'], [0, -1, -1, 2])
    """
    by_thread = switches.groupby("thread", sort=False)
    following = by_thread["start"].shift(-1, fill_value=AFTER).to_numpy()
    then = by_thread["enters"].shift(-1, fill_value=UNKNOWN).to_numpy()
    enters = switches["enters"].to_numpy()
    after = switches.assign(end=following, doing=_doing(enters, then == enters))
    first = switches[~switches["thread"].duplicated()]
    opposite = 1 - first["enters"].to_numpy()
    before = first.assign(start=BEFORE, end=first["start"], doing=_doing(opposite, np.full(len(first), False)))
    # The state of a stretch that began before the trace is not in it.
    before = before.assign(state=UNKNOWN)
    found = pd.concat([before, after], ignore_index=True)
    found["cpu"] = found["cpu"].where(found["doing"] == RUNNING, UNKNOWN)
    found["state"] = found["state"].where(found["doing"] == OFF, UNKNOWN)
    columns = ["thread", "start", "end", "doing", "cpu", "state"]
    return found.sort_values(["thread", "start"], kind="stable", ignore_index=True)[columns]


def _doing(enters: np.ndarray, lost: np.ndarray) -> np.ndarray:
    return np.where(lost, LOST, np.where(enters == 1, RUNNING, OFF))


def cut(events: pd.DataFrame, begin: int, end: int) -> pd.DataFrame:
    """Return the parts of events within a span of ns, with their length as `ns`; events: with `start` and `end`."""
    inside = events[(events["start"] < end) & (events["end"] > begin)]
    starts, ends = inside["start"].clip(lower=begin), inside["end"].clip(upper=end)
    return inside.assign(ns=ends - starts)


def calls_at(calls: pd.DataFrame, threads: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the name of the call that each thread was in at a time in ns; empty for none.

    calls: `thread`, `start`, `end` and `name`, none within another of its thread. threads, times: shape (moments,).

    >>> calls = pd.DataFrame({"thread": [1, 1, 2], "start": [10, 30, 0], "end": [20, 40, 90]})
    >>> calls = calls.assign(name=["read", "poll", "x"])
    >>> calls_at(calls, np.array([1, 1, 1, 2]), np.array([15, 20, 39, 89])).tolist()
    ['read', '', 'poll', 'x']
    """
    found = np.full(len(times), "", dtype=object)
    for thread, own in calls.groupby("thread"):
        mine = np.flatnonzero(threads == thread)
        starts, ends = own["start"].to_numpy(), own["end"].to_numpy()
        at = np.searchsorted(starts, times[mine], side="right") - 1
        inside = (at >= 0) & (times[mine] < ends[np.maximum(at, 0)])
        found[mine[inside]] = own["name"].to_numpy(dtype=object)[at[inside]]
    return found
