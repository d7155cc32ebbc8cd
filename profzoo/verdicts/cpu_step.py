"""Splits a step on a CPU, as torch.profiler saw it, into input, operators and the overhead of calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.io.csv_tables import Row
from profzoo.range_names import PARTS
from profzoo.tables.layers import NODE
from profzoo.tables.schemas import QUARTILES
from profzoo.verdicts.rule_types import CallOverhead

DATA = PARTS[0]
OUTSIDE = "(outside)"
# Sums over operators; `needed_ns` is the time of operators with a cost formula.
SUM_COLUMNS = ("total_ns", "launches", "needed_flop", "needed_ns")


@dataclass(frozen=True)
class StepPart:
    """A part of a traced step: its time in ns, and the number of operator calls in it."""

    ns: float
    calls: float


@dataclass(frozen=True)
class ShareInterval:
    """A share of the unprofiled step, 0 to 1, with its least and its largest possible value."""

    value: float
    least: float
    most: float


class CpuStep:
    """A cell's step under torch.profiler, compared with its unprofiled step."""

    def __init__(
        self,
        cell: Row,
        ranges: Mapping[str, float],
        operators: pd.DataFrame,
        floor: CallOverhead,
        stretch: float = np.inf,
    ) -> None:
        """Split the step.

        Args:
            cell: the cell's row of the table of cells.
            ranges: ns of each part of the traced step; they add up to the step.
            operators: rows of the cell's operators.csv, with own times per step.
            floor: the trait `at_the_floor` of rules.yaml.
            stretch: largest ratio of the steps with and without the profiler that a slower machine explains, which
                slows all parts alike. Beyond it, the additional time may lie in any single part.
        """
        known = operators.assign(needed_ns=operators["total_ns"] * operators["needed_share"].fillna(0.0))
        inside = known[known["module"].ne(OUTSIDE) & known["launches"].gt(0)]
        loading = inside["direction"].eq(DATA)
        self.ns, self.calls = float(sum(ranges.values())), float(inside["launches"].sum())
        self.step_ns = float(cell["step_ns"])
        times = [float(cell[name]) for name in ("step_ns", "step_median_ns", *QUARTILES)]
        self.spread, self.stretch = max(times) / min(times), stretch
        taken = float(cell.get("cpu_taken_share", np.nan))
        self.taken = 0.0 if np.isnan(taken) else taken
        self.input = StepPart(ranges.get(DATA, 0.0), float(inside.loc[loading, "launches"].sum()))
        mean = inside["total_ns"] / inside["launches"]
        self.floor_ns = _median(inside[inside["operator"].isin(floor["operators"])])
        self.brief_ns = floor["times_below"] * self.floor_ns
        brief = mean.lt(self.brief_ns)
        self.working = inside[~loading & ~brief]
        self.overhead = self._overhead(inside[~loading], brief[~loading])

    def _overhead(self, own: pd.DataFrame, brief: pd.Series) -> StepPart:
        """Return the time of calls hardly longer than one that does nothing, and of equally short gaps between calls.

        The time between calls is Python, dispatch and autograd, a little before each call. A longer gap is something
        else, which a larger batch may not reduce per sample.
        """
        chosen, calls = own[brief], float(own["launches"].sum())
        between = max(self.ns - self.input.ns - float(own["total_ns"].sum()), 0.0)
        between *= bool(calls and between / calls < self.brief_ns)
        return StepPart(float(chosen["total_ns"].sum()) + between, float(chosen["launches"].sum()))

    def longest(self) -> pd.DataFrame:
        """Return a row per operator whose calls are longer than call overhead, longest first: SUMS per step."""
        return _longest(self.working, ["operator"])

    def places(self, operator: str) -> pd.DataFrame:
        """Return the rows of one operator by layer and direction, longest first: SUMS per step."""
        return _longest(self.working[self.working["operator"] == operator], NODE)

    @property
    def a_call_ns(self) -> float:
        """Profiler overhead per call in ns: the step's slowdown over its calls, at most the time of an empty call."""
        longer = max(self.ns - self.step_ns, 0.0) / max(self.calls, 1.0)
        return min(longer, self.floor_ns) if self.floor_ns > 0 else 0.0

    @property
    def longer(self) -> float:
        """Step time under the profiler, without its overhead per call, over the unprofiled step time."""
        return (self.ns - self.calls * self.a_call_ns) / self.step_ns

    @property
    def apart(self) -> float:
        """Ratio of the longer to the shorter of the step times with and without the profiler; at least 1."""
        return max(self.longer, 1 / self.longer)

    def share(self, part: StepPart) -> ShareInterval:
        """Return a part's share of the unprofiled step, with its interval.

        The profiler takes time at each call, at most as much as a call that does nothing takes under it. Each call is
        shortened by the same part of the slowdown. A remaining slowdown is the machine's, and affects all parts alike.
        The interval covers these cases: the share with and without the profiler's overhead; the spread of the
        unprofiled steps caused by this part alone, or by all others; and time of other programs, or time beyond
        `stretch`, taken from this part alone, or from all others.

        A step takes 3 ms, and 4 ms when traced with 500 calls. 499 of them take 1 ms together, and one takes 3 ms:

        >>> step = object.__new__(CpuStep)
        >>> step.ns, step.step_ns, step.calls, step.spread, step.floor_ns = 4e6, 3e6, 500.0, 1.0, 1e3
        >>> step.taken, step.stretch = 0.0, 2.0
        >>> found = step.share(StepPart(3e6, 1.0))
        >>> round(found.value, 2), round(found.least, 2), round(found.most, 2)
        (0.86, 0.75, 0.86)
        """
        rest = StepPart(max(self.ns - part.ns, 0.0), max(self.calls - part.calls, 0.0))
        kept, others = (max(one.ns - one.calls * self.a_call_ns, 0.0) for one in (part, rest))
        ends = []
        for ns, more in ((kept, others), (part.ns, rest.ns)):
            ends += [_part(ns, more * self.spread), _part(ns * self.spread, more)]
        return ShareInterval(_part(kept, others), *self._disturbed(min(ends), max(ends)))

    def _disturbed(self, least: float, most: float) -> tuple[float, float]:
        """Widen the interval of a share by the time that other programs may have added to the steps.

        Other programs may have taken 4 of 10 ms. A part of 7 ms is then 3 of 6 ms, or 7 of 6 ms, which counts as all:

        >>> step = object.__new__(CpuStep)
        >>> step.taken, step.stretch, step.ns, step.calls, step.step_ns, step.floor_ns = 0.4, 2.0, 1e7, 0.0, 1e7, 1.0
        >>> tuple(round(end, 2) for end in step._disturbed(0.7, 0.7))
        (0.5, 1.0)
        """
        clean = 1 - self.taken
        if self.longer > self.stretch:
            clean /= self.longer
        least, most = max(1 - (1 - least) / clean, 0.0) if clean else 0.0, min(most / clean, 1.0) if clean else 1.0
        if self.longer < 1 / self.stretch:
            # The step without the profiler has more than was traced, and it may be any part's.
            least, most = least * self.longer, 1 - (1 - most) * self.longer
        return least, most


def _longest(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    sums = rows.groupby(list(by), sort=False)[list(SUM_COLUMNS)].sum()
    return sums.sort_values("total_ns", ascending=False, kind="stable").reset_index()


def _part(ns: float, others: float) -> float:
    return ns / (ns + others) if ns + others else 0.0


def _median(rows: pd.DataFrame) -> float:
    """Return the own time of the median call in ns; nan if there are no calls."""
    if rows.empty:
        return float("nan")
    mean = (rows["total_ns"] / rows["launches"]).to_numpy()
    order = np.argsort(mean)
    until = np.cumsum(rows["launches"].to_numpy()[order])
    return float(mean[order][np.searchsorted(until, until[-1] / 2)])
