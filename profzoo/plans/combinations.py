"""Searches for the combinations of settings that are expected to gain most, and predicts each one's gain."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

import pandas as pd

from profzoo.plans.infeasible_settings import parse_typed
from profzoo.verdicts.other_settings import AND, AdvisableSetting, list_settings
from profzoo.verdicts.rule_evaluation import CellRules
from profzoo.what_if.predicted_gains import Gain

Settings = tuple[AdvisableSetting, ...]
# Settings that change what other settings would change, so that these are predicted for a cell that has them.
LAYOUT = "channels_last=true"
# Every pair is simulated. Of combinations of each size, so many of the best are extended by one more setting.
MOST_EXTENDED = 2
# A combination is worth its additional settings if it gains this much more than the best without one of them.
WORTH = 0.02


class CombinedSimulation:
    """Predicts the gains of combined settings on one cell, by what-if simulation of the combined change."""

    def __init__(self, judged: CellRules, traits: pd.DataFrame) -> None:
        """Take the judge of the cell, and the rows of all its launches with their traits."""
        self._judged, self._traits = judged, traits
        self._of_layout: Mapping[str, AdvisableSetting] | None = None

    def predict(self, chosen: Settings) -> Gain | None:
        """Return the gain of settings together; None if the trace lacks the launches that one is about."""
        replayed = self._judged.replayed
        if replayed is None:
            return None
        asked = [self._beside(one, chosen).asked for one in chosen]
        return replayed.gain_together(asked, self._judged.step, self._judged.scored.error(name_verdicts(chosen)))

    def _beside(self, one: AdvisableSetting, chosen: Settings) -> AdvisableSetting:
        """Return a setting with the change that it makes to a cell with the other layout, if that is chosen too."""
        if one.words == LAYOUT or LAYOUT not in (other.words for other in chosen):
            return one
        if self._of_layout is None:
            changed = copy.copy(self._judged)
            changed.ran_with = {**self._judged.ran_with, **parse_typed(LAYOUT)}
            self._of_layout = {other.words: other for other in list_settings(changed, self._traits)}
        return self._of_layout.get(one.words, one)


def name_verdicts(chosen: Iterable[AdvisableSetting]) -> str:
    """Join the names of the verdicts that could advise the settings, as scores of combinations are named."""
    return AND.join(one.verdict for one in chosen)


def join_words(chosen: Iterable[AdvisableSetting]) -> str:
    """Join the words of settings."""
    return " ".join(one.words for one in chosen)


def search_combinations(
    known: Sequence[AdvisableSetting],
    predict: Callable[[Settings], Gain | None],
    allowed: Callable[[Settings], bool],
) -> list[tuple[Settings, Gain]]:
    """Return the gains of single settings, of all pairs, and of the most promising larger combinations.

    A larger combination is simulated if it extends one of the MOST_EXTENDED best combinations with one setting less.
    The search ends when an additional setting no longer gains WORTH.

    Args:
        known: single settings.
        predict: the gain of settings together, None if it cannot be predicted.
        allowed: whether settings may be combined; it is asked before `predict`.
    """
    found: dict[tuple[int, ...], Gain] = {}

    def take(candidates: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Predict the gains of candidates, given by places in `known`; return those that have one, the best first."""
        taken = []
        for places in dict.fromkeys(candidates):
            chosen = tuple(known[place] for place in places)
            if change_different_keys(chosen) and allowed(chosen) and (gain := predict(chosen)):
                found[places] = gain
                taken.append(places)
        return sorted(taken, key=lambda places: -found[places].gain)

    singles = sorted(take((place,) for place in range(len(known))))
    best = max((gain.gain for gain in found.values()), default=1.0)
    level = take((*one, *other) for one, other in combinations(singles, 2))
    while level and found[level[0]].gain > best * (1 + WORTH):
        best = found[level[0]].gain
        extended = level[:MOST_EXTENDED]
        level = take(tuple(sorted({*places, *one})) for places in extended for one in singles if one[0] not in places)
    return [(tuple(known[place] for place in places), gain) for places, gain in found.items()]


def change_different_keys(chosen: Iterable[AdvisableSetting]) -> bool:
    """Return whether no two settings change the same key, such as two precisions."""
    keys = [word.partition("=")[0] for one in chosen for word in one.words.split()]
    return len(keys) == len(set(keys))
