"""Whether expected gains choose better settings if they are corrected by what the same settings gained on other cells.

Tried by cross-validation on the first half of the zoo alone. It did not help there by more than gains are known to, so that
plans are ranked by expected gains as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

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
