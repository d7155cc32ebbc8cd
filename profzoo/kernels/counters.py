"""Computes the counters of the mean launch and of groups of launches, with intervals where launches were sampled.

Every mean is the quotient of two totals over the launches of a group. An additive quantity is divided by the number of
launches, a ratio by the total of its denominator, and a share of time by the time. tools/ncu/quantities.py declares the
kind of each quantity. If ncu profiled only some launches, totals are estimates (tools/ncu/estimates.py); otherwise they
are sums.

`{quantity}_low` and `{quantity}_high` are the ends of a 90 % confidence interval (tools/ncu/estimates.py). The interval
uses Student's t with `freedom` degrees of freedom, so the standard error follows from it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from profzoo.io.columns import NUMBER, Column, interval_ends
from profzoo.tools.ncu import estimates, quantities
from profzoo.tools.ncu import estimates as ncu_estimates
from profzoo.tools.ncu.estimates import GPU_TIME, Estimates, Window, interval_half_width
from profzoo.tools.ncu.quantities import Kind, Quantity
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

Quantities = Mapping[str, Quantity]
# Units of the additive quantities that get an interval when they are estimated.
UNITS_OF_ESTIMATES = ("byte", "flop")
LOW, HIGH, FREEDOM = "_low", "_high", "freedom"


def _estimated_names(known: Quantities) -> list[str]:
    return [name for name, one in known.items() if one.kind is Kind.SUM and one.unit in UNITS_OF_ESTIMATES]


# Quantities of the kernel tables that get an interval when they are estimated.
ESTIMATED = _estimated_names(ncu_estimates.QUANTITIES)
INTERVALS = [*(f"{name}{side}" for name in ESTIMATED for side in (LOW, HIGH)), FREEDOM]
COLUMNS: Mapping[str, Column] = {
    **quantities.COLUMNS,
    **interval_ends(quantities.COLUMNS, *ESTIMATED),
    FREEDOM: Column(
        NUMBER.or_missing, "Degrees of freedom of the intervals (Student's t); empty where every launch was counted.",
        "count"),
}  # fmt: skip
# Columns of quantities that older tables lack.
LATER = [*ncu_estimates.LATER,
         *(f"{name}{side}" for name in ESTIMATED if name in ncu_estimates.LATER for side in (LOW, HIGH))]  # fmt: skip


def mean_counters(
    table: pd.DataFrame, window: Window | None, known: Quantities = ncu_estimates.QUANTITIES
) -> pd.DataFrame:
    """Return one row per configuration of a section set, indexed by KEYS: quantities of its mean launch, and INTERVALS.

    If the set profiled every launch, rows have no multiplicity; the mean is then the mean of the rows, without
    intervals.

    Args:
        table: rows of an ncu.{set}.csv.
        window: all launches of the window; None without a census.
        known: the quantities to derive, by name.
    """
    return _means(table, window, KEYS, known)


def mean_counters_by_range(table: pd.DataFrame, window: Window | None) -> pd.DataFrame:
    """Return the means of mean_counters by KEYS and range; without multiplicities, only ranges that were profiled."""
    return _means(table.assign(range=table["range"].fillna("")), window, [*KEYS, "range"])


def mean_counters_by_group(
    table: pd.DataFrame, launches: pd.DataFrame, by: Sequence[str], known: Quantities = ncu_estimates.QUANTITIES
) -> pd.DataFrame:
    """Return the means of mean_counters by columns of the census.

    A set without multiplicities gives means without intervals if it has every launch, and an empty frame otherwise.
    Quantities of a launch itself, such as its grid, are left out, because a group may hold several configurations.

    Args:
        table: rows of an ncu.{set}.csv.
        launches: all launches of the window (the census), in order.
        by: columns of `launches` to group by; they become the index.
        known: the quantities to derive, by name.
    """
    if is_weighed(table):
        found = _means(table, Window(launches), list(by), known)
    elif len(table) == len(launches):
        ordered = table.sort_values("id", kind="stable").set_axis(launches.index)
        found = _counted(ordered, [launches[name] for name in by], launches[GPU_TIME], known)
    else:
        return pd.DataFrame(index=pd.MultiIndex.from_tuples([], names=list(by)))
    return found.drop(columns=[name for name in found if name in known and known[name].kind is Kind.OF_LAUNCH])


def is_weighed(table: pd.DataFrame) -> bool:
    """Return whether the launches of a section set stand for others, by their multiplicities."""
    return "multiplicity" in table and table["multiplicity"].notna().any()


def _means(
    table: pd.DataFrame, window: Window | None, by: list[str], known: Quantities = ncu_estimates.QUANTITIES
) -> pd.DataFrame:
    """Return quantities of each group's mean launch; estimated for the census if launches have multiplicities."""
    if window is not None and is_weighed(table):
        return _estimated(table[table["launch"].notna()], window, by, known)
    return _counted(table, [table[name] for name in by], None, known)


def _counted(
    table: pd.DataFrame, keys: list[pd.Series], otherwise: pd.Series | None, known: Quantities
) -> pd.DataFrame:
    """Return quantities of each group's mean row; keys: columns to group by; otherwise: times in ns of the rows."""
    values = ncu_estimates.derive_quantities(table, known)
    summed = values[[name for name in values if known[name].kind is Kind.SUM]]
    parts, weights = ncu_estimates.split_into_sums(table, values, _times(table, otherwise), known)
    means = summed.groupby(keys, sort=False).mean()
    ratios = _ratios(*(part.groupby(keys, sort=False).sum() for part in (parts, weights)))
    found = pd.concat([means, ratios], axis=1)[list(values)]
    return found.set_axis(pd.MultiIndex.from_arrays([found.index.get_level_values(key.name) for key in keys]))


def _times(table: pd.DataFrame, otherwise: pd.Series | None) -> pd.Series:
    """Return the time in ns of each row, by which shares of time are weighted.

    It is the set's own time, else the time in `otherwise`, else 1 for every row.
    """
    given = pd.Series(1.0, table.index) if otherwise is None else otherwise.astype("float64")
    return table[GPU_TIME].astype("float64").fillna(given) if GPU_TIME in table else given


def _ratios(parts: pd.DataFrame, weights: pd.DataFrame) -> pd.DataFrame:
    return parts / weights.where(weights > 0)


def _estimated(table: pd.DataFrame, window: Window, by: list[str], known: Quantities) -> pd.DataFrame:
    """Return quantities of each group's mean launch over the window, estimated from the profiled launches."""
    values, places = ncu_estimates.derive_quantities(table, known), table["launch"].to_numpy(dtype=int)
    summed = values[[name for name in values if known[name].kind is Kind.SUM]]
    estimates = Estimates(window, places, summed)
    census = window.launches.assign(range=window.launches["range"].fillna(""))
    groups = census.groupby(by, sort=False, dropna=False).ngroup().to_numpy()
    totals = estimates.totals(groups)
    launches = totals["launches"].where(totals["launches"] > 0)
    found = pd.DataFrame({name: totals[name] / launches for name in summed}, index=totals.index)
    held = [name for name in _estimated_names(known) if name in summed]
    found[FREEDOM] = totals[[f"{name}_freedom" for name in held]].min(axis=1) if held else np.nan
    for name in held:
        wide = interval_half_width((totals[f"{name}_se"] / launches).to_numpy(), found[FREEDOM].to_numpy())
        found[f"{name}{LOW}"], found[f"{name}{HIGH}"] = (found[name] - wide).clip(lower=0), found[name] + wide
    of_census = pd.Series(window.launches[GPU_TIME].to_numpy()[places], table.index)
    parts, weights = ncu_estimates.split_into_sums(table, values, _times(table, of_census), known)
    found = found.join(_ratios(*(estimates.sums(part, groups) for part in (parts, weights))))
    # Groups are numbered in the order of their first launches.
    found.index = pd.MultiIndex.from_frame(census.drop_duplicates(by)[by])
    return found[launches.notna().to_numpy()]


def standard_errors(table: pd.DataFrame, name: str) -> pd.Series:
    """Return the standard error of a quantity in each row of a table, from its interval; missing without one."""
    known = table.reindex(columns=[name, f"{name}{HIGH}", FREEDOM]).astype("float64")
    one = interval_half_width(np.ones(len(known)), known[FREEDOM].to_numpy())
    return (known[f"{name}{HIGH}"] - known[name]) / one


def freedom_of_sums(variances: pd.DataFrame, freedom: pd.Series, groups: list[pd.Series]) -> pd.Series:
    """Return per group the degrees of freedom of the sum of its variances (Satterthwaite 1946).

    Args:
        variances: one row per estimate, one column per quantity; the fewest degrees of any column count.
        freedom: degrees of freedom of each row.
        groups: columns to group by.
    """
    squares = variances.pow(2).div(freedom, axis=0).groupby(groups, sort=False, dropna=False).sum()
    sums = variances.groupby(groups, sort=False, dropna=False).sum()
    return (sums.pow(2) / squares.where(squares > 0)).min(axis=1)


# Estimates sums and mean rates of counters over groups of launches, with the errors by which two runs are compared.
#
# Every value gets a standard error, also where ncu profiled all launches: the bytes of one launch vary from run to run
# (tools/ncu/estimates.py). The error of a rate, such as a hit rate, follows from those of its numerator and
# denominator, taken as independent (delta method; Cochran, Sampling Techniques, 1977, 6.3). Both vary together, so it
# is rather too large than too small.

ERROR, GROUP_FREEDOM, COUNTED = "_error", "_freedom", "counted"
# Standard deviation of one launch between runs of the same program on one machine, relative, beyond what estimates.py
# assumes of all counters. Measured on launches of MobileNetV2's training and U-Net's inference that two runs counted
# (tests/data/launches/twice.csv.gz); those of BERT, which were not looked at, vary by less.
RUN_TO_RUN: Mapping[str, float] = {"l2_bytes": 0.01}
# Numerators of rates vary between launches as DRAM bytes do, by which their names choose the guess (estimates.py).
_PART, _WEIGHT = "dram part of ", "dram weight of "


class GroupEstimates:
    """Estimates of a section set's quantities, for any groups of the window's launches."""

    def __init__(self, table: pd.DataFrame, window: Window, known: Quantities) -> None:
        """Derive the quantities of the profiled launches.

        Args:
            table: rows of an ncu.{set}.csv.
            window: all launches of the window.
            known: the quantities, by name.
        """
        self.window = window
        rows, places = _sampled(table, window.launches)
        self.places = places
        values = estimates.derive_quantities(rows, known)
        # Metrics without a value in some launches would leave their whole group without one.
        values = values[[name for name in values if values[name].notna().all()]]
        times = rows[GPU_TIME] if GPU_TIME in rows else pd.Series(np.nan, rows.index)
        of_census = pd.Series(window.launches[GPU_TIME].to_numpy(dtype=float)[places], rows.index)
        parts, weights = estimates.split_into_sums(rows, values, times.astype("float64").fillna(of_census), known)
        self.summed = values[[name for name in values if known[name].kind is Kind.SUM]].astype("float64")
        self.rates = list(parts)
        self.sums = self.summed.join(parts.add_prefix(_PART)).join(weights.add_prefix(_WEIGHT))
        # A set without multiplicities and without every launch estimates nothing.
        self.estimates = None if rows.empty or values.empty else Estimates(window, places, self.sums)
        self.whole = len(rows) == len(window.launches)

    def by(self, columns: Sequence[str]) -> pd.DataFrame:
        """Return one row per group of launches, indexed by the columns of the census that define the groups.

        Columns: `launches`; COUNTED, those that profiled launches stand for; and for each quantity that was collected
        its sum, or its mean if it is a rate, with its standard error (`_error`) and degrees of freedom (`_freedom`).
        There are no rows if the set has neither multiplicities nor every launch.
        """
        if self.estimates is None:
            return pd.DataFrame(index=pd.MultiIndex.from_tuples([], names=list(columns)))
        keys = self.window.launches[list(columns)].astype("object").fillna("")
        groups = keys.groupby(list(columns), sort=False).ngroup().to_numpy()
        totals = self.estimates.totals(groups)
        if self.whole:
            # What each launch did is known then, so that launches do not stand for others like them.
            own = self.sums.groupby(groups[self.places]).sum()
            totals = totals.assign(**{name: own[name] for name in own}, launches=np.bincount(groups))
        found = pd.DataFrame({"launches": np.bincount(groups), COUNTED: totals["launches"]})
        squares = self.estimates.sums(self.summed**2, groups)
        for name in self.summed:
            between = RUN_TO_RUN.get(name, 0.0) * squares[name] ** 0.5
            found[name], found[f"{name}{ERROR}"] = totals[name], np.hypot(totals[f"{name}_se"], between)
            found[f"{name}{GROUP_FREEDOM}"] = totals[f"{name}_freedom"]
        for name in self.rates:
            found = found.join(_rates(totals, name))
        found.index = pd.MultiIndex.from_frame(keys.drop_duplicates())
        return found


def _sampled(table: pd.DataFrame, launches: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the profiled rows and their positions in the census; no rows if those are unknown."""
    if is_weighed(table):
        rows = table[table["launch"].notna()]
        return rows, rows["launch"].to_numpy(dtype=int)
    if len(table) == len(launches):
        return table.sort_values("id", kind="stable"), np.arange(len(launches))
    return table.iloc[:0], np.arange(0)


def _rates(totals: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return mean, error and degrees of freedom of a rate, from the sums of its numerator and denominator."""
    part, weight = totals[f"{_PART}{name}"], totals[f"{_WEIGHT}{name}"]
    errors = [totals[f"{prefix}{name}_se"] for prefix in (_PART, _WEIGHT)]
    rate = part / weight.where(weight > 0)
    relative = np.hypot(errors[0] / part.where(part > 0), errors[1] / weight.where(weight > 0))
    freedom = totals[[f"{prefix}{name}_freedom" for prefix in (_PART, _WEIGHT)]].min(axis=1)
    return pd.DataFrame(
        {name: rate, f"{name}{ERROR}": (rate * relative).fillna(0.0), f"{name}{GROUP_FREEDOM}": freedom}
    )
