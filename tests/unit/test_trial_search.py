"""experiments/trial_runner: ratios of rounds, what is worth another one, what is chosen or given up, for what there is time."""

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from profzoo.experiments import trial_runner, trial_search
from profzoo.experiments.trial_runner import BASE, DecidedSearch, Names, Took
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER, UNDECIDED

A, B, C, D = ("a",), ("b",), ("c",), ("d",)
NOW_S = 1000.0


def test_a_ratio_is_the_mean_of_the_medians_there_and_back() -> None:
    took = [{BASE: 100.0, A: 90.0}, {BASE: 100.0, A: 40.0}, {BASE: 100.0, A: 100.0}, {A: 1.0}, {BASE: 10.0, A: 16.0}]
    # 0.9, 1 and 1.6 there, 0.4 back; the fourth round has nothing beside it.
    for rounds, names, ratio in ((took, [A], 0.4**0.5), (took[:1], [A], 0.9), (took, [BASE, A], 2.5**0.5)):
        assert trial_search.time_ratio(rounds, *names) == pytest.approx(ratio)
    assert [trial_search.count_common_rounds(took, names) for names in (A, B)] == [4, 0]
    assert trial_search.time_ratio(took, B) == math.inf


def test_what_failed_once_has_failed() -> None:
    took: list[Took] = [{BASE: 100.0, A: 50.0}, {BASE: 100.0, A: None}]
    assert [trial_search.any_failed(took, names) for names in (A, BASE, B)] == [True, False, False]
    assert not trial_search.is_faster(took, A) and trial_search.is_faster(took[:1], A)
    # Its ratio is of the round in which it ran.
    assert (trial_search.time_ratio(took, A), trial_search.count_common_rounds(took, A)) == (pytest.approx(0.5), 1)


@pytest.mark.parametrize(("took", "helps"), [(98.5, False), (98.0, False), (97.5, True)])
def test_two_percent_faster_or_less_helps_nothing(took: float, helps: bool) -> None:
    assert trial_search.is_faster([{BASE: 100.0, A: took}], A) == helps


def test_the_fastest_ran_in_two_rounds() -> None:
    took = [{BASE: 100.0, A: 90.0, B: 80.0, C: 50.0}, {BASE: 100.0, A: 90.0, B: 80.0}, {BASE: 100.0, D: 99.0}]
    failed, again = [{**one, B: None} for one in took], [*took, {BASE: 100.0, C: 50.0}]
    assert [trial_search.find_fastest(rounds) for rounds in (took, failed, again)] == [B, A, C]
    assert trial_search.find_fastest([{BASE: 100.0, A: 99.0}] * 2) == trial_search.find_fastest([]) == BASE


def played(times: dict[Names, float | None], repeats: int, words: dict[str, list[str]]) -> tuple[list, Names]:
    """The rounds of a course, and what it chose, where each takes so long."""
    going, rounds = trial_search.plan_rounds(words, repeats), []
    order = next(going)
    while len(rounds) < 50:
        rounds.append(order)
        try:
            order = going.send({names: times[names] for names in order})
        except StopIteration as end:
            return rounds, end.value
    raise AssertionError(rounds)


WORDS = {name: [f"{name}=true"] for name in "abcd"}


def test_rounds_are_those_worked_out_by_hand() -> None:
    """b is 1 % slower, which is not too much after two rounds, c 3 %, which is; d fails at once."""
    rounds, chosen = played({BASE: 100.0, A: 80.0, B: 101.0, C: 103.0, D: None}, 3, WORDS)
    assert rounds == [[BASE, A, B, C, D], [C, B, A, BASE], [BASE, A, B]] and chosen == A


def test_of_one_round_nothing_is_dropped() -> None:
    rounds, chosen = played({BASE: 100.0, A: 300.0, B: 99.0, C: 103.0, D: 98.5}, 1, WORDS)
    assert rounds == [[BASE, A, B, C, D]] and chosen == BASE


def test_what_helps_is_put_together_from_the_fastest_on() -> None:
    times = {BASE: 100.0, A: 90.0, B: 80.0, C: 95.0, (*B, *A): 79.0, (*B, *C): 70.0}
    rounds, chosen = played(times, 2, {name: WORDS[name] for name in "abc"})
    # With a, b is one percent faster than alone, which is not worth it; with c, b is.
    assert rounds[:2] == [[BASE, A, B, C], [C, B, A, BASE]]
    assert rounds[2:4] == [[BASE, B, (*B, *A)], [(*B, *C), B, BASE]]
    # Repeated until it has run twice.
    assert rounds[4:] == [[BASE, B, (*B, *C)]] and chosen == (*B, *C)


def test_what_sets_the_same_key_or_was_tried_is_not_put_together() -> None:
    words = {"a": ["x=1"], "b": ["x=2"], "c": ["y=1"], "d": ["y=1", "x=1"]}
    times = {BASE: 100.0, A: 70.0, B: 80.0, C: 90.0, D: 97.0}
    rounds, chosen = played(times, 1, words)
    # a and b set x; a and c together are d, which was tried; d sets what a sets.
    assert rounds == [[BASE, A, B, C, D]] and chosen == A


PLAN = ["graph=true", "precision=bf16", "workers=4"]
FACTORS = {"graph=true": 0.5, "precision=bf16": 0.6, "workers=4": 0.9}


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(
    ("failing", "panel", "alone", "chosen"),
    [
        # One fails: the others take the place of the plan.
        (["precision=bf16"], {}, PLAN, "graph=true workers=4"),
        # What the panel tries anyway does not run again to find what fails.
        (["precision=bf16"], {"bf16": PLAN[1:2], "graph": PLAN[:1]}, ["workers=4"], "graph=true workers=4"),
        # Two fail, each by itself: one setting is left, known by its name in the panel.
        (["precision=bf16", "workers=4"], {"graph": PLAN[:1]}, PLAN[1:], "graph"),
        (PLAN, {}, PLAN, ""),
        # None fails by itself: what gains least alone is left out first, and then what gains more.
        (["graph=true workers=4"], {}, PLAN, "graph=true precision=bf16"),
        (["graph=true precision=bf16"], {}, PLAN, "graph=true workers=4"),
        # What is left without one that fails fails as well: it is looked into in turn.
        (["precision=bf16", "graph=true workers=4"], {}, PLAN, "graph=true"),
    ],
)
def test_what_works_of_a_plan_that_fails_is_decided_in_its_place(
    fixed: bool, failing: list[str], panel: dict[str, list[str]], alone: list[str], chosen: str
) -> None:
    words: dict[str, Sequence[str]] = {"plan": PLAN, **panel}
    done, rounds = list[Took](), list[list[Names]]()
    going = trial_search.plan_rounds(words, 3) if fixed else DecidedSearch(words, MARGIN, done).rounds()
    order, ended = next(going), None
    while ended is None:
        rounds.append(order)
        sides = {names: {word for name in names for word in words[name]} for names in order}
        took: Took = {names: None if any({*bad.split()} <= own for bad in failing) else
                      1e6 * math.prod(FACTORS[word] for word in own) for names, own in sides.items()}  # fmt: skip
        done.append(took)
        try:
            order = going.send(took)
        except StopIteration as end:
            ended = end.value
    ran = [names for order in rounds for names in order]
    assert ended == ((chosen,) if chosen else BASE)
    assert rounds[0] == [BASE, ("plan",), *((name,) for name in panel)]
    # Each of its settings ran alone, and what failed did not run again.
    assert {*rounds[1]} == {BASE, *((word,) for word in alone)}
    failed = [names for names in ran if names and trial_search.any_failed(done, names)]
    assert ("plan",) in failed and len(failed) == len({*failed})
    assert not chosen or trial_search.count_common_rounds(done, (chosen,)) >= (3 if fixed else 1)


def test_together_slower_when_it_is_repeated_leaves_the_one_before() -> None:
    going = trial_search.plan_rounds({"a": ["x=1"], "b": ["y=1"]}, 2)
    both = (*A, *B)
    next(going)
    going.send({BASE: 100.0, A: 80.0, B: 85.0})
    assert going.send({B: 85.0, A: 80.0, BASE: 100.0}) == [BASE, A, both]
    assert going.send({BASE: 100.0, A: 80.0, both: 70.0}) == [both, A, BASE]
    # Medians of 70 / 80 and 95 / 80 are 1.02 in their middle.
    with pytest.raises(StopIteration) as end:
        going.send({both: 95.0, A: 80.0, BASE: 100.0})
    assert end.value.value == A


def test_the_last_change_of_a_setting_counts() -> None:
    changes = [["batch=16", "graph=true"], ["batch=32", "shape=a=b"]]
    words = trial_runner.change_words(["lstm", "train", "batch=8"], changes)
    assert words == ["lstm", "train", "batch=32", "graph=true", "shape=a=b"]
    assert trial_runner.change_words(["a"], []) == ["a"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands, and that is set."""
    own = SimpleNamespace(s=NOW_S)
    monkeypatch.setattr(trial_runner, "time", SimpleNamespace(monotonic=lambda: own.s))
    return own


def test_there_is_time_for_what_ends_as_the_time_is_over(tmp_path: Path, clock: SimpleNamespace) -> None:
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    assert runner.expected_s(A) == 0
    runner.done = [{BASE: 100.0, A: 90.0, B: 50.0}]
    runner.seconds = {BASE: 10.0, A: 20.0, B: 30.0}
    found = {left: runner.within([A, BASE, B], NOW_S + left) for left in (60, 59, 40, 39, 10, 9)}
    # The fastest first: with 39 s, b does not fit any more, but a does.
    assert found == {60: [A, BASE, B], 59: [BASE, B], 40: [BASE, B], 39: [A, BASE], 10: [], 9: []}
    assert runner.within([BASE], NOW_S + 10) == [BASE] and runner.within([BASE], NOW_S + 9) == []
    # What never ran takes as long as the longest.
    assert (runner.expected_s(C), runner.expected_s(A)) == (30.0, 20.0)
    # On a CPU a setting brings a process of the cell as it is, whose time is that of the pair.
    runner.pairs = True
    found = {left: runner.within([A, BASE, B], NOW_S + left) for left in (50, 49, 30, 29)}
    assert found == {50: [A, BASE, B], 49: [BASE, B], 30: [BASE, B], 29: [A, BASE]} and runner.round_s == 10


CANDIDATES = {"a": ["a=1"], "b": ["b=1"]}
GIVEN = {"words": ["m", "train"], "program": ["run"], "load": ["--load", "w.pt"], "candidates": CANDIDATES}


def test_a_process_gets_words_and_files_of_its_own_and_what_it_leaves_is_kept_by_sample(tmp_path: Path) -> None:
    runner, steps = trial_runner.TrialRunner(GIVEN, tmp_path), tmp_path / "2-0.csv"
    files = ["--steps", str(steps), "--facts", str(tmp_path / "2-0.json")]
    assert runner._command((*A, *B), steps) == ["run", "m", "train", "a=1", "b=1", "--load", "w.pt", *files]
    steps.with_suffix(".json").write_text('{"step_ns": 900, "batch": 4}')
    # The median is compared in tables too; a mean is moved by a single step.
    steps.write_text("step,wall_ns,gpu_ns\n0,9,\n1,600,\n2,600,\n3,1500,\n")
    assert runner._keep({"round": 2}, (*A, *B), steps, "said", 0) == 150.0
    assert runner.facts == [{"step_ns": 900, "batch": 4, "round": 2}] and runner.sides == ["a+b"]
    assert runner.steps == [("a+b", steps)] and not runner.failed


def test_the_last_line_says_why_a_process_failed(tmp_path: Path) -> None:
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    assert runner._keep({}, A, tmp_path / "x.csv", "first\n last  \n\n", 1) is None
    assert runner._keep({}, B, tmp_path / "x.csv", " \n", 7) is None
    assert runner._keep({}, BASE, tmp_path / "x.csv", "y" * 301, 1) is None
    assert runner.failed == {"a": "last", "b": "exit code 7", "": f"{'y' * 150} ... {'y' * 150}"} and not runner.facts


@pytest.fixture
def turns(tmp_path: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """What processes take, in s, and their exit codes; each leaves a step of 100 ns for 1 sample."""
    coming = list[tuple[float, int]]()

    def in_turn(
        commands: Sequence[Sequence[str]], at_once: int, printed: Sequence[Path], pair: int, *more: object
    ) -> Iterator[int]:
        for path, command in zip(printed, commands, strict=True):
            path.write_text("why\n")
            took, code = coming.pop(0)
            clock.s += took
            path.with_suffix(".csv").write_text("step,wall_ns,gpu_ns\n0,100,\n")
            Path(command[command.index("--facts") + 1]).write_text('{"step_ns": 100, "batch": 1}')
            yield code

    monkeypatch.setattr(trial_runner.interleaved_runs, "run_in_turn", in_turn)
    return coming


@pytest.mark.parametrize(
    ("until_s", "ran"), [(0.0, [BASE]), (19.0, [BASE]), (20.0, [BASE, A]), (35.0, [BASE, A]), (45.0, [BASE, A, B])]
)
def test_the_first_round_goes_on_while_the_next_would_end_in_time(
    tmp_path: Path, turns: list, until_s: float, ran: list[Names]
) -> None:
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    turns += [(10.0, 0), (15.0, 1), (5.0, 0)]
    # After 10 s, a is expected to take 10 more; after 25 s b, as long as a did, 15 more.
    took = runner.run([BASE, A, B], NOW_S + until_s)
    assert list(took) == ran and runner.done == [took]
    assert runner.seconds == dict(zip(ran, (10.0, 15.0, 5.0), strict=False))
    assert [took[names] for names in ran] == [100.0, None, 100.0][: len(ran)]


def test_a_round_ends_as_the_cell_as_it_is_fails(tmp_path: Path, turns: list) -> None:
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    turns += [(1.0, 0), (1.0, 1)]
    assert runner.run([A, BASE, B], math.inf) == {A: 100.0, BASE: None} and runner.failed == {"": "why"}


@pytest.mark.parametrize(
    ("codes", "rounds", "budget_s", "ended"),
    # The second of two rounds would take three times 1 s, of which one is left.
    [([0, 0, 0], 1, 1e9, "all"), ([0, 1, 1], 1, 1e9, "all"), ([0], 2, 0.0, "budget"), ([0, 0, 0], 2, 4.0, "budget")],
)
def test_trials_say_why_they_ended(
    tmp_path: Path, turns: list, codes: list[int], rounds: int, budget_s: float, ended: str
) -> None:
    turns += [(1.0, code) for code in codes] + [(1.0, 0)] * 9
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    outcome = trial_runner.run_trials(runner, rounds, budget_s)
    assert outcome == {"ended": ended, "chosen": ""} and len(runner.done[0]) == len(codes)


def test_a_cell_that_fails_at_once_has_no_trials(tmp_path: Path, turns: list) -> None:
    turns += [(1.0, 1)]
    with pytest.raises(RuntimeError, match="why"):
        trial_runner.run_trials(trial_runner.TrialRunner(GIVEN, tmp_path), 2, 1e9)
    turns += [*[(1.0, 0)] * 5, (1.0, 1)]
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    assert trial_runner.run_trials(runner, 2, 1e9) == {"ended": "failed", "chosen": ""}
    assert [len(took) for took in runner.done] == [3, 3]


A, B, C, D = ("a",), ("b",), ("c",), ("d",)
MARGIN = 0.02
Speeds = dict[Names, float | None]


def searched(
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
    rounds, chosen, search = searched({A: 0.3, B: 3.0, C: 1.0, D: None}, "abcd", noise=0.002)
    # Three times the speed is decided by one round, and so is a third; what makes no difference takes more.
    assert rounds[0] == [BASE, A, B, C, D] and rounds[1] == [C, BASE] and len(rounds) <= 5
    assert [search.decide(one).outcome for one in (A, B, C)] == [FASTER, SLOWER, EQUIVALENT] and chosen == A


def test_a_combination_starts_as_soon_as_its_parts_look_faster() -> None:
    rounds, chosen, _ = searched({A: 0.3, B: 0.5, C: 1.0}, "abc", noise=0.002)
    # Beside the best one before it, while c is still undecided.
    assert rounds[1] == [C, B, BASE] and rounds[2] == [BASE, C, A, (*A, *B)] and chosen == (*A, *B)
    # Less than the noise decides at once, a combination starts all the same.
    rounds, chosen, _ = searched({A: 0.9, B: 0.92}, "ab", noise=0.01)
    assert (*A, *B) in rounds[2] and A in rounds[2] and chosen == (*A, *B)


def test_what_does_not_help_together_is_left_out() -> None:
    rounds, chosen, _ = searched({A: 0.6, B: 0.8, C: 0.9, (*A, *B): 0.6, (*A, *C): 0.5}, "abc")
    assert chosen == (*A, *C) and not any(len(names) == 3 for order in rounds for names in order)
    # What cannot be combined is left out as well.
    assert searched({A: 0.6, B: 0.8, (*A, *B): None}, "ab")[1] == A


@pytest.mark.parametrize("drift", [-0.003, 0.0, 0.003])
def test_nothing_is_chosen_where_nothing_helps(drift: float) -> None:
    for seed in range(5):
        _, chosen, _ = searched({(name,): 1.0 for name in "abcdef"}, "abcdef", 0.003, seed, drift, most=12)
        assert chosen == BASE
    assert searched({}, "")[:2] == ([[BASE]], BASE)


def test_the_best_of_many_is_found() -> None:
    chance, right = random.Random(1), 0
    for seed in range(15):
        speeds: Speeds = {(name,): chance.choice([None, 1.0, chance.uniform(0.3, 0.9), 1.3]) for name in "abcdef"}
        _, chosen, _ = searched(speeds, "abcdef", 0.003, seed)
        right += set(chosen) == {names[0] for names, speed in speeds.items() if speed is not None and speed < 0.98}
    assert right >= 14


def test_what_cannot_be_decided_in_time_is_given_up_and_what_is_hardly_faster_is_not_chosen() -> None:
    # With rounds 10 % apart, one percent is not told from none.
    rounds, chosen, search = searched({A: 0.99, B: 0.1}, "ab", noise=0.1, most=12, seed=2)
    assert A in search.given_up and chosen == B and 6 <= len(rounds) < 12
    assert search.decide(A).outcome == UNDECIDED
    _, chosen, search = searched({A: 0.985}, "a", noise=0.0001)
    assert search.decide(A).outcome in (FASTER, EQUIVALENT) and chosen == BASE
    words = {"a": ["x=1"], "b": ["x=2"], "c": ["y=1"], "d": ["y=1", "x=1"]}
    rounds, chosen, _ = searched({A: 0.5, B: 0.6, C: 0.8, D: 0.42}, "", words=words)
    assert chosen == D and all(len(names) < 2 for order in rounds for names in order)


def test_what_fails_later_is_not_chosen() -> None:
    done: list[Took] = [{BASE: 2.0, A: 1.0, B: 1.2}] * 3
    search = DecidedSearch({"a": ["a=1"], "b": ["b=1"]}, MARGIN, done)
    assert search.find_fastest() == A
    done.append({BASE: 2.0, A: None, B: 1.2})
    assert search.find_fastest() == B
