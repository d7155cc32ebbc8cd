"""Sums counters over a cell and each class of its kernels, as the profiled launches stand for the others."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.kernels import counters
from profzoo.kernels.counters import FREEDOM, HIGH, LOW, Quantities
from profzoo.tools.ncu import derived_metrics
from profzoo.tools.ncu.derived_metrics import GPU_TIME
from profzoo.tools.ncu.quantity import Kind

CLASS, CELL_LEVEL = "class", "cell"
LEVELS = (CELL_LEVEL, CLASS)
# What a row is about, in every table of groups.
LEADING = ["level", CLASS, "launches", "total_ns"]
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
        there = derived_metrics.derive_quantities(ordered, known).notna()
    times = every[GPU_TIME]
    whole = times.groupby(every[by], sort=False).sum()
    mine = there.mul(times, axis=0).groupby(every[by], sort=False).sum()
    return there.groupby(every[by], sort=False).sum(), mine.div(whole.where(whole > 0), axis=0)
