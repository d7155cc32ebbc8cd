"""Whether expected gains choose better settings if they are corrected by what the same settings gained on other cells.

Tried by cross-validation on the first half of the zoo alone. It did not help there by more than gains are known to, so that
plans are ranked by expected gains as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from profzoo.tables.schemas import CELL
from profzoo.verdicts.advice_scores import TOGETHER, find_kind
from tests.benchmarks import policy_scores
from tests.benchmarks.advice_scoring import HELD_OUT, find_half
from tests.benchmarks.policy_scores import PolicyScore, TriedCell, TriedSetting, Words, choose_best_plan, score_policy

# Number of trials that weigh as much as the belief that expected gains are right; weight of the cell's own expected gain.
SHRINKS, WEIGHTS = (0.0, 3.0), (1.0, 0.75, 0.5, 0.25)


def cross_validate(cells: Sequence[TriedCell]) -> list[PolicyScore]:
    """The best plan's score as it is, and with each correction by the other cells than the one it is scored on."""
    found = [score_policy("as expected", choose_best_plan, cells)]
    for shrink, weight in product(SHRINKS, WEIGHTS):
        corrected = [
            correct_by_past_gains([*cells[:place], *cells[place + 1 :]], shrink, weight)(cell)
            for place, cell in enumerate(cells)
        ]
        name = f"corrected, shrunk by {shrink:.0f} trials, weight {weight:g}"
        found.append(score_policy(name, choose_best_plan, corrected))
    return found


def correct_by_past_gains(cells: Sequence[TriedCell], shrink: float, weight: float) -> Callable[[TriedCell], TriedCell]:
    """Return a function that corrects the expected gains of a cell; cells: the others, by which it corrects."""
    errors: dict[Words, list[float]] = {}
    logs: dict[Words, list[float]] = {}
    for cell in cells:
        for words, one in cell.items():
            if one.gain > 0 and one.expected > 0:
                errors.setdefault(words, []).append(float(np.log(one.gain / one.expected)))
                logs.setdefault(words, []).append(float(np.log(one.gain)))

    def correct(words: Words, one: TriedSetting) -> TriedSetting:
        if words not in errors or not one.expected > 0:
            return one
        moved = np.log(one.expected) + sum(errors[words]) / (len(errors[words]) + shrink)
        factor = np.exp(weight * moved + (1 - weight) * np.mean(logs[words])) / one.expected
        return replace(one, expected=one.expected * factor, low=one.low * factor)

    return lambda cell: {words: correct(words, one) for words, one in cell.items()}


# Whether the plan that is chosen as the best of several gains less than was expected of it.


def list_picks(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trial of each cell's best plan with its `half`, `kind` and `network`; trials: the table of trials."""
    rows = []
    for _, own in trials.groupby(CELL, sort=True):
        (cell,) = policy_scores.list_tried_cells(own)
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
