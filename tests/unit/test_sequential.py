"""Rounds that go on until they decide, and levels of sessions: known answers, error and power by simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from profzoo.statistics import sequential
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED
from tests import slow
from tests.benchmarks import referee_sessions, sequential_power

MARGIN = 0.02


def test_the_shares_of_all_looks_are_the_whole_error() -> None:
    assert math.isclose(sum(sequential.SHARES + sequential.EARLY_SHARES), 1.0)
    assert len(sequential.SHARES) == len(sequential.LOOKS)
    assert list(sequential.LOOKS) == sorted(set(sequential.LOOKS))


def test_the_interval_is_students_of_every_look() -> None:
    between = [0.10, 0.12, 0.11]
    found = sequential.decide(between, MARGIN).found
    assert found
    ends = []
    looks = ((2, sequential.SHARES[0]), (3, sequential.SHARES[1]))
    for count, share in looks:
        values = np.array(between[:count])
        ends.append(stats.t.interval(1 - 0.05 * share, count - 1, values.mean(), stats.sem(values)))
    assert found.low == pytest.approx(math.exp(max(low for low, _ in ends)))
    assert found.high == pytest.approx(math.exp(min(high for _, high in ends)))
    # The probability at a look over its share of the error; the least of all looks counts.
    chances = [stats.ttest_1samp(between[:count], 0).pvalue / share for count, share in looks]
    assert found.p_different == pytest.approx(min(chances)) and found.ratio == pytest.approx(math.exp(0.11))


def test_one_and_two_rounds_are_tested_by_the_spread_that_is_known() -> None:
    """Two rounds of a variance of 0.02 beside one of 0.01 with three degrees of freedom have 0.0125 with four."""
    known = sequential.Spread(0.1, 3.0)
    for between, deviation, freedom in (([0.5], 0.1, 3), ([0.5, 0.7], 0.0125**0.5 / 2**0.5, 4)):
        found = sequential.decide(between, MARGIN, known=known).found
        share = sequential.EARLY_SHARES[len(between) - 1]
        low, high = stats.t.interval(1 - 0.05 * share, freedom, np.mean(between), deviation)
        chance = 2 * stats.t.sf(np.mean(between) / deviation, freedom) / share
        assert found and found.ratio == pytest.approx(math.exp(np.mean(between)))
        assert (found.low, found.p_different) == (pytest.approx(math.exp(low)), pytest.approx(chance))
        assert len(between) > 1 or found.high == pytest.approx(math.exp(high))


def test_a_spread_is_learned_from_other_cells_and_more_from_the_cell_itself() -> None:
    """Of processes 2 % apart, a round has twice their variance: 0.0002 each, from so many degrees of freedom."""
    assumed, apart = sequential.ASSUMED, [0.0, 0.02]
    of_others = (3 * assumed.deviation**2 + 9 * 4e-4) / 12
    found = sequential.learn_spread([], [apart] * 9)
    assert (found.deviation, found.freedom, found.processes) == (pytest.approx(of_others**0.5), 3.0, 18)
    own = sequential.learn_spread([*apart, 0.01], [apart] * 9)
    assert own.deviation == pytest.approx(((3 * of_others + 2 * 2e-4) / 5) ** 0.5)
    assert (own.freedom, own.processes) == (5.0, 21) and sequential.learn_spread([0.0], [[1.0]]) == assumed


def test_the_ratio_lies_within_its_own_interval() -> None:
    """Rounds that differ from all before them move the ratio out of what earlier looks left of the interval."""
    rounds = [-0.10, -0.101, -0.099, -0.1005, 0.2, -0.25, -0.3, -0.28]
    for count in range(2, len(rounds) + 1):
        found = sequential.decide(rounds[:count], 0.02).found
        assert found is not None and found.low <= found.ratio <= found.high, count


def test_rounds_that_contradict_an_earlier_look_leave_it_open() -> None:
    faster = [-0.10, -0.101, -0.099, -0.1005]
    assert sequential.decide(faster, 0.02).outcome == FASTER
    assert sequential.decide([*faster, 0.9], 0.02).outcome == UNDECIDED


def test_what_is_decided_and_what_is_not() -> None:
    def outcome(*between: float) -> str:
        return sequential.decide(between, MARGIN).outcome

    assert outcome(-0.7, -0.701) == FASTER == outcome(-np.log(2.7)) and outcome(0.7, 0.701, 0.7) == SLOWER
    assert outcome(0.001, -0.001, 0.0) == EQUIVALENT == outcome(0.010, 0.0101, 0.0099)
    assert outcome() == outcome(-0.8) == outcome(-0.7, 0.1) == outcome(0.03, -0.01, 0.02) == UNDECIDED
    # There is no look at seven rounds, so the seventh changes nothing.
    six = [0.03, -0.01, 0.02, 0.0, 0.05, -0.02]
    assert sequential.decide([*six, 5.0], MARGIN).found.p_different == sequential.decide(six, MARGIN).found.p_different


def test_of_several_comparisons_each_has_to_be_surer_to_be_different() -> None:
    between = [0.030, 0.031, 0.029, 0.030]
    (alone, of_many) = (sequential.decide(between, MARGIN, comparisons=count) for count in (1, 100_000))
    assert alone.outcome == SLOWER and of_many.outcome == UNDECIDED and of_many.missing
    assert alone.found == of_many.found


def test_one_disturbed_round_of_eight_hides_nothing() -> None:
    steady = [0.050, 0.052, 0.049, 0.051, 0.050, 0.048, 0.051, 0.049]
    assert sequential.decide([*steady[:2], 0.5, *steady[3:]], MARGIN).outcome == SLOWER


@pytest.mark.parametrize(("spread", "shift"), slow.first([(0.01, 0.03), (0.02, 0.03), (0.02, 0.0)]))
def test_a_forecast_is_about_what_it_takes(spread: float, shift: float) -> None:
    """Of rounds with as much spread, the forecast after five is right within a factor of three in most cases."""
    random, near = np.random.default_rng(5), []
    for _ in range(30):
        between = random.normal(shift, spread, 128)
        early = sequential.decide(between[:5].tolist(), MARGIN)
        if early.outcome != UNDECIDED or early.missing is None:
            continue
        assert early.hopeful is not None and early.hopeful <= early.missing
        taken = next((count for count in sequential.LOOKS
                      if sequential.decide(between[:count].tolist(), MARGIN).outcome != UNDECIDED), 128)  # fmt: skip
        near.append(1 / 3 <= (5 + early.missing) / taken <= 3)
    assert np.mean(near) > 0.6


def test_no_number_of_rounds_decides_what_is_at_the_margin() -> None:
    # The difference is as far from none as from the margin, and rounds are 30 % apart.
    at_margin = np.log1p(MARGIN) / 2 + np.array([0.3, -0.3, 0.3, -0.3])
    assert sequential.decide(at_margin.tolist(), MARGIN).missing is None


def test_a_mean_is_precise_once_its_interval_is_no_wider_than_the_margin() -> None:
    assert sequential.is_precise([10.0, 10.001, 10.002], MARGIN)
    assert not sequential.is_precise([10.0, 10.05, 10.1], MARGIN) and not sequential.is_precise([10.0], MARGIN)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sequential_power.KINDS)
def test_few_decisions_are_wrong(kind: str) -> None:
    """At most 5 % over all looks; of 1000 draws, two standard errors are 1.4 points."""
    assert sequential_power.rates(kind, 0.0, 1000, 24).wrong <= 0.064
    assert sequential_power.rates(kind, MARGIN, 1000, 24).wrong <= 0.064


def test_looks_by_the_known_spread_are_rarely_wrong_where_rounds_vary_three_times_as_much() -> None:
    """They may add 2 % to the 3 % of all others; of 2000 draws, two standard errors are 0.6 points."""
    apart = 3 * sequential.ASSUMED.deviation
    between = np.random.default_rng(3).normal(0, apart, (2000, 2))
    wrong = [sequential_power.decide_in_turn(one).outcome != UNDECIDED for one in between]
    assert np.mean(wrong) <= 0.026


@pytest.mark.parametrize(
    ("kind", "difference", "rounds"),
    slow.first([("0.1 % apart", 0.03, 3), ("0.1 % apart", 0.0, 3), ("0.5 % apart", 0.03, 5), ("1 % apart", 0.10, 4),
                ("3 % apart", 0.50, 4), ("disturbed", 3.0, 3)], 2),
)  # fmt: skip
def test_differences_are_found_soon(kind: str, difference: float, rounds: int) -> None:
    found = sequential_power.rates(kind, difference, 100, 24)
    assert found.rounds <= rounds and found.decided > 0.9


# Levels of the tests of a session.


def test_all_levels_together_are_at_most_the_error() -> None:
    """The rest of all later levels is at most h / (k + h) after the k-th, so 10,000 tests leave less than half a per cent."""
    shares = [Fraction(1, sequential.count_comparisons(number)) for number in range(1, 10_001)]
    rest = Fraction(sequential.HALF, 10_000 + sequential.HALF)
    assert Fraction(97, 100) < sum(shares) and sum(shares) + rest <= 1
    assert shares == sorted(shares, reverse=True)
    assert Fraction(2, 5) < sum(shares[: sequential.HALF]) <= Fraction(1, 2)


def test_a_level_is_what_a_sequential_test_is_given() -> None:
    assert sequential.give_level(7) == sequential.ERROR / sequential.count_comparisons(7)
    assert sequential.give_level(7, 0.01) == pytest.approx(sequential.give_level(7) / 5)
    with pytest.raises(ValueError, match="numbered from 1, not 0"):
        sequential.count_comparisons(0)


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
