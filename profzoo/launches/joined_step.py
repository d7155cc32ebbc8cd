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
# The `module` of launches without a match in torch's steps.
UNALIGNED = "(unaligned)"
KERNEL = "kernel"


@dataclass(frozen=True)
class Joined:
    """Launches of one or several steps with their owners, names, launch configurations and times.

    Attributes:
        launches: one row per launch, with OWNER, the kernel's names, CONFIGURATION, `range`, `launch` (the position in
            the window) and times in ns. `ns` is the time under nsys, which slows kernels least. If nsys has no match,
            it is the time of the tool that recorded the step.
        steps: number of steps that the rows cover.
        sets: rows of the cell's ncu.{set}.csv, one frame per section set. If several hold a quantity, the first counts.
    """

    launches: pd.DataFrame
    steps: int
    sets: Sequence[pd.DataFrame] = field(default_factory=list)

    def of(self, launches: pd.DataFrame) -> "Joined":
        """Return the same steps and counters with another frame of launches."""
        return replace(self, launches=launches)


def join_ncu_launches(
    census: pd.DataFrame, steps: int, sets: Sequence[pd.DataFrame], owners: pd.DataFrame, nsys: pd.DataFrame | None
) -> Joined:
    """Join the launches of ncu's window with owners and times.

    Args:
        census: all launches of the window, in order: rows of the cell's ncu.launch.csv.
        steps: number of steps in the window.
        sets: rows of the cell's ncu.{set}.csv, one frame per section set.
        owners: rows of the cell's torch.launches.csv.
        nsys: launches by step, from tools.nsys.launches_by_step; None without an nsys report.
    """
    return Joined(_joined(census, steps, owners, nsys), steps, sets)


def join_nsys_launches(nsys: pd.DataFrame, owners: pd.DataFrame) -> Joined:
    """Join the launches of one step of nsys with owners; times are means over all steps.

    The step is the first with the most frequent number of launches.

    Args:
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
    """Repeat each step's launches `steps` times in a row, to match a window of so many steps under ncu."""
    if steps == 1:
        return launches.reset_index(drop=True)
    by = [name for name in ("process", STEP) if name in launches]
    return pd.concat([own for _, rows in launches.groupby(by, sort=False) for own in [rows] * steps], ignore_index=True)


def select_copies(owners: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of torch's launches that are copies and fills; ncu does not record these."""
    return owners[owners["kind"] != KERNEL]


def totals(joined: Joined, by: Sequence[str]) -> pd.DataFrame:
    """Return one row per group of launches, with values per step.

    Columns: those in `by`; MEASURED (`launches` and `total_ns` per step, `mean_ns` per launch); and the quantities of
    the group's mean launch under ncu with their intervals.
    """
    found = step_joining.totals(joined.launches, by, joined.sets)
    found["mean_ns"] = found["total_ns"] / found["launches"]
    found[["launches", "total_ns"]] /= joined.steps
    return found.reindex(columns=[*by, *MEASURED, *derived_metrics.QUANTITIES, *counters.INTERVALS])


def kernels(joined: Joined) -> pd.DataFrame:
    """Return the totals by GROUPS.

    If a rate is unknown for a group, it is filled in from all launches of the same configuration.
    """
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
    """Return the totals by owner, kernel, grid and block from torch's launches alone, without counters of ncu.

    Torch reports demangled names only: `mangled` is empty, and `function` is derived from `kernel`.

    Args:
        owners: rows of the cell's torch.launches.csv.
        steps: number of steps that the rows cover.
    """
    kernels = owners[owners["kind"] == KERNEL].rename(columns={"name": "kernel"})
    grouped = kernels.groupby([*OWNER, "kernel", *GRID], sort=False, dropna=False, observed=True)["ns"]
    found = grouped.agg(launches="size", total_ns="sum").reset_index()
    found["mean_ns"] = found["total_ns"] / found["launches"]
    found[["launches", "total_ns"]] = found[["launches", "total_ns"]] / steps
    found = found.assign(mangled="", function=[function_name(name) for name in found["kernel"]])
    return found.reindex(columns=[*GROUPS, *MEASURED, *derived_metrics.QUANTITIES, *counters.INTERVALS])
