"""Aligns the steps of one run with one another: which launch of a step corresponds to which launch of the others.

Steps that launch differently are laid over one another in one sequence of places, which holds every launch of every
step once. A launch that all steps have has one place, and so has a launch that only some of them have. Two launches
share a place if both run the same kernel in the same part of the step, in the same order among the launches around
them. Of all such layouts, one is taken that pairs the most launches, and among these the most with the same launch
configuration, and among these the one with the fewest gaps (Gotoh, 1982). Where equal launches or layers follow one
another, it is a convention which of them a shorter step lacks; how many are paired is not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from profzoo.launches.alignment import NONE, align
from profzoo.launches.cross_tool import GRID, PARTS_OF_SMEM
from profzoo.range_names import STEP

# What a pair counts for: the same kernel, and besides, the same launch configuration.
LIKE, SAME = 2, 1
# The most pairs of launches that are looked at together. So many take a few seconds.
MOST_CELLS = 100_000_000
# So many launches beside those that differ are aligned with them, though they are the same.
MARGIN = 250
# States of an alignment: both last launches are a pair, or the last one of one of the sequences has no partner.
PAIRED, SKIPS_FIRST, SKIPS_SECOND = range(3)


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
            (PARTS_OF_SMEM or `smem_bytes`) and `range`, the part of the step. Calls of operators may take the place of
            launches; these have `name` and `shapes`.

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
    shape = [*GRID, *(column for column in (*PARTS_OF_SMEM, "smem_bytes", "shapes") if column in launches)]
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
    begin, tail = (max(common - MARGIN, 0) for common in _common_ends(first[0], second[0]))
    ends = len(first[0]) - tail, len(second[0]) - tail
    partner[:begin], partner[ends[0] :] = np.arange(begin), np.arange(ends[1], len(second[0]))
    inner = slice(begin, ends[0]), slice(begin, ends[1])
    fits = (ends[0] - begin) * (ends[1] - begin) <= MOST_CELLS
    for rows, others in [inner] if fits else _between_pairs(first[1], second[1], *inner):
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


def _between_pairs(first: np.ndarray, second: np.ndarray, mine: slice, its: slice) -> Iterator[tuple[slice, slice]]:
    """Yield stretches that each begin with a pair of kernels that no alignment with the fewest gaps leaves apart."""
    partner = align(first[mine], second[its]).partner
    paired = np.flatnonzero(partner != NONE)
    edges = zip((paired + mine.start).tolist(), (partner[paired] + its.start).tolist(), strict=True)
    for (row, other), (stop, end) in pairwise([(mine.start, its.start), *edges, (mine.stop, its.stop)]):
        yield slice(row, stop), slice(other, end)


def _best_pairs(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> np.ndarray:
    """Return pairs as pair_launches does: those with the highest score, and among these, with the fewest gaps.

    The matrix is filled row by row for three states: the last launches of both are paired, or the last one of the first
    or of the second sequence has no partner (Gotoh, 1982). What each state came from is kept.
    """
    rows, columns = len(first[0]), len(second[0])
    # Any pair counts for more than all gaps together.
    unit, never = rows + columns + 1, -(2**30)
    scores: dict[int, np.ndarray] = {}
    paired, first_alone, second_alone = (np.full(columns + 1, never, dtype=np.int32) for _ in range(3))
    paired[0], second_alone[1:] = 0, -1
    came = np.zeros((3, rows, columns + 1), dtype=np.uint8)
    for row, (own, alike) in enumerate(zip(*(one.tolist() for one in first), strict=True)):
        if own not in scores:
            found = LIKE * (second[1] == alike) + SAME * (second[0] == own)
            scores[own] = np.where(found > 0, unit * found, never).astype(np.int32)
        ended, came[PAIRED, row, 1:] = _largest(paired[:-1], first_alone[:-1], second_alone[:-1])
        alone, came[SKIPS_FIRST, row] = _largest(paired - 1, first_alone, second_alone - 1)
        paired[0] = never
        np.maximum(ended + scores[own], never, out=paired[1:])
        first_alone = np.maximum(alone, never)
        begun, came[SKIPS_SECOND, row, 1:] = _largest(paired[:-1] - 1, first_alone[:-1] - 1)
        np.maximum.accumulate(begun, out=second_alone[1:])
        second_alone[0] = never
        came[SKIPS_SECOND, row, 1:][second_alone[1:] > begun] = SKIPS_SECOND
    return _traced_back(came, int(np.argmax([paired[-1], first_alone[-1], second_alone[-1]])))


def _largest(*values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest of two or three values at each index, and the first of these that is as large."""
    largest = np.maximum(values[0], values[1])
    which = (values[1] > values[0]).astype(np.uint8)
    for number, other in enumerate(values[2:], 2):
        which[other > largest] = number
        largest = np.maximum(largest, other)
    return largest, which


def _traced_back(came: np.ndarray, state: int) -> np.ndarray:
    """Return the pairs on the way that ends in a state; came: states by state, row and column."""
    _, at, columns = came.shape
    other, partner = columns - 1, np.full(at, NONE)
    while at:
        before = int(came[state, at - 1, other])
        if state == PAIRED:
            at, other = at - 1, other - 1
            partner[at] = other
        elif state == SKIPS_FIRST:
            at -= 1
        else:
            other -= 1
        state = before
    return partner
