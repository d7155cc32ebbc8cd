"""harness/course and harness/trying by hand: ratios of rounds, what is worth another one, and for what there is time."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from profzoo.experiments import trial_runner, trial_search
from profzoo.experiments.trial_search import BASE, Names, Took

A, B, C, D = ("a",), ("b",), ("c",), ("d",)
NOW_S = 1000.0


def test_a_ratio_is_the_mean_of_the_medians_there_and_back() -> None:
    took = [{BASE: 100.0, A: 90.0}, {BASE: 100.0, A: 40.0}, {BASE: 100.0, A: 100.0}, {A: 1.0}, {BASE: 10.0, A: 16.0}]
    # 0.9, 1 and 1.6 there, 0.4 back; the fourth round has nothing beside it.
    assert (
        trial_search.time_ratio(took, A) == pytest.approx(math.sqrt(1.0 * 0.4))
        and trial_search.count_common_rounds(took, A) == 4
    )
    assert trial_search.time_ratio(took[:1], A) == pytest.approx(0.9) and trial_search.time_ratio(
        took, BASE, A
    ) == pytest.approx(math.sqrt(2.5))
    assert trial_search.time_ratio(took, B) == math.inf and trial_search.count_common_rounds(took, B) == 0


def test_what_failed_once_has_failed() -> None:
    took: list[Took] = [{BASE: 100.0, A: 50.0}, {BASE: 100.0, A: None}]
    assert (
        trial_search.any_failed(took, A)
        and not trial_search.any_failed(took, BASE)
        and not trial_search.any_failed(took, B)
    )
    assert not trial_search.is_faster(took, A) and trial_search.is_faster(took[:1], A)
    # Its ratio is of the round in which it ran.
    assert (trial_search.time_ratio(took, A), trial_search.count_common_rounds(took, A)) == (pytest.approx(0.5), 1)


def test_less_than_two_percent_faster_helps_nothing() -> None:
    assert not trial_search.is_faster([{BASE: 100.0, A: 98.5}], A) and trial_search.is_faster(
        [{BASE: 100.0, A: 97.5}], A
    )
    # Two percent themselves are not worth it: there and back they are 0.98 in all.
    assert trial_search.time_ratio([{BASE: 100.0, A: 98.0}], A) == 0.98 and not trial_search.is_faster(
        [{BASE: 100.0, A: 98.0}], A
    )


def test_the_fastest_ran_in_two_rounds() -> None:
    took = [{BASE: 100.0, A: 90.0, B: 80.0, C: 50.0}, {BASE: 100.0, A: 90.0, B: 80.0}, {BASE: 100.0, D: 99.0}]
    assert trial_search.find_fastest(took) == B and trial_search.find_fastest([{**one, B: None} for one in took]) == A
    assert trial_search.find_fastest([*took, {BASE: 100.0, C: 50.0}]) == C
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
    words = trial_runner.change_words(
        ["lstm", "train", "batch=8"], [["batch=16", "graph=true"], ["batch=32", "shape=a=b"]]
    )
    assert words == ["lstm", "train", "batch=32", "graph=true", "shape=a=b"] and trial_runner.change_words(
        ["a"], []
    ) == ["a"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands, and that is set."""
    own = SimpleNamespace(s=NOW_S)
    monkeypatch.setattr(trial_runner, "time", SimpleNamespace(monotonic=lambda: own.s))
    return own


def test_there_is_time_for_what_ends_as_the_time_is_over(tmp_path: Path, clock: SimpleNamespace) -> None:
    runner = trial_runner.TrialRunner({}, tmp_path)
    runner.done = [{BASE: 100.0, A: 90.0, B: 50.0}]
    runner.seconds = {BASE: 10.0, A: 20.0, B: 30.0}
    found = {left: runner.within([A, BASE, B], NOW_S + left) for left in (60, 59, 40, 39, 10, 9)}
    # The fastest first: with 39 s, b does not fit any more, but a does.
    assert found == {60: [A, BASE, B], 59: [BASE, B], 40: [BASE, B], 39: [A, BASE], 10: [], 9: []}
    assert runner.within([BASE], NOW_S + 10) == [BASE] and runner.within([BASE], NOW_S + 9) == []
    # What never ran takes as long as the longest.
    assert (runner.expected_s(C), runner.expected_s(A), trial_runner.TrialRunner({}, tmp_path).expected_s(A)) == (
        30.0,
        20.0,
        0.0,
    )


GIVEN = {
    "words": ["m", "train"],
    "program": ["run"],
    "load": ["--load", "w.pt"],
    "candidates": {"a": ["a=1"], "b": ["b=1"]},
}


def left_by(folder: Path, path: str, **facts: float) -> None:
    (folder / path).with_suffix(".json").write_text(json.dumps(facts))


def test_a_process_gets_the_words_of_its_settings_and_files_of_its_own(tmp_path: Path) -> None:
    command = trial_runner.TrialRunner(GIVEN, tmp_path)._command((*A, *B), tmp_path / "0-1.csv")
    files = ["--steps", str(tmp_path / "0-1.csv"), "--facts", str(tmp_path / "0-1.json")]
    assert command == ["run", "m", "train", "a=1", "b=1", "--load", "w.pt", *files]


def test_what_a_process_leaves_is_kept_by_sample(tmp_path: Path) -> None:
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    left_by(tmp_path, "2-0.csv", step_ns=600, batch=4)
    assert runner._keep(2, (*A, *B), tmp_path / "2-0.csv", "said", 0) == 150.0
    assert runner.facts == [{"step_ns": 600, "batch": 4, "round": 2}] and runner.sides == ["a+b"]
    assert runner.steps == [("a+b", tmp_path / "2-0.csv")] and not runner.failed


def test_the_last_line_says_why_a_process_failed(tmp_path: Path) -> None:
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    assert runner._keep(0, A, tmp_path / "x.csv", "first\n last  \n\n", 1) is None
    assert runner._keep(0, B, tmp_path / "x.csv", " \n", 7) is None
    assert runner._keep(0, BASE, tmp_path / "x.csv", "y" * 301, 1) is None
    assert runner.failed == {"a": "last", "b": "exit code 7", "": "y" * 300} and not runner.facts


@pytest.fixture
def turns(tmp_path: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """What processes take, in s, and their exit codes; each leaves a step of 100 ns for 1 sample."""
    coming = list[tuple[float, int]]()

    def in_turn(
        commands: Sequence[Sequence[str]], at_once: int, printed: Sequence[Path], starter: object
    ) -> Iterator[int]:
        for path in printed:
            path.write_text("why\n")
        for command in commands:
            took, code = coming.pop(0)
            clock.s += took
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
    ("codes", "budget_s", "outcome"),
    [
        ([0, 0, 0], 1e9, {"ended": "all", "chosen": ""}),
        ([0, 1, 1], 1e9, {"ended": "all", "chosen": ""}),
        ([0], 0.0, {"ended": "budget", "chosen": ""}),
        # The second round would take three times 1 s, of which one is left.
        ([0, 0, 0], 4.0, {"ended": "budget", "chosen": ""}),
    ],
)
def test_trials_say_why_they_ended(
    tmp_path: Path, turns: list, codes: list[int], budget_s: float, outcome: dict[str, str]
) -> None:
    turns += [(1.0, code) for code in codes] + [(1.0, 0)] * 9
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    assert trial_runner.run_trials(runner, GIVEN["candidates"], 1 if budget_s > 4 else 2, budget_s) == outcome
    assert len(runner.done[0]) == len(codes)


def test_a_cell_that_fails_at_once_has_no_trials(tmp_path: Path, turns: list) -> None:
    turns += [(1.0, 1)]
    with pytest.raises(RuntimeError, match="why"):
        trial_runner.run_trials(trial_runner.TrialRunner(GIVEN, tmp_path), GIVEN["candidates"], 2, 1e9)
    turns += [(1.0, 0), (1.0, 0), (1.0, 0), (1.0, 0), (1.0, 0), (1.0, 1)]
    runner = trial_runner.TrialRunner(GIVEN, tmp_path)
    assert trial_runner.run_trials(runner, GIVEN["candidates"], 2, 1e9) == {"ended": "failed", "chosen": ""}
    assert [len(took) for took in runner.done] == [3, 3]
