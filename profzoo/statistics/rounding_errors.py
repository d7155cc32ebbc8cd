"""Tests whether the rounding errors of one computation are as small as those of another one.

Rounding errors behave like random numbers around 0 whose scale depends on the computation (Higham and Mary 2019). The
errors of a computation that is known to be right tell their scale. The errors of another one are compared with them by
the ratio of their mean squares (Fisher's F). Where the other one rounds more coarsely, the scale is that of several
roundings of the same computation to a coarse format.
"""

from collections.abc import Sequence

import numpy as np

# Significant bits of the formats in which a cell may compute: fp8 is e4m3; int8 has 7 in the upper half of its range,
# and fewer below, as all numbers of a row have one scale.
BITS = {"fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "int8": 7, "fp8": 4}
# Format to which a computation is rounded several times.
ROUNDED = "bf16"
# Probability that one check is failed by rounding alone.
FALSE_ALARMS = 1e-4
# Errors of one kind depend on each other: more of them count as no more than so many.
MOST_INDEPENDENT = 7
# Of those of one of several runs, only so many count.
MOST_OF_A_RUN = 3
# Relative errors of so many units of rounding are allowed in any case, as the errors of the other side may be small by
# chance, or because a result happens to be exact. In fp32, libraries choose among algorithms, of which some have larger
# errors, as Winograd's.
ALWAYS_ALLOWED = 8
# No error of the size of the result itself is allowed: no digit of it is right then.
NEVER_ALLOWED = 1.0
# A tolerance above this share of the result tells too little to call two computations the same.
LOOSE = 0.1


def unit_of_rounding(precision: str) -> float:
    """Return the largest relative error of rounding to a format.

    >>> unit_of_rounding("bf16"), unit_of_rounding("fp32") == 2**-24
    (0.00390625, True)
    """
    return float(2.0 ** -BITS[precision])


def root_mean_square(errors: Sequence[float]) -> float:
    """Return the root of the mean of squares."""
    return float(np.sqrt(np.mean(np.square(errors))))


def error_tolerance(known: Sequence[float], count: int, precision: str, reference: str) -> float:
    """Return the largest root mean square of `count` errors that rounding explains.

    Args:
        known: relative errors of a computation that is right, at least one.
        count: number of the errors that are compared with them.
        precision: format of the compared computation.
        reference: format of the computation that is right. Of a wider one, errors are scaled by the units of rounding.
    """
    from scipy import special  # type: ignore[import-untyped]

    unit, freedom = unit_of_rounding(precision), [min(each, MOST_INDEPENDENT) for each in (count, len(known))]
    scale = root_mean_square(known) * max(unit / unit_of_rounding(reference), 1.0)
    tolerance = scale * float(np.sqrt(special.fdtri(*freedom, 1 - FALSE_ALARMS)))
    return min(max(tolerance, ALWAYS_ALLOWED * unit), NEVER_ALLOWED)


def repeated_factor(count: int, runs: Sequence[int], rate: float = FALSE_ALARMS) -> float:
    """Return by what factor the root mean square of `count` errors may exceed that of independent runs.

    runs: number of errors of each run, of which at most MOST_OF_A_RUN count.
    """
    from scipy import special

    freedom = float(min(count, MOST_INDEPENDENT)), float(sum(min(one, MOST_OF_A_RUN) for one in runs))
    return float(np.sqrt(special.fdtri(*freedom, 1 - rate)))


def student_quantile(freedom: float, rate: float = FALSE_ALARMS) -> float:
    """Return the absolute value of Student's t that chance exceeds at this rate."""
    from scipy import special

    return float(special.stdtrit(freedom, 1 - rate / 2))


def spread_tolerance(values: Sequence[float]) -> float:
    """Return how far one more value may be from the mean of at least two others, if it is drawn as they are."""
    spread = float(np.std(values, ddof=1) * np.sqrt(1 + 1 / len(values)))
    return student_quantile(len(values) - 1) * spread


def vary_together(one: Sequence[float], other: Sequence[float], rate: float = FALSE_ALARMS) -> bool:
    """Return whether pairs of values are correlated, which independent ones are at this rate at most (Pearson's r).

    >>> vary_together([1, 3, 2, 5, 4], [1.1, 3.1, 2.1, 5.1, 4.1]), vary_together([1, 3, 2, 5, 4], [3, 1, 2, 4, 5])
    (True, False)
    """
    if min(len(one), len(other)) < 4 or not np.ptp(one) or not np.ptp(other):
        return False
    correlation, freedom = float(np.corrcoef(one, other)[0, 1]), len(one) - 2
    unexplained = max(1 - correlation**2, 1e-300)
    return bool(correlation * np.sqrt(freedom / unexplained) > student_quantile(freedom, 2 * rate))


def vary_less(values: Sequence[float], others: Sequence[float], rate: float = FALSE_ALARMS) -> bool:
    """Return whether values vary less than others do, which values of one spread do at this rate at most (Fisher's F).

    >>> vary_less([1, 1.001, 1, 0.999], [1, 3, 2, 5, 4]), vary_less([1, 2, 3, 1.5], [1, 3, 2, 5, 4])
    (True, False)
    """
    from scipy import special

    if min(len(values), len(others)) < 3:
        return False
    quantile = float(special.fdtri(len(values) - 1, len(others) - 1, rate))
    return bool(np.var(values, ddof=1) < quantile * np.var(others, ddof=1))
