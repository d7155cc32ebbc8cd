"""Fills the columns that say whether two sides compute the same, and says what follows from them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from profzoo.compare import numerics
from profzoo.compare.numeric_sides import NumericSide
from profzoo.statistics import speedup

# What a result of the check of numerics says, in words.
WORDS = {
    numerics.SAME: "computes the same",
    numerics.WITHIN: "computes the same within precision",
    numerics.DIFFERENT: "computes something else",
    numerics.UNDECIDED: "undecided whether it computes the same",
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
    """Describe in a few words whether two sides compute the same; row: of a table of comparisons or trials."""
    if not row["numerics"]:
        return ""
    word = WORDS[row["numerics"]]
    reasons = "; ".join(filter(None, [row["numerics_why"], row["work"]]))
    return f"{word} ({reasons})" if reasons else word
