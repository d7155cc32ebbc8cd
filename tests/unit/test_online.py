"""Levels of a session's tests: they add up to the error, and simulated sessions are wrong no more often."""

from fractions import Fraction

import pytest

from profzoo.statistics import online, sequential
from tests import slow
from tests.benchmarks import referee_sessions


def test_all_levels_together_are_at_most_the_error() -> None:
    """The rest of all later levels is at most h / (k + h) after the k-th, so 10,000 tests leave less than half a per cent."""
    shares = [Fraction(1, online.count_comparisons(number)) for number in range(1, 10_001)]
    rest = Fraction(online.HALF, 10_000 + online.HALF)
    assert Fraction(97, 100) < sum(shares) and sum(shares) + rest <= 1
    assert shares == sorted(shares, reverse=True)
    assert Fraction(2, 5) < sum(shares[: online.HALF]) <= Fraction(1, 2)


def test_a_level_is_what_a_sequential_test_is_given() -> None:
    assert online.give_level(7) == sequential.ERROR / online.count_comparisons(7)
    assert online.give_level(7, 0.01) == pytest.approx(online.give_level(7) / 5)
    with pytest.raises(ValueError, match="numbered from 1, not 0"):
        online.count_comparisons(0)


KINDS = ("0.5 % apart", "bimodal", "disturbed")


@pytest.mark.parametrize("strategy", slow.first(referee_sessions.STRATEGIES, 2))
def test_sessions_are_rarely_wrong_whatever_the_strategy(strategy: referee_sessions.Strategy) -> None:
    assert referee_sessions.errors(strategy, referee_sessions.spend, 4, 30, KINDS).any == 0


@pytest.mark.slow
def test_sessions_without_control_are_often_wrong() -> None:
    hunting = referee_sessions.hunt_until_lucky
    assert referee_sessions.errors(hunting, referee_sessions.no_control, 6, 50, KINDS).any > 0.3
    assert referee_sessions.errors(hunting, referee_sessions.spend, 6, 50, KINDS).any == 0


def test_gains_of_three_per_cent_are_found_among_no_ops() -> None:
    found = referee_sessions.power("0.5 % apart", referee_sessions.spend, 0, tests=60, gains=6)
    assert (found.found, found.false) == (6, 0) and found.rounds < 60 * 12


def test_lord_gives_levels_back_after_a_discovery_and_spending_does_not() -> None:
    """The first levels of LORD++ by hand: C ln 2 of half the error, then that of the first discovery's other half."""
    first = 0.07720838 * 0.693147
    assert 1 / referee_sessions.lord([]) == pytest.approx(first / 2, rel=1e-5)
    second = 0.07720838 * 0.693147 / (2 * 2.718281828**0.832554611)
    assert 1 / referee_sessions.lord(["faster"]) == pytest.approx((second + first) / 2, rel=1e-5)
    assert referee_sessions.spend(["faster"]) == referee_sessions.spend(["equivalent"])


@pytest.mark.slow
def test_of_many_sessions_at_most_one_in_twenty_is_wrong() -> None:
    for strategy in referee_sessions.STRATEGIES:
        assert referee_sessions.errors(strategy, referee_sessions.spend, 60).any <= 0.05, strategy.__name__
