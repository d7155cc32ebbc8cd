"""Compares the launches that ncu profiled with those that nsys traced: configurations, and share of time."""

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import column_types
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tools.ncu import dictionary, export_schema
from profzoo.tools.ncu.raw_page import CONFIGURATION, SHARED_MEMORY, UNEVEN
from profzoo.tools.nsys import tables as nsys_tables

KEYS = CONFIGURATION
COLUMNS = [
    "status",
    "cause",
    "kernel",
    "function",
    *KEYS,
    "launches",
    "total_ns",
    "share",
    "time_spread",
    "other_launches",
]
COVERED, MISSING, EXTRA = "covered", "missing", "extra"


def shares_whole(table: pd.DataFrame) -> str | None:
    """Return what is wrong with a cell's table if its rows do not add up to all of its GPU time; else None."""
    shares = table["share"].dropna()
    if len(shares) and abs(shares.sum() - 1) > nsys_tables.ROUNDING:
        return f"shares of GPU time add up to {shares.sum():.6f}: rows are missing"
    return None


TEXTS = ("status", "cause", "kernel", "function", "mangled")
TABLE = reading.Table(
    columns={name: column_types.TEXT if name in TEXTS else column_types.COUNT for name in COLUMNS}
    | dict.fromkeys([*SHARED_MEMORY, "launches", "other_launches"], column_types.or_missing(column_types.COUNT))
    | dict.fromkeys(["total_ns", "share", "time_spread"], column_types.or_missing(column_types.AMOUNT)),
    key=KEYS,
    holds=shares_whole,
    about=dictionary.COVERAGE,
)


def compare(nsys: pd.DataFrame, ncu: pd.DataFrame, census: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return one row per configuration that either tool saw, those that ncu missed first, longest first.

    Args:
        nsys: rows of a cell's nsys.csv.
        ncu: rows of an ncu.{set}.csv of the same cell.
        census: all launches of ncu's window, if the set's launches were chosen from them.

    `status` is covered, missing (traced by nsys, not profiled by ncu) or extra (the reverse). `launches`, `total_ns`
    and `share` are nsys's, over its window; they are empty for an extra configuration. `time_spread` is the largest
    ratio of the longest to the shortest launch that one profiled launch represents. `other_launches` is the number of
    profiled launches that differ from the plan. `cause` says why a configuration is missing or extra: it was launched
    but not chosen, the kernel was launched with another configuration, or the kernel was not launched at all.
    """
    traced = (
        nsys_tables.launches_in_steps(nsys)
        .groupby(KEYS, sort=False)
        .agg({"kernel": "first", "function": "first", "launches": "sum", "total_ns": "sum", "share": "sum"})
    )
    other = ~ncu["as_planned"] if "as_planned" in ncu else False
    ncu = ncu.assign(other_launches=other, time_spread=ncu["time_spread"] if "time_spread" in ncu else float("nan"))
    how = {"kernel": "first", "function": "first", "time_spread": "max", "other_launches": "sum"}
    profiled = ncu.groupby(KEYS, sort=False).agg(how)
    table = traced.merge(profiled, how="outer", left_index=True, right_index=True, suffixes=("", "_ncu")).reset_index()
    by_nsys = pd.MultiIndex.from_frame(table[KEYS]).isin(traced.index)
    by_ncu = pd.MultiIndex.from_frame(table[KEYS]).isin(profiled.index)
    table["status"] = [
        COVERED if one and other else MISSING if one else EXTRA for one, other in zip(by_nsys, by_ncu, strict=True)
    ]
    for name in ("kernel", "function"):
        table[name] = table[name].fillna(table.pop(f"{name}_ncu"))
    seen = {
        MISSING: set(profiled.index.get_level_values("mangled")),
        EXTRA: set(traced.index.get_level_values("mangled")),
    }
    table["cause"] = [_cause(row.status, row.mangled in seen.get(row.status, ())) for row in table.itertuples()]
    if census is not None:
        there = pd.MultiIndex.from_frame(table[KEYS]).isin(pd.MultiIndex.from_frame(census[KEYS]))
        table.loc[there & (table["status"] == MISSING), "cause"] = NOT_CHOSEN
    table["launches"] = table["launches"].astype("Int64")
    rank = table["status"].map({MISSING: 0, EXTRA: 1, COVERED: 2})
    ordered = table.assign(_rank=rank, _time=table["total_ns"].fillna(0))
    ordered = ordered.sort_values(["_rank", "_time", "mangled"], ascending=[True, False, True], kind="stable")
    return ordered[COLUMNS].reset_index(drop=True)


def summary(compared: pd.DataFrame) -> dict[str, float | int | str]:
    """Return numbers of configurations that nsys traced and ncu profiled, their share of GPU time, and what is missing.

    `uneven_time` is the share of the GPU time in configurations where one launch represents launches of different
    times, so its counters say less about these. `other_launches` is the share in configurations of which other launches
    were profiled than planned. `missing` names functions of missing configurations, the longest first. `other_choice`
    says whether either tool saw a kernel that the other did not, as when cuDNN chose another algorithm in one run.
    """
    missing, extra = compared[compared["status"] == MISSING], compared[compared["status"] == EXTRA]
    covered = compared[compared["status"] == COVERED]
    traced = len(covered) + len(missing)
    return {
        "configurations": traced,
        "covered": len(covered),
        "coverage": len(covered) / traced if traced else float("nan"),
        "time_coverage": float(covered["share"].sum()) if traced else float("nan"),
        "uneven_time": float(covered.loc[covered["time_spread"] > UNEVEN, "share"].sum()),
        "other_launches": float(covered.loc[covered["other_launches"] > 0, "share"].sum()),
        "extra": len(extra),
        "other_choice": bool((pd.concat([missing, extra])["cause"] == OTHER_KERNEL).any()),
        "missing": "; ".join(dict.fromkeys(missing["function"])),
    }


OTHER_KERNEL = "kernel launched in one of the two runs only"
NOT_CHOSEN = "launched, but not chosen: see ncu.budget, ncu.kernel_name and ncu.launches"
OTHER_LAUNCH = "same kernel, other launch parameters"


def _cause(status: str, kernel_seen: bool) -> str:
    if status == COVERED:
        return ""
    return OTHER_LAUNCH if kernel_seen else OTHER_KERNEL


def main(nsys: str, ncu: str, census: str | None, csv: str) -> None:
    """Read a cell's exported CSV and write the comparison.

    Raises:
        DataError: ncu measured ranges instead of launches.
    """
    if "mangled" not in reading.rows(ncu)[0]:
        raise DataError(f"{ncu} measures ranges, which hold no launches to compare: take a section set of launches")
    traced, profiled = reading.read(nsys, nsys_tables.TABLE), reading.read(ncu, export_schema.TABLE)
    write_csv(compare(traced, profiled, export_schema.read_census(census) if census else None), csv)
