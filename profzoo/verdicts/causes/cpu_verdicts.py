"""Judge cells on a CPU by rules about the steps that torch.profiler traced."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from profzoo import tools
from profzoo.formatting import fixed, format_ns, number, percent
from profzoo.io.csv_tables import Row
from profzoo.range_names import PARTS
from profzoo.tables import schemas
from profzoo.tables.cell_tables import amdahl_gain
from profzoo.tables.layers import NODE
from profzoo.tables.schemas import CELL, QUARTILES, prefer_tool
from profzoo.verdicts import AMDAHL, advice_scores
from profzoo.verdicts.causes import cause_verdicts, noted_verdicts
from profzoo.verdicts.causes.noted_verdicts import judge_noted
from profzoo.verdicts.causes.verdicts import NOTHING, CellKey
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.cell_facts import CellFacts, NotedFacts
from profzoo.verdicts.rules.feasibility import EVERYTHING, Feasibility, add_wait_texts, refuse_failed
from profzoo.verdicts.rules.rule_evaluation import CELL_LEVEL, LAYER_LEVEL
from profzoo.verdicts.rules.rule_types import CallOverhead, KnownSettings, Rule, Rules
from profzoo.verdicts.rules.step_quality import no_steps_row, without_gain
from profzoo.verdicts.verdict import COLUMNS, TIMED_UNDER, UNDECIDED, Verdict

if TYPE_CHECKING:
    from profzoo.cell.job_types import CpuRoof, HostLine


# Splits a step on a CPU, as torch.profiler saw it, into input, operators with their rates, and call overhead.

DATA = PARTS[0]
OUTSIDE = "(outside)"
# Sums over operators; `needed_ns` is the time of operators with a cost formula.
SUM_COLUMNS = ("total_ns", "launches", "needed_flop", "needed_bytes", "needed_ns")


@dataclass(frozen=True)
class StepPart:
    """A part of a traced step: its time in ns, and the number of operator calls in it."""

    ns: float
    calls: float


@dataclass(frozen=True)
class ShareInterval:
    """A share of the unprofiled step, 0 to 1, with its least and its largest possible value.

    measured: the interval without time that other programs, or a profiler that changes the step, may have added.
    """

    value: float
    least: float
    most: float
    measured: tuple[float, float]


@dataclass(frozen=True)
class OperatorRate:
    """How fast an operator works: in words, and as a share of the CPU's roof; empty and NaN if not known."""

    told: str = ""
    of_roof: float = float("nan")


UNKNOWN_RATE = OperatorRate()


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
        low, high = min(ends), max(ends)
        return ShareInterval(_part(kept, others), *self._disturbed(low, high), (low, high))

    def describe_decision(self, share: ShareInterval, at_least: float) -> str:
        """Describe what would decide whether a share is at least so large; empty if that is not known.

        Other programs took 40 % of the CPU's time. Half of the step is surely a third or more if they take up to 25 %:

        >>> step = object.__new__(CpuStep)
        >>> step.taken, step.stretch, step.ns, step.calls, step.step_ns, step.floor_ns = 0.4, 2.0, 1e7, 0.0, 1e7, 1.0
        >>> step.describe_decision(ShareInterval(0.5, 0.17, 0.83, (0.5, 0.5)), 1 / 3)
        "other programs take at most 25% (40% now) of the CPU's time"
        """
        low, high = share.measured
        needed: list[str] = []
        if low < at_least <= high:
            odds, asked = _odds(share.value), _odds(at_least)
            spread = max(odds / asked, asked / odds) if 0 < odds < np.inf else 1.0
            if spread < self.spread:
                needed.append(f"step times spread by at most {_percents(spread - 1, self.spread - 1)}")
        else:
            taken = 1 - (1 - low) / (1 - at_least) if low >= at_least else 1 - high / at_least
            if taken < self.taken:
                needed.append(f"other programs take at most {_percents(taken, self.taken)} of the CPU's time")
        if self.apart > self.stretch:
            apart = f"{self.stretch:g} ({fixed(self.apart, self.stretch, 1)} now)"
            needed.append(f"step times with and without the profiler differ by at most a factor of {apart}")
        return ", and ".join(needed)

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


def format_share(low: float, high: float, enough: float) -> str:
    """Format the interval of a share beside the share that would be enough.

    >>> format_share(0.154, 0.29, 0.25), format_share(0.248, 0.27, 0.25), format_share(0.258, 0.262, 0.25)
    ('15% to 29%', '24.8% to 27%', '26%')
    """
    first, last = percent(low, enough), percent(high, enough)
    return first if first == last else f"{first} to {last}"


def _longest(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    sums = rows.groupby(list(by), sort=False)[list(SUM_COLUMNS)].sum()
    return sums.sort_values("total_ns", ascending=False, kind="stable").reset_index()


def _part(ns: float, others: float) -> float:
    return ns / (ns + others) if ns + others else 0.0


def _percents(most: float, now: float) -> str:
    return f"{percent(most, now)} ({percent(now, most)} now)"


def _odds(share: float) -> float:
    return share / (1 - share) if share < 1 else np.inf


def _median(rows: pd.DataFrame) -> float:
    """Return the own time of the median call in ns; nan if there are no calls."""
    if rows.empty:
        return float("nan")
    mean = (rows["total_ns"] / rows["launches"]).to_numpy()
    order = np.argsort(mean)
    until = np.cumsum(rows["launches"].to_numpy()[order])
    return float(mean[order][np.searchsorted(until, until[-1] / 2)])


def describe_rate(sums: Row, roof: "CpuRoof | None") -> OperatorRate:
    """Return how fast an operator works, compared with the roof that limits it: arithmetic or memory.

    >>> done = {"needed_ns": 1e6, "needed_flop": 5e7, "needed_bytes": 1e6}
    >>> describe_rate(done, {"precision": "fp32", "flop_per_s": 2e11, "bytes_per_s": 1e10})
    OperatorRate(told='50 of the 200 Gflop/s that a large fp32 product reaches here (25%)', of_roof=0.25)
    >>> describe_rate(done | {"needed_flop": 0.0}, {"precision": "fp32", "flop_per_s": 2e11, "bytes_per_s": 1e10})
    OperatorRate(told='1 of the 10 GB/s that a large copy reaches here (10%)', of_roof=0.1)
    >>> describe_rate(done, None), describe_rate(done | {"needed_flop": 0.0}, None)
    (OperatorRate(told='50 Gflop/s', of_roof=nan), OperatorRate(told='', of_roof=nan))
    """
    if not sums["needed_ns"] > 0:
        return UNKNOWN_RATE
    flop, moved = (sums[name] / sums["needed_ns"] for name in ("needed_flop", "needed_bytes"))
    if roof is None:
        return OperatorRate(f"{flop:.3g} Gflop/s" if flop > 0 else "")
    products, copies = roof["flop_per_s"] / 1e9, roof["bytes_per_s"] / 1e9
    share = max(flop / products, moved / copies)
    told = f"{moved:.3g} of the {copies:.3g} GB/s that a large copy reaches here"
    if flop / products >= moved / copies:
        told = f"{flop:.3g} of the {products:.3g} Gflop/s that a large {roof['precision']} product reaches here"
    return OperatorRate(f"{told} ({share:.0%})", share)


CLOCK = "cpu"
CPU, INPUT, OPERATOR, OVERHEAD = "cpu", "data", "operator", "overhead"
# Shares of an interval by which its largest gain is looked for.
SHARES = 101
MEASURE_AGAIN = "stop other programs and measure again with more steps (time.window, torch.window)"
CONVOLUTIONS, PRODUCTS = re.compile(r"conv"), re.compile(r"mm\b|addmm|bmm|matmul|linear|rnn|lstm|gru")


@dataclass(frozen=True)
class _Evidence:
    """What a verdict says of the part of the step that it is about.

    evidence: the file and its columns or rows; lead: the beginning of the next step; function: name of the operator.
    rate: of the operator.
    """

    evidence: str
    lead: str
    function: str | None = None
    rate: OperatorRate = UNKNOWN_RATE


def cpu_cells(ranges: pd.DataFrame) -> list[CellKey]:
    """Return the cells that a tool of operators and layers traced on a CPU; ranges: the table of that name."""
    mine = _attributed(ranges)
    mine = mine[mine["clock"] == CLOCK]
    return [(model, phase) for model, phase in mine[CELL].drop_duplicates().itertuples(index=False)]


def _attributed(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one tool per cell that attributes time to operators and layers."""
    return prefer_tool(ranges[ranges["tool"].isin(tools.that(tools.ATTRIBUTE))])


def tabulate_cpu_verdicts(
    timed: pd.DataFrame,
    ranges: pd.DataFrame,
    operators: Mapping[CellKey, pd.DataFrame],
    ran_with: Mapping[CellKey, KnownSettings],
    given: Rules,
    facts: CellFacts | None = None,
) -> pd.DataFrame:
    """Return the table of verdicts (COLUMNS) on each cell on a CPU, the largest gain first, then on its layers.

    Args:
        timed, ranges: the tables of cells and ranges.
        operators: rows of operators.csv, by cell.
        ran_with: settings, by cell.
        given: rules, as `rules.load_rules` returns them.
        facts: lines at which the host spends a step, and what the processes noted of their work.

    Gains are by Amdahl's law and have no score, because scores come from trials on GPUs. A rule applies if it does so
    at both ends of the interval of its share, which is wider where steps are unsteady; if it applies at one end only,
    the verdict is UNDECIDED.
    """
    rows: list[dict[str, Any]] = []
    attributed, known = _attributed(ranges), facts or CellFacts()
    for cell in cpu_cells(ranges):
        mine, parts = schemas.rows_of_cell(timed, *cell), schemas.rows_of_cell(attributed, *cell)
        times = dict(zip(parts["range"], parts["ns_per_step"], strict=True))
        if mine.empty or cell not in operators or not sum(times.values()):
            continue
        row = mine.to_dict("records")[0]
        step = CpuStep(row, times, operators[cell], given["traits"]["at_the_floor"], given["floors"]["stretch"])
        noted, whole = known.noted.get(cell, NotedFacts()), sum(times.values())
        feasible = refuse_failed(EVERYTHING, known.failed.get(cell, {}))
        told = known.host_lines.get(cell, ()), noted, feasible
        judged = CpuCellJudge(row, step, ran_with.get(cell, {}), given, *told)
        of_work = judge_noted(given["rules"], noted, ran_with.get(cell, {}), times)
        guards = cause_verdicts.find_guards(noted.activities)
        of_work += cause_verdicts.judge_guards(given["rules"], guards, ran_with.get(cell, {}), whole, whole)
        again = noted.repeated, operators[cell], times, ran_with.get(cell, {})
        of_work += cause_verdicts.judge_repeated_on_cpu(given["rules"], *again)
        of_cell = [one for one in judged.of_cell() if not of_work or one.verdict != NOTHING]
        groups = sorted([*of_cell, *of_work], key=lambda one: -(one.gain or 0.0)), judged.of_layers()
        if cell in known.whole:
            groups = [no_steps_row(row["steps"])], [without_gain(one) for one in groups[1]]
        own = dict(zip(CELL, cell, strict=True)) | {TIMED_UNDER: known.timed_under.get(cell)}
        for group in groups:
            rows += [{**one.columns(), **own, "rank": rank} for rank, one in enumerate(group, 1)]
    return pd.DataFrame(rows, columns=COLUMNS)


class CpuCellJudge:
    """Judge of one cell on a CPU by the rules."""

    def __init__(
        self,
        cell: Row,
        step: CpuStep,
        ran_with: KnownSettings,
        given: Rules,
        host: "Sequence[HostLine]" = (),
        noted: NotedFacts | None = None,
        feasible: Feasibility = EVERYTHING,
    ) -> None:
        """Take a cell's row of the table of cells, its step by parts, settings, rules, lines of the host, and notes.

        feasible: what the cell cannot run with.
        """
        self.cell, self.step, self.ran_with, self.host, self.feasible = cell, step, ran_with, host, feasible
        of_work = noted or NotedFacts()
        self.loading = replace(of_work.loading, workers=ran_with.get("workers") or 0)
        self.floors = given["floors"]
        self.rules = [rule for rule in given["rules"] if rule["of"] == CPU]
        self.file = f"{cell['phase']}.operators.csv"
        # Where other programs lengthened the steps, an operator's rate says nothing of what it could reach.
        self.roof = None if self._unsteady() else of_work.roof
        self.found = list(self._found())

    def of_cell(self) -> list[Verdict]:
        """Return verdicts on the cell, the largest gain first, then undecided ones."""
        rows, left_open = [], dict[str, Verdict]()
        said = self._unsteady()
        why = f"undecided because {said or 'its steps vary'}"
        # One undecided verdict per rule is enough, that of the largest share; one for all rules if steps are unsteady.
        for rule, share, told in sorted(self.found, key=lambda one: -one[1].value):
            if share.least >= rule["at_least"]:
                rows.append(self._row(rule, share, told))
            elif share.most >= rule["at_least"]:
                left_open.setdefault("" if said else rule["share"], self._undecided(rule, share, told, why))
        rows = sorted(rows, key=lambda row: -row.sorting_gain)
        # Verdicts that apply come first, because one can act on them.
        rows += sorted(left_open.values(), key=lambda row: -row.potential)
        return rows or [self._nothing()]

    def of_layers(self) -> list[Verdict]:
        """Return verdicts on the layers in which a limiting operator takes longest, forward and backward separately."""
        rows, floor = [], self.floors["layer"]
        for rule, share, told in self.found:
            if rule["share"] != OPERATOR or share.least < rule["at_least"]:
                continue
            for place in self.step.places(told.function or "").to_dict("records"):
                own = self.step.share(StepPart(place["total_ns"], place["launches"]))
                if own.least >= floor:
                    rate = describe_rate(place, self.roof)
                    here = replace(told, lead=f"{_describe_operator(told.function or '', place, rate)}: ", rate=rate)
                    row = replace(self._row(rule, own, here), level=LAYER_LEVEL, threshold=floor)
                    rows.append(replace(row, module=place["module"], direction=place["direction"]))
        return sorted(rows, key=lambda row: -row.sorting_gain)

    def _found(self) -> Iterator[tuple[Rule, ShareInterval, _Evidence]]:
        """Yield each rule with a share of the step that it is about, and the texts for that share."""
        about = {INPUT: self._input, OVERHEAD: self._overhead, OPERATOR: self._operators}
        for rule in self.rules:
            for part, said in about[rule["share"]]():
                yield rule, self.step.share(part), said

    def _input(self) -> Iterator[tuple[StepPart, _Evidence]]:
        lines = noted_verdicts.describe_input(self.host)
        lead = f"making one batch takes {format_ns(self.step.input.ns)}{lines and f'; {lines}'}: "
        yield self.step.input, _Evidence("ranges.csv: data", lead)

    def _overhead(self) -> Iterator[tuple[StepPart, _Evidence]]:
        if self.step.overhead.ns:
            least = format_ns(self.step.floor_ns)
            lead = f"{self.step.calls:,.0f} operator calls per step (a call that does nothing takes {least}): "
            evidence = f"{self.file}: calls below {format_ns(self.step.brief_ns)}"
            yield self.step.overhead, _Evidence(evidence, lead)

    def _operators(self) -> Iterator[tuple[StepPart, _Evidence]]:
        one: Row
        for one in self.step.longest().to_dict("records"):
            name, first = one["operator"], self.step.places(one["operator"]).iloc[0]
            most = f"{first['total_ns'] / one['total_ns']:.0%} of its time in {first['module']} {first['direction']}"
            rate = describe_rate(one, self.roof)
            said = _Evidence(f"{self.file}: {name}", f"{_describe_operator(name, one, rate)}, {most}: ", name, rate)
            yield StepPart(one["total_ns"], one["launches"]), said

    def _unsteady(self) -> str:
        """Return why the steps are unsteady; empty if they are steady."""
        if isinstance(said := self.cell.get("unsteady"), str) and said:
            return said
        apart = self.cell["step_ns"] / self.cell["step_median_ns"]
        if apart > self.floors["steady"]:
            return f"the mean step is {fixed(apart, self.floors['steady'], 1)} times the median"
        if self.step.apart <= self.floors["stretch"]:
            return ""
        times = f"by a factor of {fixed(self.step.apart, self.floors['stretch'], 1)}"
        return f"step times with and without the profiler differ {times}, more than its overhead explains"

    def _row(self, rule: Rule, share: ShareInterval, told: _Evidence) -> Verdict:
        """Return the verdict of a rule that applies; the gain's interval is from 1 to that of the largest share."""
        facts = {"cpu_data_ns": self.step.input.ns, **_operator_facts(told.function or "", told.rate)}
        of_input = rule["share"] == INPUT
        loading = self.loading.of_step(self.step.step_ns, share.value) if of_input else None
        advice = verdict_rules.choose_advice(rule, facts, self.ran_with, replace(self.feasible, loading=loading))
        shares = np.linspace(share.least, share.most, SHARES)
        # Nothing runs faster than at the roof.
        cured = float(np.fmin(max(1 - told.rate.of_roof, 0.0), _number(advice.cured)))
        row = replace(
            self._about(rule, share, told),
            verdict=rule["verdict"],
            function=told.function,
            cured=cured,
            gain=self._gain(share.value, cured, advice.workers),
            gain_low=1.0,
            gain_high=max(self._gain(one, cured, advice.workers) for one in shares),
            method=AMDAHL,
            trials=0,
            score=advice_scores.UNSCORED,
            next_step=told.lead + (f"{loading.describe()}: " if loading and advice.workers else "") + advice.next_step,
            settings=advice.settings,
            source=rule["source"],
            refused=advice.refused[0] if advice.refused else "",
        )
        return add_wait_texts(row, self.feasible)

    def _gain(self, share: float, cured: float, workers: int) -> float:
        """Return the speedup if a part of a share of the step is saved; if workers do it, as fast as they can."""
        if not workers:
            return amdahl_gain(share, cured)
        after = self.loading.of_step(self.step.step_ns, share)
        return self.step.step_ns / max(after.rest_ns + after.handover_ns, after.least_step_ns(workers))

    def _undecided(self, rule: Rule, share: ShareInterval, told: _Evidence, why: str) -> Verdict:
        """Return an undecided verdict: the interval that was measured, and what would decide."""
        (low, high), enough = share.measured, rule["at_least"]
        decides = self.step.describe_decision(share, enough)
        return replace(
            self._about(rule, share, told),
            share_low=low,
            share_high=high,
            potential=amdahl_gain(share.most, _number(rule["cured"])),
            next_step=f"{rule['verdict']}: {format_share(low, high, enough)} of the step was measured, and "
            f"{enough:.0%} would be enough, {why}{decides and f'; it is decided if {decides}'}: {MEASURE_AGAIN}",
        )

    def _about(self, rule: Rule, share: ShareInterval, told: _Evidence) -> Verdict:
        """Return what every verdict by a rule says of the share of the step, undecided and without advice."""
        return Verdict(
            level=CELL_LEVEL,
            verdict=UNDECIDED,
            metric=f"share of the step: {rule['share']}",
            value=share.value,
            threshold=rule["at_least"],
            share=share.value,
            share_low=share.least,
            share_high=share.most,
            evidence=told.evidence,
            next_step="",
        )

    def _nothing(self) -> Verdict:
        """Return the row for a cell to which no rule applies, with the operator that takes longest."""
        longest = self.step.longest().head(1).to_dict("records")
        one: Row = longest[0] if longest else {"operator": "none", "total_ns": 0.0, "launches": 0.0}
        share = self.step.share(StepPart(one["total_ns"], one["launches"]))
        return Verdict(
            level=CELL_LEVEL,
            verdict=NOTHING,
            metric=f"share of the step: {OPERATOR}",
            value=share.value,
            share=share.value,
            share_low=share.least,
            share_high=share.most,
            evidence=f"{self.file}: {one['operator']}",
            gain=1.0,
            next_step=f"the longest operator, {one['operator']}, takes {share.value:.0%} of the step",
        )


def _number(cured: float | str) -> float:
    """Return the cured share of a rule about a CPU, which is always a number."""
    assert not isinstance(cured, str), cured
    return cured


def _describe_operator(operator: str, sums: Row, rate: OperatorRate) -> str:
    """Describe an operator: its calls per step, and its rate where that is known.

    >>> _describe_operator("aten::mm", {"launches": 2.0}, OperatorRate("50 Gflop/s"))
    'aten::mm, 2 calls per step, 50 Gflop/s'
    """
    calls = "1 call per step" if sums["launches"] == 1 else f"{number(sums['launches'], 4)} calls per step"
    return f"{operator}, {calls}{rate.told and f', {rate.told}'}"


def _operator_facts(operator: str, rate: OperatorRate) -> dict[str, float]:
    """Return what advice about an operator depends on, by the names of OF_OPERATORS."""
    kinds = {verdict_rules.CONVOLUTION: CONVOLUTIONS, verdict_rules.PRODUCT: PRODUCTS}
    return {verdict_rules.ROOF_SHARE: rate.of_roof} | {
        name: float(bool(kind.search(operator))) for name, kind in kinds.items()
    }
