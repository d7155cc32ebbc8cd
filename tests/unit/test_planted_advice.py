"""Advice for planted cases: which trials executed a plan, and what is said of them, by tables with known answers."""

import math

import pandas as pd

from tests.planted import cases, try_advice

PLANS = pd.DataFrame(
    [
        {"model": "one", "phase": "train", "rank": 1, "settings": "graph=true precision=bf16", "outlook": "expected to help"},
        {"model": "one", "phase": "train", "rank": 2, "settings": "precision=bf16", "outlook": "expected to help"},
        {"model": "one", "phase": "train", "rank": 3, "settings": "workers=4", "outlook": "not possible"},
        {"model": "two", "phase": "train", "rank": 1, "settings": "compile=true", "outlook": "expected to help"},
    ]
)  # fmt: skip


def trial(model: str, words: str, verdict: str, gain: float, expected: float = 2.0, why: str = "") -> dict:
    return {
        "model": model, "phase": "train", "words": words, "verdict": verdict, "gain": gain, "why": why,
        "expected": expected, "expected_low": expected / 1.5, "expected_high": expected * 1.5,
    }  # fmt: skip


TRIALS = pd.DataFrame(
    [
        # The order of words does not matter.
        trial("one", "precision=bf16 graph=true", "faster", 4.0),
        trial("one", "precision=bf16", "faster", 2.0),
        trial("one", "workers=4", "faster", 9.0),
        trial("two", "compile=true", "failed", math.nan, why="out of memory"),
        trial("two", "precision=bf16", "not tried", math.nan),
    ]
)


def test_trials_belong_to_the_advised_plan_with_the_same_words() -> None:
    matched = try_advice.match_plans(TRIALS, PLANS)
    assert matched[["model", "rank", "gain"]].fillna(0).to_numpy().tolist() == [
        ["one", 1, 4.0], ["one", 2, 2.0], ["two", 1, 0.0],
    ]  # fmt: skip


def test_what_failed_is_named_and_the_rest_is_scored() -> None:
    lines = try_advice.summarise_advice(try_advice.match_plans(TRIALS, PLANS))
    assert lines == [
        "advised settings that were executed: 3, of 2 cases",
        "that ran: 2",
        "  failed: two compile=true: out of memory",
        "slower by more than 2 %: 0",
        # Half of 4 times were expected, and all of 2 times; 4 lies above 3, the end of its interval.
        "median error of the expected gain: 25%; within the interval: 1 of 2",
        "geometric mean of the gains of the best plans: 4.00 times, of 1 cases",
    ]


def test_trials_run_the_plans_alone_on_cells_with_their_fault(tmp_path) -> None:
    some = cases.find_cases(cases.DEVELOPMENT)[:2]
    given = try_advice.describe_trials(some, tmp_path, tmp_path / "plans.csv", tiny=False)
    assert given["models"] == [case.name for case in some]
    assert all(own["fault"] is True for own in given["settings"].values())
    assert given["tool"] == ["time"] and given["trials"]["panel"] == []
