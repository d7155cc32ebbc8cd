"""Lists the plans of one cell: every possible setting and combination with its expected gain, the best first."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.cell import rerun_commands
from profzoo.plans.plan import (
    ABSTAINS,
    ADVISABLE,
    IN_FORCE,
    OUTSIDE,
    Plan,
    find_contradiction,
    judge_interval,
    parse_typed,
)
from profzoo.plans.recipes import DEVICE, describe_changes, format_recipes
from profzoo.verdicts import ONLY_ITSELF, SIMULATED, gain_models
from profzoo.verdicts.advice_scores import Scores, find_kind
from profzoo.verdicts.rules.feasibility import split_words
from profzoo.verdicts.rules.rule_evaluation import (
    AND,
    CELL_LEVEL,
    UNCOUNTED,
    AdvisableSetting,
    CellRules,
    are_counted,
    list_settings,
)
from profzoo.verdicts.verdict import BY_PROFZOO
from profzoo.what_if.loading import Loading
from profzoo.what_if.predicted_gains import Gain

if TYPE_CHECKING:
    from profzoo.cell.job_types import MadeObject

# Searches for the combinations of settings that are expected to gain most, and predicts each one's gain.

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
        return replayed.gain_together(asked, self._judged.step, self._judged.scored.bound(name_kind(chosen)))

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
    """Join the names of the verdicts that could advise the settings."""
    return AND.join(one.verdict for one in chosen)


def name_kind(chosen: Iterable[AdvisableSetting]) -> str:
    """Name the kind of settings that scores are kept by."""
    return find_kind(join_words(chosen))


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


# What was simulated, and the file that holds the traced steps.
SIMULATION = "program.npz: simulated {}"


def list_plans(
    judged: CellRules | None,
    traits: pd.DataFrame,
    verdicts: pd.DataFrame,
    infeasible: Mapping[str, str],
    arguments: str,
    made: "Sequence[MadeObject]" = (),
    device: str = DEVICE,
) -> list[Plan]:
    """Return the plans of a cell, the best first, and after them settings that are not possible, with the reason.

    Gains are by what-if simulation of the combined change. A setting that a verdict advises without a simulation, as on
    a CPU, keeps the gain of that verdict.

    Args:
        judged: the cell's judge, with its settings and traced steps; None for a cell without a trace of its GPU.
        traits: rows of all launches of the cell, with their traits.
        verdicts: the cell's rows of the table of verdicts.
        infeasible: reasons by setting words, such as `graph=true`; a plan with such words is left out.
        arguments: words that run the cell again. made: where a script makes the objects of its loop.
        device: type of the device that the cell ran on.
    """
    advising, contradictions = _advising_rows(verdicts), dict[str, str]()
    plans = _simulated_plans(judged, traits, advising, infeasible, contradictions) if judged else []
    plans += _plans_of_verdicts(advising, {plan.words for plan in plans}, infeasible)
    ordered = rank_plans([_with_command(plan, arguments) for plan in plans])
    found = [*ordered, *_impossible_plans({**infeasible, **contradictions})]
    return [_with_recipe(plan, made, device) for plan in found]


def _simulated_plans(
    judged: CellRules,
    traits: pd.DataFrame,
    advising: Mapping[frozenset[str], pd.Series],
    infeasible: Mapping[str, str],
    contradictions: dict[str, str],
) -> list[Plan]:
    """Return the plans whose gain a simulation predicts; add settings that contradict each other, with the reason."""

    def allowed(chosen: Settings) -> bool:
        words = join_words(chosen)
        if any(rules_out(infeasible, one) for one in (words, *(single.words for single in chosen))):
            return False
        if why := find_contradiction(judged.ran_with, words):
            contradictions[words] = why
        return words not in contradictions

    if not judged.replayed:
        return []
    known, counted = list(list_settings(judged, traits)), are_counted(judged, traits)
    found = search_combinations(known, CombinedSimulation(judged, traits).predict, allowed)
    return [
        _simulated_plan(chosen, gain, judged.scored, advising, _name_evidence(chosen, counted, judged.feasible.loading))
        for chosen, gain in found
    ]


def _name_evidence(chosen: Settings, counted: bool, loading: Loading | None) -> str:
    """Name what was simulated; of workers, say from how many on input no longer limits the step alone."""
    named = SIMULATION.format(_name_change(chosen, counted))
    return f"{named} ({loading.describe()})" if loading and any(one.asked.workers for one in chosen) else named


def rules_out(infeasible: Mapping[str, str], words: str) -> bool:
    """Return whether settings are not possible: some of them are not, or the cell runs with all of them.

    >>> from profzoo.plans.plan import IN_FORCE
    >>> known = {"pin_memory=true": IN_FORCE, "graph=true": "it waits"}
    >>> [rules_out(known, words) for words in ("workers=4 pin_memory=true", "pin_memory=true", "graph=true batch=4")]
    [False, True, True]
    >>> rules_out({"workers=4": "it failed in a trial"}, "workers=2 pin_memory=true")
    True
    """
    given = split_words(words)
    known = any(why != IN_FORCE and split_words(other) <= given for other, why in infeasible.items())
    return known or all(infeasible.get(word) == IN_FORCE for word in words.split())


def rank_plans(plans: Sequence[Plan]) -> list[Plan]:
    """Return plans by their expected gain, the largest first, those that are not to be advised last.

    A plan is not to be advised if its outlook is poor, or if a plan with fewer settings gains as much, within WORTH.
    """

    def is_poor(plan: Plan) -> bool:
        return plan.outlook not in ADVISABLE or any(_does_as_well(one, plan) for one in plans)

    return sorted(plans, key=lambda plan: (is_poor(plan), -(plan.gain or 0.0)))


def _does_as_well(one: Plan, plan: Plan) -> bool:
    return one.words < plan.words and (one.gain or 0.0) * (1 + WORTH) >= (plan.gain or 0.0)


def _simulated_plan(
    chosen: Settings, gain: Gain, scored: Scores, advising: Mapping[frozenset[str], pd.Series], evidence: str
) -> Plan:
    words, kind = join_words(chosen), name_kind(chosen)
    row = advising.get(frozenset(words.split()))
    own = scored.columns(kind)
    named = [f"{one['verdict']} (rank {one['rank']:.0f})" for single in chosen
             if (one := advising.get(frozenset(single.words.split()))) is not None]  # fmt: skip
    return Plan(
        settings=words,
        changes=describe_changes(words),
        gain=gain.gain,
        gain_low=gain.told_low,
        gain_high=gain.high,
        outlook=ABSTAINS if scored.abstains(kind) else judge_interval(gain.gain, gain.low),
        verdicts=name_verdicts(chosen),
        advised=row is not None,
        method=SIMULATED,
        evidence="; ".join([evidence, *(["verdicts.csv: " + ", ".join(named)] if named else [])]),
        trials=own["trials"],
        median_error=own.get("median_error"),
        covered=own.get("covered"),
        score=own["score"],
    )


def _name_change(chosen: Iterable[AdvisableSetting], counted: bool) -> str:
    """Name the simulated changes, and say where launches have too few counters for a prediction by these."""
    names = [one.change for one in chosen]
    guessed = not counted and any(name in gain_models.TARGET_PRECISIONS for name in names)
    return f"{AND.join(names)}{UNCOUNTED if guessed else ''}"


def _advising_rows(verdicts: pd.DataFrame) -> dict[frozenset[str], pd.Series]:
    """Return the verdicts on the cell that advise settings and expect a gain, by the words of the settings."""
    rows = verdicts[
        (verdicts["level"] == CELL_LEVEL)
        & (verdicts["by"] == BY_PROFZOO)
        & verdicts["settings"].fillna("").ne("")
        & (verdicts["gain"] > 0)
    ]
    found: dict[frozenset[str], pd.Series] = {}
    for _, row in rows.sort_values("rank").iterrows():
        found.setdefault(frozenset(row["settings"].split()), row)
    return found


def _plans_of_verdicts(
    advising: Mapping[frozenset[str], pd.Series], simulated: set[frozenset[str]], infeasible: Mapping[str, str]
) -> Iterator[Plan]:
    """Yield plans of settings that verdicts advise and that were not simulated."""
    for words, row in advising.items():
        if words in simulated or rules_out(infeasible, row["settings"]):
            continue
        yield Plan(
            settings=row["settings"],
            changes=describe_changes(row["settings"]),
            gain=row["gain"],
            gain_low=row["gain_low"],
            gain_high=row["gain_high"],
            outlook=judge_interval(row["gain"], row["gain_low"]),
            verdicts=row["verdict"],
            advised=True,
            method=row["method"],
            evidence=f"verdicts.csv: {row['verdict']} (rank {row['rank']:.0f})",
            trials=row["trials"] if pd.notna(row["trials"]) else None,
            median_error=row["median_error"],
            covered=row["covered"],
            score=row["score"] if isinstance(row["score"], str) else "",
        )


def _impossible_plans(reasons: Mapping[str, str]) -> Iterator[Plan]:
    for words, why in reasons.items():
        yield Plan(settings=words, changes=describe_changes(words), not_possible=why)


def _with_recipe(plan: Plan, made: "Sequence[MadeObject]", device: str) -> Plan:
    """Add the lines to write, unless more is known against the settings than that a script has to set them itself."""
    written = plan.not_possible in ("", OUTSIDE, ONLY_ITSELF)
    return replace(plan, recipe=format_recipes(plan.settings, made, device)) if written else plan


def _with_command(plan: Plan, arguments: str) -> Plan:
    return replace(plan, command=rerun_commands.comparison_command(arguments, plan.settings))
