"""Trials that go on until each setting is decided, on simulated cells: what runs when, what is chosen, what is given up."""

import math
import random

import pytest

from profzoo.experiments.decided_search import DecidedSearch
from profzoo.experiments.trial_search import BASE, Names, Took
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED

A, B, C, D = ("a",), ("b",), ("c",), ("d",)
MARGIN = 0.02
Speeds = dict[Names, float | None]


def played(
    speeds: Speeds, candidates: str, noise: float = 0.001, seed: int = 0, drift: float = 0.0, most: int = 40,
    words: dict[str, list[str]] | None = None,
) -> tuple[list[list[Names]], Names, DecidedSearch]:  # fmt: skip
    """The rounds, what is chosen, and the search, where a step takes so long; together, settings multiply."""

    def speed(names: Names) -> float | None:
        if names in speeds or not names:
            return speeds.get(names, 1.0)
        alone = [speeds[(name,)] for name in names]
        return None if None in alone else math.prod(one for one in alone if one is not None)

    done, rounds, chance, ran = list[Took](), list[list[Names]](), random.Random(seed), 0
    given = words or {name: [f"{name}=true"] for name in candidates}
    search = DecidedSearch({name: given[name] for name in given}, MARGIN, done)
    going = search.rounds()
    order = next(going)
    while True:
        rounds.append(order)
        took: Speeds = {}
        for names in order:
            one = speed(names)
            took[names] = one and one * 1e6 * (1 + drift) ** ran * math.exp(chance.gauss(0, noise))
            ran += 1
        done.append(took)
        search.give_up(1.0, most - len(done))
        try:
            order = going.send(None)
        except StopIteration as end:
            return rounds, end.value, search


def test_what_is_decided_leaves_the_rounds() -> None:
    rounds, chosen, search = played({A: 0.3, B: 3.0, C: 1.0, D: None}, "abcd", noise=0.002)
    assert rounds[0] == [BASE, A, B, C, D] and rounds[1] == [C, B, A, BASE]
    # Three times the speed is decided by two rounds, and so is a third; what makes no difference takes more.
    assert rounds[2] == [BASE, C] and len(rounds) <= 5
    assert [search.decide(one).outcome for one in (A, B, C)] == [FASTER, SLOWER, EQUIVALENT] and chosen == A


def test_a_combination_starts_as_soon_as_its_parts_look_faster() -> None:
    rounds, chosen, _ = played({A: 0.3, B: 0.5, C: 1.0}, "abc", noise=0.002)
    # Beside the best one before it, while c is still undecided.
    assert rounds[2] == [BASE, C, A, (*A, *B)]
    assert chosen == (*A, *B)
    # Less than the noise decides at once, a combination starts all the same.
    rounds, chosen, _ = played({A: 0.9, B: 0.92}, "ab", noise=0.01)
    assert (*A, *B) in rounds[2] and A in rounds[2] and chosen == (*A, *B)


def test_what_does_not_help_together_is_left_out() -> None:
    rounds, chosen, _ = played({A: 0.6, B: 0.8, C: 0.9, (*A, *B): 0.6, (*A, *C): 0.5}, "abc")
    assert chosen == (*A, *C)
    assert not any(len(names) == 3 for order in rounds for names in order)
    # What cannot be combined is left out as well.
    assert played({A: 0.6, B: 0.8, (*A, *B): None}, "ab")[1] == A


def test_what_sets_the_same_or_has_a_name_of_its_own_is_not_put_together() -> None:
    words = {"a": ["x=1"], "b": ["x=2"], "c": ["y=1"], "d": ["y=1", "x=1"]}
    rounds, chosen, _ = played({A: 0.5, B: 0.6, C: 0.8, D: 0.42}, "", words=words)
    assert chosen == D and {names for order in rounds for names in order if len(names) > 1} == set()


@pytest.mark.parametrize("drift", [-0.003, 0.0, 0.003])
def test_nothing_is_chosen_where_nothing_helps(drift: float) -> None:
    for seed in range(20):
        _, chosen, _ = played({(name,): 1.0 for name in "abcdef"}, "abcdef", 0.003, seed, drift, most=12)
        assert chosen == BASE
    assert played({}, "")[:2] == ([[BASE]], BASE)


def test_the_best_of_many_is_found() -> None:
    chance, right = random.Random(1), 0
    for seed in range(40):
        speeds: Speeds = {(name,): chance.choice([None, 1.0, chance.uniform(0.3, 0.9), 1.3]) for name in "abcdef"}
        _, chosen, _ = played(speeds, "abcdef", 0.003, seed)
        right += set(chosen) == {names[0] for names, speed in speeds.items() if speed is not None and speed < 0.98}
    assert right >= 38


def test_what_cannot_be_decided_in_time_is_given_up() -> None:
    # With rounds 10 % apart, one percent is not told from none.
    rounds, chosen, search = played({A: 0.99, B: 0.1}, "ab", noise=0.1, most=12)
    assert A in search.given_up and chosen == B and 6 <= len(rounds) < 12
    assert search.decide(A).outcome == UNDECIDED


def test_what_is_hardly_faster_is_not_chosen_though_it_is_decided() -> None:
    _, chosen, search = played({A: 0.985}, "a", noise=0.0001)
    assert search.decide(A).outcome in (FASTER, EQUIVALENT) and chosen == BASE


def test_what_fails_later_is_not_chosen() -> None:
    done: list[Took] = [{BASE: 2.0, A: 1.0, B: 1.2}] * 3
    search = DecidedSearch({"a": ["a=1"], "b": ["b=1"]}, MARGIN, done)
    assert search.find_fastest() == A
    done.append({BASE: 2.0, A: None, B: 1.2})
    assert search.find_fastest() == B
