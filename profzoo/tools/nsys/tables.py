"""Makes the table of an nsys export: one row per launch configuration and range."""

from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.common_columns import STEP_COUNTS
from profzoo.io.csv_tables import Table
from profzoo.range_names import LAUNCHING
from profzoo.tools.nsys import dictionary
from profzoo.tools.nsys import launches as nsys_launches
from profzoo.tools.nsys.launches import CONFIGURATION, PACKS
from profzoo.tools.nsys.step_counts import count_steps
from profzoo.tools.nsys.trace import open_export, read_ranges, read_window_steps

STATISTICS = ["launches", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns", "std_ns", "share"]
NAMES = ["kernel", "mangled", "function", "range"]
COLUMNS = [*NAMES, *CONFIGURATION, *STATISTICS]
# The range of launches outside the steps of the window, in the trace of a whole run.
OUTSIDE = "outside"
GRAPH = "CUDA graph"
# Error of sums of shares that rounding may cause.
ROUNDING = 1e-6


def _whole(table: pd.DataFrame) -> str | None:
    """Explain why a table is damaged (rows missing, or numbers changed), or return None."""
    shares, total = table["share"].dropna(), table.loc[table["share"].notna(), "total_ns"]
    if len(shares) and (abs(shares.sum() - 1) > ROUNDING or (shares - total / total.sum()).abs().gt(ROUNDING).any()):
        return f"shares of GPU time, which add up to {shares.sum():.6f}, are not those of total_ns: rows are missing"
    return None


TABLE = Table(
    columns={
        **dict.fromkeys(NAMES, column_types.TEXT),
        **dict.fromkeys([*CONFIGURATION, "launches", "total_ns"], column_types.COUNT),
        **dict.fromkeys(["mean_ns", "median_ns", "min_ns", "max_ns", "std_ns"], column_types.AMOUNT),
        # Of a summary that was made elsewhere, these may not be known.
        **dict.fromkeys(["median_ns", "std_ns"], column_types.or_missing(column_types.AMOUNT)),
        # Launches outside the window's steps have none.
        "share": column_types.or_missing(column_types.AMOUNT),
    },
    optional=dict.fromkeys(STEP_COUNTS, column_types.or_missing(column_types.COUNT)),
    key=["kernel", "mangled", "range", *CONFIGURATION],
    holds=_whole,
    ranges=dict.fromkeys(["mean_ns", "median_ns"], ("min_ns", "max_ns")),
    about=dictionary.LAUNCHES,
)


def summarise(path: str | Path, whole_run: bool = False) -> pd.DataFrame:
    """Return one row per launch configuration and range of an export, the largest total first; no row without launches.

    A launch belongs to the range that was open on any thread when it was launched, because autograd launches the
    backward pass from another thread. Times are GPU durations in ns; `std_ns` is their population standard deviation.
    `share` is relative to the GPU time of all launches.

    A CUDA graph that was traced as a whole counts as one launch. It is named by its number, and its grid and block are
    0. Its time is from its first kernel's start to its last kernel's end.

    Args:
        path: nsys export (SQLite).
        whole_run: the trace holds more than the window. Launches outside the steps of read_window_steps then have the
            range OUTSIDE and no share, unless the trace holds none of these steps.

    Raises:
        DataError: the file is no export of nsys.
    """
    with open_export(path) as (database, tables):
        launches = nsys_launches.read_launches(database, tables)
        if launches.empty:
            return pd.DataFrame(columns=COLUMNS)
        codes = nsys_launches.find_ranges(launches, read_ranges(database, tables, LAUNCHING))
        steps = read_window_steps(database, tables, whole_run)
        if whole_run and len(steps):
            codes[nsys_launches.is_outside_steps(launches, steps)] = len(LAUNCHING) + 1
        kernels = nsys_launches.kernel_names(database, tables)
    launches = launches.assign(range=codes)
    table = _grouped(launches)
    if (found := count_steps(launches, steps, [*PACKS, "graph", "range"])) is not None:
        table = table.join(found.astype("Int64"), on=list(found.index.names))
    table["range"] = np.array(["", *LAUNCHING, OUTSIDE])[table["range"]]
    inside = table["total_ns"].where(table["range"] != OUTSIDE)
    table["share"] = inside / inside.sum()
    table = table.assign(**nsys_launches.unpack_configurations(table))
    named = [
        kernels[mangled] if graph < 0 else (f"{GRAPH} {graph}", f"{GRAPH} {graph}", GRAPH)
        for mangled, graph in zip(table["mangled"], table["graph"], strict=True)
    ]
    table["mangled"], table["kernel"], table["function"] = zip(*named, strict=True)
    return table.sort_values(
        ["total_ns", "mangled", "range", *CONFIGURATION], ascending=[False, *[True] * (len(CONFIGURATION) + 2)]
    )[[*COLUMNS, *(name for name in STEP_COUNTS if name in table)]].reset_index(drop=True)


def _grouped(launches: pd.DataFrame) -> pd.DataFrame:
    """Return the number of launches and their times in ns by packed configuration, graph and range."""
    # Durations are sorted, so that sums of floats do not depend on the order of rows.
    ordered = launches.sort_values("ns", kind="stable")
    grouped = ordered.groupby([*PACKS, "graph", "range"], sort=False)["ns"]
    table = grouped.agg(["size", "sum", "mean", "median", "min", "max"])
    table["std_ns"] = grouped.std(ddof=0)
    return table.reset_index().rename(
        columns={"size": "launches", "sum": "total_ns"}
        | {name: f"{name}_ns" for name in ("mean", "median", "min", "max")}
    )


def launches_in_steps(table: pd.DataFrame) -> pd.DataFrame:
    """Return the launches inside steps; a whole-run trace also holds launches outside."""
    return table[table["range"] != OUTSIDE]


def graph_share(table: pd.DataFrame) -> float:
    """Return the share of GPU time in CUDA graphs that were traced as a whole."""
    return float(table.loc[table["function"] == GRAPH, "share"].sum())
