"""Chooses the checks of two sides of a comparison by what is known of their numbers."""

import numpy as np

from profzoo.compare import numeric_sides
from profzoo.compare.double_checks import LEAST_DOUBLE, check_double
from profzoo.compare.numeric_check import IN_DOUBLE, Check, check_means
from profzoo.compare.numeric_sides import WORDS, NumericSide
from profzoo.compare.rounding_checks import check_repeats, check_rounding
from profzoo.statistics import rounding_errors

# Relative differences of measured steps that rounding never explains, in units of rounding.
GROSS = 2**13
DATA_TOLERANCE = 1e-6


def find_obstacle(reference: NumericSide, candidate: NumericSide) -> str:
    """Say why the numbers of two sides cannot be compared; empty if they can."""
    for name, side in (("reference side", reference), ("candidate", candidate)):
        if side.own is None:
            return f"the {name} recorded no numbers of its steps"
    assert reference.own and candidate.own
    if reference.batch != candidate.batch:
        return f"batches of {reference.batch} and {candidate.batch} samples hold other data"
    for one, other in zip(reference.own["data_sums"], candidate.own["data_sums"], strict=False):
        if one is not None and other is not None and abs(one - other) > DATA_TOLERANCE * max(abs(one), 1):
            return "the sides were given other data"
    return ""


def check_sides(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Return checks of two sides, and why they do not decide alone; the reason is empty if they do."""
    if not reference.exact:
        return _check_alone(reference, candidate)
    checks: list[Check] = []
    if candidate.exact:
        checks, why = check_double(reference, candidate)
        if why or any(check.difference > check.tolerance for check in checks):
            return checks, why
    return [*checks, *check_rounding(reference, candidate)], ""


def _check_alone(reference: NumericSide, candidate: NumericSide) -> tuple[list[Check], str]:
    """Check what was measured without double precision, and say why that decides nothing; empty if it does.

    How far rounding goes is not known then: equal numbers are the same, and grossly different ones are different.
    """
    assert reference.own and candidate.own
    checks = list(check_repeats(reference, candidate))
    missing = f"steps of the reference side were not repeated {IN_DOUBLE}: {reference.double.get('why', '')}"
    one, other = np.array(reference.first_losses), np.array(candidate.first_losses)
    if len(one) > 1 and np.ptp(one) > LEAST_DOUBLE * abs(one[0]):
        return [*checks, *check_means(one, other, "mean first losses")], f"{missing}; its first losses differ"
    unit = rounding_errors.unit_of_rounding(candidate.precision)
    near = rounding_errors.ALWAYS_ALLOWED * rounding_errors.unit_of_rounding(reference.precision)
    decided = True
    for kind, errors in numeric_sides.relative_errors(candidate.own, reference.own, 1).items():
        size = max(errors) if kind == WORDS else rounding_errors.root_mean_square(errors)
        gross = GROSS * unit if kind != WORDS else np.inf
        checks.append(Check(kind, size, near, gross))
        decided &= size <= max(rounding_errors.ALWAYS_ALLOWED * unit, near) if kind != WORDS else not size
    return checks, "" if decided and len(checks) else missing
