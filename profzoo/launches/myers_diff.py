"""Finds all alignments of two sequences with the fewest gaps, as stretches of the edit grid (Myers 1986).

The search goes layer by layer of edits and keeps the furthest point on each diagonal (Myers 1986,
doi:10.1007/BF01840446). It runs from both ends. A best alignment passes a point if the edits before the point and the
edits after it add up to the fewest possible. To skip over runs of equal launches, all stretches of 2, 4, 8 ... launches
are numbered; equal stretches have equal numbers. Time grows with the square of the edits. Memory grows linearly with
the launches, plus edits ** 1.5.
"""

import math
from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np

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
