"""Joins a step's launches under several tools into one table: owners of torch, times of nsys, counters of ncu."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from profzoo.kernels import counters
from profzoo.launches.alignment import NONE, Alignment
from profzoo.launches.cross_tool import GRID, align_launches, number_kernels, number_launch_keys
from profzoo.launches.step_alignment import pair_launches, steps_differ
from profzoo.range_names import ROOT, STEP, common_path
from profzoo.tools.ncu import estimates
from profzoo.tools.ncu.estimates import GPU_TIME, Window
from profzoo.tools.ncu.raw_page import CONFIGURATION, function_name
from profzoo.tools.torch.compiled import PARTS, divide_parts

# Joins the launches of ncu's step with owners from torch.profiler and times from nsys.

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
        nsys: launches of several steps under nsys, from tools/nsys/events/launches.py.

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


def join_totals(table: pd.DataFrame, by: Sequence[str], sets: Sequence[pd.DataFrame] = ()) -> pd.DataFrame:
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


OWNER = ["operator", "shapes", "caller", "module", "type", "direction"]
# Of a compiled kernel, what it consists of as well.
OWNED = [*OWNER, PARTS]
GROUPS = [*OWNER, "kernel", "function", *CONFIGURATION]
MEASURED = ["launches", "total_ns", "mean_ns"]
# The `module` of launches without a match in torch's steps.
UNALIGNED = "(unaligned)"
KERNEL = "kernel"


@dataclass(frozen=True)
class Joined:
    """Launches of one or several steps with their owners, names, launch configurations and times.

    Attributes:
        launches: one row per launch, with owner_columns, the kernel's names, CONFIGURATION, `range`, `launch` (the
            position in the window) and times in ns. `ns` is the time under nsys, which slows kernels least. If nsys has
            no match, it is the time of the tool that recorded the step.
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
    columns = owner_columns(owners)
    table = join_launches(step, _repeated(kernels, steps), columns, traced)
    nowhere = table["module"].isna()
    found = table.assign(**{name: table[name].astype("object") for name in columns})
    found.loc[nowhere, columns] = ""
    found.loc[nowhere, "module"] = UNALIGNED
    found.loc[nowhere, "direction"] = found.loc[nowhere, "range"].fillna("")
    return found


def _repeated(launches: pd.DataFrame, steps: int) -> pd.DataFrame:
    """Repeat each step's launches `steps` times in a row, to match a window of so many steps under ncu."""
    if steps == 1:
        return launches.reset_index(drop=True)
    by = [name for name in ("process", STEP) if name in launches]
    return pd.concat([own for _, rows in launches.groupby(by, sort=False) for own in [rows] * steps], ignore_index=True)


def owner_columns(launches: pd.DataFrame) -> list[str]:
    """Return those columns of launches that describe their owners: OWNER, or OWNED where code was compiled."""
    return OWNED if PARTS in launches else OWNER


def select_copies(owners: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of torch's launches that are copies and fills; ncu does not record these."""
    return owners[owners["kind"] != KERNEL]


def totals(joined: Joined, by: Sequence[str]) -> pd.DataFrame:
    """Return one row per group of launches, with values per step.

    Columns: those in `by`; MEASURED (`launches` and `total_ns` per step, `mean_ns` per launch); and the quantities of
    the group's mean launch under ncu with their intervals.
    """
    found = join_totals(joined.launches, by, joined.sets)
    found["mean_ns"] = found["total_ns"] / found["launches"]
    found[["launches", "total_ns"]] /= joined.steps
    return found.reindex(columns=[*by, *MEASURED, *estimates.QUANTITIES, *counters.INTERVALS])


def part_totals(joined: Joined) -> pd.DataFrame:
    """Return the totals of compiled kernels, divided among their parts, by OWNER and launch configuration."""
    rows = totals(joined, [*owner_columns(joined.launches), *CONFIGURATION])
    rows = rows[rows[PARTS] != ""] if PARTS in rows else rows.iloc[:0]
    return divide_parts(rows, ["launches", "total_ns"])


def kernels(joined: Joined) -> pd.DataFrame:
    """Return the totals by GROUPS.

    If a rate is unknown for a group, it is filled in from all launches of the same configuration.
    """
    found = totals(joined, GROUPS)
    window = Window(joined.launches) if joined.sets else None
    for counted in joined.sets:
        alike = counters.mean_counters(counted, window)
        rates = alike[[name for name in alike if name in estimates.QUANTITIES and name not in estimates.ADDITIVE]]
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
    return found.reindex(columns=[*GROUPS, *MEASURED, *estimates.QUANTITIES, *counters.INTERVALS])


# Joins steps that launch differently: all steps of nsys count, and owners are those on which steps of torch agree.

PROCESS = "process"
# What of an owner is about its operator.
OF_OPERATOR = ("operator", "shapes", "caller", PARTS)
# How the owner was found besides LIKE: several layers are possible, and this is what holds them all.
COMMON = "common"
# A step of nsys is aligned with at least and at most so many steps of torch, those most like it, as long as no more
# pairs of launches than PAIRS are looked at in all. So many take half a minute.
LEAST_TRIED, MOST_TRIED, PAIRS = 2, 5, 600_000_000


def traced_steps_differ(nsys: pd.DataFrame) -> bool:
    """Return whether the steps of one process launch differently; nsys: from tools.nsys.launches_by_step."""
    return steps_differ(select_typical_process(nsys), [STEP])


def join_differing_steps(nsys: pd.DataFrame, owners: pd.DataFrame) -> Joined:
    """Join the launches of all steps of nsys with owners; times are those of the launches themselves.

    A step of nsys that launches the same as a step of torch has its owners. Any other step is aligned with several
    steps of torch, each from its begin and from its end. The owner of a launch is the one on which all of these
    alignments agree. Where they do not, as in a loop over experts of which a step leaves some out, it is the module
    that holds all owners in question. A launch without a match belongs to the owner of all launches of torch in the
    same gap, or else to the module that holds its nearest neighbours with an owner, if both are of one direction.

    Args:
        nsys: launches by step, from tools.nsys.launches_by_step; of several processes, the one with the most common
            number of launches counts.
        owners: rows of the cell's torch.launches.csv.
    """
    traced = select_typical_process(nsys).reset_index(drop=True)
    kernels = owners[(owners["kind"] == KERNEL) & owners[STEP].notna()].reset_index(drop=True)
    columns = owner_columns(kernels)
    codes = kernels.groupby(columns, sort=False, dropna=False, observed=True).ngroup().to_numpy(dtype=np.int64)
    known = _Owners(kernels[columns].astype("object").take(np.unique(codes, return_index=True)[1]))
    owner = np.full(len(traced), NONE)
    both = _Numbered.of(traced, kernels)
    for rows, others in both.most_alike():
        found = [(codes[own], pairs) for own in others for pairs in both.partners(rows, own)]
        matched = known.agree([np.where(pairs == NONE, NONE, own[pairs]) for own, pairs in found])
        gaps = known.agree([owners_between(own, _as_alignment(own, pairs)) for own, pairs in found])
        owner[rows] = known.fill(np.where(matched == NONE, gaps, matched))
    owned = known.rows().reindex(owner)
    table = traced.assign(launch=traced.groupby(STEP).cumcount(), nsys_ns=traced["ns"])
    table = table.assign(**{name: owned[name].fillna("").to_numpy() for name in columns})
    nowhere = (owner == NONE) | table["module"].eq(UNALIGNED).to_numpy()
    table.loc[nowhere, "module"] = UNALIGNED
    table.loc[nowhere, "direction"] = table.loc[nowhere, "range"]
    table[BY] = np.select([nowhere, owner >= known.certain], ["", COMMON], LIKE)
    return Joined(table, int(traced[STEP].nunique()))


class _Owners:
    """Owners by number, and those that are made where alignments do not agree."""

    def __init__(self, table: pd.DataFrame) -> None:
        """Prepare; table: of owner_columns, a row per owner, by number."""
        self._columns = [*table.columns]
        self._rows: list[tuple[str, ...]] = list(table.itertuples(index=False, name=None))
        self._merged: dict[tuple[frozenset[int], bool], int] = {}
        self.certain = len(self._rows)

    def rows(self) -> pd.DataFrame:
        """Return the columns of owners, a row per owner, by number."""
        return pd.DataFrame(self._rows, columns=self._columns, dtype="object")

    def agree(self, found: Sequence[np.ndarray]) -> np.ndarray:
        """Return the owner of each launch from those that several alignments found, NONE where none found any."""
        votes = np.stack(found)
        highest = votes.max(axis=0)
        lowest = np.where(votes == NONE, highest, votes).min(axis=0)
        agreed = highest.copy()
        for launch in np.flatnonzero(lowest != highest):
            agreed[launch] = self._merge(frozenset(votes[:, launch].tolist()) - {NONE})
        return agreed

    def fill(self, owner: np.ndarray) -> np.ndarray:
        """Return the owners of a step's launches; those that are NONE get what holds the owners around them."""
        places, known = np.arange(len(owner)), owner != NONE
        before = np.maximum.accumulate(np.where(known, places, NONE))
        after = np.minimum.accumulate(np.where(known, places, len(owner))[::-1])[::-1]
        filled = owner.copy()
        for launch in np.flatnonzero(~known & (before != NONE) & (after < len(owner))):
            around = frozenset((int(owner[before[launch]]), int(owner[after[launch]])))
            filled[launch] = self._merge(around, within=True)
        return filled

    def _merge(self, numbers: frozenset[int], within: bool = False) -> int:
        """Return the number of what holds several owners; within: a launch between these, with an unknown operator."""
        if (numbers, within) not in self._merged:
            rows = pd.DataFrame([self._rows[number] for number in sorted(numbers)], columns=self._columns)
            merged = {name: rows[name].iloc[0] if rows[name].nunique() == 1 else "" for name in self._columns}
            merged["module"] = common_module(rows["module"].tolist()) if merged["direction"] else UNALIGNED
            merged |= dict.fromkeys(OF_OPERATOR, "") if within else {}
            self._merged[numbers, within] = len(self._rows)
            self._rows.append(tuple(merged[name] for name in self._columns))
        return self._merged[numbers, within]


def common_module(modules: Sequence[str]) -> str:
    """Return the innermost module that holds all of some modules; UNALIGNED where they are not of one network.

    >>> common_module(["blocks.0.experts.1", "blocks.0.experts.2.up"]), common_module(["head", "(loss)"])
    ('blocks.0.experts', '(unaligned)')
    """
    if len(set(modules)) == 1:
        return modules[0]
    if any(name.startswith("(") and name != ROOT for name in modules):
        return UNALIGNED
    return common_path(modules)


def select_typical_process(nsys: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the process of the first step that has the most frequent number of launches."""
    sizes = nsys.groupby([PROCESS, STEP], sort=False).size()
    return nsys[nsys[PROCESS] == sizes[sizes == sizes.mode()[0]].index[0][0]]


@dataclass(frozen=True)
class _Numbered:
    """Launches of two tools by number: of kernels with their launch configuration, of kernels, and rows by step."""

    exact: tuple[np.ndarray, np.ndarray]
    like: tuple[np.ndarray, np.ndarray]
    steps: tuple[list[np.ndarray], list[np.ndarray]]

    @classmethod
    def of(cls, traced: pd.DataFrame, kernels: pd.DataFrame) -> "_Numbered":
        """Number the launches of both tools."""
        steps = [[*map(np.asarray, frame.groupby(STEP).indices.values())] for frame in (traced, kernels)]
        return cls(number_launch_keys(traced, kernels), number_kernels(traced, kernels), (steps[0], steps[1]))

    def count(self, tool: int, steps: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return how often each step of a tool launches each kernel with its configuration, by their numbers."""
        size = 1 + max(int(one.max(initial=-1)) for one in self.exact)
        return [np.bincount(self.exact[tool][rows], minlength=size) for rows in steps]

    def most_alike(self) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Yield rows of each step of the first tool, and those of the steps of the second to align it with.

        That is a single step if it is equal, and else the steps that have most launches in common.
        """
        held = self.count(1, self.steps[1])
        pairs = 2 * len(self.exact[0]) * len(self.exact[1]) / max(len(held), 1)
        tried = int(np.clip(PAIRS / max(pairs, 1), LEAST_TRIED, MOST_TRIED))
        for rows, mine in zip(self.steps[0], self.count(0, self.steps[0]), strict=True):
            common = np.array([np.minimum(mine, its).sum() for its in held])
            order = [self.steps[1][index] for index in np.argsort(-common, kind="stable")]
            equal = [own for own in order if np.array_equal(self.exact[1][own], self.exact[0][rows])]
            yield rows, equal[:1] or order[:tried]

    def partners(self, rows: np.ndarray, own: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the position of each launch's partner in a step of the second tool, once from each end of the steps."""
        for way in (slice(None), slice(None, None, -1)):
            mine, its = rows[way], own[way]
            found = pair_launches((self.exact[0][mine], self.like[0][mine]), (self.exact[1][its], self.like[1][its]))
            yield np.where(found == NONE, NONE, np.arange(len(own))[way][found])[way]


def _as_alignment(own: np.ndarray, pairs: np.ndarray) -> Alignment:
    """Return the alignment of a step of torch with one of nsys; own: as many as torch's launches; pairs: of nsys's."""
    partner = np.full(len(own), NONE)
    partner[pairs[pairs != NONE]] = np.flatnonzero(pairs != NONE)
    return Alignment(partner, pairs, NONE)


def own_counted_step(counted: Joined, owners: pd.DataFrame) -> Joined:
    """Return the launches of ncu's window with owners found as those of nsys, if the window is a single step.

    counted: from joined_step.join_ncu_launches; owners: rows of the cell's torch.launches.csv.
    """
    if counted.steps != 1:
        return counted
    columns = [*owner_columns(counted.launches), BY]
    step = counted.launches.drop(columns=columns).assign(**{PROCESS: 0, STEP: 0})
    found = join_differing_steps(step, owners).launches
    return counted.of(counted.launches.assign(**{name: found[name].to_numpy() for name in columns}))


def select_most_alike(nsys: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the step of nsys that has most launches in common with the one step of torch.

    nsys: as for join_differing_steps; kernels: launches of a single step of torch.
    """
    traced = select_typical_process(nsys).reset_index(drop=True)
    both = _Numbered.of(traced, kernels)
    held, (its,) = both.count(0, both.steps[0]), both.count(1, [np.arange(len(kernels))])
    common = [np.minimum(mine, its).sum() for mine in held]
    return traced.iloc[both.steps[0][int(np.argmax(common))]].reset_index(drop=True)


def add_counters(rows: pd.DataFrame, counted: pd.DataFrame) -> pd.DataFrame:
    """Return rows of joined_step.kernels with the counters of ncu's own steps.

    rows: of all steps of nsys, without counters; counted: of the steps that ncu saw. Rows that only ncu saw are left
    out, as the step's time does not contain them.
    """
    names = [*estimates.QUANTITIES, *counters.INTERVALS]
    return rows.drop(columns=names).merge(counted[[*GROUPS, *names]], on=GROUPS, how="left")[list(rows.columns)]
