"""Gives a verdict its expected gain: what to ask of the replay, how that is told, and which advice is not given."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from profzoo.verdicts import advice_scores, reduced_precision
from profzoo.verdicts.gain_models import (
    AMDAHL,
    FUSED,
    SIMULATED,
    STEP_CHANGES,
    CellSimulation,
    RequestedChange,
    error_interval,
)
from profzoo.what_if.predicted_gains import Gain

# Of a verdict that waits for its gain: what to ask, and what its next step begins with.
CHANGE_KEY, LEAD_KEY = "asked", "lead"
LAUNCH_LESS = "launch less first, as the CPU would hold the step back: a larger batch, CUDA graphs; then "
NO_GAIN = "the traced steps, run again so, gain nothing by it: "
# Shorter kernels that gain less than this part of what Amdahl's law promises are held back by the CPU.
CPU_LIMITED_PART = 0.5
SLOWER = "not advised: expected to be slower"
DOUBTED = "not advised: such gains were less than expected by more than this one is"
TOGETHER = "together: snakemake trials measures it"
UNSURE = "no settings, as such gains were less than expected by more than this one is: "


def ask_simulation(
    rule: Mapping[str, Any],
    advice: Mapping[str, Any],
    traits: pd.DataFrame | None,
    cured: float | None,
    whole: bool,
    peaks: Mapping[str, float],
    ran_with: Mapping[str, Any],
) -> RequestedChange | None:
    """What to ask of a cell's replay for a rule that holds; None where it has no such change.

    traits: the launches that the rule is about, None for a rule about the step; cured: the part of their time that
    would go; whole: whether they are all of the cell's; ran_with: its settings.
    """
    change = advice["replay"]
    if change is None or change in STEP_CHANGES:
        return RequestedChange(change) if change else None
    if traits is None:
        return None
    if change in reduced_precision.TARGET_PRECISIONS:
        now, nchw = str(ran_with.get("precision", "fp32")), not ran_with.get("channels_last", False)
        added = reduced_precision.added_launches(traits, change, now, nchw) if whole else None
        return RequestedChange(change, traits, reduced_precision.saved_share(traits, peaks, change, now, nchw), added)
    name = rule["share"]
    time, saved = f"{name}_ns", f"{name}_saved_ns"
    rows = traits[traits[time] > 0] if time in traits else traits
    part = pd.Series(cured, rows.index, dtype="float64")
    if change != FUSED and isinstance(advice["cured"], str) and saved in rows:
        part = rows[saved] / rows[time]
    return RequestedChange(change, rows, part)


def add_expected_gain(
    row: dict[str, Any], replayed: CellSimulation | None, step: Mapping[str, Any], scored: advice_scores.Scores
) -> dict[str, Any]:
    """The verdict with its gain by the replay, where that has an answer, else by Amdahl's law as it is.

    With its interval, and the score of its advice. What gains nothing loses its settings, and what may as well lose, by
    how far off such gains were in trials; what helped no more often than a coin would, its gain.
    """
    known: RequestedChange | None = row.pop(CHANGE_KEY, None)
    lead = row.pop(LEAD_KEY, "")
    error = scored.error(row["verdict"])
    found = replayed.gain(known, step, error) if replayed and known else None
    if found is None:
        if row.get("limit"):
            row["next_step"] = LAUNCH_LESS + row["next_step"]
        low, high = error_interval(row["gain"], error)
        row |= {"gain_low": low, "gain_high": high, "method": AMDAHL}
    else:
        row |= _adjust_texts(row, found.gain, known)
        row |= {"gain": found.gain, "gain_low": found.low, "gain_high": found.high, "method": SIMULATED}
    if row.get("settings") and scored.doubts(row["verdict"], row["gain"]):
        row |= {"settings": None, "next_step": UNSURE + row["next_step"]}
    row |= scored.columns(row["verdict"])
    if scored.abstains(row["verdict"]):
        row |= {"gain": None, "gain_low": None, "gain_high": None, "limit": None}
    return row | {"next_step": lead + row["next_step"]}


def _adjust_texts(row: Mapping[str, Any], gain: float, known: RequestedChange | None) -> dict[str, Any]:
    """What the replay changes of a verdict's words: by its gain, where Amdahl's law has another."""
    told: dict[str, Any] = {"limit": None}
    of_launches = known is not None and known.change not in STEP_CHANGES
    if (
        of_launches
        and row["cured"]
        and gain - 1 < CPU_LIMITED_PART * (1 / (1 - min(row["share"] * row["cured"], 0.999)) - 1)
    ):
        told = {"limit": gain, "next_step": LAUNCH_LESS + row["next_step"]}
    if gain < 1:
        told |= {"settings": None, "next_step": NO_GAIN + row["next_step"]}
    return told


def why_not_advised(verdict: str, gain: Gain, scored: advice_scores.Scores, otherwise: str) -> str:
    """Why a verdict does not advise its settings, which would have that gain; otherwise: if not for the gain."""
    if gain.gain < 1:
        return SLOWER
    return DOUBTED if scored.doubts(verdict, gain.gain) else otherwise
