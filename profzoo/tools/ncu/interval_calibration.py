"""Compares the confidence intervals of totals with the error that was expected when the launches were chosen."""

from collections.abc import Mapping, Sequence

from profzoo.tools.ncu.quantities import QUANTITIES
from profzoo.tools.ncu.strata import ALIKE

# A plan expects errors of traffic and of work. Operations of all types are added up, because some types hardly occur.
TRAFFIC = ("dram_bytes", "l2_bytes")
FLOP = [name for name, quantity in QUANTITIES.items() if quantity.unit == "flop"]
# Intervals that are wider than expected by up to this factor are not reported.
CLEARLY = 1.5


def relative_half_widths(totals: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return half the width of each total's interval, relative to the total, by quantity.

    totals: for each metric its total and both ends of the interval, in that order.

    >>> relative_half_widths({"dram__bytes_read.sum": [90, 81, 99], "dram__bytes_write.sum": [10, 9, 11]})
    {'dram_bytes': 0.1}
    """
    found = {}
    for name, quantities in {**{one: [one] for one in TRAFFIC}, "operations": FLOP}.items():
        parts = [_of_quantity(one, totals) for one in quantities]
        total, wide = (sum(part[place] for part in parts) for place in (0, 1))
        if total > 0:
            found[name] = wide / total
    return found


def _of_quantity(name: str, totals: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return the total of a quantity and half its interval, as if all its metrics erred in the same direction."""
    sums = (one.factors for one in QUANTITIES[name].sums)
    factors = next((one for one in sums if set(one) <= set(totals)), {})
    total = sum(factor * totals[metric][0] for metric, factor in factors.items())
    return total, sum(factor * (totals[metric][2] - totals[metric][0]) for metric, factor in factors.items())


def describe_wider_intervals(totals: Mapping[str, Sequence[float]], expected: float | None) -> str | None:
    """Return a note if totals are clearly less certain than expected, else None.

    Differences within what a single launch varies by from run to run are not reported.

    Args:
        totals: for each metric its total and both ends of the interval, in that order.
        expected: relative error that was expected; 0 if every launch was to be profiled, None if unknown.

    >>> describe_wider_intervals({"lts__t_bytes.sum": [100, 80, 120]}, 0.042)[:62]
    'totals of l2_bytes are known to 20.0%, not to 4.2% as planned,'
    """
    widths = relative_half_widths(totals)
    if not expected or not widths:
        return None
    name = max(widths, key=lambda one: widths[one])
    if widths[name] <= CLEARLY * max(expected, ALIKE):
        return None
    return (
        f"totals of {name} are known to {widths[name]:.1%}, not to {expected:.1%} as planned, because launches of "
        "similar times did different work; `ncu.launches: all` profiles every launch, a smaller ncu.error more of them"
    )
