"""Defines a quantity: the sums of metrics that give its value, and how to combine its values over launches."""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Kind(enum.Enum):
    """States how to combine the values of several launches.

    SUM: they add up. RATIO: of two metrics that do, by the second. OF_TIME: a part of the elapsed time, by that.
    OF_LAUNCH: the same in every launch of a configuration, and of several configurations together it says nothing.
    """

    SUM = enum.auto()
    RATIO = enum.auto()
    OF_TIME = enum.auto()
    OF_LAUNCH = enum.auto()


@dataclass(frozen=True)
class Sum:
    """A sum of metrics (full names), each times a factor.

    since, before: compute capabilities of the GPUs that have these metrics, as far as is known.
    """

    factors: Mapping[str, float]
    since: float = 0.0
    before: float = math.inf

    @property
    def limited(self) -> bool:
        """Return whether some GPUs are known to lack the metrics."""
        return self.since > 0 or self.before < math.inf

    def on(self, capability: float) -> bool:
        """Return whether GPUs of a compute capability have the metrics, as far as is known."""
        return self.since <= capability < self.before


@dataclass(frozen=True)
class Quantity:
    """A sum of metrics; several sums where GPUs or sections differ, of which the first that was collected counts.

    unit: of the value, in base units. what: one line for readers. per: of a ratio, what it is relative to, as metrics
    whose product is in proportion to that; the first of which all are there counts, and time where none is.
    """

    unit: str
    what: str
    sums: tuple[Sum, ...]
    kind: Kind = Kind.SUM
    per: tuple[Sequence[str], ...] = ()
