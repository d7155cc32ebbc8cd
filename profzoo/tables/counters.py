"""What a section set counted, of the mean launch of each configuration and range, with intervals of what is estimated.

`{quantity}_low` and `{quantity}_high` hold the truth nine times in ten, as tools/ncu/estimates.py says, by Student's t
of `freedom` degrees, so that standard errors follow from them.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profzoo.tools.ncu import metrics
from profzoo.tools.ncu.estimates import Estimates, half_width
from profzoo.tools.ncu.metrics import GPU_TIME
from profzoo.tools.ncu.strata import Window
from profzoo.tools.ncu.tables import CONFIGURATION as KEYS

# What is estimated of all launches; their times under ncu are all known.
ESTIMATED = [name for name in metrics.ADDITIVE if name != "ncu_ns"]
LOW, HIGH, FREEDOM = "_low", "_high", "freedom"
INTERVALS = [*(f"{name}{side}" for name in ESTIMATED for side in (LOW, HIGH)), FREEDOM]


def of_configurations(table: pd.DataFrame, window: Window | None) -> pd.DataFrame:
    """A row a configuration that a section set saw, by KEYS: the quantities of its mean launch, and INTERVALS.

    table: rows of an ncu.{set}.csv; window: of all launches. Without weights, as in a set that has every launch, the
    mean is that of the rows, and intervals are empty.
    """
    values = metrics.derive(table)
    if window is None or not _weighed(table):
        return pd.concat([table[KEYS], values], axis=1).groupby(KEYS, sort=False).mean()
    known = table["launch"].notna()
    table, values = table[known], values[known]
    found = _estimated(table, values, window, KEYS)
    # A percentage is of the time that a launch takes.
    times = table["weight"].to_numpy() * window.launches[GPU_TIME].to_numpy()[table["launch"].to_numpy(dtype=int)]
    rates = [name for name in values if name not in metrics.ADDITIVE]
    weighed = values[rates].mul(times, axis=0)
    keys = [table[name] for name in KEYS]
    sums = weighed.groupby(keys, sort=False).sum(min_count=1)
    shares = values[rates].notna().mul(times, axis=0).groupby(keys, sort=False).sum()
    return found.join(sums / shares)


def of_ranges(table: pd.DataFrame, window: Window | None) -> pd.DataFrame:
    """The same of what adds up, by KEYS and range; empty where a set has no weights."""
    if window is None or not _weighed(table):
        return pd.DataFrame(index=pd.MultiIndex.from_tuples([], names=[*KEYS, "range"]))
    known = table["launch"].notna()
    return _estimated(table[known], metrics.derive(table[known]), window, [*KEYS, "range"])


def of_groups(table: pd.DataFrame, launches: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The same of what adds up, by these columns of the launches, which are all of the census, in order.

    Of a set without weights it is what was counted of each launch, without intervals, where it has all, else nothing.
    """
    if not _weighed(table) and len(table) == len(launches):
        values = metrics.derive(table.sort_values("id", kind="stable"))
        summed = values[[name for name in values if name in metrics.ADDITIVE]].set_axis(launches.index)
        found = summed.groupby([launches[name] for name in by], sort=False).mean()
        return found.set_axis(pd.MultiIndex.from_arrays([found.index.get_level_values(name) for name in by]))
    if not _weighed(table):
        return pd.DataFrame(index=pd.MultiIndex.from_tuples([], names=list(by)))
    known = table["launch"].notna()
    return _estimated(table[known], metrics.derive(table[known]), Window(launches), list(by))


def _weighed(table: pd.DataFrame) -> bool:
    return "weight" in table and table["weight"].notna().any()


def _estimated(table: pd.DataFrame, values: pd.DataFrame, window: Window, by: list[str]) -> pd.DataFrame:
    """What adds up, of the mean launch of each group of launches by these columns of the census."""
    summed = values[[name for name in values if name in metrics.ADDITIVE]]
    estimates = Estimates(window, table["launch"].to_numpy(dtype=int), summed)
    census = window.launches.assign(range=window.launches["range"].fillna(""))
    groups = census.groupby(by, sort=False, dropna=False)
    totals = estimates.totals(groups.ngroup().to_numpy())
    launches = totals["launches"].where(totals["launches"] > 0)
    found = pd.DataFrame({name: totals[name] / launches for name in summed})
    found[FREEDOM] = totals[[f"{name}_freedom" for name in summed]].min(axis=1) if len(summed.columns) else np.nan
    for name in summed:
        if name in ESTIMATED:
            wide = half_width((totals[f"{name}_se"] / launches).to_numpy(), found[FREEDOM].to_numpy())
            found[f"{name}{LOW}"], found[f"{name}{HIGH}"] = (found[name] - wide).clip(lower=0), found[name] + wide
    # Groups are numbered in the order of their first launches.
    found.index = pd.MultiIndex.from_frame(census.drop_duplicates(by)[by])
    return found[launches.notna().to_numpy()]


def errors(table: pd.DataFrame, name: str) -> pd.Series:
    """The standard errors that the intervals of a quantity follow from, one column of a table; empty without any."""
    known = table.reindex(columns=[name, f"{name}{HIGH}", FREEDOM]).astype("float64")
    one = half_width(np.ones(len(known)), known[FREEDOM].to_numpy())
    return (known[f"{name}{HIGH}"] - known[name]) / one


def freedom_of_sums(variances: pd.DataFrame, freedom: pd.Series, groups: list[pd.Series]) -> pd.Series:
    """Degrees of freedom of sums of variances over groups of rows, the fewest of any column (Satterthwaite 1946)."""
    squares = variances.pow(2).div(freedom, axis=0).groupby(groups, sort=False, dropna=False).sum()
    sums = variances.groupby(groups, sort=False, dropna=False).sum()
    return (sums.pow(2) / squares.where(squares > 0)).min(axis=1)
