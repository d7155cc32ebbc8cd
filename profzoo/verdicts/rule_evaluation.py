"""Apply the rules of rules.yaml to one cell on a GPU: to its step, to its kernels together, and to each kernel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from profzoo.tables import step_shares
from profzoo.verdicts import advice_gain, advice_scores, pause_costs, wait_costs
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.feasibility import EVERYTHING, Feasibility, add_wait_texts, drop_graph_texts
from profzoo.verdicts.gain_models import FASTER, FUSED, CellSimulation, RequestedChange
from profzoo.verdicts.rule_types import KnownSettings, Rule, Rules
from profzoo.verdicts.step_quality import STRETCH, cpu_limited_gain, disturbed_share, find_doubt
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.graph_obstacles import OFTEN, WAITS

UNDECIDED, PREVENTING = "undecided", "waits per step, which prevent a CUDA graph"
KERNEL_KEYS = ["class", "function"]
# Share of a kernel's time that must have a trait for the kernel to have it.
KERNEL_TRAIT_SHARE = 0.5
CELL_LEVEL, LAYER_LEVEL = "cell", "layer"
# Suffixes of columns: launches that have a trait at both ends of a counter's interval, and at one end at least.
INTERVAL_SUFFIXES = ("_least", "_most")


class CellRules:
    """Judge of one cell on a GPU by the rules."""

    def __init__(
        self,
        step: pd.Series,
        ran_with: KnownSettings,
        given: Rules,
        peaks: Mapping[str, float] | None = None,
        replayed: CellSimulation | None = None,
        scored: advice_scores.Scores | None = None,
        feasible: Feasibility = EVERYTHING,
    ) -> None:
        """Prepare the shares of the cell's step.

        Args:
            step: the cell's row of the table of steps; ran_with: its settings; given: rules, floors and traits.
            peaks: measured rates by name, in flop/s; replayed: the cell's what-if simulation, if there is a trace;
            scored: scores of past advice; feasible: what the cell cannot run with.
        """
        self.step, self.ran_with, self.given = step, ran_with, given
        self.peaks, self.replayed, self.scored = peaks or {}, replayed, scored or advice_scores.load_scores()
        self.floors, self.feasible = given["floors"], feasible
        self.doubt, self.disturbed = find_doubt(step, self.floors), disturbed_share(step, self.floors)
        table = step_shares.step_shares(step.to_frame().T.infer_objects())
        before = dict(table.iloc[0])
        if replayed and not self.doubt:
            charged = wait_costs.charge_waits(before, replayed, step)
            table = pd.DataFrame([pause_costs.charge_pauses(charged, replayed, step)])
        # Shares of idle time that are no longer those of the table of steps.
        self.charged = dict(table.iloc[0]) != before
        self.shares = {
            **table.iloc[0],
            verdict_rules.LAUNCH_IDLE_SHARE: float(step_shares.launch_wait_share(table).iloc[0]),
        }

    def of_step(self) -> Iterator[Verdict]:
        """Yield verdicts on the step: GPU work other than kernels, and idle time by cause."""
        evidence = f"steps.csv: process {self.step['process']:.0f}"
        untold = sum(share for name, share in self.shares.items() if name in step_shares.IDLE)
        here = [rule for rule in self.given["rules"] if rule["of"] == "step"]
        told: list[Verdict] = []
        for rule in here:
            share, sure = self._told(rule["share"])
            if share >= rule["at_least"]:
                simulated = self.charged and rule["share"] in wait_costs.CHARGED
                row = self.row(rule, share, None, CELL_LEVEL, f"{evidence}, run again" if simulated else evidence)
                told.append(row if sure else replace(row, metric=f"{row.metric}, at least"))
                untold -= share
        yield from told
        yield from self._of_obstacle(here, told, evidence)
        if self.doubt and untold >= min(rule["at_least"] for rule in here):
            why = f"the cause is unknown, as {self.doubt.why}: {self.doubt.advice}"
            yield Verdict(
                level=CELL_LEVEL,
                verdict=UNDECIDED,
                metric=self.doubt.metric,
                value=self.doubt.value,
                threshold=self.doubt.threshold,
                evidence=evidence,
                next_step=f"the GPU is idle for {untold:.0%} of the step; {why}",
                potential=step_shares.amdahl(untold, 1),
            )

    def _of_obstacle(self, rules: Sequence[Rule], told: Sequence[Verdict], evidence: str) -> Iterator[Verdict]:
        """Yield the verdict on waits that cost little but prevent the CUDA graph that a verdict would advise."""
        waits = next((one for one in self.feasible.obstacles if one.kind == WAITS), None)
        if waits is None or not any(row.refused for row in told):
            return
        for rule in rules:
            if rule["share"] == wait_costs.SYNCHRONISATION and not any(row.about == rule["share"] for row in told):
                row = self.row(rule, self.shares[rule["share"]], None, CELL_LEVEL, evidence)
                yield replace(row, metric=PREVENTING, value=waits.per_step, threshold=OFTEN)

    def of_trace(self) -> Iterator[Verdict]:
        """Yield verdicts by what-if simulation: the share of the step that each rule's change saves."""
        if not self.replayed:
            return
        for rule in self.given["rules"]:
            if rule["of"] == "trace":
                found = self.replayed.gain(RequestedChange(rule["share"]), self.step, 0.0)
                if found and (share := 1 - 1 / found.gain) >= rule["at_least"]:
                    yield self.row({**rule, "replay": rule["share"]}, share, None, CELL_LEVEL, "program.npz: run again")

    def _told(self, name: str) -> tuple[float, bool]:
        """Return a share of the step and whether it is exact; if in doubt, the least that the share may be.

        Where other programs made the step longer, all of the additional time may be in this share.
        """
        if not self.doubt or name in step_shares.WORK:
            return self.shares[name], True
        share = self.shares[name]
        if self.doubt.metric == STRETCH:
            names = step_shares.LAUNCHING if name == verdict_rules.LAUNCH_IDLE_SHARE else (name,)
            share = step_shares.least(self.step, self.shares, names)
        if self.disturbed:
            share = max(1 - (1 - share) / (1 - self.disturbed), 0.0) if self.disturbed < 1 else 0.0
        return share, False

    def of_kernels(self, traits: pd.DataFrame) -> Iterator[Verdict]:
        """Yield verdicts on the cell by rules about kernels: the launches with a trait take enough of the step.

        Example: kernels run for 80 % of the step, and short launches take 30 of their 100 ms. The trait then takes 24 %
        of the step, and a rule with `at_least: 0.1` applies.
        """
        for rule, share, least, most in self._shared(self.summed(traits), traits["total_ns"].sum()):
            if least >= rule["at_least"]:
                yield self.row(rule, share, traits, CELL_LEVEL, _name_evidence(rule))
            elif most >= rule["at_least"]:
                yield _undecided_row(rule, share, least, most, self._potential(rule, most, traits))

    def of_each(self, traits: pd.DataFrame) -> list[Verdict]:
        """Return verdicts on each kernel that takes long enough, the largest gain first.

        A kernel has a trait if half of its time has it. In the example of `of_kernels`, a kernel of 20 ms takes 16 % of
        the step, and it is short if its short launches take 8 % or more.
        """
        total = traits["total_ns"].sum()
        found: list[Verdict] = []
        for (kind, function), own in traits.groupby(KERNEL_KEYS, sort=False):
            if total and self.share_of(own, total) >= self.floors["kernel"]:
                rows = self.of_some(own, total, "kernel")
                found += [replace(row, kernel_class=kind, function=function) for _, row in rows]
        return sorted(found, key=lambda row: -row.sorting_gain)

    def of_some(
        self, own: pd.DataFrame, total: float, level: str, summed: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Rule, Verdict]]:
        """Yield each rule whose trait half of some launches' time has, with its verdict on these launches.

        own: rows of the launches, with traits; total: GPU time of the cell's kernels, in ns; summed: sums of `own`, if
        these are known already.
        """
        half = KERNEL_TRAIT_SHARE * self.share_of(own, total)
        for rule, share, least, _ in self._shared(self.summed(own) if summed is None else summed, total):
            if least >= half:
                yield rule, replace(self.row(rule, share, own, level, _name_evidence(rule)), threshold=half)

    def most(self, launches: pd.DataFrame, total: float) -> pd.Series:
        """Return per row the largest gain, by Amdahl's law, if its launches took neither GPU time nor launch time.

        launches: columns `total_ns` and `launches`; total: GPU time of the cell's kernels, in ns.
        """
        waits, _ = self._told(verdict_rules.LAUNCH_IDLE_SHARE)
        gone = launches["total_ns"] * self._step_per_ns(total)
        gone += waits * (launches["launches"] / max(self.step["launches"], 1)).clip(upper=1)
        return 1 / (1 - gone.clip(upper=1)).clip(lower=1e-9)

    def share_of(self, own: pd.DataFrame, total: float) -> float:
        """Return the share of the unprofiled step that launches take; total: GPU time of the cell's kernels, in ns."""
        return own["total_ns"].sum() * self._step_per_ns(total)

    def summed(self, traits: Any) -> Any:
        """Return the time in ns of launches with each trait of the rules about kernels, also by ends of intervals.

        traits: a frame of launches, or a grouped frame; the result then has a row per group.
        """
        names = dict.fromkeys(rule["share"] for rule in self.given["rules"] if rule["of"] == "kernels")
        return traits[
            ["total_ns", "launches", *(f"{name}{of}_ns" for name in names for of in ("", *INTERVAL_SUFFIXES))]
        ].sum()

    def _shared(self, summed: Mapping[str, float], total: float) -> Iterator[tuple[Rule, float, float, float]]:
        """Yield rules about kernels, each with its share of the step: estimate, least, and most by counters' intervals.

        Rules whose share is surely zero are left out.

        summed: times by trait, of the whole cell or of one kernel; total: GPU time of the cell's kernels, in ns.
        """
        for rule in self.given["rules"]:
            if rule["of"] == "kernels":
                taken = [summed[f"{rule['share']}{of}_ns"] for of in ("", *INTERVAL_SUFFIXES)]
                share, least, most = (ns * self._step_per_ns(total) for ns in taken)
                if most:
                    yield rule, share, least, most

    def _potential(self, rule: Rule, most: float, traits: pd.DataFrame) -> float:
        """Return the largest gain if an undecided rule applies.

        It saves the part `cured` of the launches' time, or all of it where that is given per launch. most: the largest
        share of the step that the launches may take; traits: rows of all launches of the cell.
        """
        cured = verdict_rules.choose_advice(rule, self.step, self.ran_with, self.feasible).cured
        part = 1.0 if isinstance(cured, str) else float(cured)
        may = traits[traits[f"{rule['share']}_most_ns"] > 0]
        gone = RequestedChange(FUSED if rule["launches"] == "removed" else FASTER, may, pd.Series(part, may.index))
        found = self.replayed.gain(gone, self.step, 0.0) if self.replayed else None
        kept = rule["launches"] == "kept"
        limit = found.gain if found else cpu_limited_gain(self.step, self.floors["stretch"]) if kept else float("inf")
        return min(step_shares.amdahl(most, part), limit)

    def _step_per_ns(self, total: float) -> float:
        """Return the share of the unprofiled step per ns of GPU time; total: GPU time of the cell's kernels, in ns."""
        return self.shares["kernels"] / total if total else 0.0

    def row(self, rule: Rule, share: float, traits: pd.DataFrame | None, level: str, evidence: str) -> Verdict:
        """Return the verdict of a rule that applies; traits: rows of its launches, None for a rule about the step."""
        advice = verdict_rules.choose_advice(rule, self.step, self.ran_with, self.feasible)
        cured = _cured_share(rule, advice.cured, traits)
        row = Verdict(
            level=level,
            verdict=rule["verdict"],
            metric=f"share of the step: {rule['share']}",
            value=share,
            threshold=rule["at_least"],
            share=share,
            evidence=evidence,
            cured=cured,
            gain=step_shares.amdahl(share, cured or 0),
            next_step=advice.next_step,
            settings=advice.settings,
            source=rule["source"],
            about=rule["share"],
            refused=advice.refused[0] if advice.refused else "",
        )
        row = add_wait_texts(row, self.feasible)
        if traits is not None and rule["launches"] != "changed":
            row = self._limited(rule, row, share, traits)
        asked = advice_gain.ask_simulation(rule, advice, traits, cured, level == CELL_LEVEL, self.peaks, self.ran_with)
        row = replace(row, change=asked)
        return row if level == LAYER_LEVEL else self.expect(row)

    def expect(self, row: Verdict) -> Verdict:
        """Return a verdict with the expected gain of its advice, the method behind it, and the advice's score."""
        told = advice_gain.add_expected_gain(row, self.replayed, self.step, self.scored)
        told = wait_costs.add_graph_gain(told, self.replayed, self.step, self.scored.error(row.verdict))
        return replace(told, next_step=drop_graph_texts(told.next_step, self.feasible))

    def _limited(self, rule: Rule, row: Verdict, share: float, traits: pd.DataFrame) -> Verdict:
        """Return a verdict whose gain is limited by the CPU, which needs time for the launches that remain."""
        cured, gain, removed = row.cured or 0, row.sorting_gain, 0.0
        if rule["launches"] == "removed":
            removed = cured * min(traits[f"{rule['share']}_launches"].sum() / max(self.step["launches"], 1), 1.0)
            # The GPU no longer waits for these launches either, as far as that share is known.
            waits, _ = self._told(verdict_rules.LAUNCH_IDLE_SHARE)
            gain = step_shares.amdahl(share * cured + waits * removed, 1)
        limit = cpu_limited_gain(self.step, self.floors["stretch"], removed)
        return replace(row, gain=limit, limit=limit) if limit < gain else replace(row, gain=gain)


def _cured_share(rule: Rule, cured: float | str, traits: pd.DataFrame | None) -> float | None:
    """Return the share of the launches' time that advice saves; None where it is not known, as without peaks."""
    if not isinstance(cured, str):
        return cured
    saved = f"{rule['share']}_saved_ns"
    if traits is None or saved not in traits:
        return None
    return traits[saved].sum() / traits[f"{rule['share']}_ns"].sum()


def _undecided_row(rule: Rule, share: float, least: float, most: float, potential: float) -> Verdict:
    """Return an undecided verdict: by the intervals of counters the rule may apply or not."""
    return Verdict(
        level=CELL_LEVEL,
        verdict=UNDECIDED,
        metric=f"share of the step: {rule['share']}",
        value=share,
        threshold=rule["at_least"],
        evidence=_name_evidence(rule),
        next_step=f"{rule['verdict']}: between {least:.0%} and {most:.0%} of the step, because counters are "
        "estimated from a sample of launches: lower ncu.error, or set ncu.launches to all",
        potential=potential,
    )


def _name_evidence(rule: Rule) -> str:
    """Name the table and columns that a rule about kernels uses."""
    columns = {"short": "kernels.csv: mean_ns, class", "small_grid": "kernels.csv: grid, multiprocessors"}
    ours = rule["share"] in verdict_rules.SHARES["kernels"]
    return columns.get(rule["share"], "roofline.csv: bound, efficiency" if ours else "kernels.csv: kernel, counters")
