"""Chooses a cell's settings as profzoo advises them, by what trials say of it, and holds gains against expected ones."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.plans.cell_plans import rank_plans
from profzoo.plans.plan import ADVISABLE, Plan, judge_interval
from profzoo.tables.schemas import CELL
from profzoo.trials.trial_table import FAILED, REFUSED
from profzoo.verdicts.advice_scores import TOGETHER, find_kind
from tests.benchmarks.advice_scoring import HELD_OUT, find_half

Words = frozenset[str]
NOTHING: Words = frozenset()


@dataclass(frozen=True)
class TriedSetting:
    """What trials say of settings on a cell; gain is NaN if it was not measured.

    expected, low: expected gain and the lower end of its interval, NaN without one. advised: whether a verdict advised
    them.
    """

    gain: float
    expected: float
    low: float
    advised: bool


TriedCell = Mapping[Words, TriedSetting]


def list_tried_cells(trials: pd.DataFrame) -> list[TriedCell]:
    """Return what was tried on each cell, by words; settings that trials name twice count once, as first measured.

    Settings that ran in no round together with the unchanged cell have no gain and are left out.

    trials: the table of trials.
    """
    cells: list[TriedCell] = []
    for _, rows in trials.groupby(CELL, sort=True):
        own: dict[Words, TriedSetting] = {}
        for row in rows.to_dict("records"):
            words = frozenset(str(row["words"]).split())
            if words and (row["verdict"] in (FAILED, REFUSED) or row["gain"] > 0):
                found = TriedSetting(row["gain"], row["expected"], row["expected_low"], bool(row["advised"]))
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


def list_picks(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trial of each cell's best plan with its `half`, `kind` and `network`; trials: the table of trials."""
    rows = []
    for _, own in trials.groupby(CELL, sort=True):
        (cell,) = list_tried_cells(own)
        best = choose_best_plan(cell)
        chosen = own["words"].map(lambda words, best=best: frozenset(str(words).split()) == best)
        rows.append(own[chosen & own["gain"].gt(0)].head(1))
    picks = pd.concat(rows)
    return picks.assign(
        half=picks["model"].map(find_half),
        kind=picks["words"].map(find_kind),
        network=picks["model"].str.partition("@")[0],
    )


def mean_ratio(picks: pd.DataFrame) -> float:
    """Return the geometric mean of expected over measured gains."""
    return float(np.exp(np.log(picks["expected"] / picks["gain"]).mean()))


def correct_by_others(picks: pd.DataFrame) -> pd.Series:
    """Return the expected gains, divided by how much too hopeful plans of other networks were."""
    others = (picks[picks["network"] != network] for network in picks["network"])
    return picks["expected"] / [max(mean_ratio(one), 1.0) for one in others]


def describe_picks(trials: pd.DataFrame) -> list[str]:
    """Lines of what was expected of the best plans of the held-out half, over what they gained."""
    picks = list_picks(trials)
    picks = picks[picks["half"] == HELD_OUT]
    several = picks[picks["kind"].str.contains(TOGETHER, regex=False)]
    lines = [
        "",
        "| best plans | cells | expected / measured | its 95 % interval | corrected by others |",
        "|---" * 5 + "|",
    ]
    for name, own in (("all", picks), ("of several settings", several)):
        logs = np.log(own["expected"] / own["gain"])
        half = 1.96 * logs.std() / np.sqrt(len(own))
        ends = " to ".join(f"{np.exp(logs.mean() + end):.2f}" for end in (-half, half))
        corrected = mean_ratio(own.assign(expected=correct_by_others(own)))
        lines.append(f"| {name} | {len(own)} | {mean_ratio(own):.2f} | {ends} | {corrected:.2f} |")
    return lines
