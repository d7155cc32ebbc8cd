"""Finds the period with which a sequence of launches repeats itself."""

import numpy as np

# Shorter ones are a kernel in a loop rather than a step; fewer repetitions may be chance; and what is not repeated may
# be no more than a program's beginning.
LEAST_PERIOD, LEAST_REPEATS, LEAST_SHARE = 4, 3, 0.9
# Periods that are tried, the shortest first.
TRIED = 2000


def find_repetition(names: np.ndarray) -> np.ndarray:
    """Return where each repetition begins, and where the last whole one ends; empty where the sequence does not repeat.

    names: of launches, in order. A sequence repeats if it ends in one and the same sequence of launches over and over,
    the last one perhaps cut off, and these are nearly all of it. So layers that repeat within a step, or parameters in
    an optimizer, are not taken for steps: a step has other launches too, before or behind them.

    >>> find_repetition(np.array([*"efabcdefabcdefabcdefab"])).tolist()
    [0, 6, 12, 18]
    >>> find_repetition(np.array([*"abcdefabcdefabcdefhead"])).tolist()
    []
    """
    count = len(names)
    nothing = np.zeros(0, dtype=np.int64)
    if count < LEAST_PERIOD * LEAST_REPEATS:
        return nothing
    _, codes = np.unique(names, return_inverse=True)
    best, begin = 0, count
    # Where the last launch is found earlier, the sequence may have been at the same point.
    for period in ((count - 1) - np.flatnonzero(codes[:-1] == codes[-1])[::-1][:TRIED]).tolist():
        if period < LEAST_PERIOD or period * LEAST_REPEATS > count:
            continue
        other = np.flatnonzero(codes[period:] != codes[:-period])
        first = int(other[-1]) + 1 if len(other) else 0
        if first < begin and count - first >= LEAST_REPEATS * period:
            best, begin = period, first
    if not best or count - begin < LEAST_SHARE * count:
        return nothing
    return np.arange(begin, count + 1, best)
