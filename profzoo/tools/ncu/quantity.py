"""Defines a quantity: the sums of metrics that give its value, and how to combine its values over launches."""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Kind(enum.Enum):
    """States how to combine the values of several launches.

    SUM: values add up. RATIO: a quotient of two additive metrics; the mean is weighted by the second one. OF_TIME: a
    share of the elapsed time; the mean is weighted by time. OF_LAUNCH: equal in all launches of a configuration, and
    meaningless over several configurations.
    """

    SUM = enum.auto()
    RATIO = enum.auto()
    OF_TIME = enum.auto()
    OF_LAUNCH = enum.auto()


@dataclass(frozen=True)
class Sum:
    """A sum of metrics, each times a factor.

    Attributes:
        factors: factor by full name of the metric.
        since, before: the metrics are known to exist on GPUs from compute capability `since` to below `before`.
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
    """A quantity of a launch, and how to derive it from ncu's metrics.

    Attributes:
        unit: base unit of the value.
        what: description in one line, for readers.
        sums: sums of metrics that give the value on different GPUs or from different sections; the first one that was
            collected counts.
        kind: how the values of several launches are combined.
        per: weights of a ratio: metrics whose product is in proportion to its denominator. The first product whose
            metrics were all collected counts; without any, launches are weighted by time.
    """

    unit: str
    what: str
    sums: tuple[Sum, ...]
    kind: Kind = Kind.SUM
    per: tuple[Sequence[str], ...] = ()
