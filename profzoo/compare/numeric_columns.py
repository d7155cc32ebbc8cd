"""Columns of the tables of comparisons and trials that say whether two sides compute the same, and what follows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from profzoo.compare import numerics
from profzoo.compare.numeric_sides import NumericSide
from profzoo.io import column_types
from profzoo.io.column_types import Kind
from profzoo.io.columns import RATIO, Column
from profzoo.statistics import speedup

NUMBER = column_types.or_missing(column_types.NUMBER)
COLUMNS: Mapping[str, Kind] = {
    "numerics": column_types.TEXT,
    "numerics_by": column_types.TEXT,
    "numerics_difference": NUMBER,
    "numerics_tolerance": NUMBER,
    "numerics_why": column_types.TEXT,
    "seed_spread": NUMBER,
    "work": column_types.TEXT,
}
# Values of what was not compared.
UNKNOWN: Mapping[str, Any] = {name: "" if kind is column_types.TEXT else np.nan for name, kind in COLUMNS.items()}
ABOUT: Mapping[str, Column] = {
    "numerics": Column(
        "Whether the candidate computes what the unchanged side computes: `same`, `within precision` (as far off as "
        "its number format explains), `different` or `undecided`."
    ),
    "numerics_by": Column("Quantity that decided `numerics`: the one that is farthest off for its tolerance."),
    "numerics_difference": Column("Difference of this quantity, relative to the exact one.", RATIO, "time"),
    "numerics_tolerance": Column("Largest such difference that rounding explains.", RATIO, "time"),
    "numerics_why": Column("Why `numerics` is `different` or `undecided`, or what limits another result."),
    "seed_spread": Column(
        "Standard deviation of the unchanged side's loss between seeds after as many steps, relative to the loss.",
        RATIO,
        "time",
    ),
    "work": Column("What differs in the work of a step, as counted in double precision."),
}


def compare_sides(reference: NumericSide, candidate: NumericSide) -> dict[str, Any]:
    """Return the columns of a candidate against a reference side."""
    found = numerics.compare_numbers(reference, candidate)
    return {
        "numerics": found.result,
        "numerics_by": found.quantity,
        "numerics_difference": found.difference,
        "numerics_tolerance": found.tolerance if np.isfinite(found.tolerance) else np.nan,
        "numerics_why": found.why,
        "seed_spread": measure_seed_spread(reference),
        "work": found.work,
    }


def measure_seed_spread(side: NumericSide) -> float:
    """Return the relative standard deviation of a side's loss between seeds, after the most steps that all ran."""
    seeds = [list(losses) for losses in side.double.get("seed_losses", []) if losses]
    own = side.own["losses"] if side.own else []
    step = min(map(len, [own, *seeds]), default=0) - 1
    if not seeds or step < 0 or not own[step]:
        return float("nan")
    losses = [float(run[step] or np.nan) for run in [own, *seeds]]
    return float(np.std(losses, ddof=1) / abs(losses[0]))


def temper_outcome(outcome: str, result: str) -> str:
    """Return the outcome of a comparison of times: what computes something else is not called faster.

    >>> temper_outcome("faster", "different"), temper_outcome("slower", "different"), temper_outcome("faster", "same")
    ('different', 'slower', 'faster')
    """
    return numerics.DIFFERENT if (outcome, result) == (speedup.FASTER, numerics.DIFFERENT) else outcome


def describe_numerics(row: Mapping[str, Any]) -> str:
    """Describe in a few words whether two sides compute the same; row: of a table with COLUMNS."""
    if not row["numerics"]:
        return ""
    word = "computes something else" if row["numerics"] == numerics.DIFFERENT else f"numbers {row['numerics']}"
    reasons = "; ".join(filter(None, [row["numerics_why"], row["work"]]))
    return f"{word} ({reasons})" if reasons else word
