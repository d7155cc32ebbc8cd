"""Makes a cell's table of occupancy: theoretical and achieved, what limits it, and what fewer resources would give."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.kernels import counters
from profzoo.tables import counter_dictionary
from profzoo.tools.ncu import occupancy
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.occupancy import Resources
from profzoo.tools.ncu.quantities import QUANTITIES
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.strata import Window

# The column of this table for each of ncu's metrics of a launch, all of which a row needs.
METRICS = {
    "threads": "launch__block_size",
    "registers": "launch__registers_per_thread",
    "shared_bytes": "launch__shared_mem_per_block_allocated",
    "reserved_bytes": "launch__shared_mem_per_block_driver",
    "capacity_bytes": "launch__shared_mem_config_size",
    "limit_registers": "launch__occupancy_limit_registers",
    "limit_shared": "launch__occupancy_limit_shared_mem",
    "limit_warps": "launch__occupancy_limit_warps",
    "limit_blocks": "launch__occupancy_limit_blocks",
    "theoretical_pct": "sm__maximum_warps_per_active_cycle_pct",
}
# Reports of earlier versions of ncu lack it; no kernel is then taken to be limited by barriers.
BARRIERS = "launch__occupancy_limit_barriers"
WARPS = "sm__maximum_warps_avg_per_active_cycle"
WAVES = "launch__waves_per_multiprocessor"
LIMITS = [name for name in METRICS if name.startswith("limit_")]
NAMES = ["class", "kernel", "function"]
CHANGES = {
    "registers_next": "registers_next_pct",
    "shared_next_bytes": "shared_next_pct",
    "threads_best": "threads_best_pct",
}
COLUMNS = [
    *NAMES, *KEYS, "launches", "total_ns", *METRICS, "limit_barriers", "computed_pct", "limiter", "achieved_pct",
    "waves",
    *(name for change in CHANGES.items() for name in change),
]  # fmt: skip
TEXTS = (*NAMES, "mangled", "limiter")
TABLE = Table(
    columns={
        name: column_types.TEXT if name in TEXTS else column_types.or_missing(column_types.AMOUNT) for name in COLUMNS
    }
    | dict.fromkeys([key for key in KEYS if key != "mangled"], column_types.or_missing(column_types.COUNT)),
    key=KEYS,
    about=counter_dictionary.OCCUPANCY,
)
# Percentages of ncu have two digits behind the point.
ROUNDING = 0.011


def make_occupancy(
    sets: Sequence[pd.DataFrame], census: pd.DataFrame | None, classes: Mapping[str, str], steps: float
) -> pd.DataFrame:
    """Return COLUMNS, one row per launch configuration, longest first; none without ncu's metrics of occupancy.

    Args:
        sets: rows of the cell's ncu.{set}.csv; of several, the first that has a value counts.
        census: all launches of the window; None if the sets hold all launches.
        classes: class of each kernel, by its name.
        steps: number of steps in the window.
    """
    known = [table for table in sets if {*METRICS.values()} <= {*table.columns}]
    if not known:
        return TABLE.empty()
    rows = known[0].groupby(KEYS, sort=False).first()
    for table in known[1:]:
        rows = rows.combine_first(table.groupby(KEYS, sort=False).first())
    every = known[0] if census is None else census
    counted = every.groupby(KEYS, sort=False).agg(launches=("kernel", "size"))
    counted["total_ns"] = every.groupby(KEYS, sort=False)[GPU_TIME].sum() if GPU_TIME in every else np.nan
    found = pd.DataFrame({name: rows[metric] for name, metric in METRICS.items()}, rows.index)
    found["limit_barriers"] = rows[BARRIERS] if BARRIERS in rows else rows[METRICS["limit_blocks"]]
    found["waves"] = rows.get(WAVES, np.nan)
    found["most_warps"] = _most_warps(rows)
    found["achieved_pct"] = _achieved(sets, census).reindex(found.index)
    found[["launches", "total_ns"]] = counted.reindex(found.index) / steps
    found[["kernel", "function"]] = rows[["kernel", "function"]]
    found["class"] = found["kernel"].map(classes)
    found = found[found[list(METRICS)].notna().all(axis=1) & found["launches"].notna()].reset_index()
    told = pd.DataFrame([_describe(row) for row in found.to_dict("records")], index=found.index)
    ordered = pd.concat([found, told], axis=1).sort_values(["total_ns", "mangled"], ascending=[False, True])
    return ordered.reindex(columns=COLUMNS).reset_index(drop=True)


def count_disagreements(table: pd.DataFrame) -> int:
    """Return the number of launch configurations for which ncu has another theoretical occupancy than computed."""
    return int(((table["theoretical_pct"] - table["computed_pct"]).abs() > ROUNDING).sum())


def _most_warps(rows: pd.DataFrame) -> pd.Series:
    """Return the warps that an SM can hold; ncu prints warps of a launch, and their share of these."""
    share = rows[METRICS["theoretical_pct"]].astype("float64") / 100
    warps = rows[WARPS].astype("float64") if WARPS in rows else pd.Series(np.nan, rows.index)
    return (warps / share.where(share > 0)).round()


def _achieved(sets: Sequence[pd.DataFrame], census: pd.DataFrame | None) -> pd.Series:
    """Return the achieved occupancy in % of each launch configuration's mean launch."""
    window, one = None if census is None else Window(census), {"occupancy_pct": QUANTITIES["occupancy_pct"]}
    means = [counters.mean_counters(table, window, one) for table in sets]
    known = [frame["occupancy_pct"] for frame in means if "occupancy_pct" in frame]
    return pd.concat(known).groupby(level=KEYS, sort=False).first() if known else pd.Series(dtype="float64")


def _describe(row: Mapping[str, float]) -> dict[str, float | str]:
    """Return what the calculation says of a row: occupancy, limiter, and what changes would give.

    If ncu has another theoretical occupancy, as where blocks form clusters, only ncu's value is known.
    """
    if np.isnan(row["most_warps"]):
        return {"computed_pct": np.nan, "limiter": ""}
    numbers = (row[name] for name in ("threads", "registers", "shared_bytes", "reserved_bytes", "capacity_bytes",
                                      "most_warps", "limit_blocks", "limit_barriers"))  # fmt: skip
    given = Resources(*(int(number) for number in numbers))
    computed = occupancy.occupancy_pct(given)
    if abs(computed - row["theoretical_pct"]) > ROUNDING:
        return {"computed_pct": computed, "limiter": ""}
    found: dict[str, float | str] = {"computed_pct": computed, "limiter": occupancy.name_limiters(given)}
    changed = (
        occupancy.apply_change(given, "registers", occupancy.next_registers(given)),
        occupancy.apply_change(given, "shared_bytes", occupancy.next_shared_bytes(given)),
        occupancy.apply_change(given, "threads", occupancy.best_threads(given)),
    )
    for (change, percent), result in zip(CHANGES.items(), changed, strict=True):
        found[change], found[percent] = result or (np.nan, np.nan)
    return found
