"""Scores policies that choose a cell's settings, by what trials measured of the chosen settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from profzoo.plans.cell_plans import rank_plans
from profzoo.plans.plan import ADVISABLE, Plan, judge_interval
from profzoo.tables.schemas import CELL
from profzoo.trials.trial_table import FAILED, REFUSED

Words = frozenset[str]
NOTHING: Words = frozenset()
GRAPH_AND_BF16: Words = frozenset({"graph=true", "precision=bf16"})


@dataclass(frozen=True)
class TriedSetting:
    """What trials say of settings on a cell; gain is NaN if it was not measured.

    expected, low: expected gain and the lower end of its interval, NaN without one. advised: whether a verdict advised
    them. failed: whether they failed or were refused.
    """

    gain: float
    expected: float
    low: float
    advised: bool
    failed: bool


TriedCell = Mapping[Words, TriedSetting]
Policy = Callable[[TriedCell], Words]


@dataclass(frozen=True)
class PolicyScore:
    """What a policy gains.

    gain: geometric mean over the cells on which trials measured its choice, NaN without any; cells: their number.
    unmeasured: number of cells on which the choice was not tried. unchanged: number of cells on which the policy
    chooses nothing. failed: number of cells on which its choice failed or was refused. A cell that is unchanged or on
    which the choice failed counts as a gain of 1.
    """

    policy: str
    gain: float
    cells: int
    unmeasured: int
    unchanged: int
    failed: int


def list_tried_cells(trials: pd.DataFrame) -> list[TriedCell]:
    """Return what was tried on each cell, by words; settings that trials name twice count once, as first measured.

    Settings that ran in no round together with the unchanged cell have no gain and are left out.

    trials: the table of trials.
    """
    cells: list[TriedCell] = []
    for _, rows in trials.groupby(CELL, sort=True):
        own: dict[Words, TriedSetting] = {}
        for row in rows.to_dict("records"):
            failed = row["verdict"] in (FAILED, REFUSED)
            words = frozenset(str(row["words"]).split())
            if words and (failed or row["gain"] > 0):
                found = TriedSetting(row["gain"], row["expected"], row["expected_low"], bool(row["advised"]), failed)
                own.setdefault(words, found)
        cells.append(own)
    return cells


def rank_tried(cell: TriedCell) -> list[Plan]:
    """Return the plans in the report's order; only settings with an expected gain are plans."""
    return rank_plans(
        [
            Plan(" ".join(sorted(words)), "", one.expected, one.low, outlook=judge_interval(one.expected, one.low))
            for words, one in cell.items()
            if one.expected > 0
        ]
    )


def choose_best_plan(cell: TriedCell) -> Words:
    """Choose the first of the plans, as the report does."""
    (*_, best) = (NOTHING, *(plan.words for plan in rank_tried(cell)[:1] if plan.outlook in ADVISABLE))
    return best


def choose_advice(cell: TriedCell) -> Words:
    """Choose the settings that verdicts advise, of several those with the largest expected gain."""
    advised = {words: one.expected for words, one in cell.items() if one.advised}
    return max(advised, key=lambda words: advised[words], default=NOTHING)


def choose_best_measured(cell: TriedCell) -> Words:
    """Choose the settings with the largest measured gain, or nothing if none exceeds 1."""
    gains = {words: one.gain for words, one in cell.items() if one.gain > 1}
    return max(gains, key=lambda words: gains[words], default=NOTHING)


def choose_always(words: Words, cell: TriedCell) -> Words:
    """Choose the same settings for every cell."""
    return words


def fit_constant(cells: Sequence[TriedCell], in_all: bool) -> Words:
    """Return the settings with the largest mean gain over the cells on which they were tried.

    in_all: whether to consider only settings that were tried on all cells. Trials try combinations only of settings
    that helped, so that the mean gain of a combination is over the cells that suit it.
    """
    logs: dict[Words, list[float]] = {}
    for cell in cells:
        for words, one in cell.items():
            logs.setdefault(words, []).append(0.0 if one.failed else float(np.log(one.gain)))
    known = {words: np.mean(own) for words, own in logs.items() if not in_all or len(own) == len(cells)}
    return max(known, key=lambda words: known[words], default=NOTHING)


def score_policy(name: str, policy: Policy, cells: Sequence[TriedCell]) -> PolicyScore:
    gains, unchanged, failed = [], 0, 0
    for cell in cells:
        words = policy(cell)
        if words and words not in cell:
            continue
        fails = bool(words) and cell[words].failed
        unchanged, failed = unchanged + (not words), failed + fails
        gains.append(cell[words].gain if words and not fails else 1.0)
    mean = float(np.exp(np.log(gains).mean())) if gains else float("nan")
    return PolicyScore(name, mean, len(gains), len(cells) - len(gains), unchanged, failed)


def score_policies(cells: Sequence[TriedCell], fitted: Sequence[TriedCell]) -> Iterator[PolicyScore]:
    """Yield the scores of all policies on cells, the best possible first.

    fitted: the cells that policies with the same settings for all cells are fitted to.
    """
    yield score_policy("best that was tried", choose_best_measured, cells)
    yield score_policy("best plan", choose_best_plan, cells)
    yield score_policy("advice of verdicts", choose_advice, cells)
    best = {
        fit_constant(fitted, in_all=False): ", best on the first half",
        fit_constant(fitted, in_all=True): ", best on the first half of settings that all its cells tried",
    }
    tried_in_all = set.intersection(*(set(cell) for cell in cells)) if cells else set()
    for words in sorted({*tried_in_all, *best, GRAPH_AND_BF16}, key=sorted):
        name = f"always {' '.join(sorted(words))}{best.get(words, '')}"
        yield score_policy(name, partial(choose_always, words), cells)
    yield score_policy("nothing", partial(choose_always, NOTHING), cells)
