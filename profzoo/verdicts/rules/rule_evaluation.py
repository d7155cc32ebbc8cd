"""Apply the rules of rules.yaml to one cell on a GPU: to its step, to its kernels together, and to each kernel."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from profzoo.formatting import gain_with_interval, percent
from profzoo.io.csv_tables import Row
from profzoo.tables import cell_tables
from profzoo.verdicts import AMDAHL, SIMULATED, advice_scores, gain_models
from profzoo.verdicts.gain_models import (
    FASTER,
    FUSED,
    GRAPH,
    STEP_CHANGES,
    WITHOUT_WAITS,
    CellSimulation,
    RequestedChange,
    error_interval,
)
from profzoo.verdicts.rules import launch_traits
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.feasibility import (
    EVERYTHING,
    IDLE_INPUT,
    POSSIBLE,
    Feasibility,
    add_wait_texts,
    drop_graph_texts,
)
from profzoo.verdicts.rules.launch_traits import TRIED
from profzoo.verdicts.rules.rule_types import KnownSettings, Rule, Rules
from profzoo.verdicts.rules.rules import ChosenAdvice
from profzoo.verdicts.rules.step_quality import (
    CHARGED,
    STRETCH,
    SYNCHRONISATION,
    charge_pauses,
    charge_tuning,
    charge_waits,
    cpu_limited_gain,
    disturbed_share,
    find_doubt,
)
from profzoo.verdicts.verdict import UNDECIDED, Verdict
from profzoo.what_if.graph_obstacles import OFTEN, WAITS
from profzoo.what_if.predicted_gains import Gain


def add_graph_gain(row: Verdict, replayed: CellSimulation | None, step: Row, scored: advice_scores.Scores) -> Verdict:
    """Return a verdict on waits that says what a CUDA graph gains besides, where one becomes possible without them."""
    if replayed is None or not row.next_step.endswith(POSSIBLE):
        return row
    bound = scored.bound(advice_scores.find_kind(row.settings))
    both = replayed.gain_together([RequestedChange(WITHOUT_WAITS), RequestedChange(GRAPH)], step, bound)
    if both is None:
        return row
    gain, ends = gain_with_interval(both.gain, both.told_low, both.high)
    said = f"expected with both: {gain} times as fast ({ends})"
    return replace(row, next_step=f"{row.next_step} ({said})")


# Give a verdict its expected gain, by what-if simulation or Amdahl's law, and withdraw advice that does not pay.

LAUNCH_LESS = "first reduce launches (a larger batch, CUDA graphs), as the CPU would otherwise limit the step; then "
NO_GAIN = "the what-if simulation of the traced steps shows no gain from this: "
# The CPU limits the step if shorter kernels gain less than this part of the gain by Amdahl's law.
CPU_LIMITED_PART = 0.5
SLOWER = "not advised: expected to be slower"
DOUBTED = "not advised: the expected gain is below the usual error of such predictions in trials"
TOGETHER = "only together: measure both"
UNSURE = "no setting is advised, as the expected gain is below the usual error of such predictions in trials: "


def ask_simulation(
    rule: Rule,
    advice: ChosenAdvice,
    traits: pd.DataFrame | None,
    cured: float | None,
    whole: bool,
    ran_with: KnownSettings,
) -> RequestedChange | None:
    """Choose the change to simulate for a rule that applies; None if the rule names none.

    Args:
        rule, advice: the rule, and its advice for the cell.
        traits: launches that the rule is about, with what add_saved_shares adds; None for a rule about the step.
        cured: share of their time that the advice saves.
        whole: whether these are all launches of the cell.
        ran_with: the cell's settings.
    """
    change = advice.replay
    if change is None or change in STEP_CHANGES:
        pinned = "pin_memory=true" in (advice.settings or "") or bool(ran_with.get("pin_memory"))
        return RequestedChange(change, workers=advice.workers, pinned=pinned) if change else None
    if traits is None:
        return None
    if change in gain_models.TARGET_PRECISIONS:
        added = gain_models.added_launches(traits, change, *gain_models.find_precision(ran_with)) if whole else None
        return RequestedChange(change, traits, traits[gain_models.saved_column(change)], added)
    name = rule["share"]
    time, saved = f"{name}_ns", f"{name}_saved_ns"
    rows = traits[traits[time] > 0] if time in traits else traits
    part = pd.Series(cured, rows.index, dtype="float64")
    if change != FUSED and isinstance(advice.cured, str) and saved in rows:
        part = rows[saved] / rows[time]
    return RequestedChange(change, rows, part)


def add_expected_gain(
    row: Verdict, replayed: CellSimulation | None, step: Row, scored: advice_scores.Scores
) -> Verdict:
    """Return the verdict with its expected gain, interval and score.

    The gain is by what-if simulation where possible, else by Amdahl's law, which limits it in any case. The verdict
    loses its settings if it gains nothing, or if its gain is below the usual error of such predictions in trials. It
    loses its gain if such advice made at most half of the cells in trials faster.
    """
    kind = advice_scores.find_kind(row.settings)
    bound = scored.bound(kind)
    found = replayed.gain(row.change, step, bound) if replayed and row.change else None
    if found is None:
        next_step = LAUNCH_LESS + row.next_step if row.limit else row.next_step
        # By Amdahl's law, a gain is an upper end itself.
        told = row.gain is not None and bound.whole
        low, high = error_interval(row.gain or 0.0, bound.error) if told else (None, None)
        row = replace(row, next_step=next_step, gain_low=low, gain_high=high, method=AMDAHL)
    else:
        row = _adjust_texts(row, found.gain, row.change)
        row = replace(row, gain=found.gain, gain_low=found.told_low, gain_high=found.high, method=SIMULATED)
    row = limit_gain(row)
    if row.settings and scored.doubts(kind, row.gain):
        row = replace(row, settings=None, next_step=UNSURE + row.next_step)
    row = replace(row, **scored.columns(kind))
    if scored.abstains(kind):
        row = replace(row, gain=None, gain_low=None, gain_high=None, limit=None)
    return replace(row, next_step=row.lead + row.next_step, lead="")


def limit_gain(row: Verdict) -> Verdict:
    """Return a verdict that promises no more than its share of the step allows, by Amdahl's law.

    A simulated gain may be due to more of the step than the rule looks at, up to `most_share`: the share then becomes
    what the simulation saves. A gain beyond that is reduced, and its interval with it.

    >>> row = Verdict("cell", "v", "m", 0.2, "e", "n", share=0.2, most_share=0.5, gain=4.0, gain_low=3.0, gain_high=5.0)
    >>> told = limit_gain(row)
    >>> told.share, told.gain, told.gain_low, told.gain_high
    (0.5, 2.0, 1.5, 2.5)
    """
    if row.share is None or not row.gain:
        return row
    share = min(max(row.share, 1 - 1 / row.gain), max(row.share, row.most_share or 0.0))
    most = cell_tables.amdahl_gain(share, 1)
    if row.gain <= most:
        return replace(row, share=share)
    low, high = (end and end * most / row.gain for end in (row.gain_low, row.gain_high))
    return replace(row, share=share, gain=most, gain_low=low, gain_high=high)


def _adjust_texts(row: Verdict, gain: float, known: RequestedChange | None) -> Verdict:
    """Return the verdict with other texts and limit if the simulated gain differs from the one by Amdahl's law."""
    told = replace(row, limit=None)
    of_launches = known is not None and known.change not in STEP_CHANGES
    if (
        of_launches
        and row.cured
        and gain - 1 < CPU_LIMITED_PART * (1 / (1 - min((row.share or 0.0) * row.cured, 0.999)) - 1)
    ):
        told = replace(row, limit=gain, next_step=LAUNCH_LESS + row.next_step)
    if gain < 1:
        told = replace(told, settings=None, next_step=NO_GAIN + row.next_step)
    return told


def why_not_advised(words: str, gain: Gain, scored: advice_scores.Scores, otherwise: str) -> str:
    """Explain why no verdict advises these settings; otherwise: the explanation if it is not the gain."""
    if gain.gain < 1:
        return SLOWER
    return DOUBTED if scored.doubts(advice_scores.find_kind(words), gain.gain) else otherwise


PREVENTING = "waits per step, which prevent a CUDA graph"
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
        cast: pd.DataFrame | None = None,
    ) -> None:
        """Prepare the shares of the cell's step.

        Args:
            step: the cell's row of the table of steps; ran_with: its settings; given: rules, floors and traits.
            peaks: measured rates by name, in flop/s; replayed: the cell's what-if simulation, if there is a trace;
            scored: scores of past advice; feasible: what the cell cannot run with; cast: what autocast does to its
            launches, rows of fusion-kernels.csv.
        """
        self.cast = cast
        self.step, self.ran_with, self.given = step, ran_with, given
        self.peaks, self.replayed, self.scored = peaks or {}, replayed, scored or advice_scores.load_scores()
        self.floors, self.feasible = given["floors"], feasible
        self.doubt, self.disturbed = find_doubt(step, self.floors), disturbed_share(step, self.floors)
        table = cell_tables.step_shares(step.to_frame().T.infer_objects())
        before = dict(table.iloc[0])
        if replayed and not self.doubt:
            charged = charge_waits(charge_tuning(before, replayed, step), replayed, step)
            table = pd.DataFrame([charge_pauses(charged, replayed, step)])
        # Shares of idle time that are no longer those of the table of steps.
        self.charged = dict(table.iloc[0]) != before
        self.shares = {
            **table.iloc[0],
            verdict_rules.LAUNCH_IDLE_SHARE: float(cell_tables.launch_wait_share(table).iloc[0]),
        }

    def mark_traits(self, kernels: pd.DataFrame, roofline: pd.DataFrame | None) -> pd.DataFrame:
        """Return launches with their traits, and with what reduced precision saves; arguments as for mark_traits.

        Launches that a tuner tries have no traits.
        """
        tried = {TRIED: self.replayed.tried_parts(kernels)} if self.replayed and self.replayed.tried.any() else {}
        # The copy holds columns of one kind in one block; rows are taken out of dozens of blocks many times as slowly.
        traits = launch_traits.mark_traits(kernels.assign(**tried), roofline, self.given["traits"], self.peaks).copy()
        # Of all launches at once, as each of the few that a rule is about would take as long.
        return gain_models.add_saved_shares(traits, self.cast, self.peaks, *gain_models.find_precision(self.ran_with))

    def of_step(self) -> Iterator[Verdict]:
        """Yield verdicts on the step: GPU work other than kernels, and idle time by cause."""
        evidence = f"steps.csv: process {self.step['process']:.0f}"
        untold = sum(share for name, share in self.shares.items() if name in cell_tables.IDLE)
        here = [rule for rule in self.given["rules"] if rule["of"] == "step"]
        told: list[Verdict] = []
        for rule in here:
            share, sure = self._told(rule["share"])
            if share >= rule["at_least"]:
                simulated = self.charged and rule["share"] in CHARGED
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
                potential=cell_tables.amdahl_gain(untold, 1),
            )

    def _of_obstacle(self, rules: Sequence[Rule], told: Sequence[Verdict], evidence: str) -> Iterator[Verdict]:
        """Yield the verdict on waits that cost little but prevent the CUDA graph that a verdict would advise."""
        waits = next((one for one in self.feasible.obstacles if one.kind == WAITS), None)
        if waits is None or not any(row.refused for row in told):
            return
        for rule in rules:
            if rule["share"] == SYNCHRONISATION and not any(row.about == rule["share"] for row in told):
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
        if not self.doubt or name in cell_tables.WORK:
            return self.shares[name], True
        share = self.shares[name]
        if self.doubt.metric == STRETCH:
            names = cell_tables.LAUNCHING if name == verdict_rules.LAUNCH_IDLE_SHARE else (name,)
            share = cell_tables.least_share(self.step, self.shares, names)
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
        left = 1 - gone.clip(upper=1)
        return 1 / left.where(left >= cell_tables.LEAST_LEFT, 0.0)

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
        return min(cell_tables.amdahl_gain(most, part), limit)

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
            gain=cell_tables.amdahl_gain(share, cured or 0, advice.workers),
            next_step=advice.next_step,
            settings=advice.settings,
            source=rule["source"],
            about=rule["share"],
            refused=advice.refused[0] if advice.refused else "",
        )
        row = add_wait_texts(row, self.feasible)
        if traits is not None and rule["launches"] != "changed":
            row = self._limited(rule, row, share, traits)
        asked = ask_simulation(rule, advice, traits, cured, level == CELL_LEVEL, self.ran_with)
        row = replace(row, change=asked, most_share=self._most_share(rule, share, traits, asked))
        return row if level == LAYER_LEVEL else self.expect(row)

    def _most_share(
        self, rule: Rule, share: float, traits: pd.DataFrame | None, asked: RequestedChange | None
    ) -> float:
        """Return the largest part of the step that advice can act on, 0 to 1, with that which the rule looks at.

        What frees the host lets it launch and take batches earlier. Copies go with the waits for them. Launches that
        are removed take the idle time before them along. Reduced precision makes other kernels faster too.
        """
        name, launching = rule["share"], self.shares[verdict_rules.LAUNCH_IDLE_SHARE]
        most = max(share, self.shares[name]) if rule["of"] == "step" else share
        if rule["of"] == "step":
            besides = (IDLE_INPUT,) if name == verdict_rules.LAUNCH_IDLE_SHARE else cell_tables.LAUNCHING
            waits = self.shares[SYNCHRONISATION] if name == "transfer" else 0.0
            most += sum(self.shares[part] for part in besides if part != name) + waits
        elif traits is not None and rule["launches"] == "removed":
            most += launching * min(traits[f"{name}_launches"].sum() / max(self.step["launches"], 1), 1.0)
        elif traits is not None and asked and asked.change in gain_models.TARGET_PRECISIONS and asked.saved is not None:
            ns = traits["total_ns"].where(asked.saved > 0, 0.0) * (1 - traits.get(TRIED, 0.0))
            most = max(most, share * ns.sum() / max(traits[f"{name}_ns"].sum(), 1.0))
        return float(min(most, 1.0))

    def expect(self, row: Verdict) -> Verdict:
        """Return a verdict with the expected gain of its advice, the method behind it, and the advice's score."""
        told = add_expected_gain(row, self.replayed, self.step, self.scored)
        told = add_graph_gain(told, self.replayed, self.step, self.scored)
        return replace(told, next_step=drop_graph_texts(told.next_step, self.feasible))

    def _limited(self, rule: Rule, row: Verdict, share: float, traits: pd.DataFrame) -> Verdict:
        """Return a verdict whose gain is limited by the CPU, which needs time for the launches that remain."""
        cured, gain, removed = row.cured or 0, row.sorting_gain, 0.0
        if rule["launches"] == "removed":
            removed = cured * min(traits[f"{rule['share']}_launches"].sum() / max(self.step["launches"], 1), 1.0)
            # The GPU no longer waits for these launches either, as far as that share is known.
            waits, _ = self._told(verdict_rules.LAUNCH_IDLE_SHARE)
            gain = cell_tables.amdahl_gain(share * cured + waits * removed, 1)
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
    ends = [percent(end, rule["at_least"]) for end in (least, most)]
    return Verdict(
        level=CELL_LEVEL,
        verdict=UNDECIDED,
        metric=f"share of the step: {rule['share']}",
        value=share,
        threshold=rule["at_least"],
        evidence=_name_evidence(rule),
        next_step=f"{rule['verdict']}: between {' and '.join(ends)} of the step, because counters are "
        "estimated from a sample of launches: lower ncu.error, or set ncu.launches to all",
        potential=potential,
    )


def _name_evidence(rule: Rule) -> str:
    """Name the table and columns that a rule about kernels uses."""
    columns = {"short": "kernels.csv: mean_ns, class", "small_grid": "kernels.csv: grid, multiprocessors"}
    ours = rule["share"] in verdict_rules.SHARES["kernels"]
    return columns.get(rule["share"], "roofline.csv: bound, efficiency" if ours else "kernels.csv: kernel, counters")


# Predict the gains of settings that no verdict advises, by what-if simulation: alone, and within a CUDA graph.

SETTING_LEVEL, UNCOUNTED, AND = "setting", ", without counters", " + "


@dataclass(frozen=True)
class AdvisableSetting:
    """Settings that a rule could advise: the setting words, the change's name, and the change to simulate."""

    verdict: str
    words: str
    change: str
    asked: RequestedChange
    source: str


def other_setting_rows(judged: CellRules, traits: pd.DataFrame, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return rows of settings that no verdict advises, and of reduced precision in a CUDA graph; largest gain first.

    The gain of both together does not follow from their single gains: if the CPU limits the step, reduced precision
    gains nothing without a graph; if the GPU limits it, a graph gains little without reduced precision.

    Args:
        judged: the cell's judge.
        traits: rows of all launches of the cell.
        verdicts: the verdicts on the cell.
    """
    if not judged.replayed:
        return []
    here = list(verdicts)
    advised = {row.settings for row in here if row.settings and row.gain}
    abstaining = {row.verdict for row in here if row.settings and not row.gain}
    counted = are_counted(judged, traits)
    known = list(list_settings(judged, traits))
    found = []
    for one in known:
        if one.words in advised:
            continue
        gain = judged.replayed.gain(one.asked, judged.step, judged.scored.bound(advice_scores.find_kind(one.words)))
        if gain:
            if one.verdict in abstaining:
                why = f"not advised: in trials, advice on {one.verdict} made at most half of the cells faster"
            else:
                why = f"not advised: {one.verdict} does not apply here"
            found.append(_row(judged, one, gain, why, counted))
    graph = next((one for one in known if one.change == GRAPH), None)
    for one in known:
        if graph and one.change in gain_models.TARGET_PRECISIONS:
            both, words = f"{graph.verdict}{AND}{one.verdict}", f"{graph.words} {one.words}"
            bound = judged.scored.bound(advice_scores.find_kind(words))
            if gain := judged.replayed.gain(one.asked, judged.step, bound, graph=True):
                joined = AdvisableSetting(both, words, f"{GRAPH}{AND}{one.change}", one.asked, one.source)
                found.append(_row(judged, joined, gain, TOGETHER, counted))
    return sorted(found, key=lambda row: -row.sorting_gain)


def are_counted(judged: CellRules, traits: pd.DataFrame) -> bool:
    """Return whether enough of the cell's GPU time has counters for verdicts that need them."""
    total = traits["total_ns"].sum()
    return bool(total) and bool(traits["counted_ns"].sum() >= judged.floors["counted"] * total)


def list_settings(judged: CellRules, traits: pd.DataFrame) -> Iterator[AdvisableSetting]:
    """Yield the settings that rules could advise for the cell, each once."""
    seen = set[str]()
    for rule in judged.given["rules"]:
        of_kernels = rule["of"] == "kernels"
        if not of_kernels and rule["of"] != "step":
            continue
        advice = verdict_rules.choose_advice(rule, judged.step, judged.ran_with, judged.feasible)
        words, launches = advice.settings, traits if of_kernels else None
        if not words or words in seen:
            continue
        cured = None if isinstance(advice.cured, str) else advice.cured
        asked = ask_simulation(rule, advice, launches, cured, True, judged.ran_with)
        if asked:
            seen.add(words)
            yield AdvisableSetting(rule["verdict"], words, asked.change, asked, rule["source"])


def _row(judged: CellRules, one: AdvisableSetting, gain: Gain, why: str, counted: bool) -> Verdict:
    """Return the row of a setting; why: the reason why it is not advised, if it is not the gain."""
    guessed = not counted and any(to in one.change.split(AND) for to in gain_models.TARGET_PRECISIONS)
    return Verdict(
        level=SETTING_LEVEL,
        verdict=one.verdict,
        metric=f"replay: {one.change}{UNCOUNTED if guessed else ''}",
        value=gain.gain,
        evidence="program.npz: run again",
        next_step=why_not_advised(one.words, gain, judged.scored, why),
        gain=gain.gain,
        gain_low=gain.told_low,
        gain_high=gain.high,
        method=SIMULATED,
        settings=one.words,
        source=one.source,
        **judged.scored.columns(advice_scores.find_kind(one.words)),
    )
