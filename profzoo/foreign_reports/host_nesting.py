"""Finds what encloses each event of the host, and each launching call, by thread and time.

Numbers that a trace has for this are not used: in 2022 and 2023 the `External id` of launches was their correlation.
"""

import numpy as np
import pandas as pd


def sort_events(events: pd.DataFrame) -> pd.DataFrame:
    """Return events by thread and start, each behind the events that enclose it.

    Of events that begin and end at once, such as in traces of whole microseconds, the one that was made first comes
    first: by its number, then by its place in the file.
    """
    order = ["process", "thread", "start", "ns", "external", "index"]
    return events.sort_values(order, ascending=[True, True, True, False, True, True], ignore_index=True)


def find_parents(events: pd.DataFrame) -> np.ndarray:
    """Return, per event, the position of the innermost event that encloses it on its thread; -1 for none.

    events: as `sort_events` returns them.

    >>> rows = pd.DataFrame({"start": [0, 10, 12, 60], "ns": [50, 20, 5, 10], "process": "1", "thread": "1"})
    >>> find_parents(rows).tolist()
    [-1, 0, 1, -1]
    """
    start, end = events["start"].to_numpy(), (events["start"] + events["ns"]).to_numpy()
    threads = _threads(events)
    parents = np.full(len(events), -1, dtype=np.int64)
    stack: list[int] = []
    for place, (began, thread) in enumerate(zip(start.tolist(), threads.tolist(), strict=True)):
        while stack and (end[stack[-1]] <= began or threads[stack[-1]] != thread):
            stack.pop()
        parents[place] = stack[-1] if stack else -1
        stack.append(place)
    return parents


def enclosing_events(events: pd.DataFrame, parents: np.ndarray, moments: pd.DataFrame) -> np.ndarray:
    """Return, per moment, the position of the innermost event that was open on its thread; -1 for none.

    An event is open at its end as well where nothing else is, as times may be cut off to whole microseconds.

    Args:
        events, parents: as of `sort_events` and `find_parents`.
        moments: columns process, thread and start.
    """
    found = np.full(len(moments), -1, dtype=np.int64)
    end = np.append((events["start"] + events["ns"]).to_numpy(), 0)
    places = events.groupby(["process", "thread"]).indices
    for thread, asked in moments.groupby(["process", "thread"]).indices.items():
        own = places.get(thread)
        if own is None:
            continue
        times = moments["start"].to_numpy()[asked]
        last = np.searchsorted(events["start"].to_numpy()[own], times, side="right") - 1
        at = np.where(last >= 0, own[last], -1)
        inside = _climb(at, parents, times, end, open_at_end=False)
        found[asked] = np.where(inside >= 0, inside, _climb(at, parents, times, end, open_at_end=True))
    return found


def _climb(at: np.ndarray, parents: np.ndarray, times: np.ndarray, end: np.ndarray, open_at_end: bool) -> np.ndarray:
    """Follow parents until an event is open at the time."""
    at = at.copy()
    while True:
        over = (at >= 0) & ((end[at] < times) if open_at_end else (end[at] <= times))
        if not over.any():
            return at
        at[over] = parents[at[over]]


def _threads(events: pd.DataFrame) -> np.ndarray:
    return events.groupby(["process", "thread"], sort=False).ngroup().to_numpy()
