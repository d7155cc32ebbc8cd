"""Gives each test of a session its level, so that the probability of any wrong difference in the session is bounded.

In a session, what is tried next depends on what was answered before, and nobody knows how many tests there will be. By
alpha spending, the k-th test has a share of the error that depends on k alone, and all shares together are at most 1
(Foster and Stine 2008 compare it with alpha investing; Tian and Ramdas 2021 name it online control of the family-wise
error rate). Each test measures anew, so whatever the past was, it calls equal programs different with at most the
probability of its level. The union bound adds the levels up, for any strategy and whenever a session ends.

Rules of the false discovery rate give levels back after each discovery: LORD++ (Ramdas et al. 2017), SAFFRON (Ramdas et
al. 2018), ADDIS (Tian and Ramdas 2019). They are not used here, for three reasons. A session could buy later luck by
obvious gains, such as a pause that it plants and removes. Their bound is for the expected share of false discoveries at
fixed times, and a session that ends after its first gain has no fixed time. Their levels depend on earlier outcomes, so
two processes could not test at once. The price is small: rounds go on until they decide, and the rounds that a test
takes grow with the logarithm of its level (tests/benchmarks/referee_sessions.py has all three in numbers).
"""

from profzoo.statistics import sequential

# Nothing is known of the spread of a test's rounds before the first: this spread is larger than any that programs have.
# The spread of other processes bounds the error over many programs, and an outlier of one would decide in one round.
UNKNOWN = sequential.Spread(3.0, 3.0)
# Half of the error is for the first so many tests. Levels of these differ by a factor of four at most; later ones fall
# with the square of the number.
HALF = 50


def count_comparisons(number: int, half: int = HALF) -> int:
    """Return by what the error is divided for a test of a session, to which sequential.decide is given it.

    The reciprocals h / ((k + h - 1) (k + h)), where h is `half`, add up to 1 over all k: they are differences of h / (k
    + h). Each is rounded down to the reciprocal of a whole number.

    number: of the test in its session, from 1. half: half of the error is for the first so many tests.

    >>> [count_comparisons(number) for number in (1, 2, 50, 200)]
    [51, 54, 198, 1245]
    """
    if number < 1:
        raise ValueError(f"a session's tests are numbered from 1, not {number}")
    return -(-(number + half - 1) * (number + half) // half)


def give_level(number: int, error: float = sequential.ERROR, half: int = HALF) -> float:
    """Return the largest probability with which a test of a session may call equal programs faster or slower.

    number: of the test in its session, from 1. error: the same for all tests of the session together. half: as above.

    >>> round(give_level(1), 6), round(give_level(200), 6)
    (0.00098, 4e-05)
    """
    return error / count_comparisons(number, half)
