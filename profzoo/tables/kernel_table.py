"""Makes the kernel table of a cell: time from nsys, counters from ncu, joined by launch configuration."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.io import column_types
from profzoo.io import csv_tables as reading
from profzoo.io.common_columns import STEP_COUNTS
from profzoo.io.scripts import write_csv
from profzoo.kernels import counters, kernel_classes
from profzoo.tables import dictionary
from profzoo.tables.ncu_coverage import KEYS, shares_whole
from profzoo.tables.steps_per_export import NEEDS, count_profiled_steps
from profzoo.tools.ncu import TOOL as NCU
from profzoo.tools.ncu import derived_metrics, export_schema
from profzoo.tools.ncu.dictionary import DERIVED
from profzoo.tools.ncu.raw_page import SHARED_MEMORY
from profzoo.tools.ncu.strata import Window
from profzoo.tools.nsys import TOOL as NSYS
from profzoo.tools.nsys import tables as nsys_tables

LEADING = ["range", "class", "kernel", "function", *KEYS]
MEASURED = ["launches", "total_ns", "mean_ns", "share"]
COLUMNS = [*LEADING, *MEASURED, "source", *derived_metrics.QUANTITIES, *counters.INTERVALS]
BOTH = f"{NSYS}+{NCU}"
TEXTS = ("range", "class", "kernel", "function", "mangled", "source")
# Columns of a tool that did not see the configuration are empty.
TABLE = reading.Table(
    columns={
        name: column_types.TEXT if name in TEXTS else column_types.or_missing(column_types.NUMBER)
        for name in COLUMNS
        if name not in counters.LATER
    }
    | dict.fromkeys([key for key in KEYS if key not in TEXTS], column_types.COUNT)
    | dict.fromkeys(SHARED_MEMORY, column_types.or_missing(column_types.COUNT)),
    optional=dict.fromkeys(counters.LATER, column_types.or_missing(column_types.NUMBER))
    | dict.fromkeys(STEP_COUNTS, column_types.or_missing(column_types.COUNT)),
    key=["range", *KEYS],
    holds=shares_whole,
    about={**DERIVED, **dictionary.KERNELS},
)


def join(
    nsys: pd.DataFrame,
    steps: float,
    sets: Sequence[pd.DataFrame],
    classes: Mapping[str, str],
    census: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return one row per launch configuration and range, longest total first; unmatched rows of either tool stay.

    Args:
        nsys: rows of the cell's nsys.csv.
        steps: number of steps that they cover.
        sets: rows of the cell's ncu.{set}.csv; if several hold a quantity, the first counts.
        classes: class of each kernel, by its name under either tool.
        census: all launches of ncu's window, in order, from which the launches of the sets were chosen.

    `launches` and `total_ns` are per step, `mean_ns` is per launch, and `share` is relative to the cell's GPU time; all
    come from nsys. The other quantities are ncu's for the row's mean launch, with 90 % intervals if they are estimated
    (kernels/counters.py). `source` names the tools that saw the configuration. Rows that have STEP_COUNTS keep them.
    """
    counted, ranged = _counted(sets, census)
    timed = nsys_tables.launches_in_steps(nsys)
    timed = timed.assign(range=timed["range"].fillna(""))
    counts = [name for name in STEP_COUNTS if name in timed]
    timed = timed.groupby([*KEYS, "range"], sort=False, as_index=False).agg(
        {"kernel": "first", "function": "first", "launches": "sum", "total_ns": "sum", "share": "sum"}
        | dict.fromkeys(counts, "max")
    )
    joined = timed.merge(counted.drop(columns=["kernel", "function", "range"]), on=KEYS, how="left", indicator=True)
    joined = _of_own_range(joined, ranged)
    joined["source"] = joined.pop("_merge").map({"both": BOTH, "left_only": NSYS}).astype("str")
    alone = counted.merge(timed[KEYS].drop_duplicates(), on=KEYS, how="left", indicator=True)
    alone = alone[alone.pop("_merge") == "left_only"].assign(source=NCU)
    table = pd.concat([part for part in (joined, alone) if len(part)] or [joined], ignore_index=True)
    table["mean_ns"] = table["total_ns"] / table["launches"]
    table[["launches", "total_ns"]] = table[["launches", "total_ns"]].astype("float64") / steps
    table["class"] = table["kernel"].map(classes)
    columns = [*COLUMNS, *counts]
    table = table.reindex(columns=columns)
    order = table.assign(_time=table["total_ns"].fillna(0))
    order = order.sort_values(["_time", "mangled", "range"], ascending=[False, True, True], kind="stable")
    return order[columns].reset_index(drop=True)


def time_with(table: pd.DataFrame, quantities: Sequence[str]) -> float:
    """Return the share of GPU time in rows that have all these quantities."""
    return float(table.loc[table[list(quantities)].notna().all(axis=1), "share"].sum())


def _of_own_range(table: pd.DataFrame, ranged: pd.DataFrame) -> pd.DataFrame:
    """Prefer, in each row, counters from its own range to counters of all ranges."""
    if ranged.empty:
        return table
    keys = pd.MultiIndex.from_frame(table[[*KEYS, "range"]])
    own = ranged.reindex(keys).set_axis(table.index)
    there = [name for name in own if name in table]
    return table.assign(**{name: own[name].where(own[name].notna(), table[name]) for name in there})


def _counted(sets: Sequence[pd.DataFrame], census: pd.DataFrame | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row per configuration that ncu saw: names, range of its first launch, quantities; and by range."""
    names = ["kernel", "function", "range"]
    window = None if census is None else Window(census)
    frames = [
        table.groupby(KEYS, sort=False)[names].first().join(counters.mean_counters(table, window)) for table in sets
    ]
    if not frames:
        return pd.DataFrame(columns=[*KEYS, *names]), pd.DataFrame()
    combined, ranged = frames[0], counters.mean_counters_by_range(sets[0], window)
    for table, frame in zip(sets[1:], frames[1:], strict=True):
        combined, ranged = (
            combined.combine_first(frame),
            ranged.combine_first(counters.mean_counters_by_range(table, window)),
        )
    combined["range"] = combined["range"].fillna("")
    return combined.reset_index(), ranged


def main(nsys: str, sidecar: str, sets: Sequence[str], census: str | None, csv: str) -> None:
    """Read a cell's exported CSV and write its kernel table.

    sets: ncu's tables, in the order in which they count. census: table of all launches, if the sets are sampled.
    """
    traced = reading.read(nsys, nsys_tables.TABLE)
    counted = [reading.read(path, export_schema.TABLE) for path in sets]
    every = export_schema.read_census(census) if census else None
    names = pd.concat([table["kernel"] for table in (traced, *counted)]).unique()
    classes = kernel_classes.classify_all(names)
    write_csv(join(traced, count_profiled_steps(read_facts(sidecar, NEEDS)), counted, classes, every), csv)
