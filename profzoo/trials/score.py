"""Scores verdicts by trials: how far expected gains are off, and how often advice slows a cell down."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import yaml

from profzoo.tables.across import CELL
from profzoo.trials.tabulate import HIT, SLOWED
from profzoo.verdicts import rules

HALVES_FILE = Path(rules.__file__).with_name("halves.yaml")
FITTED, HELD_OUT, OTHERS = "fitted", "held_out", "others"
ALL = "all"
COLUMNS = ["half", "verdict", "trials", "median_error", "hits", "slowed_down"]


def halves() -> Mapping[str, list[str]]:
    """The models of each half of the zoo."""
    found: Mapping[str, list[str]] = yaml.safe_load(HALVES_FILE.read_text(encoding="utf-8"))
    return found


def half_of(model: str) -> str:
    """Which half a model, with or without a variant, belongs to; OTHERS for one that is not of the zoo.

    >>> half_of("bert@bf16"), half_of("gpt"), half_of("mine")
    ('fitted', 'held_out', 'others')
    """
    name = model.partition("@")[0]
    return next((half for half, models in halves().items() if name in models), OTHERS)


def score(trials: pd.DataFrame) -> pd.DataFrame:
    """A row a half and verdict, and one of all verdicts: of gains that were expected and measured.

    trials: the table of that name. `median_error` is that of expected over measured, less 1; `hits` and `slowed_down`
    are shares. Advice that was followed by a failure, or that was not tried, does not count.
    """
    known = trials[trials["outcome"] != ""]
    known = known.assign(half=known["model"].map(half_of), error=(known["expected"] / known["gain"] - 1).abs())
    parts = [known, known.assign(advised_by=ALL)]
    rows = []
    for (half, verdict), own in pd.concat(parts).groupby(["half", "advised_by"], sort=True):
        shares = {"hits": (own["outcome"] == HIT).mean(), "slowed_down": (own["outcome"] == SLOWED).mean()}
        counts = {"trials": len(own), "median_error": own["error"].median()}
        rows.append({"half": half, "verdict": verdict, **counts, **shares})
    return pd.DataFrame(rows, columns=COLUMNS)


def misses(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials whose gains were not as expected, those farthest off first."""
    wrong = trials[trials["outcome"].ne("") & trials["outcome"].ne(HIT)]
    order = (wrong["expected"] / wrong["gain"] - 1).abs().sort_values(ascending=False).index
    return wrong.loc[order, [*CELL, "settings", "advised_by", "expected", "gain", "gain_low", "gain_high", "outcome"]]
