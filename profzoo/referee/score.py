"""Scores advice by what was measured: trials of settings, programs with a planted fault, and changes that gain nothing.

What is true is in `truth.yaml`, which a command makes from recordings. Intervals are found by drawing models anew,
because cells of one model are alike. What is fitted to one half of the models is scored on the other.
"""

import csv
import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from profzoo.errors import suggest_nearest

TRUTH = Path(__file__).with_name("truth.yaml")
# Advice to change nothing, and the name of a planted program without its fault.
NOTHING, TWIN = "nothing", "-mended"
COLUMNS, OPTIONAL = ("cell", "change", "expected_gain"), ("low", "high", "rank")
# A change gains nothing if the upper end of its measured gain is below this; who expects at least as much is wrong.
NO_GAIN = 1.05
# A larger expected gain is a percentage, as no measured one is half as large.
PERCENT_FROM = 50.0
# Draws of models for an interval, and its ends in percent.
DRAWS, ENDS = 2000, (2.5, 97.5)
TRIALS, PLANTED = "trials", "planted"
# Parts of what was measured, and the half that policies with the same advice for all cells are fitted to.
PARTS = {
    (TRIALS, "held_out"): "fitted",
    (TRIALS, "fitted"): "held_out",
    (PLANTED, "sealed"): "development",
    (PLANTED, "held_out"): "development",
    (PLANTED, "development"): "held_out",
}


@dataclass(frozen=True)
class Advice:
    """What is claimed of a change on a cell.

    gain: expected times as fast, nan if none is told. low, high: ends of its interval, nan without one. rank: 1 for
    what to do first; None for a gain that is expected without advising the change.
    """

    cell: str
    change: str
    gain: float = math.nan
    low: float = math.nan
    high: float = math.nan
    rank: float | None = None


@dataclass(frozen=True)
class Measured:
    """How many times as fast a cell became, with the ends of the interval, nan if unknown; failed: it did not run."""

    gain: float
    low: float = math.nan
    high: float = math.nan
    failed: bool = False

    @property
    def gains_nothing(self) -> bool:
        """Whether it is certain that the change gains next to nothing."""
        return self.high < NO_GAIN


@dataclass(frozen=True)
class Cell:
    """What is true of a cell.

    tried: the changes of trials that were measured. causes: the causes that are right, of a planted program; twin: how
    many times as fast it is without the fault, None if that was not timed.
    """

    name: str
    half: str
    tried: Mapping[str, Measured] = field(default_factory=dict)
    causes: Sequence[str] = ()
    twin: Measured | None = None

    @property
    def model(self) -> str:
        """The model, without its variant and phase."""
        return self.name.split(" ")[0].partition("@")[0]

    @property
    def source(self) -> str:
        """Whether trials measured the cell, or a fault was planted in it."""
        return PLANTED if self.causes else TRIALS


@dataclass(frozen=True)
class Truth:
    """All cells by name, meanings of causes, causes that verdicts name, and profzoo's advice."""

    cells: Mapping[str, Cell]
    causes: Mapping[str, str]
    verdicts: Mapping[str, Sequence[str]]
    advice: Sequence[Advice]

    def part(self, source: str, half: str) -> list[Cell]:
        """Return the cells of one source and half."""
        return [cell for cell in self.cells.values() if (cell.source, cell.half) == (source, half)]

    def is_right(self, change: str, cell: Cell) -> bool:
        """Whether a cause, or one that a verdict names, is planted in the cell."""
        return bool({change, *self.verdicts.get(change, ())} & set(cell.causes))


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over models, nan with fewer than two; of `count` values of `models` models."""

    value: float
    low: float
    high: float
    count: int
    models: int


@dataclass(frozen=True)
class Score:
    """How right an advisor is on one part of the cells.

    cells, silent: numbers of cells, and of those about which the advisor says nothing; silence is advice to do nothing.
    hits: share of the cells whose first advice is the setting that gained most, or names what is planted; near: whose
    second may be it too. error: median of |log(expected / measured)|. inside: share of intervals that hold the measured
    gain. alarms: share of the changes that gain nothing of which a gain is promised. gain: geometric mean of the
    measured gains of the first advice, where it was tried.
    """

    advisor: str
    source: str
    half: str
    cells: int
    silent: int
    hits: Estimate
    near: Estimate
    error: Estimate
    inside: Estimate
    alarms: Estimate
    gain: Estimate


Advisor = Mapping[str, Sequence[Advice]]
# Values, each with the model that it belongs to.
Values = Sequence[tuple[str, float]]


@cache
def load_truth() -> Truth:
    """Read what is true, and what profzoo advised."""
    content: Mapping[str, Any] = yaml.load(TRUTH.read_text(encoding="utf-8"), Loader=_loader())
    cells = {one["cell"]: _read_cell(one) for one in content["cells"]}
    known = [
        Advice(cell, change, _number(gain), _number(low), _number(high), rank)
        for cell, change, gain, low, high, rank in content["advice"]
    ]
    return Truth(cells, content["causes"], content["verdicts"], known)


def _loader() -> Any:
    """Return the parser in C, which is ten times as fast, where there is one."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _read_cell(one: Mapping[str, Any]) -> Cell:
    tried = {
        change: Measured(_number(gains[0]), _number(gains[1]), _number(gains[2]))
        if gains
        else Measured(1.0, failed=True)
        for change, gains in one.get("tried", {}).items()
    }
    twin = Measured(*one["gain"]) if "gain" in one else None
    return Cell(one["cell"], one["half"], tried, tuple(one.get("causes", ())), twin)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def name_settings(words: str) -> str:
    """Return words of settings in a fixed order, so that equal settings have equal names.

    >>> name_settings("precision=bf16  graph=true")
    'graph=true precision=bf16'
    """
    return " ".join(sorted(words.split()))


# Reading claims.


def read_claims(text: str, truth: Truth) -> tuple[list[Advice], list[str], list[str]]:
    """Return the claims of a CSV text, a line for each fault, and one for each claim that nothing can be held against.

    Without a column `rank`, changes with an expected gain above 1 are advised, the largest first.
    """
    table = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))
    heading = [name.strip().lower().replace(" ", "_") for name in (table or [[]])[0]]
    if faults := list(_check_heading(heading)):
        return [], faults, []
    claims, notes = [], []
    seen: dict[tuple[str, str], int] = {}
    for number, fields in enumerate(table[1:], 1):
        if not any(one.strip() for one in fields):
            continue
        row = dict(zip(heading, (one.strip() for one in fields), strict=False))
        claim, wrong, note = _read_claim(row, truth)
        key = (row.get("cell", ""), row.get("change", "")) if claim is None else (claim.cell, claim.change)
        if key in seen:
            wrong = [f"{key[0]}: {key[1]!r} is claimed in row {seen[key]} already: leave one of them out"]
        seen.setdefault(key, number)
        faults += [f"row {number}: {one}" for one in wrong]
        notes += [f"row {number}: {note}"] if note else []
        claims += [claim] if claim and not wrong else []
    if not claims and not faults:
        faults = ["there is no claim below the heading: write a row for each change of each cell"]
    return claims if "rank" in heading else _rank_by_gain(claims), faults, notes


def _check_heading(heading: Sequence[str]) -> Iterator[str]:
    known = (*COLUMNS, *OPTIONAL)
    if missing := [name for name in COLUMNS if name not in heading]:
        said = "column is" if len(missing) == 1 else "columns are"
        needed, more = ", ".join(COLUMNS), ", ".join(OPTIONAL)
        yield f"{said} missing: {', '.join(missing)}; the heading needs {needed}, and may have {more}"
    for name in sorted(set(heading) - {*known, ""}):
        yield f"there is no column {name!r}: {suggest_nearest(name, known)}"
    for name in sorted({name for name in heading if heading.count(name) > 1}):
        yield f"there are two columns {name}: leave one of them out"


def _read_claim(row: Mapping[str, str], truth: Truth) -> tuple[Advice | None, list[str], str]:
    """Return a row's claim, what is wrong with it, and why nothing can be held against it."""
    cell, wrong, note = row.get("cell", "").replace("/", " "), [], ""
    numbers: dict[str, float] = {}
    for name in ("expected_gain", *OPTIONAL):
        try:
            numbers[name] = _parse_number(name, row.get(name, ""))
        except ValueError as error:
            wrong.append(str(error))
    gain, low, high = (numbers.get(name, math.nan) for name in ("expected_gain", "low", "high"))
    if low > high or low > gain or gain > high:
        wrong.append(f"the interval {low:g} to {high:g} does not hold the expected gain {gain:g}: is the order right?")
    base = cell.split(" ")[0].removesuffix(TWIN) + cell[len(cell.split(" ")[0]) :]
    found = truth.cells.get(base)
    if found is None or (base != cell and found.source == TRIALS):
        near = suggest_nearest(cell, truth.cells)
        hint = near if len(near) < 200 else "cells are a model and a phase, such as 'bert train'"
        return None, [f"unknown cell {row.get('cell', '')!r}: {hint}", *wrong], ""
    change, told, note = _read_change(row.get("change", ""), found, truth)
    rank = numbers.get("rank", math.nan)
    claim = Advice(cell, change, gain, low, high, None if math.isnan(rank) else rank)
    return claim, [*wrong, *([told] if told else [])], note


def _read_change(text: str, cell: Cell, truth: Truth) -> tuple[str, str, str]:
    """Return a change's name, what is wrong with it, and why it cannot be scored."""
    if text.lower() == NOTHING:
        return NOTHING, "", ""
    if all("=" in word for word in text.split()) and text:
        change = name_settings(text)
        tried = change in cell.tried
        return change, "", "" if tried else f"{cell.name}: {change} was not measured, so nothing is known of its gain"
    known = [*truth.causes, *truth.verdicts]
    if cell.source == TRIALS:
        return text, f"{text!r} is no setting: write words such as {next(iter(cell.tried))!r}, or {NOTHING!r}", ""
    named = {name.lower(): name for name in known}.get(text.lower())
    return named or text, "" if named else f"{text!r} is no cause: {suggest_nearest(text, truth.causes)}", ""


def _parse_number(name: str, text: str) -> float:
    """Return the number of a field, nan if it is empty.

    Raises:
        ValueError: it is no number, or none that a gain or rank can be.
    """
    if not text:
        return math.nan
    if text.endswith("%"):
        raise ValueError(f"{name} {text!r} is a percentage: write how many times as fast, such as 1.3 for 30 % more")
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} {text!r} is no number: write a decimal number such as 1.3") from None
    if not 0 < value < math.inf:
        raise ValueError(f"{name} {text} is not above 0: write how many times as fast, 1 for no change")
    if name != "rank" and value > PERCENT_FROM:
        raise ValueError(
            f"{name} {text} looks like a percentage: write how many times as fast, such as 1.3 for 30 % more"
        )
    return value


def _rank_by_gain(claims: Sequence[Advice]) -> list[Advice]:
    """Return the claims with ranks: what has a gain above 1 is advised, the largest first; causes without one last."""
    ordered = sorted(claims, key=lambda one: 0.0 if math.isnan(one.gain) else -one.gain)
    places: dict[str, int] = {}
    ranked = []
    for one in ordered:
        advised = not one.gain <= 1 and one.change != NOTHING
        places[one.cell] = places.get(one.cell, 0) + advised
        ranked.append(replace(one, rank=places[one.cell] if advised else None))
    return ranked


def by_cell(claims: Iterable[Advice]) -> dict[str, list[Advice]]:
    """Return the claims by cell, those with a rank first, in their order."""
    found: dict[str, list[Advice]] = {}
    for claim in sorted(claims, key=lambda one: math.inf if one.rank is None else one.rank):
        found.setdefault(claim.cell, []).append(claim)
    return found


# Estimates.


def estimate(values: Values, median: bool = False, share: bool = False) -> Estimate:
    """Return the mean or median of values, with the ends of its 95 % interval by drawing models anew (bootstrap).

    Drawing tells nothing about a share that is 0 or 1 in all models: it has the interval of Clopper and Pearson (1934).

    >>> one = estimate([("bert", 0.0), ("gpt", 0.0), ("unet", 0.0)], share=True)
    >>> one.value, one.low, round(one.high, 2)
    (0.0, 0.0, 0.71)
    """
    known = [(model, value) for model, value in values if not math.isnan(value)]
    if not known:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    models = sorted({model for model, _ in known})
    numbers = np.array([value for _, value in known])
    place = np.array([models.index(model) for model, _ in known])
    middle = _weighted_medians if median else _weighted_means
    value = float(middle(numbers, np.ones((1, len(known))))[0])
    if len(models) == 1:
        return Estimate(value, math.nan, math.nan, len(known), 1)
    if share and set(numbers) in ({0.0}, {1.0}):
        beyond = (1 - (ENDS[1] - ENDS[0]) / 100) / 2
        least = beyond ** (1 / len(models))
        return Estimate(value, least * value, 1 - (1 - value) * least, len(known), len(models))
    chance = np.random.default_rng(0)
    times = chance.multinomial(len(models), np.full(len(models), 1 / len(models)), size=DRAWS)
    low, high = np.percentile(middle(numbers, times[:, place]), ENDS)
    return Estimate(value, float(low), float(high), len(known), len(models))


def _weighted_means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean of values by each row of weights."""
    means: np.ndarray = weights @ values / weights.sum(axis=1)
    return means


def _weighted_medians(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the median of values, each repeated as often as each row of weights says."""
    order = np.argsort(values)
    ends = weights[:, order].cumsum(axis=1)
    total = ends[:, -1:]
    lower, upper = ((ends > half).argmax(axis=1) for half in ((total - 1) // 2, total // 2))
    middles: np.ndarray = (values[order][lower] + values[order][upper]) / 2
    return middles


# Scoring an advisor.


def score_advisor(name: str, claims: Iterable[Advice], truth: Truth, source: str, half: str) -> Score:
    """Score an advisor on the cells of one source and half."""
    said, cells = by_cell(claims), truth.part(source, half)
    advises = any(claim.rank is not None for cell in cells for claim in said.get(cell.name, ()))
    score_cell = _score_trial if source == TRIALS else _score_planted
    each = [(cell.model, score_cell(cell, said.get(cell.name, ()), truth)) for cell in cells] if advises else []
    hits, near, gains = ([(model, values[place]) for model, values in each] for place in range(3))
    pairs = list(pair_claims(said, cells, truth))
    gain = estimate([(model, math.log(value)) for model, value in gains])
    return Score(
        advisor=name,
        source=source,
        half=half,
        cells=len(cells),
        silent=sum(cell.name not in said for cell in cells),
        hits=estimate(hits, share=True),
        near=estimate(near, share=True),
        error=estimate([(model, _error(claim, found)) for model, claim, found in pairs], median=True),
        inside=estimate([(model, holds_gain(claim, found)) for model, claim, found in pairs], share=True),
        alarms=estimate(list(_alarms(said, cells, truth)), share=True),
        gain=replace(gain, value=math.exp(gain.value), low=math.exp(gain.low), high=math.exp(gain.high)),
    )


Pair = tuple[str, Advice, Measured]


def _score_trial(cell: Cell, claims: Sequence[Advice], truth: Truth) -> tuple[float, float, float]:
    """Whether the first advice, or the second, gained most of what was tried; the measured gain of the first."""
    best = max(cell.tried, key=lambda change: cell.tried[change].gain)
    best = best if cell.tried[best].gain > 1 else NOTHING
    first, *second = [claim.change for claim in claims if claim.rank is not None][:2] or [NOTHING]
    gain = 1.0 if first == NOTHING else cell.tried.get(first, Measured(math.nan)).gain
    return float(first == best), float(best in (first, *second)), gain


def _score_planted(cell: Cell, claims: Sequence[Advice], truth: Truth) -> tuple[float, float, float]:
    """Whether the first advice, or the second, names what is planted; what another change gains was not measured."""
    two = [truth.is_right(claim.change, cell) for claim in claims if claim.rank is not None][:2]
    return float(two[:1] == [True]), float(any(two)), math.nan


def pair_claims(said: Advisor, cells: Sequence[Cell], truth: Truth) -> Iterator[Pair]:
    """Yield the model, the claim and what was measured, of claims that expect a gain of a change that was measured."""
    for cell in cells:
        for claim in said.get(cell.name, ()):
            found = cell.tried.get(claim.change)
            if cell.twin and truth.is_right(claim.change, cell):
                found = cell.twin
            if found and not found.failed and not math.isnan(claim.gain):
                yield cell.model, claim, found


def _error(claim: Advice, found: Measured) -> float:
    return abs(math.log(claim.gain / found.gain))


def holds_gain(claim: Advice, found: Measured) -> float:
    """Whether the interval holds the measured gain, or its one end does; nan without an interval."""
    if math.isnan(claim.low) and math.isnan(claim.high):
        return math.nan
    return float(not found.gain < claim.low and not found.gain > claim.high)


def _alarms(said: Advisor, cells: Sequence[Cell], truth: Truth) -> Iterator[tuple[str, float]]:
    """Yield for each change that gains nothing whether a gain is promised; only of cells that something is said about.

    Such a change is a setting that gained nothing in trials, or the mending of a fault that a twin does not have.
    """
    for cell in cells:
        for change, found in cell.tried.items():
            if found.gains_nothing and cell.name in said:
                promised = [_promises(claim) for claim in said[cell.name] if claim.change == change]
                yield cell.model, float(any(promised))
        twin = cell.name.replace(" ", f"{TWIN} ", 1)
        if twin in said:
            yield (
                cell.model,
                float(any(truth.is_right(claim.change, cell) and _promises(claim) for claim in said[twin])),
            )


def _promises(claim: Advice) -> bool:
    """Whether a claim promises a gain; a cause without an expected gain does by being advised."""
    if math.isnan(claim.gain):
        return claim.rank is not None
    return claim.gain >= NO_GAIN and not claim.low <= 1


# Policies that know nothing about a cell.


def name_policies(truth: Truth, source: str, half: str) -> dict[str, list[Advice]]:
    """Return the claims of naive policies for the cells of a part, fitted to the other half of the models."""
    cells, fitted = truth.part(source, half), truth.part(source, PARTS[source, half])
    make = _trial_policies if source == TRIALS else _planted_policies
    return {"nothing": [Advice(cell.name, NOTHING, rank=1) for cell in cells], **make(cells, fitted, truth)}


def _trial_policies(cells: Sequence[Cell], fitted: Sequence[Cell], truth: Truth) -> dict[str, list[Advice]]:
    gains: dict[str, list[float]] = {}
    for cell in fitted:
        for change, found in cell.tried.items():
            gains.setdefault(change, []).append(found.gain)
    middle = {change: float(np.median(own)) for change, own in gains.items()}
    policies: dict[str, list[Advice]] = {}
    everywhere = sorted(change for change, own in gains.items() if len(own) == len(fitted))
    for change in sorted({*everywhere, "graph=true precision=bf16"}):
        expected = middle.get(change, math.nan)
        policies[f"always {change}"] = [Advice(cell.name, change, expected, rank=1) for cell in cells]
    policies["the same gain for all"] = _rank_by_gain(
        [
            Advice(cell.name, change, middle[change])
            for cell in cells
            for change in sorted(cell.tried)
            if change in middle
        ]
    )
    policies["random"] = _draw(cells, lambda cell: (NOTHING, *cell.tried))
    return policies


def _planted_policies(cells: Sequence[Cell], fitted: Sequence[Cell], truth: Truth) -> dict[str, list[Advice]]:
    counts: dict[str, int] = {}
    for cell in fitted:
        for cause in cell.causes:
            counts[cause] = counts.get(cause, 0) + 1
    most = max(sorted(counts), key=lambda cause: counts[cause])
    gains = [cell.twin.gain for cell in fitted if cell.twin]
    middle = float(np.median(gains)) if gains else math.nan
    alike = [Advice(cell.name, cell.causes[0], middle) for cell in cells if cell.twin]
    return {
        f"always {most}": [Advice(cell.name, most, middle, rank=1) for cell in cells],
        "the same gain for all": alike,
        "random": _draw(cells, lambda cell: tuple(truth.causes)),
    }


def _draw(cells: Sequence[Cell], choices: Callable[[Cell], Sequence[str]]) -> list[Advice]:
    chance = np.random.default_rng(0)
    return [Advice(cell.name, str(chance.choice(choices(cell))), rank=1) for cell in cells]


def compare_gains(
    one: Iterable[Advice], other: Iterable[Advice], truth: Truth, source: str, half: str
) -> list[Estimate]:
    """Return the gains of two advisors on the cells where trials tried the first advice of both."""
    advisors = [by_cell(one), by_cell(other)]
    both = {
        cell.name: cell
        for cell in truth.part(source, half)
        if not any(math.isnan(_score_trial(cell, said.get(cell.name, ()), truth)[2]) for said in advisors)
    }
    alike = replace(truth, cells=both)
    return [score_advisor("", itertools.chain(*said.values()), alike, source, half).gain for said in advisors]


def score_all(advisors: Mapping[str, Iterable[Advice]], truth: Truth, source: str, half: str) -> list[Score]:
    """Return the scores of advisors on a part, then those of naive policies and of the best possible advice."""
    best = [
        Advice(
            cell.name,
            *max(((change, found.gain) for change, found in cell.tried.items()), key=lambda one: one[1]),
            rank=1,
        )
        for cell in truth.part(source, half)
        if cell.tried
    ]
    every = {**advisors, **name_policies(truth, source, half), **({"best that was tried": best} if best else {})}
    return [score_advisor(name, claims, truth, source, half) for name, claims in every.items()]
