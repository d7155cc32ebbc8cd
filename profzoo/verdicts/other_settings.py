"""Predict the gains of settings that no verdict advises, by what-if simulation: alone, and within a CUDA graph."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pandas as pd

from profzoo.verdicts import advice_gain, reduced_precision
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.gain_methods import SIMULATED
from profzoo.verdicts.gain_models import GRAPH, RequestedChange
from profzoo.verdicts.rule_evaluation import CellRules
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.predicted_gains import Gain

SETTING_LEVEL, UNCOUNTED, AND = "setting", ", without counters", " + "


@dataclass(frozen=True)
class AdvisableSetting:
    """Settings that a rule could advise: the setting words, the change's name, and the change to simulate."""

    verdict: str
    words: str
    change: str
    asked: RequestedChange
    source: str


def other_setting_rows(judged: CellRules, traits: pd.DataFrame, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return rows of settings that no verdict advises, and of reduced precision in a CUDA graph; largest gain first.

    The gain of both together does not follow from their single gains: if the CPU limits the step, reduced precision
    gains nothing without a graph; if the GPU limits it, a graph gains little without reduced precision.

    Args:
        judged: the cell's judge.
        traits: rows of all launches of the cell.
        verdicts: the verdicts on the cell.
    """
    if not judged.replayed:
        return []
    here = list(verdicts)
    advised = {row.settings for row in here if row.settings and row.gain}
    abstaining = {row.verdict for row in here if row.settings and not row.gain}
    counted = are_counted(judged, traits)
    known = list(list_settings(judged, traits))
    found = []
    for one in known:
        if one.words in advised:
            continue
        gain = judged.replayed.gain(one.asked, judged.step, judged.scored.error(one.verdict))
        if gain:
            if one.verdict in abstaining:
                why = f"not advised: in trials, advice on {one.verdict} made at most half of the cells faster"
            else:
                why = f"not advised: {one.verdict} does not apply here"
            found.append(_row(judged, one, gain, why, counted))
    graph = next((one for one in known if one.change == GRAPH), None)
    for one in known:
        if graph and one.change in reduced_precision.TARGET_PRECISIONS:
            both = f"{graph.verdict}{AND}{one.verdict}"
            gain = judged.replayed.gain(one.asked, judged.step, judged.scored.error(both), graph=True)
            if gain:
                joined = AdvisableSetting(
                    both, f"{graph.words} {one.words}", f"{GRAPH}{AND}{one.change}", one.asked, one.source
                )
                found.append(_row(judged, joined, gain, advice_gain.TOGETHER, counted))
    return sorted(found, key=lambda row: -row.sorting_gain)


def are_counted(judged: CellRules, traits: pd.DataFrame) -> bool:
    """Return whether enough of the cell's GPU time has counters for verdicts that need them."""
    total = traits["total_ns"].sum()
    return bool(total) and bool(traits["counted_ns"].sum() >= judged.floors["counted"] * total)


def list_settings(judged: CellRules, traits: pd.DataFrame) -> Iterator[AdvisableSetting]:
    """Yield the settings that rules could advise for the cell, each once."""
    seen = set[str]()
    for rule in judged.given["rules"]:
        of_kernels = rule["of"] == "kernels"
        if not of_kernels and rule["of"] != "step":
            continue
        advice = verdict_rules.choose_advice(rule, judged.step, judged.ran_with, judged.feasible)
        words, launches = advice.settings, traits if of_kernels else None
        if not words or words in seen:
            continue
        cured = None if isinstance(advice.cured, str) else advice.cured
        asked = advice_gain.ask_simulation(rule, advice, launches, cured, True, judged.peaks, judged.ran_with)
        if asked:
            seen.add(words)
            yield AdvisableSetting(rule["verdict"], words, asked.change, asked, rule["source"])


def _row(judged: CellRules, one: AdvisableSetting, gain: Gain, why: str, counted: bool) -> Verdict:
    """Return the row of a setting; why: the reason why it is not advised, if it is not the gain."""
    guessed = not counted and any(to in one.change.split(AND) for to in reduced_precision.TARGET_PRECISIONS)
    return Verdict(
        level=SETTING_LEVEL,
        verdict=one.verdict,
        metric=f"replay: {one.change}{UNCOUNTED if guessed else ''}",
        value=gain.gain,
        evidence="program.npz: run again",
        next_step=advice_gain.why_not_advised(one.verdict, gain, judged.scored, why),
        gain=gain.gain,
        gain_low=gain.low,
        gain_high=gain.high,
        method=SIMULATED,
        settings=one.words,
        source=one.source,
        **judged.scored.columns(one.verdict),
    )
