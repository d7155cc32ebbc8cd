"""Give a verdict its expected gain, by what-if simulation or Amdahl's law, and withdraw advice that does not pay."""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from profzoo.io.csv_tables import Row
from profzoo.verdicts import advice_scores, reduced_precision
from profzoo.verdicts.gain_methods import AMDAHL, SIMULATED
from profzoo.verdicts.gain_models import (
    FUSED,
    STEP_CHANGES,
    CellSimulation,
    RequestedChange,
    error_interval,
)
from profzoo.verdicts.rule_types import KnownSettings, Rule
from profzoo.verdicts.rules import ChosenAdvice
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.predicted_gains import Gain

LAUNCH_LESS = "first reduce launches (a larger batch, CUDA graphs), as the CPU would otherwise limit the step; then "
NO_GAIN = "the what-if simulation of the traced steps shows no gain from this: "
# The CPU limits the step if shorter kernels gain less than this part of the gain by Amdahl's law.
CPU_LIMITED_PART = 0.5
SLOWER = "not advised: expected to be slower"
DOUBTED = "not advised: the expected gain is below the usual error of such predictions in trials"
TOGETHER = "only together: run snakemake trials to measure it"
UNSURE = "no setting is advised, as the expected gain is below the usual error of such predictions in trials: "


def ask_simulation(
    rule: Rule,
    advice: ChosenAdvice,
    traits: pd.DataFrame | None,
    cured: float | None,
    whole: bool,
    peaks: Mapping[str, float],
    ran_with: KnownSettings,
) -> RequestedChange | None:
    """Choose the change to simulate for a rule that applies; None if the rule names none.

    Args:
        rule, advice: the rule, and its advice for the cell.
        traits: launches that the rule is about; None for a rule about the step.
        cured: share of their time that the advice saves.
        whole: whether these are all launches of the cell.
        peaks: measured rates by name, in flop/s.
        ran_with: the cell's settings.
    """
    change = advice.replay
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
    if change != FUSED and isinstance(advice.cured, str) and saved in rows:
        part = rows[saved] / rows[time]
    return RequestedChange(change, rows, part)


def add_expected_gain(
    row: Verdict, replayed: CellSimulation | None, step: Row, scored: advice_scores.Scores
) -> Verdict:
    """Return the verdict with its expected gain, interval and score.

    The gain is by what-if simulation where possible, else by Amdahl's law. The verdict loses its settings if it gains
    nothing, or if its gain is below the usual error of such predictions in trials. It loses its gain if such advice
    made at most half of the cells in trials faster.
    """
    error = scored.error(row.verdict)
    found = replayed.gain(row.change, step, error) if replayed and row.change else None
    if found is None:
        next_step = LAUNCH_LESS + row.next_step if row.limit else row.next_step
        low, high = error_interval(row.gain, error) if row.gain is not None else (None, None)
        row = replace(row, next_step=next_step, gain_low=low, gain_high=high, method=AMDAHL)
    else:
        row = _adjust_texts(row, found.gain, row.change)
        row = replace(row, gain=found.gain, gain_low=found.low, gain_high=found.high, method=SIMULATED)
    if row.settings and scored.doubts(row.verdict, row.gain):
        row = replace(row, settings=None, next_step=UNSURE + row.next_step)
    row = replace(row, **scored.columns(row.verdict))
    if scored.abstains(row.verdict):
        row = replace(row, gain=None, gain_low=None, gain_high=None, limit=None)
    return replace(row, next_step=row.lead + row.next_step, lead="")


def _adjust_texts(row: Verdict, gain: float, known: RequestedChange | None) -> Verdict:
    """Return the verdict with other texts and limit if the simulated gain differs from the one by Amdahl's law."""
    told = replace(row, limit=None)
    of_launches = known is not None and known.change not in STEP_CHANGES
    if (
        of_launches
        and row.cured
        and gain - 1 < CPU_LIMITED_PART * (1 / (1 - min((row.share or 0.0) * row.cured, 0.999)) - 1)
    ):
        told = replace(row, limit=gain, next_step=LAUNCH_LESS + row.next_step)
    if gain < 1:
        told = replace(told, settings=None, next_step=NO_GAIN + row.next_step)
    return told


def why_not_advised(verdict: str, gain: Gain, scored: advice_scores.Scores, otherwise: str) -> str:
    """Explain why no verdict advises these settings; otherwise: the explanation if it is not the gain."""
    if gain.gain < 1:
        return SLOWER
    return DOUBTED if scored.doubts(verdict, gain.gain) else otherwise
