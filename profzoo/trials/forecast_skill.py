"""Computes measures to compare a score with: widths of intervals, errors of a constant prediction, undecided trials."""

import pandas as pd

from profzoo.experiments.trial_runner import TOGETHER
from profzoo.statistics import speedup


def constant_forecasts(trials: pd.DataFrame, half: pd.Series, fitted_to: str) -> pd.Series:
    """Return for each trial of the other halves its settings' median gain on the half `fitted_to`; nan if unknown.

    This constant prediction knows nothing about the cell, so a useful prediction has to be better.

    half: half of the zoo of each row.
    """
    alike = _order_free_names(trials)
    known = trials["gain"].where(half == fitted_to).groupby(alike).median()
    return alike.map(known).where(half != fitted_to)


def _order_free_names(trials: pd.DataFrame) -> pd.Series:
    """Return names of joined settings in a fixed order, so that equal combinations have equal names."""
    return trials["settings"].map(lambda name: TOGETHER.join(sorted(name.split(TOGETHER))))


def interval_widths(trials: pd.DataFrame) -> pd.Series:
    """Return the upper end of each expected interval over its lower end."""
    return trials["expected_high"] / trials["expected_low"]


def excludes_no_gain(trials: pd.DataFrame) -> pd.Series:
    """Return whether each expected interval excludes 1, and so predicts whether the settings help."""
    return ~((trials["expected_low"] <= 1) & (trials["expected_high"] >= 1))


def is_undecided(trials: pd.DataFrame) -> pd.Series:
    """Return whether each trial is undecided: too few processes, or too different ones."""
    return trials["verdict"].eq(speedup.UNDECIDED)
