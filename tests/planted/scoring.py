"""Holds the first two verdicts on each planted case against what was planted and what mending it gained."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from profzoo.statistics.percentiles import drop_warmup
from tests.planted.cases import CAUSES, Case

MAPPING = Path(__file__).parent / "verdict_causes.yaml"
# Resamples of steps for an interval of a ratio of medians, and the interval's ends in percent.
DRAWS, ENDS = 2000, (2.5, 97.5)
GRAPH = "graph=true"
# In place of a verdict where none is given.
NOTHING = pd.Series({"verdict": "", "gain": np.nan})


@dataclass(frozen=True)
class Measured:
    """How many times as fast the twin is, with the interval that the spread of steps gives; processes are not in it.

    faulty_ns, mended_ns: the median steps.
    """

    faulty_ns: float
    mended_ns: float
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class Scored:
    """A case, what was said of it, and what is true of it.

    verdict, second: the first two verdicts. right: whether the first names what is planted; among_two: whether either
    does. expected, low, high: the gain of the first verdict that is right, else of the first; nan where none is given.
    """

    case: Case
    verdict: str
    second: str
    known: bool
    right: bool
    among_two: bool
    impossible: bool
    expected: float
    low: float
    high: float
    measured: Measured

    @property
    def error(self) -> float:
        """Relative error of the expected gain."""
        return abs(self.expected / self.measured.gain - 1)

    @property
    def width(self) -> float:
        """Upper end of the expected interval over its lower end; nan where none is given."""
        return self.high / self.low if math.isfinite(self.high) and self.low > 0 else math.nan

    @property
    def holds(self) -> bool:
        """Whether the measured gain lies in the expected interval, or below its upper end where only that is told."""
        return not self.measured.gain < self.low and self.measured.gain <= self.high


def read_mapping(path: Path = MAPPING) -> dict[str, tuple[str, ...]]:
    """Causes that each verdict names.

    Raises:
        ValueError: a cause is none of those that cases are described by.
    """
    mapping = {str(name): tuple(causes) for name, causes in yaml.safe_load(path.read_text(encoding="utf-8")).items()}
    for name, causes in mapping.items():
        if unknown := set(causes) - set(CAUSES):
            named = ", ".join(sorted(unknown))
            raise ValueError(f"{path}: '{name}' names {named}, which tests/planted/cases.py does not know")
    return mapping


def compare_steps(faulty: Sequence[float], mended: Sequence[float]) -> Measured:
    """Ratio of the medians of two programs' steps, with an interval by resampling them."""
    one, other = np.asarray(faulty, dtype=float), np.asarray(mended, dtype=float)
    chance = np.random.default_rng(0)
    drawn = [np.median(chance.choice(steps, (DRAWS, len(steps))), axis=1) for steps in (one, other)]
    low, high = np.percentile(drawn[0] / drawn[1], ENDS)
    before, after = float(np.median(one)), float(np.median(other))
    return Measured(before, after, before / after, float(low), float(high))


def read_steps(results: Path, name: str, phase: str) -> np.ndarray:
    """Durations of the steps of a cell, in ns, after the first ones if these are slower; by the host where no GPU is."""
    rows = pd.read_csv(results / name / f"{phase}.time.csv")
    return drop_warmup(rows["gpu_ns"].fillna(rows["wall_ns"]).to_numpy(dtype=float))


def measure_case(case: Case, results: Path) -> Measured | None:
    """How many times as fast the twin of a case is; None where either was not timed."""
    names = (case.name, case.twin)
    if not all((results / name / f"{case.phase}.time.csv").is_file() for name in names):
        return None
    return compare_steps(*(read_steps(results, name, case.phase) for name in names))


def score_case(
    case: Case, verdicts: pd.DataFrame, mapping: Mapping[str, Sequence[str]], results: Path
) -> Scored | None:
    """Score a case; verdicts: the whole table. None where the case or its twin was not measured."""
    if (measured := measure_case(case, results)) is None:
        return None
    own = verdicts[(verdicts["model"] == case.name) & (verdicts["phase"] == case.phase)]
    ranked = own[own["level"] == "cell"].sort_values("rank")
    first, second = (ranked.iloc[place] if place < len(ranked) else NOTHING for place in (0, 1))
    names = [str(said["verdict"]) for said in (first, second)]
    right = [bool(set(mapping.get(name, ())) & set(case.first_cause)) for name in names]
    of_gain = second if right == [False, True] else first
    expected, low, high = (float(of_gain.get(name, np.nan)) for name in ("gain", "gain_low", "gain_high"))
    advised = own["settings"].astype(str).str.contains(GRAPH, regex=False)
    return Scored(
        case=case,
        verdict=names[0],
        second=names[1],
        known=names[0] in mapping,
        right=right[0],
        among_two=any(right),
        impossible=case.graph_possible is False and bool(advised.any()),
        expected=expected,
        low=low,
        high=high,
        measured=measured,
    )


def summarise(scored: Sequence[Scored]) -> list[str]:
    """Sentences about all cases; gains are compared where a right cause is among two and a gain is expected."""
    count = len(scored)
    right, among = [one for one in scored if one.right], [one for one in scored if one.among_two]
    told = [one for one in among if math.isfinite(one.expected)]
    lines = [f"first cause right: {len(right)} of {count}" + (f" ({len(right) / count:.0%})" if count else "")]
    lines.append(f"among the first two: {len(among)} of {count}")
    lines.append(f"a graph advised that cannot be captured: {sum(one.impossible for one in scored)} of {count}")
    if told:
        lines.append(f"expected gains where the cause is right: {len(told)}")
        lines.append(f"  median relative error: {np.median([one.error for one in told]):.0%}")
        ends = [one for one in told if math.isfinite(one.high)]
        whole, upper = ([one for one in ends if math.isfinite(one.low) == both] for both in (True, False))
        for name, own in (("within the expected interval", whole), ("at most the expected upper end", upper)):
            lines.append(f"  measured gain {name}: {sum(one.holds for one in own)} of {len(own)}")
        if widths := [one.width for one in told if math.isfinite(one.width)]:
            lines.append(f"  median width of the interval: {np.median(widths):.2f} times")
    weak = [one.case.name for one in scored if one.measured.gain < 1.1]
    lines.append(f"faults that cost less than 10 %: {', '.join(weak) or 'none'}")
    unknown = sorted({one.verdict for one in scored if not one.known and one.verdict})
    if unknown:
        lines.append(f"verdicts that {MAPPING.name} does not know: {', '.join(unknown)}")
    return lines
