"""Takes a step on a CPU apart, as torch.profiler saw it: its input, operators, and what each call costs by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tables.layers import NODE

DATA = PARTS[0]
OUTSIDE = "(outside)"
# Of operators; `needed_ns` is the time of those of which it is known how many operations they need.
SUMS = ("total_ns", "launches", "needed_flop", "needed_ns")


@dataclass(frozen=True)
class Part:
    """What there is of a traced step: its time in ns, and the calls of operators in it."""

    ns: float
    calls: float


@dataclass(frozen=True)
class Share:
    """A share of the unprofiled step, with the least and the most that it may be."""

    value: float
    least: float
    most: float


class CpuStep:
    """A cell's step under torch.profiler, beside the one without."""

    def __init__(
        self, cell: Mapping[str, Any], ranges: Mapping[str, float], operators: pd.DataFrame, floor: Mapping[str, Any]
    ) -> None:
        """Take it apart.

        Args:
            cell: its row of the table of cells; ranges: ns of each part of the traced step, which add up to it;
                operators: rows of its operators.csv, with the operators' own time a step; floor: the trait
                `at_the_floor` of rules.yaml.
        """
        known = operators.assign(needed_ns=operators["total_ns"] * operators["needed_share"].fillna(0.0))
        inside = known[known["module"].ne(OUTSIDE) & known["launches"].gt(0)]
        loading = inside["direction"].eq(DATA)
        self.ns, self.calls = float(sum(ranges.values())), float(inside["launches"].sum())
        self.step_ns = float(cell["step_ns"])
        times = [float(cell[name]) for name in ("step_ns", "step_median_ns", "step_low_ns", "step_high_ns")]
        self.spread = max(times) / min(times)
        self.input = Part(ranges.get(DATA, 0.0), float(inside.loc[loading, "launches"].sum()))
        mean = inside["total_ns"] / inside["launches"]
        self.floor_ns = _median(inside[inside["operator"].isin(floor["operators"])])
        self.brief_ns = floor["times_below"] * self.floor_ns
        brief = mean.lt(self.brief_ns)
        self.working = inside[~loading & ~brief]
        self.overhead = self._overhead(inside[~loading], brief[~loading])

    def _overhead(self, own: pd.DataFrame, brief: pd.Series) -> Part:
        """Calls that take hardly longer than one that does nothing, and the time between calls where it is as short.

        What is between calls is Python, dispatch and autograd, a little before each; where it is more than that, it is
        something else that a larger batch may not spread.
        """
        chosen, calls = own[brief], float(own["launches"].sum())
        between = max(self.ns - self.input.ns - float(own["total_ns"].sum()), 0.0)
        between *= bool(calls and between / calls < self.brief_ns)
        return Part(float(chosen["total_ns"].sum()) + between, float(chosen["launches"].sum()))

    def longest(self) -> pd.DataFrame:
        """A row an operator that works longer than a call costs, longest first: SUMS a step."""
        return _longest(self.working, ["operator"])

    def places(self, operator: str) -> pd.DataFrame:
        """The same of one operator, by layer and direction."""
        return _longest(self.working[self.working["operator"] == operator], NODE)

    @property
    def a_call_ns(self) -> float:
        """What the profiler takes of each call: its part of what a step is longer, no more than the shortest calls."""
        longer = max(self.ns - self.step_ns, 0.0) / max(self.calls, 1.0)
        return min(longer, self.floor_ns) if self.floor_ns > 0 else 0.0

    @property
    def apart(self) -> float:
        """How many times as long a step takes under the profiler, but for its calls, as without, or the other way."""
        left = self.ns - self.calls * self.a_call_ns
        return max(left / self.step_ns, self.step_ns / left)

    def share(self, part: Part) -> Share:
        """What a part has of the unprofiled step.

        A profiler takes time at each call, no more than a call that does nothing takes under it: by what it slows the
        step down calls get shorter, each alike. What else the step takes longer is the machine's, and all is slower
        alike. The interval holds the share with and without the former, and that either the part or all else makes the
        unprofiled steps' spread.

        A step of 3 ms, and of 4 ms traced with 500 calls; 499 of them take 1 ms, and one of them 3:

        >>> step = object.__new__(CpuStep)
        >>> step.ns, step.step_ns, step.calls, step.spread, step.floor_ns = 4e6, 3e6, 500.0, 1.0, 1e3
        >>> found = step.share(Part(3e6, 1.0))
        >>> round(found.value, 2), round(found.least, 2), round(found.most, 2)
        (0.86, 0.75, 0.86)
        """
        rest = Part(max(self.ns - part.ns, 0.0), max(self.calls - part.calls, 0.0))
        kept, others = (max(one.ns - one.calls * self.a_call_ns, 0.0) for one in (part, rest))
        ends = []
        for ns, more in ((kept, others), (part.ns, rest.ns)):
            ends += [_part(ns, more * self.spread), _part(ns * self.spread, more)]
        return Share(_part(kept, others), min(ends), max(ends))


def _longest(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    sums = rows.groupby(list(by), sort=False)[list(SUMS)].sum()
    return sums.sort_values("total_ns", ascending=False, kind="stable").reset_index()


def _part(ns: float, others: float) -> float:
    return ns / (ns + others) if ns + others else 0.0


def _median(rows: pd.DataFrame) -> float:
    """The median call's own time in ns; nan where there is none."""
    if rows.empty:
        return float("nan")
    mean = (rows["total_ns"] / rows["launches"]).to_numpy()
    order = np.argsort(mean)
    until = np.cumsum(rows["launches"].to_numpy()[order])
    return float(mean[order][np.searchsorted(until, until[-1] / 2)])
