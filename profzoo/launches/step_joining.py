"""Joins the launches of ncu's step with owners from torch.profiler and times from nsys."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from profzoo.kernels import counters
from profzoo.launches.alignment import Alignment
from profzoo.launches.cross_tool import align_launches
from profzoo.launches.myers_diff import NONE
from profzoo.tools.ncu.derived_metrics import GPU_TIME

# How the owner of a launch was found: from its match, or from all launches in the gap where its match would be.
BY, LIKE, BETWEEN = "owned_by", "launch", "gap"
TIMES = ["nsys_ns", "nsys_steps"]


def join_launches(
    census: pd.DataFrame,
    owners: pd.DataFrame | None = None,
    columns: Sequence[str] = (),
    nsys: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return one row per launch of ncu's step: `launch` (position), `ncu_ns`, `ns`, owners and times if given.

    Args:
        census: rows of a cell's ncu.launch.csv.
        owners: launches of several steps under torch.profiler, as for align_launches, with `step` and `columns`.
        columns: columns of `owners` to add; columns that the census has too are left out.
        nsys: launches of several steps under nsys, from tools/nsys/launches_by_step.py.

    owners_of finds the owners, and times_of the times in ns. `ns` is the time under nsys; where nsys has no match it is
    the time under ncu.
    """
    table = census.reset_index(drop=True)
    place = pd.Series(np.arange(len(table)), table.index, name="launch")
    parts = [place, table.drop(columns="launch", errors="ignore"), table[GPU_TIME].rename("ncu_ns")]
    if owners is not None:
        parts.append(owners_of(table, owners, [name for name in columns if name not in table]))
    if nsys is not None:
        parts.append(times_of(table, nsys))
    found = pd.concat(parts, axis=1)
    return found.assign(ns=found["nsys_ns"].fillna(found["ncu_ns"]) if nsys is not None else found["ncu_ns"])


def owners_of(census: pd.DataFrame, owners: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return `columns` of the owner of each launch of ncu's step, and BY.

    The owner comes from the launch's match in every step that has a match. Some launches have no match, for example if
    a convolution ran another kernel under ncu. Such a launch gets the owner of all launches in the same gap, if they
    have only one. If steps disagree, or no step has an owner, the columns and BY are empty.

    Args:
        census: rows of a cell's ncu.launch.csv.
        owners: launches of several steps under torch.profiler, as for align_launches, with `step`.
        columns: columns of `owners` that describe an owner.
    """
    codes = owners.groupby(list(columns), sort=False, dropna=False, observed=True).ngroup().to_numpy()
    likes, between = [], []
    for rows, found in _aligned(owners, census):
        own = codes[rows]
        likes.append(np.where(found.of_second == NONE, NONE, own[found.of_second]))
        between.append(owners_between(own, found))
    of_likes, of_gaps = _agreed(likes, len(census)), _agreed(between, len(census))
    owner = np.where(of_likes == NONE, of_gaps, of_likes)
    rows_of = pd.Series(np.arange(len(owners))).groupby(codes).first()
    chosen = owners[list(columns)].take(rows_of.reindex(owner[owner != NONE]).to_numpy())
    table = chosen.set_axis(census.index[owner != NONE]).reindex(census.index)
    table[BY] = np.select([of_likes != NONE, of_gaps != NONE], [LIKE, BETWEEN], "")
    return table


def owners_between(codes: np.ndarray, found: Alignment) -> np.ndarray:
    """Return for launches without a match the common code of the other step's launches in the gap, or NONE."""
    gaps, others = found.gaps
    free = found.partner == NONE
    count = int(max(gaps.max(initial=0), others.max(initial=0))) + 1
    least, most = np.full(count, len(codes) + int(codes.max(initial=0))), np.full(count, NONE)
    np.minimum.at(least, gaps[free], codes[free])
    np.maximum.at(most, gaps[free], codes[free])
    return np.where((found.of_second == NONE) & (least == most)[others], most[others], NONE)


def _agreed(codes: list[np.ndarray], size: int) -> np.ndarray:
    """Return the code of each launch on which all steps with a code agree; NONE elsewhere."""
    if not codes:
        return np.full(size, NONE)
    said = np.stack(codes)
    most = said.max(axis=0)
    return np.where(((said == most) | (said == NONE)).all(axis=0), most, NONE)


def times_of(census: pd.DataFrame, nsys: pd.DataFrame) -> pd.DataFrame:
    """Return for each launch of ncu's step `nsys_ns`, the mean of its matches, and `nsys_steps`, their number."""
    total, steps = np.zeros(len(census)), np.zeros(len(census), dtype=np.int64)
    for rows, found in _aligned(nsys, census):
        paired = found.of_second != NONE
        total[paired] += nsys["ns"].to_numpy()[rows[found.of_second[paired]]]
        steps += paired
    mean = np.divide(total, steps, out=np.full(len(census), np.nan), where=steps > 0)
    return pd.DataFrame({"nsys_ns": mean, "nsys_steps": steps}, index=census.index)


def totals(table: pd.DataFrame, by: Sequence[str], sets: Sequence[pd.DataFrame] = ()) -> pd.DataFrame:
    """Return one row per group of launches with equal values in the columns `by`, in the order of first appearance.

    Args:
        table: result of join_launches.
        by: columns to group by.
        sets: rows of the cell's ncu.{set}.csv; if several hold a quantity, the first counts.

    Columns: `by`; `launches`; `total_ns`; `nsys_share`, the share of `total_ns` that nsys measured, 0 to 1; and ncu's
    quantities of the group's mean launch with intervals, as in kernels/counters.py.
    """
    known = table["nsys_ns"].fillna(0) if "nsys_ns" in table else 0.0
    times = table.assign(nsys_share=known, **{name: table[name].astype("object").fillna("") for name in by})
    grouped = times.groupby(list(by), sort=False)
    found = grouped.agg(launches=("launch", "size"), total_ns=("ns", "sum"), nsys_share=("nsys_share", "sum"))
    found["nsys_share"] /= found["total_ns"]
    if len(by) == 1:
        found.index = pd.MultiIndex.from_arrays([found.index], names=list(by))
    quantities = pd.DataFrame(index=found.index)
    for counted in sets:
        quantities = quantities.combine_first(counters.mean_counters_by_group(counted, times, by)).reindex(found.index)
    return found.join(quantities.drop(columns=["ncu_ns"], errors="ignore")).reset_index()


def _aligned(steps: pd.DataFrame, census: pd.DataFrame) -> Iterator[tuple[np.ndarray, Alignment]]:
    """Yield positions of each step's rows, and its alignment with ncu's step."""
    by = [name for name in ("process", "step") if name in steps]
    for rows in steps.groupby(by, sort=False, dropna=True).indices.values():
        yield rows, align_launches(steps.iloc[rows], census)
