"""Checks that two sides compute the same in double precision, where rounding explains next to nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from profzoo.compare import numeric_sides
from profzoo.compare.numeric_check import IN_DOUBLE, STEPS, Check, check_means, drawn_losses
from profzoo.compare.numeric_sides import WORDS, NumericSide
from profzoo.statistics import rounding_errors

if TYPE_CHECKING:
    from profzoo.cell.number_types import StepNumbers

# Relative differences in double precision: smaller ones count as rounding, as parts of a network may compute in single
# precision even so; larger ones never do.
LEAST_DOUBLE, MOST_DOUBLE = 1e-7, 1e-5
WEIGHTS_TOLERANCE = 1e-9


def check_double(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Check that both sides compute the same in double precision."""
    right, found = cast("StepNumbers", reference.exact), cast("StepNumbers", candidate.exact)
    if reference.double.get("random") != candidate.double.get("random"):
        more, less = (
            ("reference side", "candidate") if reference.double.get("random") else ("candidate", "reference side")
        )
        why = f"steps of the {more} draw random numbers, as dropout does, and those of the {less} do not"
        return [Check("random numbers", 1.0, 0.0, 0.0, why)], ""
    tolerance = _double_tolerance(reference)
    checks = [
        Check(f"{kind} {IN_DOUBLE}", max(errors), tolerance, tolerance)
        for kind, errors in numeric_sides.relative_errors(found, right, STEPS).items()
    ]
    used = (right["used_parameters"], found["used_parameters"])
    if used[0] != used[1]:
        why = f"{used[0]:,} parameters with a gradient became {used[1]:,}"
        return [Check("parameters with a gradient", 1.0, 0.0, 0.0, why)], ""
    if all(check.difference <= check.tolerance for check in checks):
        return checks, ""
    if reference.parameters == candidate.parameters and _begin_differently(right, found):
        return [], "the sides begin with other weights"
    # With equal first losses, both drew the same random numbers.
    first = [one["losses"][:1] for one in (found, right)]
    if not reference.double.get("random") or max(numeric_sides.loss_errors(*first), default=1.0) <= tolerance:
        return checks, ""
    return _check_draws(reference, candidate, checks, tolerance)


def _check_draws(
    reference: NumericSide, candidate: NumericSide, checks: Sequence[Check], tolerance: float
) -> tuple[list[Check], str]:
    """Check sides that draw random numbers and differ in double precision; checks: those that differ."""
    one, other = drawn_losses(reference), drawn_losses(candidate)
    # Losses of the same draws rise and fall together, so that another reason than the draws makes them differ.
    if rounding_errors.vary_together(one, other):
        return list(checks), ""
    means = check_means(np.array(one), np.array(other), "mean losses over random numbers")
    right, found = (side.double.get("undropped") for side in (reference, candidate))
    still = any(side.double.get("undropped_random", True) for side in (reference, candidate))
    if right is None or found is None or still:
        return means, "the sides draw other random numbers, so that only their mean losses can be compared"
    undropped = [
        Check(f"{kind} without dropout", max(errors), tolerance, tolerance)
        for kind, errors in numeric_sides.relative_errors(found, right, STEPS).items()
    ]
    shares = [list(side.double.get("dropouts", [])) for side in (reference, candidate)]
    if len(shares[0]) == len(shares[1]) and shares[0] != shares[1]:
        why = "dropout has other shares: " + " -> ".join(
            ", ".join(f"{one:g}" for one in sorted({*side})) for side in shares
        )
        undropped.append(Check("dropout", 1.0, 0.0, 0.0, why))
    return [*undropped, *means], "" if shares[0] == shares[1] else "dropout is called at other places"


def _double_tolerance(reference: NumericSide) -> float:
    """Return the largest difference in double precision that is not one of the computation."""
    right = cast("StepNumbers", reference.exact)
    errors = numeric_sides.relative_errors(cast("StepNumbers", reference.own), right, STEPS)
    own = [rounding_errors.root_mean_square(some) for kind, some in errors.items() if kind != WORDS]
    return min(max([LEAST_DOUBLE, *own]), MOST_DOUBLE)


def _begin_differently(right: "StepNumbers", found: "StepNumbers") -> bool:
    one, other = right["weight_norm"], found["weight_norm"]
    return one is not None and other is not None and abs(one - other) > WEIGHTS_TOLERANCE * abs(one)
