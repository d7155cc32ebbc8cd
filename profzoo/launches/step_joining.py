"""Joins the launches of ncu's step with owners from torch.profiler and times from nsys."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from profzoo.kernels import counters
from profzoo.launches.alignment import Alignment
from profzoo.launches.cross_tool import align_launches
from profzoo.launches.myers_diff import NONE
from profzoo.tools.ncu.derived_metrics import GPU_TIME

# How a launch came by its owner: its like has it, or all launches have it that stand where its like would.
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
        census: rows of a cell's ncu.launch.csv. owners: launches of several steps under torch.profiler, as
            align_launches has them, with `step` and these columns, of which those that the census has too are left out.
            nsys: the same as tools/nsys/launches_by_step.py has them.

    Owners are those of owners_of, times those of times_of; `ns` is nsys' time, and ncu's where there is none.
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
    """Return these columns for each launch of ncu's step, and BY.

    An owner is that of the launch's like in each step that has one. A launch without a like, such as of a convolution
    for which ncu's run chose another kernel, has the owner of all that stand between the same pairs, if these have but
    one. Where steps differ in what they say, or say nothing, it has none, and BY is empty.
    """
    codes = owners.groupby(list(columns), sort=False, dropna=False, observed=True).ngroup().to_numpy()
    likes, between = [], []
    for rows, found in _aligned(owners, census):
        own = codes[rows]
        likes.append(np.where(found.of_second == NONE, NONE, own[found.of_second]))
        between.append(_between(own, found))
    of_likes, of_gaps = _agreed(likes, len(census)), _agreed(between, len(census))
    owner = np.where(of_likes == NONE, of_gaps, of_likes)
    rows_of = pd.Series(np.arange(len(owners))).groupby(codes).first()
    chosen = owners[list(columns)].take(rows_of.reindex(owner[owner != NONE]).to_numpy())
    table = chosen.set_axis(census.index[owner != NONE]).reindex(census.index)
    table[BY] = np.select([of_likes != NONE, of_gaps != NONE], [LIKE, BETWEEN], "")
    return table


def _between(codes: np.ndarray, found: Alignment) -> np.ndarray:
    """Return for launches without a match the common code of the other step's launches in the gap, or NONE."""
    gaps, others = found.gaps
    free = found.partner == NONE
    count = int(max(gaps.max(initial=0), others.max(initial=0))) + 1
    least, most = np.full(count, len(codes) + int(codes.max(initial=0))), np.full(count, NONE)
    np.minimum.at(least, gaps[free], codes[free])
    np.maximum.at(most, gaps[free], codes[free])
    return np.where((found.of_second == NONE) & (least == most)[others], most[others], NONE)


def _agreed(codes: list[np.ndarray], size: int) -> np.ndarray:
    """Return the code of each launch where all steps that say one agree."""
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
    """Return one row per group of launches with equal values in these columns, by first appearance.

    Args:
        table: as joined has it; sets: rows of the cell's ncu.{set}.csv, the first that holds a quantity counts.

    Columns: `launches`; `total_ns`; `nsys_share`, how much of it is by nsys; and quantities of ncu, of the group's mean
    launch, with intervals, as kernels/counters.py has them.
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
