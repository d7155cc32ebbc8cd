"""Joins a step's launches under several tools into one table: owners of torch, times of nsys, counters of ncu."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from profzoo.kernels import counters
from profzoo.launches import step_joining
from profzoo.launches.cross_tool import GRID
from profzoo.range_names import STEP
from profzoo.tools.ncu import derived_metrics
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.raw_page import CONFIGURATION, function_name
from profzoo.tools.ncu.strata import Window

OWNER = ["operator", "shapes", "caller", "module", "type", "direction"]
GROUPS = [*OWNER, "kernel", "function", *CONFIGURATION]
MEASURED = ["launches", "total_ns", "mean_ns"]
# Stands in for the module of a launch that torch's steps have no like of.
UNALIGNED = "(unaligned)"
KERNEL = "kernel"


@dataclass(frozen=True)
class Joined:
    """Launches of so many steps with OWNER, names, CONFIGURATION, `range`, `launch` (the place) and times in ns.

    `ns` is nsys', which disturbs least, and where that has no like of the launch, of the tool that has the step.
    sets: what ncu counted, of which the first that holds a quantity counts.
    """

    launches: pd.DataFrame
    steps: int
    sets: Sequence[pd.DataFrame] = field(default_factory=list)

    def of(self, launches: pd.DataFrame) -> "Joined":
        """The same of launches that are told apart in another way."""
        return replace(self, launches=launches)


def join_ncu_launches(
    census: pd.DataFrame, steps: int, sets: Sequence[pd.DataFrame], owners: pd.DataFrame, nsys: pd.DataFrame | None
) -> Joined:
    """The launches of ncu's window.

    Args:
        census: all of them, in order; steps: that these are of; sets: rows of the cell's ncu.{set}.csv. owners: rows of
            the cell's torch.launches.csv. nsys: launches by step, of tools.nsys.launches_by_step; None without one.
    """
    return Joined(_joined(census, steps, owners, nsys), steps, sets)


def join_nsys_launches(nsys: pd.DataFrame, owners: pd.DataFrame) -> Joined:
    """Join the launches of one step of nsys, the first with the usual number of launches; times are means over steps.

    nsys, owners: as for join_ncu_launches.
    """
    sizes = nsys.groupby(["process", "step"], sort=False).size()
    rows = nsys.set_index(["process", "step"]).sort_index().loc[[sizes[sizes == sizes.mode()[0]].index[0]]]
    typical = rows.reset_index(drop=True)
    return Joined(_joined(typical.assign(**{GPU_TIME: typical["ns"]}), 1, owners, nsys), 1)


def _joined(step: pd.DataFrame, steps: int, owners: pd.DataFrame, nsys: pd.DataFrame | None) -> pd.DataFrame:
    kernels = owners[(owners["kind"] == KERNEL) & owners[STEP].notna()]
    traced = None if nsys is None else _repeated(nsys, steps)
    table = step_joining.join_launches(step, _repeated(kernels, steps), OWNER, traced)
    nowhere = table["module"].isna()
    found = table.assign(**{name: table[name].astype("object") for name in OWNER})
    found.loc[nowhere, OWNER] = ""
    found.loc[nowhere, "module"] = UNALIGNED
    found.loc[nowhere, "direction"] = found.loc[nowhere, "range"].fillna("")
    return found


def _repeated(launches: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Each step's launches so many times one after the other, as a window of ncu's has them."""
    if steps == 1:
        return launches.reset_index(drop=True)
    by = [name for name in ("process", STEP) if name in launches]
    return pd.concat([own for _, rows in launches.groupby(by, sort=False) for own in [rows] * steps], ignore_index=True)


def select_copies(owners: pd.DataFrame) -> pd.DataFrame:
    """The launches of torch that are no kernels, which ncu does not see."""
    return owners[owners["kind"] != KERNEL]


def totals(joined: Joined, by: Sequence[str]) -> pd.DataFrame:
    """Return one row per group of launches, per step: MEASURED, and quantities of the mean launch with intervals."""
    found = step_joining.totals(joined.launches, by, joined.sets)
    found["mean_ns"] = found["total_ns"] / found["launches"]
    found[["launches", "total_ns"]] /= joined.steps
    return found.reindex(columns=[*by, *MEASURED, *derived_metrics.QUANTITIES, *counters.INTERVALS])


def kernels(joined: Joined) -> pd.DataFrame:
    """The same by GROUPS; what is of a launch itself, or not known of the group, is that of the configuration."""
    found = totals(joined, GROUPS)
    window = Window(joined.launches) if joined.sets else None
    for counted in joined.sets:
        alike = counters.mean_counters(counted, window)
        rates = alike[
            [name for name in alike if name in derived_metrics.QUANTITIES and name not in derived_metrics.ADDITIVE]
        ]
        found = found.fillna(found[CONFIGURATION].join(rates, on=CONFIGURATION)[list(rates)])
    return found


def sum_torch_launches(owners: pd.DataFrame, steps: int) -> pd.DataFrame:
    """The same of OWNER, kernel and configuration, by what torch alone saw, which names no function and no counters.

    owners: rows of the table of owners; steps: that these are of.
    """
    kernels = owners[owners["kind"] == KERNEL].rename(columns={"name": "kernel"})
    grouped = kernels.groupby([*OWNER, "kernel", *GRID], sort=False, dropna=False, observed=True)["ns"]
    found = grouped.agg(launches="size", total_ns="sum").reset_index()
    found["mean_ns"] = found["total_ns"] / found["launches"]
    found[["launches", "total_ns"]] = found[["launches", "total_ns"]] / steps
    found = found.assign(mangled="", function=[function_name(name) for name in found["kernel"]])
    return found.reindex(columns=[*GROUPS, *MEASURED, *derived_metrics.QUANTITIES, *counters.INTERVALS])
