"""A check of one quantity of two sides of a comparison: its relative difference, and what is explained."""

from dataclasses import dataclass

import numpy as np

from profzoo.compare.numeric_sides import NumericSide
from profzoo.statistics import rounding_errors

# How many steps are looked into.
STEPS = 2
# Fewer losses do not tell how far random numbers move them.
FEWEST_DRAWN = 3
IN_DOUBLE = "in double precision"


@dataclass(frozen=True)
class Check:
    """A relative difference of one quantity.

    same: largest difference by which the candidate is as right as the reference side. tolerance: largest difference
    that is explained. why: words for a difference beyond the tolerance, if numbers do not say it. note: what limits the
    check even where it is passed.
    """

    quantity: str
    difference: float
    same: float
    tolerance: float
    why: str = ""
    note: str = ""

    @property
    def excess(self) -> float:
        """Difference over tolerance."""
        return self.difference / self.tolerance if self.tolerance else float(np.inf if self.difference else 0)

    def describe(self) -> str:
        """Say in words what differs."""
        if self.why:
            return self.why
        return f"{self.quantity} differ by {self.difference:.2g}, and {self.tolerance:.2g} is explained by rounding"


def drawn_losses(side: NumericSide) -> list[float]:
    """Return losses of step 0 with several draws of random numbers, those of the measured run first."""
    losses = side.exact["losses"][:1] if side.exact else []
    return [float(loss) for loss in [*losses, *side.double.get("redrawn_losses", [])] if loss is not None]


def check_means(one: np.ndarray, other: np.ndarray, quantity: str) -> list[Check]:
    """Check the difference of two means of random losses (Welch 1947, with the fewest degrees of freedom)."""
    if min(len(one), len(other)) < FEWEST_DRAWN:
        return []
    spread = float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))
    scale = abs(float(one.mean())) or 1.0
    tolerance = rounding_errors.student_quantile(min(len(one), len(other)) - 1) * spread / scale
    return [Check(quantity, abs(float(other.mean() - one.mean())) / scale, tolerance, tolerance)]
