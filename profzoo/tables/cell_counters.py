"""Makes a cell's tables of ncu's counters alone: occupancy, memory chart, pipe utilisation and warp states."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from profzoo.io import csv_tables as reading
from profzoo.io.columns import AMOUNT, COUNT, GPU, NINE_OF_TEN, TEXT, Column, select, with_interval
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.kernels import counters, kernel_classes
from profzoo.kernels.counters import FREEDOM, HIGH, LOW, Quantities
from profzoo.tables import kernel_table
from profzoo.tools.ncu import estimates, export_schema, occupancy, quantities
from profzoo.tools.ncu.estimates import GPU_TIME, Window
from profzoo.tools.ncu.occupancy import Resources
from profzoo.tools.ncu.quantities import (
    ALL_CYCLES,
    L1,
    L1_HIT,
    L2,
    L2_HIT,
    LINKS,
    MEMORY_CHART,
    OCCUPANCY,
    OTHERWISE,
    PEAK,
    PIPE_FORMS,
    PIPE_NAMES,
    PIPE_SETS,
    QUANTITIES,
    STATES,
    WARP_STATE_SETS,
    Kind,
)
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS

# Sums counters over a cell and each class of its kernels, as the profiled launches stand for the others.

CLASS, CELL_LEVEL = "class", "cell"
LEVELS = (CELL_LEVEL, CLASS)
# What a row is about, in every table of groups.
GROUPS: Mapping[str, Column] = {
    "level": Column(TEXT, "`cell` for all kernels, or `class` for one class of them."),
    CLASS: Column(TEXT, "Class of kernels by their names; empty for the whole cell."),
    "launches": Column(AMOUNT.or_missing, "Launches per step.", "count"),
    "total_ns": Column(AMOUNT.or_missing, "GPU time of these launches per step, by the census.", "ns", clock=GPU),
}
LEADING = list(GROUPS)
# Of the quantities of a row.
COUNTED_SHARE = {
    "counted_share": Column(
        AMOUNT.or_missing, "Share of `total_ns` in launches that ncu counted or that counted ones stand for. Nothing "
        "is filled in for the others.", "fraction", clock=GPU),
}  # fmt: skip
# Ending of the column that says for which share of a group's GPU time a quantity was counted.
COVERED = "_covered"
# Share of the GPU time from which on nothing is said about how much of it was counted.
NEARLY_ALL = 0.99
# Column by which all launches of a cell are one group.
_WHOLE = "whole"


def launches_of_cell(sets: Sequence[pd.DataFrame], census: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return all launches of the window, in order: the census, else the rows of a set without multiplicities.

    None if no set has every launch, as with `ncu.launches: N`.
    """
    if census is not None:
        return census
    whole = [one for one in sets if GPU_TIME in one and len(one) and not counters.is_weighed(one) and _is_whole(one)]
    return whole[0].sort_values("id", kind="stable").reset_index(drop=True) if whole else None


def _is_whole(table: pd.DataFrame) -> bool:
    """Return whether a set has as many launches of each configuration as the window has."""
    sizes = table.groupby(counters.KEYS, dropna=False)["launches"].transform("size")
    return bool((sizes == table["launches"].fillna(0)).all())


def sum_by_group(
    sets: Sequence[pd.DataFrame],
    launches: pd.DataFrame | None,
    classes: Mapping[str, str],
    steps: float,
    known: Quantities,
) -> pd.DataFrame:
    """Return LEADING and the quantities that were collected: one row for the cell, then one per class, longest first.

    Launches, time and additive quantities are per step, with the ends of 90 % intervals if they are estimated; others
    are means, weighted as their kind says. Sums and means are those of the launches that were counted or that counted
    ones stand for; nothing is filled in for others. `{quantity}_covered` is the share of the group's GPU time in these
    launches, 0 to 1. The result has no rows if nothing was collected.

    Args:
        sets: rows of the cell's ncu.{set}.csv; of several, the first that has a quantity counts.
        launches: result of launches_of_cell.
        classes: class of each kernel, by its name.
        steps: number of steps in the window.
        known: the quantities, by name.
    """
    if launches is None or launches.empty:
        return pd.DataFrame(columns=LEADING)
    every = launches.assign(**{CLASS: launches["kernel"].map(classes), _WHOLE: ""})
    frames = []
    for level, by in zip(LEVELS, (_WHOLE, CLASS), strict=True):
        found = _sums_and_means(sets, every, by, known)
        if found.empty:
            continue
        grouped = (
            every.groupby(by, sort=False)[GPU_TIME].agg(["size", "sum"]).set_axis(["launches", "total_ns"], axis=1)
        )
        found = found.join(grouped, how="inner")
        summed = [name for name, one in known.items() if one.kind is Kind.SUM]
        wanted = [name for name in (f"{one}{side}" for one in summed for side in ("", LOW, HIGH)) if name in found]
        found[wanted] /= steps
        found[["launches", "total_ns"]] /= steps
        ordered = found.sort_values("total_ns", ascending=False, kind="stable")
        frames.append(ordered.rename_axis(CLASS).reset_index().assign(level=level))
    if not frames:
        return pd.DataFrame(columns=LEADING)
    whole = pd.concat(frames, ignore_index=True)
    return whole[[*LEADING, *(name for name in whole if name not in (*LEADING, FREEDOM))]]


def _sums_and_means(sets: Sequence[pd.DataFrame], every: pd.DataFrame, by: str, known: Quantities) -> pd.DataFrame:
    """Return each group's sums of additive quantities, means of others, and shares of time in which they were counted.

    Of several sets, the first that has a quantity counts.
    """
    found = pd.DataFrame()
    for table in sets:
        frame = counters.mean_counters_by_group(table, every, [by], known)
        if frame.columns.drop(FREEDOM, errors="ignore").empty or frame.empty:
            continue
        frame.index = frame.index.get_level_values(by)
        counted = [name for name in frame if name in known]
        launches, share = _counted(table, every, by, {name: known[name] for name in counted})
        for name in counted:
            ends = [f"{name}{end}" for end in ("", LOW, HIGH)] if known[name].kind is Kind.SUM else []
            for one in (end for end in ends if end in frame):
                frame[one] *= launches[name].reindex(frame.index)
        frame = frame.join(share.reindex(frame.index).add_suffix(COVERED))
        found = frame if found.empty else found.join(frame[[name for name in frame if name not in found]], how="outer")
    return found


def _counted(table: pd.DataFrame, every: pd.DataFrame, by: str, known: Quantities) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return by group and quantity the number of launches that its values stand for, and their share of the time.

    Launches stand for those of their configuration, and for no others.
    """
    if counters.is_weighed(table):
        profiled = pd.MultiIndex.from_frame(every.iloc[table["launch"].dropna().astype(int)][counters.KEYS])
        alike = pd.MultiIndex.from_frame(every[counters.KEYS]).isin(profiled)
        there = pd.DataFrame(dict.fromkeys(known, alike), every.index)
    else:
        ordered = table.sort_values("id", kind="stable").set_axis(every.index)
        there = estimates.derive_quantities(ordered, known).notna()
    times = every[GPU_TIME]
    whole = times.groupby(every[by], sort=False).sum()
    mine = there.mul(times, axis=0).groupby(every[by], sort=False).sum()
    return there.groupby(every[by], sort=False).sum(), mine.div(whole.where(whole > 0), axis=0)


# Makes a cell's memory chart as a table: bytes between parts of the memory system, hit rates, share of the peak.

HITS = {L1: L1_HIT, L2: L2_HIT}
# Links that pages and figures show as one number, by the part of the memory system and the direction.
LINK_GROUPS: Mapping[str, tuple[str, ...]] = {
    "L1 loads": ("global_load", "local_load"),
    "L1 stores": ("global_store", "local_store"),
    "L1": ("l1",),
    "shared memory": ("shared_load", "shared_store"),
    "L2 reads": ("l2_read",),
    "L2 writes": ("l2_write",),
    "L2": ("l2",),
    "DRAM reads": ("dram_read",),
    "DRAM writes": ("dram_write",),
    "DRAM": ("dram",),
    "host": ("host_read", "host_write"),
}
CHART_TABLE = Table(
    columns={
        **GROUPS,
        "link": Column(
            TEXT, "What the bytes are: loads and stores of global, local and shared memory, reads and writes of L2, "
            "DRAM and the host's memory; `l1`, `l2` and `dram` are both directions together."),
        "source": Column(TEXT, "Part of the memory system that the bytes come from; SM stands for its registers."),
        "target": Column(TEXT, "Part of the memory system that the bytes go to."),
        **with_interval("bytes", Column(
            AMOUNT.or_missing, "Bytes per step, of the launches that `counted_share` is about. Those of shared "
            "memory are wavefronts of 128 bytes, so bank conflicts count.", "byte", "ncu", interval=NINE_OF_TEN)),
        "bytes_per_s": Column(
            AMOUNT.or_missing, "The same bytes per second of these launches' GPU time.", "byte/s", "ncu", GPU),
        "peak_pct": Column(
            AMOUNT.or_missing, "Part of the link's peak bandwidth by ncu, as a mean over the launches' time.",
            "%", "ncu"),
        "hit_pct": Column(AMOUNT.or_missing, "Sectors that the cache at this link answers (hit rate).", "%", "ncu"),
        "otherwise_bytes": Column(
            AMOUNT.or_missing, "Bytes of this link by a counter of another unit, as a check. L2 may be asked for "
            "less than SMs get or send, by what several of them read, and by additions to memory.", "byte", "ncu"),
        **COUNTED_SHARE,
    },
    key=["level", "class", "link"],
)  # fmt: skip
MEMORY_CHART_COLUMNS = [*CHART_TABLE.columns]


def make_memory_chart(sums: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS, one row per group and link whose bytes were counted.

    sums: result of counter_groups.sum_by_group for chart_quantities.MEMORY.
    """
    frames = []
    for name, link in LINKS.items():
        if name not in sums:
            continue
        rows = sums[sums[name].notna()]
        found = rows[LEADING].assign(link=name, source=link.source, target=link.target, bytes=rows[name])
        ends = {"bytes_low": f"{name}{LOW}", "bytes_high": f"{name}{HIGH}", "peak_pct": f"{name}{PEAK}",
                "otherwise_bytes": f"{name}{OTHERWISE}", "counted_share": f"{name}{COVERED}",
                 "hit_pct": HITS.get(answering_cache(name), "")}  # fmt: skip
        found = found.assign(**{column: rows.get(one, np.nan) for column, one in ends.items()})
        counted_ns = found["total_ns"] * found["counted_share"]
        found["bytes_per_s"] = found["bytes"] / counted_ns.where(counted_ns > 0) * 1e9
        frames.append(found)
    if not frames:
        return CHART_TABLE.empty()
    order = {name: place for place, name in enumerate(LINKS)}
    whole = pd.concat(frames)
    places = whole.reset_index().assign(place=whole["link"].map(order).to_numpy()).sort_values(["index", "place"])
    return places.reindex(columns=MEMORY_CHART_COLUMNS).reset_index(drop=True)


def add_up_links(values: pd.DataFrame, largest: bool = False) -> pd.DataFrame:
    """Return the sum, or the largest, of each of LINK_GROUPS that was counted; totals only where no direction is known.

    values: a column per link.
    """
    found = {}
    for name, links in LINK_GROUPS.items():
        own = values[[link for link in links if link in values]]
        if own.notna().any(axis=None):
            found[name] = own.max(axis=1) if largest else own.sum(axis=1, min_count=1)
    directed = {name.partition(" ")[0] for name in found if " " in name}
    totals = {name for name, links in LINK_GROUPS.items() if LINKS[links[0]].total and name in directed}
    return pd.DataFrame({name: one for name, one in found.items() if name not in totals}, index=values.index)


def answering_cache(name: str) -> str:
    """Return the cache that answers what a link asks for; empty for links of shared memory, DRAM and the host."""
    link = LINKS[name]
    if L1 in (link.source, link.target) and L2 not in (link.source, link.target):
        return L1
    return L2 if L1 in (link.source, link.target) else ""


# Makes a cell's table of occupancy: theoretical and achieved, what limits it, and what fewer resources would give.

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
_OCCUPANCY = "Warps that an SM can hold, of the most that fit"
_RESIDENT = "Blocks that an SM can hold at once with"
TABLE = Table(
    columns={
        **shared("class", "kernel", "function", "mangled"),
        **shared("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", kind=COUNT.or_missing),
        **shared("smem_static_bytes", "smem_dynamic_bytes"),
        **select(GROUPS, "launches", "total_ns"),
        "threads": Column(AMOUNT.or_missing, "Threads of a block.", "count", "ncu"),
        **shared("registers", kind=AMOUNT.or_missing),
        "shared_bytes": Column(
            AMOUNT.or_missing, "Shared memory allocated for a block, with `reserved_bytes`.", "byte", "ncu"),
        "reserved_bytes": Column(AMOUNT.or_missing, "Part of it that the driver reserves.", "byte", "ncu"),
        "capacity_bytes": Column(
            AMOUNT.or_missing, "Shared memory of an SM, as the driver configured it for the launch.", "byte", "ncu"),
        "limit_registers": Column(AMOUNT.or_missing, f"{_RESIDENT} the registers of these blocks.", "count", "ncu"),
        "limit_shared": Column(AMOUNT.or_missing, f"{_RESIDENT} the shared memory of these blocks.", "count", "ncu"),
        "limit_warps": Column(AMOUNT.or_missing, f"{_RESIDENT} the warps of these blocks.", "count", "ncu"),
        "limit_blocks": Column(AMOUNT.or_missing, "Blocks that an SM can hold at once in any case.", "count", "ncu"),
        "theoretical_pct": Column(
            AMOUNT.or_missing, "Theoretical occupancy by ncu: warps that could be resident.", "%", "ncu"),
        "limit_barriers": Column(AMOUNT.or_missing, f"{_RESIDENT} the barriers of these blocks.", "count", "ncu"),
        "computed_pct": Column(
            AMOUNT.or_missing, "The same as profzoo computes it from registers, shared memory and block size.", "%"),
        "limiter": Column(
            TEXT, "What limits the occupancy: `registers`, `shared memory`, `warps`, `blocks` or `barriers`; empty "
            "if nothing does, or if ncu has another theoretical occupancy than computed."),
        "achieved_pct": Column(
            AMOUNT.or_missing, "Achieved occupancy: warps that were resident, while an SM had any.", "%", "ncu"),
        "waves": Column(
            AMOUNT.or_missing, "Waves per SM: blocks of the grid, of the blocks that the GPU holds at once.",
            "ratio", "ncu"),
        "registers_next": Column(
            AMOUNT.or_missing, "Registers per thread to go down to, for more warps to fit; empty if none do.", "count"),
        "registers_next_pct": Column(AMOUNT.or_missing, f"{_OCCUPANCY}, with `registers_next`.", "%"),
        "shared_next_bytes": Column(
            AMOUNT.or_missing, "Shared memory per block to go down to, with `reserved_bytes`, for more warps to fit; "
            "empty if none do.", "byte"),
        "shared_next_pct": Column(AMOUNT.or_missing, f"{_OCCUPANCY}, with `shared_next_bytes`.", "%"),
        "threads_best": Column(
            AMOUNT.or_missing, "Threads per block with which the most warps fit, with as many registers per thread "
            "and as much shared memory per block; empty if none fit better.", "count"),
        "threads_best_pct": Column(AMOUNT.or_missing, f"{_OCCUPANCY}, with `threads_best`.", "%"),
    },
    key=KEYS,
)  # fmt: skip
COLUMNS = [*TABLE.columns]
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


# Makes a cell's table of pipe utilisation: how busy the pipes of the SMs are, for the cell and each kernel class.

PIPES_TABLE = Table(
    columns={
        **GROUPS,
        "pipe": Column(TEXT, "Pipe of the SM, such as `FMA`, `ALU`, `tensor`, `XU` or `LSU`."),
        "busy_pct": Column(AMOUNT.or_missing, "How busy the pipe is, of its peak, while an SM has warps.", "%", "ncu"),
        "counted": Column(
            TEXT, "What was counted: `cycles` in which the pipe was active, or `instructions` that it executed."),
        **COUNTED_SHARE,
    },
    key=["level", "class", "pipe"],
)  # fmt: skip
PIPES_COLUMNS = [*PIPES_TABLE.columns]


def make_pipes(sums: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS, one row per group and pipe, the busiest pipe of each group first.

    If both active cycles and instructions of a pipe were collected, the cycles count.

    sums: result of counter_groups.sum_by_group for chart_quantities.PIPES.
    """
    frames = []
    for pipe in PIPE_NAMES:
        for place, row in sums.iterrows():
            known = ((how, row.get(f"{pipe} {how}")) for how in PIPE_FORMS)
            counted = next(((how, value) for how, value in known if value is not None and pd.notna(value)), None)
            if counted:
                told = {"pipe": pipe, "counted": counted[0], "busy_pct": float(counted[1]), "place": place}
                covered = row.get(f"{pipe} {counted[0]}{COVERED}")
                frames.append({**row[LEADING].to_dict(), **told, "counted_share": covered})
    if not frames:
        return PIPES_TABLE.empty()
    whole = pd.DataFrame(frames).sort_values(["place", "busy_pct"], ascending=[True, False], kind="stable")
    return whole[PIPES_COLUMNS].reset_index(drop=True)


# Makes a cell's table of warp states: what warps wait for between two instructions, for the cell and each class.

# Cycles in states that the section set did not collect.
UNKNOWN = "unknown"
# Cycles are printed with two digits behind the point, each state by itself.
ROUNDING_CYCLES = 0.005
# Relative difference between the sum of the states and all cycles that is not an unknown state.
WARP_STATES_ROUNDING = 0.01


def _adds_up(table: pd.DataFrame) -> str | None:
    """Return what is wrong with a table in which the states of a group do not add up to all of its time."""
    whole = table.groupby(["level", "class"])["share"].sum()
    wrong = (whole - 1).abs() > 1e-6
    return (
        f"shares of {' '.join(whole.index[wrong.argmax()])} add up to {whole[wrong].iloc[0]:.4f}"
        if wrong.any()
        else None
    )


WARP_STATES_TABLE = Table(
    columns={
        **GROUPS,
        "state": Column(
            TEXT, "State of a warp, by ncu's name for why it does not issue; `selected` when it issues, `unknown` "
            "for what was not collected."),
        "cycles": Column(
            AMOUNT.or_missing, "Cycles in this state per instruction that a warp issues.", "cycles", "ncu"),
        "share": Column(
            AMOUNT.or_missing, "Part of a warp's time; the states of a group add up to 1.", "fraction", "ncu"),
        "warp_cycles": Column(
            AMOUNT.or_missing, "Cycles from a warp's instruction to its next, by a metric of its own.",
            "cycles", "ncu"),
        **COUNTED_SHARE,
    },
    key=["level", "class", "state"],
    holds=_adds_up,
)  # fmt: skip
WARP_STATES_COLUMNS = [*WARP_STATES_TABLE.columns]


def make_warp_states(sums: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS, one row per group and state, those with the most cycles first; shares of a group add up to 1.

    Cycles that ncu counted between two instructions, and that no collected state has, are in the state UNKNOWN.

    sums: result of counter_groups.sum_by_group for chart_quantities.WARP_STATES.
    """
    states = [name for name in STATES if name in sums]
    frames = []
    for _, row in sums.iterrows():
        cycles = row[states].astype("float64").dropna()
        if cycles.empty or not cycles.sum() > 0:
            continue
        covered, counted = row[f"{cycles.index[0]}{COVERED}"], row.get(ALL_CYCLES)
        whole = float(counted) if counted is not None and pd.notna(counted) else float("nan")
        left = whole - cycles.sum()
        if left > max(WARP_STATES_ROUNDING * whole, ROUNDING_CYCLES * len(cycles)):
            cycles[UNKNOWN] = left
        shares = cycles / cycles.sum()
        frames += [
            {**row[LEADING].to_dict(), "state": name, "cycles": value, "share": shares[name], "warp_cycles": whole,
             "counted_share": covered}
            for name, value in cycles.sort_values(ascending=False, kind="stable").items()
            if value > 0
        ]  # fmt: skip
    return pd.DataFrame(frames)[WARP_STATES_COLUMNS] if frames else WARP_STATES_TABLE.empty()


# By the table's name: its declaration.
TABLES: Final[Mapping[str, Table]] = {
    OCCUPANCY: TABLE,
    MEMORY_CHART: CHART_TABLE,
    PIPE_SETS: PIPES_TABLE,
    WARP_STATE_SETS: WARP_STATES_TABLE,
}
_OF_GROUPS = {
    MEMORY_CHART: (make_memory_chart, quantities.MEMORY),
    PIPE_SETS: (make_pipes, quantities.PIPES),
    WARP_STATE_SETS: (make_warp_states, quantities.WARP_STATES),
}
OTHER_RULES = (
    "launch configurations have another theoretical occupancy by ncu than computed from registers, shared memory and "
    "block size, so what limits them is not said"
)
NOT_ALL = (
    "ncu profiled only some launches, or no times of them, and nothing says for how many others they stand, so there "
    "are not sums over the step; ncu.launches: sampled, or all, has them"
)


def make_tables(
    sets: Sequence[pd.DataFrame], census: pd.DataFrame | None, steps: float, operators: Mapping[str, str] | None = None
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the tables by name (TABLES), and notes for the log.

    Args:
        sets: rows of the cell's ncu.{set}.csv; of several, the first that has a value counts.
        census: all launches of the window, in order, if the launches of the sets were chosen from them.
        steps: number of steps in the window.
        operators: operator of each kernel, as far as it is known.
    """
    tables = [*sets, *([] if census is None else [census])]
    classes = kernel_classes.classify_all({name for table in tables for name in table["kernel"].unique()}, operators)
    launches = launches_of_cell(sets, census)
    found = {OCCUPANCY: make_occupancy(sets, census, classes, steps)}
    for name, (make, known) in _OF_GROUPS.items():
        found[name] = make(sum_by_group(sets, launches, classes, steps, known))
    unlike = count_disagreements(found[OCCUPANCY])
    notes = [f"{unlike} {OTHER_RULES}"] if unlike else []
    return found, notes + ([NOT_ALL] if launches is None and any(len(one) for one in sets) else [])


def main(
    sets: Sequence[str],
    census: str | None,
    steps: float,
    outputs: Mapping[str, str],
    owned: Sequence[str] = (),
    say: Callable[[str], object] = print,
) -> None:
    """Read the cell's exported tables of ncu, and write the tables of its counters.

    sets: paths, in the order in which they count. census: all launches, if the sets are sampled. outputs: paths by the
    table's name. owned: the table of launches by torch.profiler with their operators, if it saw this program.
    """
    counted = [reading.read(path, export_schema.TABLE) for path in sets]
    every = export_schema.read_census(census) if census else None
    found, notes = make_tables(counted, every, steps, kernel_table.read_operators(owned))
    for note in notes:
        say(f"{outputs[OCCUPANCY]}: {note}")
    for name, table in found.items():
        write_csv(table, outputs[name])
