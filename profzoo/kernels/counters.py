"""Computes the counters of the mean launch by configuration and range, with intervals where they are estimated.

Every mean is a total over the launches of a group by another: what adds up by their number, a ratio by what it is
relative to, a part of the time by time, as tools/ncu/derived_metrics.py says of each quantity. Where some launches were
profiled, totals are what these say of all (tools/ncu/estimates.py); where all were, they are sums.

`{quantity}_low` and `{quantity}_high` hold the truth nine times in ten, as tools/ncu/estimates.py says, by Student's t
of `freedom` degrees, so that standard errors follow from them.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profzoo.tools.ncu import derived_metrics
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.estimates import Estimates, interval_half_width
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window

# What is estimated with an interval.
ESTIMATED = [name for name in derived_metrics.ADDITIVE if derived_metrics.QUANTITIES[name].unit in ("byte", "flop")]
LOW, HIGH, FREEDOM = "_low", "_high", "freedom"
INTERVALS = [*(f"{name}{side}" for name in ESTIMATED for side in (LOW, HIGH)), FREEDOM]


def mean_counters(table: pd.DataFrame, window: Window | None) -> pd.DataFrame:
    """Return one row per configuration of a section set, by KEYS: quantities of its mean launch, and INTERVALS.

    table: rows of an ncu.{set}.csv; window: of all launches. Without weights, as in a set that has every launch, the
    mean is that of the rows, and intervals are empty.
    """
    return _means(table, window, KEYS)


def mean_counters_by_range(table: pd.DataFrame, window: Window | None) -> pd.DataFrame:
    """Return the same by KEYS and range; without multiplicities, only ranges that the set profiled."""
    return _means(table.assign(range=table["range"].fillna("")), window, [*KEYS, "range"])


def mean_counters_by_group(table: pd.DataFrame, launches: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the same by these columns of the launches, which are the whole census, in order.

    Of a set without weights it is what was counted of each launch, without intervals, where it has all, else nothing.
    What is of the launch itself is left out, as groups may hold several configurations.
    """
    if _weighed(table):
        found = _means(table, Window(launches), list(by))
    elif len(table) == len(launches):
        ordered = table.sort_values("id", kind="stable").set_axis(launches.index)
        found = _counted(ordered, [launches[name] for name in by], launches[GPU_TIME])
    else:
        return pd.DataFrame(index=pd.MultiIndex.from_tuples([], names=list(by)))
    return found.drop(columns=derived_metrics.OF_LAUNCH, errors="ignore")


def _weighed(table: pd.DataFrame) -> bool:
    return "multiplicity" in table and table["multiplicity"].notna().any()


def _means(table: pd.DataFrame, window: Window | None, by: list[str]) -> pd.DataFrame:
    """Return quantities of each group's mean launch, over the census where launches have multiplicities."""
    if window is not None and _weighed(table):
        return _estimated(table[table["launch"].notna()], window, by)
    return _counted(table, [table[name] for name in by], None)


def _counted(table: pd.DataFrame, keys: list[pd.Series], otherwise: pd.Series | None) -> pd.DataFrame:
    """Return the same over the rows themselves, by these keys; otherwise: their times where the set has none."""
    values = derived_metrics.derive_quantities(table)
    summed = values[[name for name in values if name in derived_metrics.ADDITIVE]]
    parts, weights = derived_metrics.split_into_sums(table, values, _times(table, otherwise))
    means = summed.groupby(keys, sort=False).mean()
    ratios = _ratios(*(part.groupby(keys, sort=False).sum() for part in (parts, weights)))
    found = pd.concat([means, ratios], axis=1)[list(values)]
    return found.set_axis(pd.MultiIndex.from_arrays([found.index.get_level_values(key.name) for key in keys]))


def _times(table: pd.DataFrame, otherwise: pd.Series | None) -> pd.Series:
    """Return the time of each row, the weight of shares of time: the set's own, else these, else all equal."""
    given = pd.Series(1.0, table.index) if otherwise is None else otherwise.astype("float64")
    return table[GPU_TIME].astype("float64").fillna(given) if GPU_TIME in table else given


def _ratios(parts: pd.DataFrame, weights: pd.DataFrame) -> pd.DataFrame:
    return parts / weights.where(weights > 0)


def _estimated(table: pd.DataFrame, window: Window, by: list[str]) -> pd.DataFrame:
    """Return the same over all launches of the window, estimated from the profiled launches and the census."""
    values, places = derived_metrics.derive_quantities(table), table["launch"].to_numpy(dtype=int)
    summed = values[[name for name in values if name in derived_metrics.ADDITIVE]]
    estimates = Estimates(window, places, summed)
    census = window.launches.assign(range=window.launches["range"].fillna(""))
    groups = census.groupby(by, sort=False, dropna=False).ngroup().to_numpy()
    totals = estimates.totals(groups)
    launches = totals["launches"].where(totals["launches"] > 0)
    found = pd.DataFrame({name: totals[name] / launches for name in summed}, index=totals.index)
    held = [name for name in summed if name in ESTIMATED]
    found[FREEDOM] = totals[[f"{name}_freedom" for name in held]].min(axis=1) if held else np.nan
    for name in held:
        wide = interval_half_width((totals[f"{name}_se"] / launches).to_numpy(), found[FREEDOM].to_numpy())
        found[f"{name}{LOW}"], found[f"{name}{HIGH}"] = (found[name] - wide).clip(lower=0), found[name] + wide
    of_census = pd.Series(window.launches[GPU_TIME].to_numpy()[places], table.index)
    parts, weights = derived_metrics.split_into_sums(table, values, _times(table, of_census))
    found = found.join(_ratios(*(estimates.sums(part, groups) for part in (parts, weights))))
    # Groups are numbered in the order of their first launches.
    found.index = pd.MultiIndex.from_frame(census.drop_duplicates(by)[by])
    return found[launches.notna().to_numpy()]


def standard_errors(table: pd.DataFrame, name: str) -> pd.Series:
    """Return the standard errors behind a quantity's interval, one column of a table; empty without any."""
    known = table.reindex(columns=[name, f"{name}{HIGH}", FREEDOM]).astype("float64")
    one = interval_half_width(np.ones(len(known)), known[FREEDOM].to_numpy())
    return (known[f"{name}{HIGH}"] - known[name]) / one


def freedom_of_sums(variances: pd.DataFrame, freedom: pd.Series, groups: list[pd.Series]) -> pd.Series:
    """Return the degrees of freedom of sums of variances by group, the fewest of any column (Satterthwaite 1946)."""
    squares = variances.pow(2).div(freedom, axis=0).groupby(groups, sort=False, dropna=False).sum()
    sums = variances.groupby(groups, sort=False, dropna=False).sum()
    return (sums.pow(2) / squares.where(squares > 0)).min(axis=1)
