"""Makes the kernel table of a cell, by time from nsys and counters from ncu, and compares what both tools saw."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, COUNT, GPU, NUMBER, TEXT, Column, select
from profzoo.io.common_columns import STEP_COUNTS, shared
from profzoo.io.scripts import write_csv
from profzoo.kernels import counters, kernel_classes
from profzoo.tables.steps_per_export import NEEDS, count_profiled_steps
from profzoo.tools.ncu import TOOL as NCU
from profzoo.tools.ncu import estimates, export_schema
from profzoo.tools.ncu.estimates import Window
from profzoo.tools.ncu.raw_page import CONFIGURATION, UNEVEN
from profzoo.tools.nsys import TOOL as NSYS
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.torch import owners

# Compares the launches that ncu profiled with those that nsys traced: configurations, and share of time.

KEYS = CONFIGURATION
COVERED, MISSING, EXTRA = "covered", "missing", "extra"


def shares_whole(table: pd.DataFrame) -> str | None:
    """Return what is wrong with a cell's table if its rows do not add up to all of its GPU time; else None."""
    shares = table["share"].dropna()
    if len(shares) and abs(shares.sum() - 1) > nsys_tables.ROUNDING:
        return f"shares of GPU time add up to {shares.sum():.6f}: rows are missing"
    return None


COVERAGE_TABLE = reading.Table(
    columns={
        "status": Column(TEXT, "`covered` (traced and profiled), `missing` (not profiled) or `extra` (not traced)."),
        "cause": Column(
            TEXT, "Why ncu did not profile the configuration, or nsys did not trace it; empty where it is covered."),
        **shared(
            "kernel", "function", "mangled", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z",
            "smem_static_bytes", "smem_dynamic_bytes"),
        "launches": Column(COUNT.or_missing, "Launches in the window.", "count", "nsys"),
        "total_ns": Column(AMOUNT.or_missing, "GPU time of the configuration in the window.", "ns", "nsys", GPU),
        "share": Column(AMOUNT.or_missing, "Part of the GPU time of all launches.", "fraction", "nsys", GPU),
        "time_spread": Column(
            AMOUNT.or_missing, "Longest over shortest GPU time among the launches that one profiled launch stands "
            "for.", "ratio", clock=GPU),
        "other_launches": Column(COUNT.or_missing, "Profiled launches that are not the planned ones.", "count", "ncu"),
    },
    key=KEYS,
    holds=shares_whole,
)  # fmt: skip
COVERAGE_COLUMNS = [*COVERAGE_TABLE.columns]


def compare_coverage(nsys: pd.DataFrame, ncu: pd.DataFrame, census: pd.DataFrame | None = None) -> pd.DataFrame:
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
    return ordered[COVERAGE_COLUMNS].reset_index(drop=True)


def summarise_coverage(compared: pd.DataFrame) -> dict[str, float | int | str]:
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


def write_coverage(nsys: str, ncu: str, census: str | None, csv: str) -> None:
    """Read a cell's exported CSV and write the comparison.

    Raises:
        DataError: ncu measured ranges instead of launches.
    """
    if "mangled" not in reading.rows(ncu)[0]:
        raise DataError(f"{ncu} measures ranges, which hold no launches to compare: take a section set of launches")
    traced, profiled = reading.read(nsys, nsys_tables.TABLE), reading.read(ncu, export_schema.TABLE)
    write_csv(compare_coverage(traced, profiled, export_schema.read_census(census) if census else None), csv)


LEADING = ["range", "class", "kernel", "function", *KEYS]
MEASURED = ["launches", "total_ns", "mean_ns", "share"]
COLUMNS = [*LEADING, *MEASURED, "source", *estimates.QUANTITIES, *counters.INTERVALS]
BOTH = f"{NSYS}+{NCU}"
# Columns of a tool that did not see the configuration are empty.
TABLE = reading.Table(
    columns={
        **shared(*LEADING),
        "launches": Column(NUMBER.or_missing, "Launches per step.", "count", "nsys"),
        "total_ns": Column(NUMBER.or_missing, "GPU time per step of these launches together.", "ns", "nsys", GPU),
        "mean_ns": Column(NUMBER.or_missing, "Mean GPU time of a launch.", "ns", "nsys", GPU),
        "share": Column(NUMBER.or_missing, "Part of the cell's GPU time.", "fraction", "nsys", GPU),
        "source": Column(TEXT, "Tools that saw the launch configuration: `nsys+ncu`, `nsys` or `ncu`."),
        **{name: column for name, column in counters.COLUMNS.items() if name not in counters.LATER},
    },
    optional={**select(counters.COLUMNS, *counters.LATER), **shared(*STEP_COUNTS)},
    key=["range", *KEYS],
    holds=shares_whole,
)  # fmt: skip


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


def read_operators(owned: Sequence[str]) -> dict[str, str]:
    """Return by kernel the operator that launched most of its time; owned: the table of launches with operators.

    Without that table nothing is known. Kernels that no operator launched are left out.
    """
    return main_operators(reading.read(owned[0], owners.TABLE)) if owned else {}


def main_operators(owned: pd.DataFrame) -> dict[str, str]:
    """Return by kernel the operator that launched most of its time; owned: `name`, `operator` and `ns` of launches."""
    known = owned[owned["operator"].fillna("").astype("str") != ""].astype({"name": "str", "operator": "str"})
    sums = known.groupby(["name", "operator"], sort=True, observed=True)["ns"].sum().sort_values(kind="stable")
    return dict(sums.index.tolist())


def main(nsys: str, sidecar: str, sets: Sequence[str], census: str | None, csv: str, owned: Sequence[str] = ()) -> None:
    """Read a cell's exported CSV and write its kernel table.

    sets: ncu's tables, in the order in which they count. census: table of all launches, if the sets are sampled.
    owned: the table of launches by torch.profiler with their operators, if it saw this program.
    """
    traced = reading.read(nsys, nsys_tables.TABLE)
    counted = [reading.read(path, export_schema.TABLE) for path in sets]
    every = export_schema.read_census(census) if census else None
    names = pd.concat([table["kernel"] for table in (traced, *counted)]).unique()
    classes = kernel_classes.classify_all(names, read_operators(owned))
    write_csv(join(traced, count_profiled_steps(read_facts(sidecar, NEEDS)), counted, classes, every), csv)
