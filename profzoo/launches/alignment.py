"""Aligns two sequences of launches: which launch of one run corresponds to which of the other.

Only the alignments with the fewest gaps are considered. Often there are several: if one run has three equal launches in
a row and the other run has two, any of the three may be the extra launch. Therefore a pair is reported only if all of
these alignments contain it. A pair that chance explains is not reported either: two unrelated stretches may still
contain some equal launches.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

# Finds all alignments of two sequences with the fewest gaps, as stretches of the edit grid (Myers 1986).
#
# The search goes layer by layer of edits and keeps the furthest point on each diagonal (Myers 1986,
# doi:10.1007/BF01840446). It runs from both ends. A best alignment passes a point if the edits before the point and the
# edits after it add up to the fewest possible. To skip over runs of equal launches, all stretches of 2, 4, 8 ...
# launches are numbered; equal stretches have equal numbers. Time grows with the square of the edits. Memory grows
# linearly with the launches, plus edits ** 1.5.

NONE = -1
# The x on a diagonal that no path has reached.
FAR = -(2**30)
# Three arrays of equal length; the functions that use them say what each one holds.
Runs = tuple[np.ndarray, np.ndarray, np.ndarray]


class Search:
    """The edit grid: point (x, y) means that x launches of the first and y of the second sequence are consumed.

    A diagonal consists of the points with the same x - y. Layer d is an array over the diagonals -d, -d + 2, ... d;
    it holds the furthest x that a path with d edits reaches.
    """

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        self.sizes = len(first), len(second)
        _, codes = np.unique(np.concatenate([first, second]), return_inverse=True)
        self.ranks = [(codes[: len(first)].astype(np.int32), codes[len(first) :].astype(np.int32))]
        while min(map(len, self.ranks[-1])) > 1 << (len(self.ranks) - 1):
            self.ranks.append(_doubled(*self.ranks[-1], 1 << (len(self.ranks) - 1)))

    def edits(self, most: int) -> int:
        """Return the fewest edits; NONE if they exceed `most`."""
        size, other = self.sizes
        if abs(size - other) > most:
            return NONE
        for count, layer in zip(range(most + 1), self.layers(), strict=False):
            place = count + size - other
            if place % 2 == 0 and 0 <= place // 2 <= count and layer[place // 2] >= size:
                return count
        return NONE

    def layers(self, backward: bool = False, after: tuple[int, np.ndarray] | None = None) -> Iterator[np.ndarray]:
        """Yield per number of edits how far paths reach along each diagonal.

        Args:
            backward: paths begin at the end of both sequences; diagonals and x are counted from there.
            after: number of a layer and that layer; the first layer yielded is the next one. Without it, layer 0.
        """
        size, other = self.sizes
        if after is None:
            after = 0, self._slid(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), backward)
            yield after[1]
        number, layer = after
        while True:
            number += 1
            diagonals = 2 * np.arange(number + 1) - number
            right, down = np.append(FAR, layer + 1), np.append(layer, FAR)
            right[right > size] = FAR
            down[down - diagonals > other] = FAR
            layer = self._slid(np.maximum(right, down), diagonals, backward)
            yield layer

    def best(self, edits: int) -> Iterator[Runs]:
        """Yield the points of best alignments, layer by layer: diagonals, and on each the first and last x."""
        size, other = self.sizes
        shift = size - other
        for number, (layer, rest) in enumerate(zip(self.layers(), self._backwards(edits), strict=False)):
            left = edits - number
            diagonals = 2 * np.arange(number + 1) - number
            # Diagonal k is shift - k as seen from the end, at index (shift - k + left) / 2 of its layer.
            places = (shift - diagonals + left) // 2
            known = np.flatnonzero((places >= 0) & (places <= left))
            begin, end = size - rest[places[known]], layer[known]
            kept = (begin <= end) & (end >= 0)
            yield diagonals[known][kept], begin[kept], end[kept]

    def _backwards(self, edits: int) -> Iterator[np.ndarray]:
        """Yield the layers from the sequences' end, last layer first.

        To save memory, only every `stride`-th layer is kept; the layers between are computed a second time.
        """
        stride = max(1, math.isqrt(edits))
        kept = {number: layer for number, layer in zip(range(edits + 1), self.layers(True), strict=False)
                if number % stride == 0}  # fmt: skip
        for start, end in reversed(list(pairwise([*kept, edits + 1]))):
            between = islice(self.layers(True, (start, kept[start])), end - start - 1)
            yield from reversed([kept[start], *between])

    def matches(self, diagonals: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Iterator[Runs]:
        """Return runs of equal launches on stretches of diagonals: diagonals, first x, and length of each."""
        while len(diagonals):
            length = np.minimum(self._alike(begin, begin - diagonals, False), end - begin)
            yield diagonals[length > 0], begin[length > 0], length[length > 0]
            # The next run begins after the unequal launch.
            begin = begin + length + 1
            more = begin < end
            diagonals, begin, end = diagonals[more], begin[more], end[more]

    def _slid(self, layer: np.ndarray, diagonals: np.ndarray, backward: bool) -> np.ndarray:
        """Move each point of a layer along its diagonal as far as launches are equal."""
        there = layer >= 0
        x = layer[there]
        layer[there] = x + self._alike(x, x - diagonals[there], backward)
        return layer

    def _alike(self, x: np.ndarray, y: np.ndarray, backward: bool) -> np.ndarray:
        """Return how many launches from x of the first and y of the second sequence on are equal, one by one."""
        ways = np.zeros(len(x), dtype=np.int64)
        going = self._same(0, x, y, backward)
        for power in reversed(range(len(self.ranks))):
            if not len(going):
                break
            leap = going[self._same(power, (x + ways)[going], (y + ways)[going], backward)]
            ways[leap] += 1 << power
        return ways

    def _same(self, power: int, x: np.ndarray, y: np.ndarray, backward: bool) -> np.ndarray:
        """Return at which points the next 2 ** power launches of both sequences are equal."""
        first, second = self.ranks[power]
        if backward:
            first, second = first[::-1], second[::-1]
        inside = np.flatnonzero((x < len(first)) & (y < len(second)))
        return inside[first[x[inside]] == second[y[inside]]]


def _doubled(first: np.ndarray, second: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers of stretches of twice the length; equal stretches get equal numbers."""
    highest = 1 + max(int(first.max()), int(second.max()))
    pairs = [ranks[:-length] * np.int64(highest) + ranks[length:] for ranks in (first, second)]
    _, numbers = np.unique(np.concatenate(pairs), return_inverse=True)
    numbers = numbers.astype(np.int32)
    return numbers[: len(pairs[0])], numbers[len(pairs[0]) :]


# Most unmatched launches for which two sequences are aligned. Aligning with this many takes seconds.
MOST_EDITS = 5_000
# A run of pairs amid unmatched launches is reported if chance produces it with at most this probability.
CHANCE = 0.01


@dataclass(frozen=True)
class Alignment:
    """The launch of the second sequence for each launch of the first, and the reverse.

    Attributes:
        partner: integers, shape (launches of the first sequence,): index of the match in the second sequence, or NONE.
        of_second: integers, shape (launches of the second sequence,): index of the match in the first, or NONE.
        edits: number of unmatched launches in the best alignments. NONE if they exceed the limit; then nothing is
            aligned.
    """

    partner: np.ndarray
    of_second: np.ndarray
    edits: int

    @property
    def gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for each launch of either sequence how many aligned pairs come before it.

        Unaligned launches of the two sequences with equal numbers lie between the same two pairs.
        """
        first, second = self.partner != NONE, self.of_second != NONE
        return np.cumsum(first) - first, np.cumsum(second) - second


def align(first: np.ndarray, second: np.ndarray, most_edits: int = MOST_EDITS) -> Alignment:
    """Align two sequences of whole numbers; equal numbers may be the same launch.

    Args:
        first: integers, shape (launches,).
        second: integers, shape (launches,); the lengths may differ.
        most_edits: most unmatched launches for which the sequences are aligned.

    >>> align(np.array([1, 2, 3, 4]), np.array([1, 3, 4, 5])).partner.tolist()
    [0, -1, 1, 2]

    It is uncertain which of three equal launches the other run lacks, and which of two swapped launches moved:

    >>> align(np.array([1, 2, 2, 2, 3]), np.array([1, 2, 2, 3])).partner.tolist()
    [0, -1, -1, -1, 3]
    >>> align(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 4])).partner.tolist()
    [0, -1, -1, 3]
    """
    if np.array_equal(first, second):
        return Alignment(np.arange(len(first)), np.arange(len(first)), 0)
    search = Search(first, second)
    edits = search.edits(most_edits)
    if edits == NONE:
        return Alignment(np.full(len(first), NONE), np.full(len(second), NONE), NONE)
    counts = _Counts(len(first), len(second))
    for layer, (diagonals, begin, end) in enumerate(search.best(edits)):
        counts.points(diagonals, begin, end)
        for runs in search.matches(diagonals, begin, end):
            counts.pairs(*runs, layer)
    partner, before = counts.certain()
    partner[_chance(partner, before, edits, first, second)] = NONE
    of_second = np.full(len(second), NONE)
    of_second[partner[partner != NONE]] = np.flatnonzero(partner != NONE)
    return Alignment(partner, of_second, edits)


def _chance(partner: np.ndarray, before: np.ndarray, edits: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return launches of the first sequence whose pairs may be due to chance; before: edits before each pair.

    Only runs between two gaps are tested, and only if these gaps contain more edits than the run has pairs. The run
    could lie elsewhere among the unpaired launches beside it. The number of such places is the product of the numbers
    of unpaired launches in both sequences. The probability of a match at one place is the product of the shares of the
    run's launches.
    """
    paired = np.flatnonzero(partner != NONE)
    if not len(paired):
        return paired
    cut = np.flatnonzero((np.diff(paired) != 1) | (np.diff(partner[paired]) != 1)) + 1
    begins, ends = paired[np.append(0, cut)], paired[np.append(cut, len(paired)) - 1]
    lengths = ends - begins + 1
    beside = np.diff(before[begins], prepend=0, append=edits)
    places = np.zeros(len(begins))
    for begin, size in ((begins, len(first)), (partner[begins], len(second))):
        end = begin + lengths
        places += np.log1p(begin - np.append(0, end[:-1]) + np.append(begin[1:], size) - end)
    _, codes, counts = np.unique(np.concatenate([first, second]), return_inverse=True, return_counts=True)
    sums = np.append(0, np.cumsum(np.log(counts[codes[: len(first)]] / len(codes))))
    asked = (lengths < beside[:-1] + beside[1:]) & (beside[:-1] > 0) & (beside[1:] > 0)
    doubtful = asked & (places + sums[begins + lengths] - sums[begins] > np.log(CHANCE))
    return paired[np.repeat(doubtful, lengths)]


class _Counts:
    """Counts of best alignments by antidiagonal (constant x + y).

    Each alignment crosses an antidiagonal once, either at a point or within a pair. If one pair is the only crossing of
    its antidiagonal, every best alignment contains that pair. A stretch adds a change at its begin and at its end; a
    cumulative sum then gives the counts.
    """

    def __init__(self, size: int, other: int) -> None:
        self._passed, self._paired, self._diagonal, self._layer = np.zeros((4, size + other + 3), dtype=np.int64)
        self._size = size

    def points(self, diagonals: np.ndarray, begin: np.ndarray, end: np.ndarray) -> None:
        """Count points on stretches of diagonals, from the first to the last x."""
        np.add.at(self._passed, 2 * begin - diagonals, 1)
        np.add.at(self._passed, 2 * end - diagonals + 2, -1)

    def pairs(self, diagonals: np.ndarray, begin: np.ndarray, length: np.ndarray, layer: int) -> None:
        """Count pairs on runs along diagonals, from the first x on; layer: edits before them."""
        for counts, value in ((self._paired, 1), (self._diagonal, diagonals), (self._layer, layer)):
            np.add.at(counts, 2 * begin - diagonals + 1, value)
            np.add.at(counts, 2 * (begin + length) - diagonals + 1, -value)

    def certain(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for each launch of the first sequence its partner in all alignments, or NONE, and edits before it."""
        passed, paired = _along(self._passed), _along(self._paired)
        # Antidiagonals of the certain pairs: x + y + 1.
        sums = np.flatnonzero((paired == 1) & (passed == 0))
        x = (sums - 1 + _along(self._diagonal)[sums]) // 2
        partner, before = np.full((2, self._size), NONE)
        partner[x], before[x] = sums - 1 - x, _along(self._layer)[sums]
        return partner, before


def _along(changes: np.ndarray) -> np.ndarray:
    """Return cumulative sums over the even and over the odd positions separately."""
    sums = changes.copy()
    for parity in (0, 1):
        sums[parity::2] = np.cumsum(changes[parity::2])
    return sums
