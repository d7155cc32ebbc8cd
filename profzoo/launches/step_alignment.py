"""Aligns the steps of one run with one another: which launch of a step corresponds to which launch of the others.

Steps that launch differently are laid over one another in one sequence of places, which holds every launch of every
step once. A launch that all steps have has one place, and so has a launch that only some of them have. Two launches
share a place if both run the same kernel in the same part of the step, in the same order among the launches around
them. Of all such layouts, one is taken that pairs the most launches, and among these the most with the same launch
configuration (the longest common subsequence; Hirschberg, 1975, and Needleman and Wunsch, 1970, with free gaps). Where
equal launches follow one another, it is a convention which of them a shorter step lacks; how many are paired is not.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from profzoo.launches.cross_tool import GRID, PARTS_OF_SMEM
from profzoo.launches.myers_diff import NONE
from profzoo.range_names import STEP

# What a pair counts for: the same kernel, and besides, the same launch configuration.
LIKE, SAME = 2, 1
# The most pairs of launches that are looked at together. So many take a few seconds.
MOST_CELLS = 150_000_000


@dataclass(frozen=True)
class StepLayout:
    """Steps of one run, laid over one another.

    Attributes:
        places: integers, shape (launches of all steps,): place of each launch in the common sequence, from 0. Places
            follow the order of launches within each step.
        configurations: integers, as `places`: equal numbers mean equal kernel, launch configuration and part of the
            step.
        steps: integers, as `places`: number of the step of each launch, from 0.
    """

    places: np.ndarray
    configurations: np.ndarray
    steps: np.ndarray

    @property
    def count(self) -> int:
        """Return the number of steps."""
        return int(self.steps.max(initial=-1)) + 1

    @property
    def in_steps(self) -> np.ndarray:
        """Return for each place in how many of the steps it is launched."""
        return np.bincount(self.places, minlength=int(self.places.max(initial=-1)) + 1)


def steps_differ(launches: pd.DataFrame, by: Sequence[str] = (STEP,)) -> bool:
    """Return whether steps launch other kernels, or kernels of other shapes, or another number of them.

    The order of launches does not matter, as it may be random where several streams are used.

    Args:
        launches: frame as for lay_steps.
        by: columns that tell steps apart.
    """
    steps, codes = launches.groupby(list(by), sort=False).ngroup().to_numpy(), _codes(launches)[0]
    counts = pd.crosstab(steps, codes).to_numpy() if len(launches) else np.zeros((0, 0))
    return bool((counts != counts[:1]).any())


def lay_steps(launches: pd.DataFrame) -> StepLayout:
    """Lay the steps of one process over one another.

    Args:
        launches: one row per kernel launch, in the order of the launching calls within each step. Columns: `step`;
            `mangled`, or else `kernel` or `name`; GRID; and, if known, the shared memory of a block in bytes
            (PARTS_OF_SMEM or `smem_bytes`) and `range`, the part of the step.

    The first step to be laid is the one that has most in common with all others; then follow the others, the most alike
    first.

    >>> rows = [(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "x"), (1, "c"), (2, "a"), (2, "b"), (2, "c")]
    >>> frame = pd.DataFrame(rows, columns=["step", "kernel"]).assign(**dict.fromkeys(GRID, 1))
    >>> lay_steps(frame).places.tolist()
    [0, 1, 3, 0, 2, 3, 0, 1, 3]
    """
    exact, like = _codes(launches)
    steps, _ = pd.factorize(launches[STEP])
    rows = [np.flatnonzero(steps == number) for number in range(int(steps.max(initial=-1)) + 1)]
    equal = _unique([exact[own] for own in rows])
    first_of = dict(zip(equal, rows, strict=True))
    laid = {number: (exact[own], like[own]) for number, own in first_of.items()}
    sequence, found = _lay(laid, np.bincount(equal, minlength=len(laid)))
    places = np.full(len(launches), NONE)
    turn = np.empty(len(sequence), dtype=np.int64)
    turn[sequence] = np.arange(len(sequence))
    for number, own in zip(equal, rows, strict=True):
        places[own] = turn[found[number]]
    return StepLayout(places, exact, steps)


def _codes(launches: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of launch configurations and of kernels, each within a part of the step."""
    named = "mangled" if "mangled" in launches and bool(launches["mangled"].fillna("").ne("").all()) else None
    name = named or ("kernel" if "kernel" in launches else "name")
    kernel = [name, *(["range"] if "range" in launches else [])]
    shape = [*GRID, *(column for column in (*PARTS_OF_SMEM, "smem_bytes") if column in launches)]
    exact, like = (
        launches.groupby(by, sort=False, dropna=False, observed=True).ngroup().to_numpy(dtype=np.int64)
        for by in ([*kernel, *shape], kernel)
    )
    return exact, like


def _unique(sequences: Sequence[np.ndarray]) -> list[int]:
    """Return a number for each sequence; equal sequences have equal numbers."""
    known: dict[bytes, int] = {}
    return [known.setdefault(one.tobytes(), len(known)) for one in sequences]


def _lay(
    laid: dict[int, tuple[np.ndarray, np.ndarray]], weights: np.ndarray
) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Lay distinct steps over one another.

    laid: numbers of configurations and kernels of each; weights: how many steps each stands for.

    Returns: places in their order, and the place of each launch of each step.
    """
    size = 1 + max((int(exact.max(initial=-1)) for exact, _ in laid.values()), default=0)
    held = np.stack([np.bincount(exact, minlength=size) for exact, _ in laid.values()]) if laid else np.zeros((0, 0))
    common = np.array([[np.minimum(one, other).sum() for other in held] for one in held]).reshape(len(laid), len(laid))
    if not len(laid):
        return np.arange(0), {}
    begin = int((common @ weights).argmax())
    order = [begin, *(number for number in np.argsort(-common[begin], kind="stable") if number != begin)]
    exact, like = laid[begin]
    places = np.arange(len(exact))
    found = {begin: places}
    for number in order[1:]:
        own, alike = laid[int(number)]
        partner = pair_launches((own, alike), (exact, like))
        mine = np.where(partner == NONE, NONE, places[partner])
        new = np.flatnonzero(partner == NONE)
        mine[new] = len(places) + np.arange(len(new))
        found[int(number)] = mine
        # New places come before the next launch that has a partner.
        following = np.append(partner, len(places))
        following = np.minimum.accumulate(np.where(following == NONE, len(places), following)[::-1])[::-1][:-1]
        exact, like = (np.insert(one, following[new], more[new]) for one, more in ((exact, own), (like, alike)))
        places = np.insert(places, following[new], mine[new])
    return places, found


def pair_launches(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the partner in the second sequence of each launch of the first, or NONE; partners keep their order.

    first, second: numbers of configurations and numbers of kernels, each of shape (launches,).

    >>> one = np.array([1, 2, 3, 4])
    >>> pair_launches((one, one), (np.array([1, 9, 4]), np.array([1, 3, 4]))).tolist()
    [0, -1, 1, 2]
    """
    partner = np.full(len(first[0]), NONE)
    begin, tail = _common_ends(first[0], second[0])
    ends = len(first[0]) - tail, len(second[0]) - tail
    partner[:begin], partner[ends[0] :] = np.arange(begin), np.arange(ends[1], len(second[0]))
    inner = slice(begin, ends[0]), slice(begin, ends[1])
    fits = (ends[0] - begin) * (ends[1] - begin) <= MOST_CELLS
    for rows, others in [inner] if fits else _between_anchors(first[0], second[0], *inner):
        if 0 < (rows.stop - rows.start) * (others.stop - others.start) <= MOST_CELLS:
            pairs = _best_pairs(tuple(one[rows] for one in first), tuple(one[others] for one in second))
            partner[rows] = np.where(pairs == NONE, NONE, pairs + others.start)
    return partner


def _common_ends(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Return how many launches are equal from the begin on, and how many of the others up to the end."""
    shorter = min(len(first), len(second))
    differs = np.flatnonzero(first[:shorter] != second[:shorter])
    begin = int(differs[0]) if len(differs) else shorter
    left = shorter - begin
    differs = np.flatnonzero(first[::-1][:left] != second[::-1][:left])
    return begin, int(differs[0]) if len(differs) else left


def _between_anchors(first: np.ndarray, second: np.ndarray, mine: slice, its: slice) -> Iterator[tuple[slice, slice]]:
    """Yield stretches that begin with launches which are single in both sequences and keep their order in both."""
    at = [
        dict(zip(*np.unique(one[part], return_index=True)[:2], strict=True))
        for one, part in ((first, mine), (second, its))
    ]
    counts = [np.unique(one[part], return_counts=True) for one, part in ((first, mine), (second, its))]
    single = [set(values[number == 1].tolist()) for values, number in counts]
    common = sorted(single[0] & single[1], key=lambda code: at[0][code])
    chosen = [common[index] for index in _longest_rise([int(at[1][code]) for code in common])]
    edges = [
        (mine.start, its.start),
        *((mine.start + int(at[0][code]), its.start + int(at[1][code])) for code in chosen),
    ]
    for (row, other), (stop, end) in zip(edges, [*edges[1:], (mine.stop, its.stop)], strict=True):
        yield slice(row, stop), slice(other, end)


def _longest_rise(values: Sequence[int]) -> list[int]:
    """Return the indices of a longest rising subsequence.

    >>> _longest_rise([3, 1, 2, 5, 4])
    [1, 2, 4]
    """
    tails: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, value in enumerate(values):
        at = bisect_left(tails, value)
        tails[at : at + 1], ends[at : at + 1] = [value], [index]
        before.append(ends[at - 1] if at else NONE)
    found, index = [], ends[-1] if ends else NONE
    while index != NONE:
        found.append(index)
        index = before[index]
    return found[::-1]


def _best_pairs(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> np.ndarray:
    """Return pairs as pair_launches does, from the whole matrix of scores; row by row, two bits of each are kept."""
    rows, columns = len(first[0]), len(second[0])
    above = np.zeros(columns + 1, dtype=np.int32)
    from_above, from_left = [], []
    for own, alike in zip(*first, strict=True):
        score = LIKE * (second[1] == alike) + SAME * (second[0] == own)
        row = above.copy()
        np.maximum(above[1:], above[:-1] + score, out=row[1:])
        np.maximum.accumulate(row, out=row)
        from_above.append(np.packbits(row == above))
        from_left.append(np.packbits(row[1:] == row[:-1]))
        above = row
    partner = np.full(rows, NONE)
    at, other = rows, columns
    while at and other:
        if _bit(from_above[at - 1], other):
            at -= 1
        elif _bit(from_left[at - 1], other - 1):
            other -= 1
        else:
            at, other = at - 1, other - 1
            partner[at] = other
    return partner


def _bit(packed: np.ndarray, index: int) -> int:
    return int(packed[index >> 3]) >> (7 - (index & 7)) & 1
