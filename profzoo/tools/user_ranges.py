"""Nests the ranges that a program opened itself, and finds the one in which each launch was made.

Ranges go by paths: the names of all that enclose one and its own, outermost first, joined by SEPARATOR.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from profzoo.tools.nsys.events.intervals import find_open

SEPARATOR = " > "
NONE = -1
# When a range ends that was never closed, in ns.
NEVER = 2**62
# Of each instance of a range: start and end in ns; `shared` ranges were opened for a process, not for one thread.
COLUMNS = ("name", "start", "end", "process", "thread", "shared")
# Of each path: how often it was opened in the steps, and for how many ns it was open in them.
NODES = ("range", "parent", "calls", "cpu_ns")
# The row of the steps themselves.
WHOLE = "(step)"
# Names that tables give to what is not a range, and how a range of that name appears.
RESERVED = {name: name[1:-1] for name in (WHOLE, "(other)", "(unaligned)")} | {"": "unnamed"}
NUMBER = re.compile(r"\d+")
# Ends and beginnings that meet may overlap by as much, as some traces are of whole microseconds.
ROUNDING_NS = 1000


@dataclass(frozen=True)
class UserRanges:
    """The ranges of a program that were open during its steps.

    ranges: COLUMNS, `parent`, the index of the enclosing range or NONE, and `range`, the path; by start. steps: start,
    end, process and thread of each step, in ns.
    """

    ranges: pd.DataFrame
    steps: pd.DataFrame

    @cached_property
    def main_threads(self) -> dict[int, int]:
        """The thread that runs the steps, by process."""
        return find_main_threads(self.steps)

    def tabulate_paths(self) -> pd.DataFrame:
        """Return NODES, a row per path, summed over all steps, in the order in which they were first opened.

        The first row is WHOLE, of the steps themselves.
        """
        table = self.ranges
        parents = np.append(table["range"].to_numpy(dtype=object), "")[table["parent"].to_numpy()]
        opened, spent = np.zeros(len(table)), np.zeros(len(table))
        for process, at in table.groupby("process").indices.items():
            own = self.steps[self.steps["process"] == process].sort_values("start")
            starts, ends = own["start"].to_numpy(), own["end"].to_numpy()
            begin, end = (table[side].to_numpy()[at] for side in ("start", "end"))
            opened[at] = find_open(begin, starts, ends) >= 0
            spent[at] = _elapsed(end, starts, ends) - _elapsed(begin, starts, ends)
        rows = pd.DataFrame({"range": table["range"], "parent": parents, "calls": opened, "cpu_ns": spent})
        sums = rows.groupby(["range", "parent"], sort=False)[["calls", "cpu_ns"]].sum().reset_index()
        whole = (self.steps["end"] - self.steps["start"]).sum()
        first = pd.DataFrame({"range": [WHOLE], "parent": "", "calls": float(len(self.steps)), "cpu_ns": float(whole)})
        return pd.concat([first, sums], ignore_index=True)[list(NODES)]

    def find_paths(self, moments: np.ndarray, processes: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Return, per moment, the path of the innermost range that was open; empty if none was.

        A thread sees its own ranges and those of its process. Where it has none open of its own, as threads of autograd
        do, it sees those of the thread that runs the steps. Of ranges that overlap without one enclosing the other, the
        one opened last counts.
        """
        found = np.full(len(moments), NONE)
        pairs = pd.DataFrame({"process": processes, "thread": threads})
        for (process, thread), at in pairs.groupby(["process", "thread"]).indices.items():
            main = self.main_threads.get(process, thread)
            mine = self._innermost(moments[at], process, thread)
            if thread != main:
                alone = self._innermost(moments[at], process, thread, shared=False)
                mine = np.where(alone == NONE, self._innermost(moments[at], process, main), mine)
            found[at] = mine
        return np.append(self.ranges["range"].to_numpy(dtype=object), "")[found]

    def _innermost(self, moments: np.ndarray, process: int, thread: int, shared: bool = True) -> np.ndarray:
        """Return, per moment, the index of the range opened last of those that a thread had open; NONE if none."""
        table = self.ranges
        seen = (table["process"] == process) & ((table["thread"] == thread) & ~table["shared"] | table["shared"])
        own = table[seen if shared else seen & ~table["shared"]]
        times, tops = _sweep(own.index.to_numpy(), own["start"].to_numpy(), own["end"].to_numpy())
        return tops[np.searchsorted(times, moments, side="right")]


def nest_ranges(ranges: pd.DataFrame, steps: pd.DataFrame) -> UserRanges:
    """Nest the ranges that were open during the steps.

    A range is within the innermost one of its own thread, its process, or the thread that runs the steps, that encloses
    it. Ranges of another thread are within those of the thread of the steps only if all of them are.

    Args:
        ranges: COLUMNS, a row per instance; steps: start, end, process and thread of each step.
    """
    bounds = steps.groupby("process").agg(begin=("start", "min"), end=("end", "max"))
    begin, end = ranges["process"].map(bounds["begin"]), ranges["process"].map(bounds["end"])
    known = ranges[(ranges["start"] < end) & (ranges["end"] > begin) & (ranges["end"] > ranges["start"])]
    order = np.lexsort((-known["end"].to_numpy(dtype=np.int64), known["start"].to_numpy(dtype=np.int64)))
    known = known.iloc[order].reset_index(drop=True)
    names = known["name"].str.replace(SEPARATOR, ">").replace(RESERVED)
    known = known.assign(name=_merge_numbered(names, len(steps)))
    parents = _find_parents(known, find_main_threads(steps))
    paths: list[str] = []
    for name, parent in zip(known["name"], parents.tolist(), strict=True):
        paths.append(f"{paths[parent]}{SEPARATOR}{name}" if parent >= 0 else name)
    return UserRanges(known.assign(parent=parents, range=pd.Series(paths, dtype="object")), steps)


def is_over(began: int, ended: int, end: int) -> bool:
    """Return whether what ends at `end` is over when something else begins, so that it does not enclose that, in ns.

    Clocks are rounded, so that of two in a row the first may end behind the beginning of the second.

    >>> is_over(100, 200, 100), is_over(99, 200, 100), is_over(90, 110, 100)
    (True, True, False)
    """
    return end <= began or (end < ended and is_rounding(end - began, ended - began))


def is_rounding(ns: int, length: int) -> bool:
    """Return whether so many ns, of a range of this length, are no more than clocks are rounded by."""
    return ns <= ROUNDING_NS and 10 * ns <= length


def find_main_threads(steps: pd.DataFrame) -> dict[int, int]:
    """Return the thread that runs the steps, by process."""
    return dict(steps.groupby("process")["thread"].agg(lambda threads: threads.mode().iloc[0]).items())


def _elapsed(moments: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the time in steps before each moment, in ns.

    >>> _elapsed(np.array([5, 15, 22, 40]), np.array([10, 20]), np.array([18, 30]))
    array([ 0,  5, 10, 18])
    """
    before = np.append(0, np.cumsum(ends - starts))
    last = np.searchsorted(starts, moments, side="right") - 1
    inside = np.minimum(moments, ends[last]) - starts[last]
    return np.where(last >= 0, before[last] + inside, 0)


def _merge_numbered(names: pd.Series, steps: int) -> pd.Series:
    """Return names in which a number that goes on from step to step, as in `iteration 17`, is replaced by `#`.

    >>> _merge_numbered(pd.Series(["block 1", "step 7", "block 1", "step 8", "block 1", "step 9"]), 3).unique().tolist()
    ['block 1', 'step #']
    """
    counts = names.value_counts()
    rare = counts.index[counts < steps / 2]
    merged = {name: NUMBER.sub("#", name) for name in rare if NUMBER.search(name)}
    alike = Counter(merged.values())
    return pd.Series(
        [text if alike[text := merged.get(name, name)] > 1 else name for name in names], names.index, dtype="object"
    )


def _find_parents(ranges: pd.DataFrame, main: Mapping[int, int]) -> np.ndarray:
    """Return the index of the enclosing range of each.

    ranges: by start, the longest first of those that begin at once.
    """
    ends, threads, shared, processes = (ranges[name].tolist() for name in ("end", "thread", "shared", "process"))
    starts = ranges["start"].tolist()
    own, of_main = np.full(len(ranges), NONE), np.full(len(ranges), NONE)
    open_now: dict[int, list[int]] = {}
    for place, (began, process) in enumerate(zip(starts, processes, strict=True)):
        stack = open_now[process] = [
            one for one in open_now.get(process, []) if not is_over(began, ends[place], ends[one])
        ]
        for one in reversed(stack):
            if ends[one] < ends[place] and not is_rounding(ends[place] - ends[one], ends[place] - began):
                continue
            if of_main[place] == NONE and threads[one] == main.get(process):
                of_main[place] = one
            if shared[one] or threads[one] == threads[place]:
                own[place] = one
                break
        stack.append(place)
    outermost = own == NONE
    lacking = set(ranges[outermost & (of_main == NONE)][["process", "thread"]].itertuples(index=False, name=None))
    free = [pair in lacking for pair in zip(processes, threads, strict=True)]
    return np.where(outermost & ~np.array(free, dtype=bool), of_main, own)


def _sweep(indices: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return when the range opened last changes, sorted, and its index before, between and after these moments.

    indices: those of ranges by start, of which a later one counts as opened last.
    """
    times = np.concatenate((ends, starts))
    opening = np.repeat([False, True], len(indices))
    order = np.lexsort((np.tile(np.arange(len(indices)), 2), opening, times))
    stack: list[int] = []
    tops = [NONE]
    for event in order.tolist():
        index = int(indices[event % len(indices)])
        if opening[event]:
            stack.append(index)
        else:
            stack.remove(index)
        tops.append(stack[-1] if stack else NONE)
    return times[order], np.array(tops)
