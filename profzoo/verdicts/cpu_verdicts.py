"""Judge cells on a CPU by rules about the steps that torch.profiler traced."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from profzoo import tools
from profzoo.formatting import duration
from profzoo.io.csv_tables import Row
from profzoo.tables import schemas
from profzoo.tables.schemas import CELL
from profzoo.tables.step_shares import amdahl
from profzoo.tables.tool_preference import prefer_tool
from profzoo.verdicts import advice_scores, guard_verdicts, host_places, repeated_verdicts
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.cell_facts import CellFacts
from profzoo.verdicts.cpu_step import CpuStep, ShareInterval, StepPart
from profzoo.verdicts.gain_methods import AMDAHL
from profzoo.verdicts.noted_facts import NotedFacts
from profzoo.verdicts.noted_verdicts import judge_noted
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, LAYER_LEVEL, UNDECIDED
from profzoo.verdicts.rule_types import KnownSettings, Rule, Rules
from profzoo.verdicts.table_columns import COLUMNS
from profzoo.verdicts.verdict import Verdict
from profzoo.verdicts.verdicts import NOTHING, CellKey

if TYPE_CHECKING:
    from profzoo.cell.job_types import HostLine

CLOCK = "cpu"
CPU, INPUT, OPERATOR, OVERHEAD = "cpu", "data", "operator", "overhead"
MEASURE_AGAIN = "stop other programs and measure again with more steps (time.window, torch.window)"


@dataclass(frozen=True)
class _Evidence:
    """What a verdict says of the part of the step that it is about.

    evidence: the file and its columns or rows; lead: the beginning of the next step; function: name of the operator.
    """

    evidence: str
    lead: str
    function: str | None = None


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
        judged = CpuCellJudge(row, step, ran_with.get(cell, {}), given, known.host_lines.get(cell, ()))
        noted, whole = known.noted.get(cell, NotedFacts()), sum(times.values())
        of_work = judge_noted(given["rules"], noted, ran_with.get(cell, {}), times)
        guards = guard_verdicts.find_guards(noted.activities)
        of_work += guard_verdicts.judge_guards(given["rules"], guards, ran_with.get(cell, {}), whole, whole)
        again = noted.repeated, operators[cell], times, ran_with.get(cell, {})
        of_work += repeated_verdicts.judge_repeated_on_cpu(given["rules"], *again)
        of_cell = [one for one in judged.of_cell() if not of_work or one.verdict != NOTHING]
        for group in (sorted([*of_cell, *of_work], key=lambda one: -(one.gain or 0.0)), judged.of_layers()):
            rows += [
                {**dict(zip(CELL, cell, strict=True)), **one.columns(), "rank": rank}
                for rank, one in enumerate(group, 1)
            ]
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
    ) -> None:
        """Take a cell's row of the table of cells, its step by parts, settings, the rules, and lines of the host."""
        self.cell, self.step, self.ran_with, self.host = cell, step, ran_with, host
        self.floors = given["floors"]
        self.rules = [rule for rule in given["rules"] if rule["of"] == CPU]
        self.file = f"{cell['phase']}.operators.csv"
        self.found = list(self._found())

    def of_cell(self) -> list[Verdict]:
        """Return verdicts on the cell, the largest gain first, then undecided ones."""
        rows, left_open = [], dict[str, Verdict]()
        said = self._unsteady()
        why = f"undecided because {said}" if said else "undecided because its steps vary"
        # One undecided verdict per rule is enough, that of the largest share; one for all rules if steps are unsteady.
        for rule, share, told in sorted(self.found, key=lambda one: -one[1].value):
            if share.least >= rule["at_least"]:
                rows.append(self._row(rule, share, told))
            elif share.most >= rule["at_least"]:
                left_open.setdefault(
                    "" if said else rule["share"], self._undecided(rule, share, told, f"{why}: {MEASURE_AGAIN}")
                )
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
                    here = replace(told, lead=f"{_describe_operator(told.function or '', place)}: ")
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
        lines = host_places.describe_input(self.host)
        lead = f"making one batch takes {duration(self.step.input.ns)}{lines and f'; {lines}'}: "
        yield self.step.input, _Evidence("ranges.csv: data", lead)

    def _overhead(self) -> Iterator[tuple[StepPart, _Evidence]]:
        if self.step.overhead.ns:
            least = duration(self.step.floor_ns)
            lead = f"{self.step.calls:,.0f} operator calls per step (a call that does nothing takes {least}): "
            evidence = f"{self.file}: calls below {duration(self.step.brief_ns)}"
            yield self.step.overhead, _Evidence(evidence, lead)

    def _operators(self) -> Iterator[tuple[StepPart, _Evidence]]:
        one: Row
        for one in self.step.longest().to_dict("records"):
            name, first = one["operator"], self.step.places(one["operator"]).iloc[0]
            most = f"{first['total_ns'] / one['total_ns']:.0%} of its time in {first['module']} {first['direction']}"
            said = _Evidence(f"{self.file}: {name}", f"{_describe_operator(name, one)}, {most}: ", name)
            yield StepPart(one["total_ns"], one["launches"]), said

    def _unsteady(self) -> str:
        """Return why the steps are unsteady; empty if they are steady."""
        if isinstance(said := self.cell.get("unsteady"), str) and said:
            return said
        apart = self.cell["step_ns"] / self.cell["step_median_ns"]
        if apart > self.floors["steady"]:
            return f"the mean step is {apart:.1f} times the median"
        if self.step.apart <= self.floors["stretch"]:
            return ""
        times = f"by a factor of {self.step.apart:.1f}"
        return f"step times with and without the profiler differ {times}, more than its overhead explains"

    def _row(self, rule: Rule, share: ShareInterval, told: _Evidence) -> Verdict:
        """Return the verdict of a rule that applies; the gain's interval is from 1 to that of the largest share."""
        advice = verdict_rules.choose_advice(rule, {"cpu_data_ns": self.step.input.ns}, self.ran_with)
        cured = _number(advice.cured)
        return replace(
            self._about(rule, share, told),
            verdict=rule["verdict"],
            function=told.function,
            cured=cured,
            gain=amdahl(share.value, cured),
            gain_low=1.0,
            gain_high=amdahl(share.most, cured),
            method=AMDAHL,
            trials=0,
            score=advice_scores.UNSCORED,
            next_step=told.lead + advice.next_step,
            settings=advice.settings,
            source=rule["source"],
        )

    def _undecided(self, rule: Rule, share: ShareInterval, told: _Evidence, why: str) -> Verdict:
        """Return an undecided verdict with advice on how to decide it."""
        return replace(
            self._about(rule, share, told),
            potential=amdahl(share.most, _number(rule["cured"])),
            next_step=f"{rule['verdict']}: between {share.least:.0%} and {share.most:.0%} of the step, {why}",
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


def _describe_operator(operator: str, sums: Row) -> str:
    """Describe an operator: its calls per step, and its rate in Gflop/s where that is known.

    >>> _describe_operator("aten::mm", {"launches": 2.0, "needed_ns": 1e6, "needed_flop": 5e7})
    'aten::mm, 2 calls per step, 50 Gflop/s'
    """
    calls = "1 call per step" if sums["launches"] == 1 else f"{sums['launches']:,.4g} calls per step"
    rate = f", {sums['needed_flop'] / sums['needed_ns']:.3g} Gflop/s" if sums["needed_flop"] > 0 else ""
    return f"{operator}, {calls}{rate}"
