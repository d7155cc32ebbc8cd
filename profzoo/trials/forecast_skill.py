"""What a score leaves out: how wide intervals are, what no expectation at all would come to, what trials left open."""

import numpy as np
import pandas as pd

from profzoo.experiments.trial_runner import TOGETHER
from profzoo.statistics import speedup
from profzoo.tables.schemas import CELL


def constant_forecasts(trials: pd.DataFrame, half: pd.Series, fitted_to: str) -> pd.Series:
    """Of each trial of the other halves, the median gain that its settings had on that one; nan where they had none.

    What expects that of every cell knows nothing of the cell, and is what an expectation has to be better than.
    half: of each row, which it belongs to.
    """
    alike = _order_free_names(trials)
    known = trials["gain"].where(half == fitted_to).groupby(alike).median()
    return alike.map(known).where(half != fitted_to)


def _order_free_names(trials: pd.DataFrame) -> pd.Series:
    """The settings, in whichever order they were put together."""
    return trials["settings"].map(lambda name: TOGETHER.join(sorted(name.split(TOGETHER))))


def interval_widths(trials: pd.DataFrame) -> pd.Series:
    """How many times the upper end of what was expected is its lower end."""
    return trials["expected_high"] / trials["expected_low"]


def excludes_no_gain(trials: pd.DataFrame) -> pd.Series:
    """Whether what was expected says if the settings help at all: 1 is not in the interval."""
    return ~((trials["expected_low"] <= 1) & (trials["expected_high"] >= 1))


def is_undecided(trials: pd.DataFrame) -> pd.Series:
    """Whether the trials themselves leave open if the settings help: too few processes, or too far apart."""
    return trials["verdict"].eq(speedup.UNDECIDED)


def policy_gains(trials: pd.DataFrame) -> pd.DataFrame:
    """What one gains by choosing a cell's settings: `choice`, `gain` (geometric mean over cells), `cells`.

    By the largest of what was expected, by the same settings in all cells, and by the best of what was measured; of the
    settings that all cells tried.
    """
    each = trials.assign(alike=_order_free_names(trials)).drop_duplicates([*CELL, "alike"]).set_index([*CELL, "alike"])
    gains, expected = each["gain"].unstack().dropna(axis=1), each["expected"].unstack()
    own = gains.to_numpy()[np.arange(len(gains)), expected[gains.columns].to_numpy().argmax(axis=1)]
    always = {f"always {name}": gains[name] for name in gains}
    found = {"largest expected": own, **always, "best measured": gains.max(axis=1)}
    rows = [(choice, float(np.exp(np.log(chosen).mean())), len(chosen)) for choice, chosen in found.items()]
    return pd.DataFrame(rows, columns=["choice", "gain", "cells"])
