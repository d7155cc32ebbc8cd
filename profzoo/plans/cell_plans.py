"""Lists the plans of one cell: every possible setting and combination with its expected gain, the best first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from profzoo.cell import rerun_commands
from profzoo.plans import combinations
from profzoo.plans.combinations import WORTH, CombinedSimulation, Settings, join_words, name_verdicts
from profzoo.plans.infeasible_settings import IN_FORCE, find_contradiction
from profzoo.plans.plain_words import describe_changes
from profzoo.plans.plan import ABSTAINS, ADVISABLE, Plan, judge_interval
from profzoo.verdicts import reduced_precision
from profzoo.verdicts.advice_scores import Scores
from profzoo.verdicts.gain_methods import SIMULATED
from profzoo.verdicts.other_settings import AND, UNCOUNTED, AdvisableSetting, are_counted, list_settings
from profzoo.verdicts.rule_evaluation import CELL_LEVEL, CellRules
from profzoo.verdicts.verdict import BY_PROFZOO
from profzoo.what_if.predicted_gains import Gain

# What was simulated, and the file that holds the traced steps.
SIMULATION = "program.npz: simulated {}"


def list_plans(
    judged: CellRules | None,
    traits: pd.DataFrame,
    verdicts: pd.DataFrame,
    infeasible: Mapping[str, str],
    arguments: str,
) -> list[Plan]:
    """Return the plans of a cell, the best first, and after them settings that are not possible, with the reason.

    Gains are by what-if simulation of the combined change. A setting that a verdict advises without a simulation, as on
    a CPU, keeps the gain of that verdict.

    Args:
        judged: the cell's judge, with its settings and traced steps; None for a cell without a trace of its GPU.
        traits: rows of all launches of the cell, with their traits.
        verdicts: the cell's rows of the table of verdicts.
        infeasible: reasons by setting word, such as `graph=true`; a plan with such a word is left out.
        arguments: words that run the cell again.
    """
    advising, contradictions = _advising_rows(verdicts), dict[str, str]()
    plans = _simulated_plans(judged, traits, advising, infeasible, contradictions) if judged else []
    plans += _plans_of_verdicts(advising, {plan.words for plan in plans}, infeasible)
    ordered = rank_plans([_with_command(plan, arguments) for plan in plans])
    return [*ordered, *_impossible_plans({**infeasible, **contradictions})]


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
        if any(rules_out(infeasible, one.words) for one in chosen):
            return False
        if why := find_contradiction(judged.ran_with, words):
            contradictions[words] = why
        return words not in contradictions

    if not judged.replayed:
        return []
    known, counted = list(list_settings(judged, traits)), are_counted(judged, traits)
    found = combinations.search_combinations(known, CombinedSimulation(judged, traits).predict, allowed)
    return [
        _simulated_plan(chosen, gain, judged.scored, advising, SIMULATION.format(_name_change(chosen, counted)))
        for chosen, gain in found
    ]


def rules_out(infeasible: Mapping[str, str], words: str) -> bool:
    """Return whether settings are not possible: one of them is not, or the cell runs with all of them.

    >>> from profzoo.plans.infeasible_settings import IN_FORCE
    >>> known = {"pin_memory=true": IN_FORCE, "graph=true": "it waits"}
    >>> [rules_out(known, words) for words in ("workers=4 pin_memory=true", "pin_memory=true", "graph=true batch=4")]
    [False, True, True]
    """
    reasons = [infeasible.get(word) for word in words.split()]
    return any(why and why != IN_FORCE for why in reasons) or all(why == IN_FORCE for why in reasons)


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
    words, verdicts = join_words(chosen), name_verdicts(chosen)
    row = advising.get(frozenset(words.split()))
    own = scored.columns(verdicts)
    named = [f"{one['verdict']} (rank {one['rank']:.0f})" for single in chosen
             if (one := advising.get(frozenset(single.words.split()))) is not None]  # fmt: skip
    return Plan(
        settings=words,
        changes=describe_changes(words),
        gain=gain.gain,
        gain_low=gain.low,
        gain_high=gain.high,
        outlook=ABSTAINS if scored.abstains(verdicts) else judge_interval(gain.gain, gain.low),
        verdicts=verdicts,
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
    guessed = not counted and any(name in reduced_precision.TARGET_PRECISIONS for name in names)
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


def _with_command(plan: Plan, arguments: str) -> Plan:
    return replace(plan, command=rerun_commands.comparison_command(arguments, plan.settings))
