"""Score advice by trials: errors of expected gains by kind of settings, and how often advice slows a cell down."""

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from profzoo.experiments.trial_runner import TOGETHER
from profzoo.records import digests, import_graph
from profzoo.statistics import speedup
from profzoo.tables.schemas import CELL
from profzoo.trials.trial_table import HIT, SLOWED
from profzoo.verdicts import advice_scores

HALVES_FILE = Path(advice_scores.__file__).with_name("halves.yaml")
FITTED, HELD_OUT, OTHERS = "fitted", "held_out", "others"
# Measures that count only trials with advice.
ADVICE_MEASURES = ("advised", "helped", "slowed_down", "undecided")
COLUMNS = ["half", "kind", *advice_scores.MEASURES, "tells", "hits", "models"]
# The code that expected gains come from.
EXPECTS = ("profzoo/what_if/*.py", "profzoo/verdicts/gain_models.py", "profzoo/verdicts/rules/launch_traits.py")
# Shares of future errors below the recorded bounds; the share is higher for errors that may make advice a slow-down.
NINE_OF_TEN, NINETEEN_OF_TWENTY = 0.9, 0.95


def model_halves() -> Mapping[str, list[str]]:
    """Return the models of each half of the zoo."""
    found: Mapping[str, list[str]] = yaml.safe_load(HALVES_FILE.read_text(encoding="utf-8"))
    return found


def find_half(model: str) -> str:
    """Return the half of the zoo that a model or variant belongs to; OTHERS for a model of your own.

    >>> find_half("bert@bf16"), find_half("gpt"), find_half("mine")
    ('fitted', 'held_out', 'others')
    """
    name = model.partition("@")[0]
    return next((half for half, models in model_halves().items() if name in models), OTHERS)


def digest_code() -> str:
    """Return the digest of the code that expected gains come from."""
    files = sorted(file for pattern in EXPECTS for file in import_graph.PROJECT.glob(pattern))
    return digests.text_digest("".join(digests.compute_digest(file) for file in files))


def score_advice(trials: pd.DataFrame) -> pd.DataFrame:
    """Return a row of scores per half and kind of settings, and one for all kinds, from expected and measured gains.

    trials: the table of trials. Trials that failed or did not run are not counted. Columns:
        `error`: bound of the relative error, in either direction, of nine in ten gains: 0.5 for a gain of 1.5 instead
            of 1, or of 1 instead of 1.5. With too few trials, it is the largest error. `above`: the same of gains
            above the expected gain alone. `largest`: the largest error.
        `over`: bound by which 19 of 20 gains were less than expected, relative.
        `median_error`: median relative error.
        `covered`: share of gains within their interval, whose width is the error of other models. `below`: share of
            gains up to the upper end that is told where no interval is. `hits`: share of hits, as in `outcome`.
        `advised`: number of trials with advice. `slowed_down`, `helped`, `undecided`: shares of these.
        `width`: median ratio of an interval's ends. `tells`: share of intervals that exclude 1.
        `constant_error`: median error of predicting for all cells the median gain of the other half.
        `models`: number of models.
    """
    known = find_errors(add_intervals(trials))
    known["open"] = is_undecided(known)
    low, high = known["expected_low"], known["expected_high"]
    known["width"], known["tells"] = high / low, ~((low <= 1) & (high >= 1))
    known["within"] = known["gain"].between(low, high)
    known["under"] = known["gain"] <= known["expected"] * (1 + known["bound_above"])
    constant = constant_forecasts(known, known["half"], FITTED)
    constant = constant.fillna(constant_forecasts(known, known["half"], HELD_OUT).where(known["half"] == FITTED))
    known["constant_off"] = (constant / known["gain"] - 1).abs()
    parts = [known, known.assign(kind=advice_scores.ALL_KINDS)]
    rows = []
    for (half, kind), own in pd.concat(parts).groupby(["half", "kind"], sort=True):
        one = {
            "trials": len(own),
            "median_error": own["off"].median(),
            "error": bound_errors(own["either"], NINE_OF_TEN),
            "above": bound_errors(own["above"], NINE_OF_TEN),
            "largest": own["either"].max(),
            "over": bound_errors(own["over"], NINETEEN_OF_TWENTY),
            "covered": own["within"].mean(),
            "below": own["under"].mean(),
            "advised": int(own["advised"].sum()),
            "helped": _mean_or_zero(own.loc[own["advised"], "gain"].gt(1)),
            "slowed_down": _mean_or_zero(own.loc[own["advised"], "outcome"].eq(SLOWED)),
            "width": own["width"].median(),
            "constant_error": 0.0 if own["constant_off"].isna().all() else own["constant_off"].median(),
            "undecided": _mean_or_zero(own.loc[own["advised"], "open"]),
            "tells": own["tells"].mean(),
            "hits": own["outcome"].eq(HIT).mean(),
            "models": own["network"].nunique(),
        }
        rows.append({"half": half, "kind": kind, **one})
    return pd.DataFrame(rows, columns=COLUMNS)


def find_errors(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with both gains, their errors, and bounds of these by other models of the held-out half.

    Columns, beside those of trials: `half`, `kind`, `network` (the model without its variant); `off`, `either`, `above`
    and `over`, errors as in score_advice; `bound` and `bound_above`, which nine of ten errors of other models stayed
    below: of the same kind, or of all kinds where too few trials are of this one.
    """
    known = trials[trials["outcome"] != ""]
    ratio = known["expected"] / known["gain"]
    known = known.assign(
        half=known["model"].map(find_half),
        kind=known["words"].map(advice_scores.find_kind),
        network=known["model"].str.partition("@")[0],
        off=(ratio - 1).abs(),
        either=np.expm1(np.log(ratio).abs()),
        above=(1 / ratio - 1).clip(lower=0),
        over=(ratio - 1).clip(lower=0),
    )
    known[["bound", "bound_above"]] = np.nan
    for (kind, network), own in known.groupby(["kind", "network"]):
        others = known[(known["half"] == HELD_OUT) & (known["network"] != network)]
        alike = others[others["kind"] == kind]
        used = alike if len(alike) >= advice_scores.FEWEST_TRIALS else others
        if len(used):
            bounds = [bound_errors(used[name], NINE_OF_TEN) for name in ("either", "above")]
            known.loc[own.index, ["bound", "bound_above"]] = bounds
    return known


def add_intervals(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the table of trials whose intervals of expected gains follow from the errors of other models."""
    known = find_errors(trials)
    low, high = known["expected"] / (1 + known["bound"]), known["expected"] * (1 + known["bound"])
    return trials.assign(expected_low=low.reindex(trials.index), expected_high=high.reindex(trials.index))


def bound_errors(errors: Sequence[float] | pd.Series, share: float) -> float:
    """Return the bound that this share of future errors stays below (split conformal prediction, Vovk et al. 2005).

    The quantile of the errors themselves would hold for fewer future errors: for three errors, 72 % instead of 90 %.

    >>> [round(bound_errors(np.arange(1, count + 1) / 10, 0.9), 1) for count in (1, 9, 19, 20)]
    [0.1, 0.9, 1.8, 1.9]
    """
    place = int(np.ceil(share * (len(errors) + 1)))
    return float(np.sort(errors)[min(place, len(errors)) - 1])


def _mean_or_zero(those: pd.Series) -> float:
    """Return the mean of booleans; 0 if there are none."""
    return float(those.mean()) if len(those) else 0.0


def update_scores_text(scored: pd.DataFrame, text: str, made: Mapping[str, Any]) -> str:
    """Return scores.yaml `text` with the scores of both halves replaced, and with the values `made` from the trials.

    Settings from which advice abstains are not advised, so the score of their advice is kept.
    """
    known = advice_scores.check_scores(yaml.safe_load(text))
    halves = {
        half: {row["kind"]: _row_measures(row) for row in scored[scored["half"] == half].to_dict("records")}
        for half in advice_scores.HALVES
    }
    for kind, own in halves[HELD_OUT].items():
        if known.abstains(kind) and own["advised"] < known.enough:
            before = known.held_out[kind]
            own |= {name: getattr(before, name) for name in ADVICE_MEASURES}
    kept, _, _ = text.partition("\ncode:")
    return f"{kept}\n{yaml.safe_dump({'code': digest_code(), **made, **halves}, sort_keys=False)}"


def _row_measures(row: Mapping[Hashable, Any]) -> dict[str, float]:
    return {
        name: int(row[name]) if name in advice_scores.COUNTS else round(float(row[name]), 4)
        for name in advice_scores.MEASURES
    }


def largest_misses(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials whose gains were not as expected, the largest error first."""
    wrong = trials[trials["outcome"].ne("") & trials["outcome"].ne(HIT)]
    order = (wrong["expected"] / wrong["gain"] - 1).abs().sort_values(ascending=False).index
    return wrong.loc[order, [*CELL, "settings", "advised_by", "expected", "gain", "gain_low", "gain_high", "outcome"]]


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


def is_undecided(trials: pd.DataFrame) -> pd.Series:
    """Return whether each trial is undecided: too few processes, or too different ones."""
    return trials["verdict"].eq(speedup.UNDECIDED)
