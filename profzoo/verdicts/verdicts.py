"""Says what holds each cell and its top kernels back, by the rules of rules.yaml, with the evidence."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from profzoo.tables import step_shares
from profzoo.tables.across import CELL
from profzoo.verdicts import ncu_advice
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.columns import COLUMNS
from profzoo.verdicts.traits import with_traits

NOTHING, UNDECIDED = "nothing stands out", "undecided"
OURS = "profzoo"
STRETCH = "step under nsys / unprofiled"
KERNEL = ["class", "function"]
# A kernel has the trait that so much of its time has.
HALF = 0.5
LAUNCH_LESS = "launch less first, as the CPU would hold the step back: a larger batch, CUDA graphs; then "
Cell = tuple[str, str]


def table(
    steps: pd.DataFrame,
    kernels: pd.DataFrame,
    roofline: pd.DataFrame | None,
    peaks: Mapping[str, float],
    advice: Mapping[Cell, tuple[pd.DataFrame, pd.DataFrame]],
    ran_with: Mapping[Cell, Mapping[str, Any]],
    given: Mapping[str, Any],
) -> pd.DataFrame:
    """COLUMNS: the verdicts of each cell, the largest gain first, then those of its kernels.

    Args:
        steps, kernels, roofline: the tables of these names; without roofline, verdicts that need counters are not
            given. peaks: rates by name, flop/s. advice: ncu's details page and the launches on it, by cell.
        ran_with: settings of each cell, so that none is advised what it does already.
        given: as `verdict_rules.load` has them.

    `share` is the part of the unprofiled step that a row is about, empty where it is about none. A cell to which no
    rule applies has NOTHING, one whose evidence is below a floor UNDECIDED with the reason. `limit` is the gain at
    which the CPU, which has launches to make, holds the step back; no gain is above it. `settings`, in the words of
    models.run, follow the advice at once.
    """
    rows: list[dict[str, Any]] = []
    for cell, step in steps.groupby(CELL, sort=False):
        # Of several processes the one that keeps its GPU busiest says what the cell is like.
        where = step.loc[step["busy_ns"].idxmax()]
        judged = _Judged(where, ran_with.get(cell, {}), given)
        launches = _of(kernels, cell)
        traits = with_traits(launches, _of(roofline, cell), given["traits"], peaks)
        found = [
            *judged.of_step(),
            *judged.of_kernels(traits),
            *_uncounted(traits, given["floors"]["counted"]),
        ]
        # What cannot be told comes before what is worth less than it may be.
        everything = sorted(found, key=lambda row: -(row["gain"] or row.pop("potential", 1.0)))
        everything = everything or [_nothing(where, roofline is not None)]
        said = ncu_advice.of_step(*advice[cell], launches, judged.shares["kernels"]) if cell in advice else []
        for group in (everything, judged.of_each(traits), said):
            rows += [
                {"by": OURS, **dict(zip(CELL, cell, strict=True)), **row, "rank": rank}
                for rank, row in enumerate(group, 1)
            ]
    return pd.DataFrame(rows, columns=COLUMNS)


def host_limit(step: Mapping[str, Any], most: float, removed: float = 0.0) -> float:
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


class _Judged:
    """One cell, held against the rules."""

    def __init__(self, step: pd.Series, ran_with: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """step: the cell's row of the table of steps; ran_with: its settings; given: rules, floors and traits."""
        self.step, self.ran_with, self.given = step, ran_with, given
        self.floors = given["floors"]
        self.doubt = _doubt(step, self.floors)
        table = step_shares.shares(step.to_frame().T.infer_objects())
        self.shares = {**table.iloc[0], verdict_rules.LAUNCHING: float(step_shares.launching(table).iloc[0])}

    def of_step(self) -> Iterator[dict[str, Any]]:
        """Verdicts on what the GPU does besides kernels, and what it waits for."""
        evidence = f"steps.csv: process {self.step['process']:.0f}"
        untold = sum(share for name, share in self.shares.items() if name in step_shares.IDLE)
        here = [rule for rule in self.given["rules"] if rule["of"] == "step"]
        for rule in here:
            share, sure = self._told(rule["share"])
            if share >= rule["at_least"]:
                row = self._row(rule, share, None, "cell", evidence)
                yield row if sure else row | {"metric": f"{row['metric']}, at least"}
                untold -= share
        if self.doubt and untold >= min(rule["at_least"] for rule in here):
            measured, why, advice = self.doubt
            yield {
                "level": "cell", "verdict": UNDECIDED, **measured, "evidence": evidence, "gain": None,
                "potential": step_shares.amdahl(untold, 1),
                "next_step": f"the GPU idles {untold:.0%} of the step, but {why}, so what it waits for is not told: "
                f"{advice}",
            }  # fmt: skip

    def _told(self, name: str) -> tuple[float, bool]:
        """A share of the step and whether it is exact; in doubt what it is at least, 0 where a step was disturbed."""
        if not self.doubt or name in step_shares.WORK:
            return self.shares[name], True
        if self.doubt[0]["metric"] != STRETCH:
            return 0.0, False
        names = step_shares.LAUNCHING if name == verdict_rules.LAUNCHING else (name,)
        return step_shares.least(self.step, self.shares, names), False

    def of_kernels(self, traits: pd.DataFrame) -> Iterator[dict[str, Any]]:
        """Verdicts on the cell, by rules whose trait launches have that take so much of the step.

        Where kernels run for 80 % of the step, and launches that are short take 30 of their 100 ms, the trait takes
        24 % of the step, which a rule of `at_least: 0.1` is met by.
        """
        for rule, share, least, most in self._shared(traits, traits["total_ns"].sum()):
            if least >= rule["at_least"]:
                yield self._row(rule, share, traits, "cell", _evidence(rule))
            elif most >= rule["at_least"]:
                yield _straddled(rule, share, least, most)

    def of_each(self, traits: pd.DataFrame) -> list[dict[str, Any]]:
        """Verdicts on each kernel that takes long enough, by the traits that half of its time has; largest gain first.

        In that cell, a kernel of 20 ms takes 16 % of the step, and is short where its short launches take 8 % or more.
        """
        total = traits["total_ns"].sum()
        found: list[dict[str, Any]] = []
        for (kind, function), own in traits.groupby(KERNEL, sort=False):
            taken = own["total_ns"].sum() * self._step_per_ns(total)
            if not total or taken < self.floors["kernel"]:
                continue
            for rule, share, least, _ in self._shared(own, total):
                if least >= HALF * taken:
                    row = self._row(rule, share, own, "kernel", _evidence(rule))
                    found.append({"class": kind, "function": function, **row, "threshold": HALF * taken})
        return sorted(found, key=lambda row: -(row["gain"] or 0))

    def _shared(self, traits: pd.DataFrame, total: float) -> Iterator[tuple[Mapping[str, Any], float, float, float]]:
        """Rules about kernels, each with the share of the step that launches with its trait take, and the least and the
        most that it may be by the intervals of counters; of those by which it may be any.

        traits: launches, of the whole cell or of one kernel; total: GPU time of the cell's kernels, in ns.
        """
        for rule in self.given["rules"]:
            if rule["of"] == "kernels":
                taken = [traits[f"{rule['share']}{of}_ns"].sum() for of in ("", "_least", "_most")]
                share, least, most = (ns * self._step_per_ns(total) for ns in taken)
                if most:
                    yield rule, share, least, most

    def _step_per_ns(self, total: float) -> float:
        """The share of the unprofiled step that a ns of GPU time is; total: that of the cell's kernels, in ns."""
        return self.shares["kernels"] / total if total else 0.0

    def _row(
        self, rule: Mapping[str, Any], share: float, traits: pd.DataFrame | None, level: str, evidence: str
    ) -> dict[str, Any]:
        """A rule that holds; traits: of the launches that it is about, None for a rule about the step."""
        advice = verdict_rules.advice(rule, self.step, self.ran_with)
        cured = advice["cured"]
        if isinstance(cured, str) and traits is not None:
            saved = f"{rule['share']}_saved_ns"
            # Not known without the peaks that it follows from.
            cured = traits[saved].sum() / traits[f"{rule['share']}_ns"].sum() if saved in traits else None
        row = {
            "level": level, "verdict": rule["verdict"], "metric": f"share of the step: {rule['share']}",
            "value": share, "threshold": rule["at_least"], "share": share, "evidence": evidence, "cured": cured,
            "gain": step_shares.amdahl(share, cured or 0), "next_step": advice["next"], "settings": advice["settings"],
            "source": rule["source"],
        }  # fmt: skip
        if traits is None or rule["launches"] == "changed":
            return row
        removed = 0.0
        if rule["launches"] == "removed":
            removed = cured * min(traits[f"{rule['share']}_launches"].sum() / max(self.step["launches"], 1), 1.0)
            # The GPU no longer waits for them either, as far as that is told.
            waits, _ = self._told(verdict_rules.LAUNCHING)
            row["gain"] = step_shares.amdahl(share * cured + waits * removed, 1)
        limit = host_limit(self.step, self.floors["stretch"], removed)
        if limit < row["gain"]:
            row |= {"gain": limit, "limit": limit, "next_step": LAUNCH_LESS + row["next_step"]}
        return row


def _doubt(step: pd.Series, floors: Mapping[str, float]) -> tuple[dict[str, Any], str, str] | None:
    """Why a step's idle time may be another's doing: metric, value and threshold; in words; and what to do."""
    stretch, unsteady = _stretch(step), step["step_ns"] / step["step_median_ns"]
    if stretch > floors["stretch"]:
        measured = {"metric": STRETCH, "value": stretch, "threshold": floors["stretch"]}
        return measured, f"nsys stretches it {stretch:.1f} times", "raise nsys.window, or quiet the machine"
    if unsteady > floors["steady"]:
        measured = {"metric": "unprofiled step, mean / median", "value": unsteady, "threshold": floors["steady"]}
        advice = "quiet the machine and measure again; data that comes in bursts looks the same"
        return measured, f"without a profiler its mean is {unsteady:.1f} times its median", advice
    return None


def _straddled(rule: Mapping[str, Any], share: float, least: float, most: float) -> dict[str, Any]:
    """That a rule may hold or not, by the intervals of counters."""
    return {
        "level": "cell", "verdict": UNDECIDED, "metric": f"share of the step: {rule['share']}", "value": share,
        "threshold": rule["at_least"], "evidence": _evidence(rule), "gain": None,
        "potential": step_shares.amdahl(most, 1),
        "next_step": f"{rule['verdict']}: {least:.0%} to {most:.0%} of the step, as counters are estimated: lower "
        "ncu.error, or set ncu.launches to all",
    }  # fmt: skip


def _evidence(rule: Mapping[str, Any]) -> str:
    """The table and columns that a rule about kernels goes by."""
    columns = {"short": "kernels.csv: mean_ns, class", "small_grid": "kernels.csv: grid, multiprocessors"}
    return columns.get(rule["share"], "roofline.csv: bound, efficiency")


def _uncounted(traits: pd.DataFrame, floor: float) -> Iterator[dict[str, Any]]:
    """That verdicts which need counters are not given, where some were collected but too few."""
    total = traits["total_ns"].sum()
    share = traits["counted_ns"].sum() / total if total else 1.0
    if 0 < share < floor:
        yield {
            "level": "cell", "verdict": UNDECIDED, "metric": "share of GPU time with counters", "value": share,
            "threshold": floor, "evidence": "roofline.csv: counted_share", "gain": None,
            "next_step": f"counters cover {share:.0%} of GPU time: raise ncu.budget or collect ncu.set roofline of all "
            "configurations",
        }  # fmt: skip


def _nothing(step: pd.Series, counted: bool) -> dict[str, Any]:
    more = "" if counted else ": collect ncu.set roofline to tell what bounds its kernels"
    return {"level": "cell", "verdict": NOTHING, "metric": "share of the step: busy", "value": step["busy_share"],
            "share": step["busy_share"], "evidence": "steps.csv: busy_share", "gain": 1.0,
            "next_step": f"the GPU is busy {step['busy_share']:.0%} of the step{more}"}  # fmt: skip


def _of(frame: pd.DataFrame | None, cell: Cell) -> Any:
    if frame is None:
        return None
    return frame[(frame["model"] == cell[0]) & (frame["phase"] == cell[1])]
