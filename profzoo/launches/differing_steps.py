"""Joins steps that launch differently: all steps of nsys count, and owners are those on which steps of torch agree."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.kernels import counters
from profzoo.launches.alignment import Alignment
from profzoo.launches.cross_tool import number_kernels, number_launch_keys
from profzoo.launches.joined_step import GROUPS, KERNEL, OWNER, UNALIGNED, Joined
from profzoo.launches.myers_diff import NONE
from profzoo.launches.step_alignment import pair_launches, steps_differ
from profzoo.launches.step_joining import BY, LIKE, owners_between
from profzoo.range_names import ROOT, STEP
from profzoo.tools.ncu import derived_metrics

PROCESS = "process"
# What of an owner is about its operator.
OF_OPERATOR = ("operator", "shapes", "caller")
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
    codes = kernels.groupby(OWNER, sort=False, dropna=False, observed=True).ngroup().to_numpy(dtype=np.int64)
    known = _Owners(kernels[OWNER].astype("object").take(np.unique(codes, return_index=True)[1]))
    owner = np.full(len(traced), NONE)
    both = _Numbered.of(traced, kernels)
    for rows, others in both.most_alike():
        found = [(codes[own], pairs) for own in others for pairs in both.partners(rows, own)]
        matched = known.agree([np.where(pairs == NONE, NONE, own[pairs]) for own, pairs in found])
        gaps = known.agree([owners_between(own, _as_alignment(own, pairs)) for own, pairs in found])
        owner[rows] = known.fill(np.where(matched == NONE, gaps, matched))
    owned = known.rows().reindex(owner)
    table = traced.assign(launch=traced.groupby(STEP).cumcount(), nsys_ns=traced["ns"])
    table = table.assign(**{name: owned[name].fillna("").to_numpy() for name in OWNER})
    nowhere = (owner == NONE) | table["module"].eq(UNALIGNED).to_numpy()
    table.loc[nowhere, "module"] = UNALIGNED
    table.loc[nowhere, "direction"] = table.loc[nowhere, "range"]
    table[BY] = np.select([nowhere, owner >= known.certain], ["", COMMON], LIKE)
    return Joined(table, int(traced[STEP].nunique()))


class _Owners:
    """Owners by number, and those that are made where alignments do not agree."""

    def __init__(self, table: pd.DataFrame) -> None:
        """Prepare; table: OWNER, a row per owner, by number."""
        self._rows: list[tuple[str, ...]] = list(table.itertuples(index=False, name=None))
        self._merged: dict[tuple[frozenset[int], bool], int] = {}
        self.certain = len(self._rows)

    def rows(self) -> pd.DataFrame:
        """Return OWNER, a row per owner, by number."""
        return pd.DataFrame(self._rows, columns=OWNER, dtype="object")

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
            rows = pd.DataFrame([self._rows[number] for number in sorted(numbers)], columns=OWNER)
            merged = {name: rows[name].iloc[0] if rows[name].nunique() == 1 else "" for name in OWNER}
            merged["module"] = common_module(rows["module"].tolist()) if merged["direction"] else UNALIGNED
            merged |= dict.fromkeys(OF_OPERATOR, "") if within else {}
            self._merged[numbers, within] = len(self._rows)
            self._rows.append(tuple(merged[name] for name in OWNER))
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
    parts = zip(*(name.split(".") for name in modules), strict=False)
    return ".".join(same[0] for same in itertools.takewhile(lambda part: len(set(part)) == 1, parts)) or ROOT


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

    def most_alike(self) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Yield rows of each step of the first tool, and those of the steps of the second to align it with.

        That is a single step if it is equal, and else the steps that have most launches in common.
        """
        size = int(max((one.max(initial=-1) for one in self.exact), default=-1)) + 1
        held = [np.bincount(self.exact[1][own], minlength=size) for own in self.steps[1]]
        pairs = 2 * len(self.exact[0]) * len(self.exact[1]) / max(len(held), 1)
        tried = int(np.clip(PAIRS / max(pairs, 1), LEAST_TRIED, MOST_TRIED))
        for rows in self.steps[0]:
            mine = np.bincount(self.exact[0][rows], minlength=size)
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
    no = [np.zeros(len(one), dtype=bool) for one in (own, pairs)]
    return Alignment(partner, pairs, no[0], no[1], NONE)


def own_counted_step(counted: Joined, owners: pd.DataFrame) -> Joined:
    """Return the launches of ncu's window with owners found as those of nsys, if the window is a single step.

    counted: from joined_step.join_ncu_launches; owners: rows of the cell's torch.launches.csv.
    """
    if counted.steps != 1:
        return counted
    step = counted.launches.drop(columns=[*OWNER, BY]).assign(**{PROCESS: 0, STEP: 0})
    found = join_differing_steps(step, owners).launches
    return counted.of(counted.launches.assign(**{name: found[name].to_numpy() for name in (*OWNER, BY)}))


def select_most_alike(nsys: pd.DataFrame, kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the step of nsys that has most launches in common with the one step of torch.

    nsys: as for join_differing_steps; kernels: launches of a single step of torch.
    """
    traced = select_typical_process(nsys).reset_index(drop=True)
    both = _Numbered.of(traced, kernels)
    size = int(max((one.max(initial=-1) for one in both.exact), default=-1)) + 1
    its = np.bincount(both.exact[1], minlength=size)
    common = [np.minimum(np.bincount(both.exact[0][rows], minlength=size), its).sum() for rows in both.steps[0]]
    return traced.iloc[both.steps[0][int(np.argmax(common))]].reset_index(drop=True)


def add_counters(rows: pd.DataFrame, counted: pd.DataFrame) -> pd.DataFrame:
    """Return rows of joined_step.kernels with the counters of ncu's own steps.

    rows: of all steps of nsys, without counters; counted: of the steps that ncu saw. Rows that only ncu saw are left
    out, as the step's time does not contain them.
    """
    names = [*derived_metrics.QUANTITIES, *counters.INTERVALS]
    return rows.drop(columns=names).merge(counted[[*GROUPS, *names]], on=GROUPS, how="left")[list(rows.columns)]
