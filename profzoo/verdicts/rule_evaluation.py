"""Holds one cell against the rules of rules.yaml: its step, its kernels as one, and each of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from profzoo.statistics.process_repeats import TAKEN
from profzoo.tables import step_shares
from profzoo.verdicts import advice_gain, advice_scores
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.gain_models import FASTER, FUSED, CellSimulation, RequestedChange

UNDECIDED = "undecided"
STRETCH = "step under nsys / unprofiled"
KERNEL_KEYS = ["class", "function"]
# A kernel has the trait that so much of its time has.
KERNEL_TRAIT_SHARE = 0.5
CELL_LEVEL, LAYER_LEVEL = "cell", "layer"
# What has a trait by the intervals of counters, at both of their ends and at one of them.
INTERVAL_SUFFIXES = ("_least", "_most")


def cpu_limited_gain(step: Mapping[str, Any], most: float, removed: float = 0.0) -> float:
    """How many times as fast a step gets by shorter kernels, before it waits for the CPU all the time; at least 1.

    removed: the part of its launches that the CPU no longer makes, each of which takes it as long as any other.

    Under nsys, which slows the CPU down, so that this errs on the low side. Infinite where it is not known: beyond so
    many times the unprofiled step, or where `host_ns` is empty.
    """
    if not step["host_ns"] > 0 or removed >= 1 or _stretch(step) > most:
        return float("inf")
    return float(max(step["wall_ns"] / (step["host_ns"] * (1 - removed)), 1.0))


def _stretch(step: Mapping[str, Any]) -> float:
    """A step under nsys over the unprofiled one."""
    return float(step["wall_ns"] / step["step_ns"])


class CellRules:
    """One cell, held against the rules."""

    def __init__(
        self,
        step: pd.Series,
        ran_with: Mapping[str, Any],
        given: Mapping[str, Any],
        peaks: Mapping[str, float] | None = None,
        replayed: CellSimulation | None = None,
        scored: advice_scores.Scores | None = None,
    ) -> None:
        """One cell.

        Args:
            step: its row of the table of steps; ran_with: its settings; given: rules, floors and traits; peaks: rates
                by name, flop/s; replayed: its steps, where there is a trace; scored: how right advice has been.
        """
        self.step, self.ran_with, self.given = step, ran_with, given
        self.peaks, self.replayed, self.scored = peaks or {}, replayed, scored or advice_scores.load_scores()
        self.floors = given["floors"]
        self.doubt, self.disturbed = _find_doubt(step, self.floors), _disturbed_share(step, self.floors)
        table = step_shares.step_shares(step.to_frame().T.infer_objects())
        self.shares = {
            **table.iloc[0],
            verdict_rules.LAUNCH_IDLE_SHARE: float(step_shares.launch_wait_share(table).iloc[0]),
        }

    def of_step(self) -> Iterator[dict[str, Any]]:
        """Verdicts on what the GPU does besides kernels, and what it waits for."""
        evidence = f"steps.csv: process {self.step['process']:.0f}"
        untold = sum(share for name, share in self.shares.items() if name in step_shares.IDLE)
        here = [rule for rule in self.given["rules"] if rule["of"] == "step"]
        for rule in here:
            share, sure = self._told(rule["share"])
            if share >= rule["at_least"]:
                row = self.row(rule, share, None, CELL_LEVEL, evidence)
                yield row if sure else row | {"metric": f"{row['metric']}, at least"}
                untold -= share
        if self.doubt and untold >= min(rule["at_least"] for rule in here):
            measured, why, advice = self.doubt
            yield {
                "level": CELL_LEVEL, "verdict": UNDECIDED, **measured, "evidence": evidence, "gain": None,
                "potential": step_shares.amdahl(untold, 1),
                "next_step": f"the GPU idles {untold:.0%} of the step, but {why}, so what it waits for is not told: "
                f"{advice}",
            }  # fmt: skip

    def of_trace(self) -> Iterator[dict[str, Any]]:
        """Verdicts on what of the step goes as its traced steps are run again without it."""
        if not self.replayed:
            return
        for rule in self.given["rules"]:
            if rule["of"] == "trace":
                found = self.replayed.gain(RequestedChange(rule["share"]), self.step, 0.0)
                if found and (share := 1 - 1 / found.gain) >= rule["at_least"]:
                    yield self.row({**rule, "replay": rule["share"]}, share, None, CELL_LEVEL, "program.npz: run again")

    def _told(self, name: str) -> tuple[float, bool]:
        """A share of the step and whether it is exact; in doubt what it is at least.

        Of a step that is longer by others' doing all of that may be in this share.
        """
        if not self.doubt or name in step_shares.WORK:
            return self.shares[name], True
        share = self.shares[name]
        if self.doubt[0]["metric"] == STRETCH:
            names = step_shares.LAUNCHING if name == verdict_rules.LAUNCH_IDLE_SHARE else (name,)
            share = step_shares.least(self.step, self.shares, names)
        if self.disturbed:
            share = max(1 - (1 - share) / (1 - self.disturbed), 0.0) if self.disturbed < 1 else 0.0
        return share, False

    def of_kernels(self, traits: pd.DataFrame) -> Iterator[dict[str, Any]]:
        """Verdicts on the cell, by rules whose trait launches have that take so much of the step.

        Where kernels run for 80 % of the step, and launches that are short take 30 of their 100 ms, the trait takes
        24 % of the step, which a rule of `at_least: 0.1` is met by.
        """
        for rule, share, least, most in self._shared(self.summed(traits), traits["total_ns"].sum()):
            if least >= rule["at_least"]:
                yield self.row(rule, share, traits, CELL_LEVEL, _name_evidence(rule))
            elif most >= rule["at_least"]:
                yield _undecided_row(rule, share, least, most) | {"potential": self._potential(rule, most, traits)}

    def of_each(self, traits: pd.DataFrame) -> list[dict[str, Any]]:
        """Verdicts on each kernel that takes long enough, by the traits that half of its time has; largest gain first.

        In that cell, a kernel of 20 ms takes 16 % of the step, and is short where its short launches take 8 % or more.
        """
        total = traits["total_ns"].sum()
        found: list[dict[str, Any]] = []
        for (kind, function), own in traits.groupby(KERNEL_KEYS, sort=False):
            if total and self.share_of(own, total) >= self.floors["kernel"]:
                rows = self.of_some(own, total, "kernel")
                found += [{"class": kind, "function": function, **row} for _, row in rows]
        return sorted(found, key=lambda row: -(row["gain"] or 0))

    def of_some(
        self, own: pd.DataFrame, total: float, level: str, summed: Mapping[str, float] | None = None
    ) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
        """Rules whose trait half of the time of some launches has, each with its verdict on them.

        own: their rows, with traits; total: GPU time of the cell's kernels, in ns; summed: of them, where it is known.
        """
        half = KERNEL_TRAIT_SHARE * self.share_of(own, total)
        for rule, share, least, _ in self._shared(self.summed(own) if summed is None else summed, total):
            if least >= half:
                yield rule, self.row(rule, share, own, level, _name_evidence(rule)) | {"threshold": half}

    def most(self, launches: pd.DataFrame, total: float) -> pd.Series:
        """What is gained at most by Amdahl's law if launches take no time and nothing waits for their being launched.

        launches: `total_ns` and `launches` of some, a row each; total: GPU time of the cell's kernels, in ns.
        """
        waits, _ = self._told(verdict_rules.LAUNCH_IDLE_SHARE)
        gone = launches["total_ns"] * self._step_per_ns(total)
        gone += waits * (launches["launches"] / max(self.step["launches"], 1)).clip(upper=1)
        return 1 / (1 - gone.clip(upper=1)).clip(lower=1e-9)

    def share_of(self, own: pd.DataFrame, total: float) -> float:
        """The share of the unprofiled step that launches take; total: GPU time of the cell's kernels, in ns."""
        return own["total_ns"].sum() * self._step_per_ns(total)

    def summed(self, traits: Any) -> Any:
        """The time of launches with each trait of the rules about kernels, also at either end of intervals, in ns.

        traits: launches, or groups of them, each of which then has a row.
        """
        names = dict.fromkeys(rule["share"] for rule in self.given["rules"] if rule["of"] == "kernels")
        return traits[
            ["total_ns", "launches", *(f"{name}{of}_ns" for name in names for of in ("", *INTERVAL_SUFFIXES))]
        ].sum()

    def _shared(
        self, summed: Mapping[str, float], total: float
    ) -> Iterator[tuple[Mapping[str, Any], float, float, float]]:
        """Rules about kernels, each with the share of the step that launches with its trait take, and the least and the
        most that it may be by the intervals of counters; of those by which it may be any.

        summed: of launches, of the whole cell or of one kernel; total: GPU time of the cell's kernels, in ns.
        """
        for rule in self.given["rules"]:
            if rule["of"] == "kernels":
                taken = [summed[f"{rule['share']}{of}_ns"] for of in ("", *INTERVAL_SUFFIXES)]
                share, least, most = (ns * self._step_per_ns(total) for ns in taken)
                if most:
                    yield rule, share, least, most

    def _potential(self, rule: Mapping[str, Any], most: float, traits: pd.DataFrame) -> float:
        """What is gained at most if a rule holds: what it says goes of its launches, which take so much of the step.

        All of their time, where it says that by launch. traits: of all launches of the cell.
        """
        cured = verdict_rules.choose_advice(rule, self.step, self.ran_with)["cured"]
        part = 1.0 if isinstance(cured, str) else float(cured)
        may = traits[traits[f"{rule['share']}_most_ns"] > 0]
        gone = RequestedChange(FUSED if rule["launches"] == "removed" else FASTER, may, pd.Series(part, may.index))
        found = self.replayed.gain(gone, self.step, 0.0) if self.replayed else None
        kept = rule["launches"] == "kept"
        limit = found.gain if found else cpu_limited_gain(self.step, self.floors["stretch"]) if kept else float("inf")
        return min(step_shares.amdahl(most, part), limit)

    def _step_per_ns(self, total: float) -> float:
        """The share of the unprofiled step that a ns of GPU time is; total: that of the cell's kernels, in ns."""
        return self.shares["kernels"] / total if total else 0.0

    def row(
        self, rule: Mapping[str, Any], share: float, traits: pd.DataFrame | None, level: str, evidence: str
    ) -> dict[str, Any]:
        """A rule that holds; traits: of the launches that it is about, None for a rule about the step."""
        advice = verdict_rules.choose_advice(rule, self.step, self.ran_with)
        cured = advice["cured"]
        if isinstance(cured, str) and traits is not None:
            saved = f"{rule['share']}_saved_ns"
            # Not known without the peaks that it follows from.
            cured = traits[saved].sum() / traits[f"{rule['share']}_ns"].sum() if saved in traits else None
        row: dict[str, Any] = {
            "level": level, "verdict": rule["verdict"], "metric": f"share of the step: {rule['share']}",
            "value": share, "threshold": rule["at_least"], "share": share, "evidence": evidence, "cured": cured,
            "gain": step_shares.amdahl(share, cured or 0), "next_step": advice["next"], "settings": advice["settings"],
            "source": rule["source"],
        }  # fmt: skip
        if traits is not None and rule["launches"] != "changed":
            row |= self._limited(rule, row, traits)
        asked = advice_gain.ask_simulation(rule, advice, traits, cured, level == CELL_LEVEL, self.peaks, self.ran_with)
        return (
            row | {advice_gain.CHANGE_KEY: asked}
            if level == LAYER_LEVEL
            else self.expect(row | {advice_gain.CHANGE_KEY: asked})
        )

    def expect(self, row: dict[str, Any]) -> dict[str, Any]:
        """A verdict with what its advice is expected to gain, how that is known, and how right such advice has been."""
        return advice_gain.add_expected_gain(row, self.replayed, self.step, self.scored)

    def _limited(self, rule: Mapping[str, Any], row: Mapping[str, Any], traits: pd.DataFrame) -> dict[str, Any]:
        """What the CPU, which has launches to make, lets through of the gain by Amdahl's law."""
        share, cured, found = row["share"], row["cured"] or 0, {}
        removed = 0.0
        if rule["launches"] == "removed":
            removed = cured * min(traits[f"{rule['share']}_launches"].sum() / max(self.step["launches"], 1), 1.0)
            # The GPU no longer waits for them either, as far as that is told.
            waits, _ = self._told(verdict_rules.LAUNCH_IDLE_SHARE)
            found["gain"] = step_shares.amdahl(share * cured + waits * removed, 1)
        limit = cpu_limited_gain(self.step, self.floors["stretch"], removed)
        if limit < found.get("gain", row["gain"]):
            found |= {"gain": limit, "limit": limit}
        return found


def _cpu_taken_share(step: Mapping[str, Any]) -> float:
    """The part of the unprofiled time for which others had the CPU; 0 where the system does not tell."""
    taken = step.get("cpu_taken_share")
    return float(taken) if taken is not None and taken > 0 else 0.0


def _disturbed_share(step: Mapping[str, Any], floors: Mapping[str, float]) -> float:
    """What of the mean unprofiled step may be others' doing: what they took, or what few steps are longer by.

    >>> round(_disturbed_share({"cpu_taken_share": 0.2, "step_ns": 2.0, "step_median_ns": 1.0}, {"steady": 1.3}), 3)
    0.6
    """
    taken, unsteady = _cpu_taken_share(step), step["step_ns"] / step["step_median_ns"]
    left = (1 - taken if taken > TAKEN else 1.0) / (unsteady if unsteady > floors["steady"] else 1.0)
    return float(1 - left)


def _find_doubt(step: pd.Series, floors: Mapping[str, float]) -> tuple[dict[str, Any], str, str] | None:
    """Why a step's idle time may be another's doing: metric, value and threshold; in words; and what to do."""
    stretch, unsteady, taken = _stretch(step), step["step_ns"] / step["step_median_ns"], _cpu_taken_share(step)
    if stretch > floors["stretch"]:
        measured = {"metric": STRETCH, "value": stretch, "threshold": floors["stretch"]}
        return measured, f"nsys stretches it {stretch:.1f} times", "raise nsys.window, or quiet the machine"
    if taken > TAKEN:
        measured = {"metric": "CPU time that others took", "value": taken, "threshold": TAKEN}
        said = f"without a profiler others had the CPU for up to {taken:.0%} of the time"
        return measured, said, "quiet the machine and measure again"
    if unsteady > floors["steady"]:
        measured = {"metric": "unprofiled step, mean / median", "value": unsteady, "threshold": floors["steady"]}
        advice = "quiet the machine and measure again; data that comes in bursts looks the same"
        return measured, f"without a profiler its mean is {unsteady:.1f} times its median", advice
    return None


def _undecided_row(rule: Mapping[str, Any], share: float, least: float, most: float) -> dict[str, Any]:
    """That a rule may hold or not, by the intervals of counters."""
    return {
        "level": CELL_LEVEL, "verdict": UNDECIDED, "metric": f"share of the step: {rule['share']}", "value": share,
        "threshold": rule["at_least"], "evidence": _name_evidence(rule), "gain": None,
        "next_step": f"{rule['verdict']}: {least:.0%} to {most:.0%} of the step, as counters are estimated: lower "
        "ncu.error, or set ncu.launches to all",
    }  # fmt: skip


def _name_evidence(rule: Mapping[str, Any]) -> str:
    """The table and columns that a rule about kernels goes by."""
    columns = {"short": "kernels.csv: mean_ns, class", "small_grid": "kernels.csv: grid, multiprocessors"}
    ours = rule["share"] in verdict_rules.SHARES["kernels"]
    return columns.get(rule["share"], "roofline.csv: bound, efficiency" if ours else "kernels.csv: kernel, counters")
