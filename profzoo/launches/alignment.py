"""Aligns two sequences of launches: which launch of one run corresponds to which of the other.

Only the alignments with the fewest gaps are considered. Often there are several: if one run has three equal launches in
a row and the other run has two, any of the three may be the extra launch. Therefore a pair is reported only if all of
these alignments contain it. A pair that chance explains is not reported either: two unrelated stretches may still
contain some equal launches.
"""

from dataclasses import dataclass

import numpy as np

from profzoo.launches.myers_diff import NONE, Search

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
        ambiguous: booleans, as `partner`: the launch has possible matches, but none of them is certain.
        second_ambiguous: booleans, as `of_second`.
        edits: number of unmatched launches in the best alignments. NONE if they exceed the limit; then nothing is
            aligned.

    A launch that is neither aligned nor ambiguous is missing from the other run.
    """

    partner: np.ndarray
    of_second: np.ndarray
    ambiguous: np.ndarray
    second_ambiguous: np.ndarray
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

    It is ambiguous which of three equal launches the other run lacks, and which of two swapped launches moved:

    >>> found = align(np.array([1, 2, 2, 2, 3]), np.array([1, 2, 2, 3]))
    >>> found.partner.tolist(), found.ambiguous.tolist()
    ([0, -1, -1, -1, 3], [False, True, True, True, False])
    >>> align(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 4])).partner.tolist()
    [0, -1, -1, 3]
    """
    if np.array_equal(first, second):
        no = np.zeros(len(first), dtype=bool)
        return Alignment(np.arange(len(first)), np.arange(len(first)), no, no.copy(), 0)
    search = Search(first, second)
    edits = search.edits(most_edits)
    if edits == NONE:
        sizes = len(first), len(second)
        nothing, none = (np.full(size, NONE) for size in sizes)
        return Alignment(nothing, none, nothing == 0, none == 0, NONE)
    counts = _Counts(len(first), len(second))
    for layer, (diagonals, begin, end) in enumerate(search.best(edits)):
        counts.points(diagonals, begin, end)
        for runs in search.matches(diagonals, begin, end):
            counts.pairs(*runs, layer)
    partner, before = counts.certain()
    partner[_chance(partner, before, edits, first, second)] = NONE
    of_second = np.full(len(second), NONE)
    of_second[partner[partner != NONE]] = np.flatnonzero(partner != NONE)
    some, others = counts.some()
    return Alignment(partner, of_second, some & (partner == NONE), others & (of_second == NONE), edits)


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
    """Counts of best alignments by antidiagonal (constant x + y), and of the launches that they pair.

    Each alignment crosses an antidiagonal once, either at a point or within a pair. If one pair is the only crossing of
    its antidiagonal, every best alignment contains that pair. A stretch adds a change at its begin and at its end; a
    cumulative sum then gives the counts.
    """

    def __init__(self, size: int, other: int) -> None:
        self._passed, self._paired, self._diagonal, self._layer = np.zeros((4, size + other + 3), dtype=np.int64)
        self._of = np.zeros(size + 1, dtype=np.int64), np.zeros(other + 1, dtype=np.int64)

    def points(self, diagonals: np.ndarray, begin: np.ndarray, end: np.ndarray) -> None:
        """Count points on stretches of diagonals, from the first to the last x."""
        np.add.at(self._passed, 2 * begin - diagonals, 1)
        np.add.at(self._passed, 2 * end - diagonals + 2, -1)

    def pairs(self, diagonals: np.ndarray, begin: np.ndarray, length: np.ndarray, layer: int) -> None:
        """Count pairs on runs along diagonals, from the first x on; layer: edits before them."""
        for counts, value in ((self._paired, 1), (self._diagonal, diagonals), (self._layer, layer)):
            np.add.at(counts, 2 * begin - diagonals + 1, value)
            np.add.at(counts, 2 * (begin + length) - diagonals + 1, -value)
        for counts, start in zip(self._of, (begin, begin - diagonals), strict=True):
            np.add.at(counts, start, 1)
            np.add.at(counts, start + length, -1)

    def certain(self) -> tuple[np.ndarray, np.ndarray]:
        """Return for each launch of the first sequence its partner in all alignments, or NONE, and edits before it."""
        passed, paired = _along(self._passed), _along(self._paired)
        # Antidiagonals of the certain pairs: x + y + 1.
        sums = np.flatnonzero((paired == 1) & (passed == 0))
        x = (sums - 1 + _along(self._diagonal)[sums]) // 2
        partner, before = np.full((2, len(self._of[0]) - 1), NONE)
        partner[x], before[x] = sums - 1 - x, _along(self._layer)[sums]
        return partner, before

    def some(self) -> list[np.ndarray]:
        """Return for each launch of either sequence whether any alignment pairs it."""
        return [np.cumsum(counts)[:-1] > 0 for counts in self._of]


def _along(changes: np.ndarray) -> np.ndarray:
    """Return cumulative sums over the even and over the odd positions separately."""
    sums = changes.copy()
    for parity in (0, 1):
        sums[parity::2] = np.cumsum(changes[parity::2])
    return sums
