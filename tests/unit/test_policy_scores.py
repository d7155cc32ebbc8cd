"""Policies that choose settings: what each gains on trials that are known, and on those that were recorded."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.plans import plan
from profzoo.trials import advice_scoring, policy_scores, trial_table
from profzoo.trials.policy_scores import NOTHING, PolicyScore, TriedCell, TriedSetting
from tests.benchmarks import past_gains

DATA = Path(__file__).parents[1] / "data/trials"
GRAPH, BF16, TF32 = frozenset({"graph=true"}), frozenset({"precision=bf16"}), frozenset({"precision=tf32"})
BOTH = GRAPH | BF16


def tried(gain: float, expected: float = np.nan, low: float = 1.0, advised: bool = False, failed: bool = False) -> Any:
    return TriedSetting(gain, expected, low, advised, failed)


# On the first cell both together help most and are expected to; on the second they failed, and the expectation was wrong.
CELLS: list[TriedCell] = [
    {GRAPH: tried(2.0, 1.9, advised=True), BF16: tried(0.5, 0.8), BOTH: tried(4.0, 3.0)},
    {GRAPH: tried(1.5, 1.2), BF16: tried(0.8, 1.1, advised=True), BOTH: tried(np.nan, 5.0, failed=True)},
]


def scores(cells: list[TriedCell], fitted: list[TriedCell]) -> dict[str, PolicyScore]:
    return {one.policy: one for one in policy_scores.score_policies(cells, fitted)}


def test_each_policy_gains_what_trials_measured_of_its_choice() -> None:
    found = scores(CELLS, CELLS)
    assert found["best that was tried"] == PolicyScore("best that was tried", pytest.approx(6**0.5), 2, 0, 0, 0)
    # What failed changes nothing, and is told.
    assert found["best plan"] == PolicyScore("best plan", pytest.approx(4**0.5), 2, 0, 0, 1)
    assert found["advice of verdicts"].gain == pytest.approx((2.0 * 0.8) ** 0.5)
    assert found["always graph=true"].gain == pytest.approx(3**0.5)
    # On the first cell 4, and nothing where they failed, which is the largest mean gain all the same.
    both = found["always graph=true precision=bf16, best on the first half of settings that all its cells tried"]
    assert (both.gain, both.failed) == (pytest.approx(2.0), 1)
    assert found["nothing"] == PolicyScore("nothing", 1.0, 2, 0, 2, 0)


def test_constants_are_fitted_to_the_first_half_alone() -> None:
    fitted: list[TriedCell] = [
        {GRAPH: tried(1.5), TF32: tried(1.2), BOTH: tried(3.0)},
        {GRAPH: tried(1.5), TF32: tried(2.0)},
    ]
    assert policy_scores.fit_constant(fitted, in_all=True) == TF32
    assert policy_scores.fit_constant(fitted, in_all=False) == BOTH
    found = scores(CELLS, fitted)
    # Never tried on these cells, so that it has no gain there.
    lacking = found["always precision=tf32, best on the first half of settings that all its cells tried"]
    assert lacking.cells == 0 and lacking.unmeasured == 2 and np.isnan(lacking.gain)
    assert found["always graph=true precision=bf16, best on the first half"].gain == 2.0


def test_a_plan_that_is_not_expected_to_gain_is_none() -> None:
    assert policy_scores.choose_best_plan({GRAPH: tried(3.0, 0.99), BF16: tried(2.0)}) == NOTHING
    assert policy_scores.choose_best_plan({}) == NOTHING
    # Nor are more settings that are expected to gain 1 % more than fewer.
    assert policy_scores.choose_best_plan({GRAPH: tried(1.0, 2.0), BOTH: tried(1.0, 2.02)}) == GRAPH


def test_settings_count_once_and_only_where_trials_tell_their_gain() -> None:
    plain = {
        "model": "m",
        "phase": "train",
        "expected": 2.0,
        "expected_low": 1.0,
        "advised": False,
        "verdict": "faster",
    }
    rows = [{"words": "graph=true precision=bf16", "gain": 3.0}, {"words": "precision=bf16 graph=true", "gain": 9.0},
            {"words": "precision=tf32", "gain": np.nan}, {"words": "", "gain": 1.0},
            {"words": "precision=bf16", "gain": np.nan, "verdict": "refused"}]  # fmt: skip
    (cell,) = policy_scores.list_tried_cells(pd.DataFrame([plain | row for row in rows]))
    assert set(cell) == {BOTH, BF16} and cell[BOTH].gain == 3.0 and cell[BF16].failed


def recorded(name: str, half: str) -> list[TriedCell]:
    table = reading.read(DATA / name, trial_table.TRIALS_TABLE)
    return policy_scores.list_tried_cells(table[table["model"].map(advice_scoring.find_half) == half])


def test_what_is_claimed_of_policies_is_what_the_recorded_trials_say() -> None:
    """The numbers of docs/measured/trials.md; by hand, from the gains in its tables."""
    fitted, first, second = (recorded(name, half) for name, half in (
        ("h200.csv", "fitted"), ("h200.csv", "held_out"), ("h200-2.csv", "held_out")))  # fmt: skip
    wanted = {"best that was tried": (2.43, 1.74, 3.31), "best plan": (2.40, 1.63, 3.22),
              "advice of verdicts": (1.43, 1.46, 1.81), "always graph=true": (1.43, 1.49, 1.53)}  # fmt: skip
    for policy, gains in wanted.items():
        found = [scores(cells, fitted)[policy] for cells in (fitted, first, second)]
        assert [one.gain for one in found] == pytest.approx(gains, abs=5e-3)
        assert [(one.cells, one.unmeasured, one.failed) for one in found] == [(11, 0, 0), (10, 0, 0), (10, 0, 0)]
    naive = scores(second, fitted)["always graph=true precision=bf16"]
    by_hand = [2.72, 2.70, 2.32, 3.61, 3.52, 2.57, 3.02, 7.82, 3.21, 3.08]
    assert naive.gain == pytest.approx(np.exp(np.log(by_hand).mean()), abs=5e-3) == pytest.approx(3.25, abs=5e-3)


def test_what_the_outlook_of_plans_is_worth_is_what_the_recorded_trials_say() -> None:
    """By outlook, how many settings made their cell faster, and of how many; first of all settings, then of best plans."""
    found: dict[tuple[bool, str], list[bool]] = {}
    for half, names in (("fitted", ["h200.csv"]), ("held_out", ["h200.csv", "h200-2.csv"])):
        for cell in (cell for name in names for cell in recorded(name, half)):
            best = policy_scores.choose_best_plan(cell)
            for words, one in cell.items():
                if one.expected > 0:
                    outlook = plan.judge_interval(one.expected, one.low)
                    found.setdefault((half == "fitted", outlook), []).append(one.gain > 1)
                    if words == best:
                        found.setdefault((True, f"best: {outlook}"), []).append(one.gain > 1)
    counts = {key: (sum(helped), len(helped)) for key, helped in found.items()}
    assert counts == {
        (True, plan.HELPS): (15, 15), (True, plan.MAY_NOT_HELP): (9, 12), (True, plan.DOES_NOT_HELP): (5, 10),
        (False, plan.HELPS): (28, 28), (False, plan.MAY_NOT_HELP): (22, 29), (False, plan.DOES_NOT_HELP): (3, 23),
        (True, f"best: {plan.HELPS}"): (22, 22), (True, f"best: {plan.MAY_NOT_HELP}"): (8, 9),
    }  # fmt: skip


def test_past_gains_correct_what_is_expected() -> None:
    """Twice as much as expected of both on the other cells: half of that is believed of as many trials as weigh against it."""
    others: list[TriedCell] = [{BOTH: tried(4.0, 2.0)}] * 3
    cell = past_gains.correct_by_past_gains(others, 3.0, 1.0)({BOTH: tried(1.0, 1.5, 1.2), GRAPH: tried(1.0, 1.9)})
    assert cell[BOTH].expected == pytest.approx(1.5 * 2**0.5) and cell[BOTH].low == pytest.approx(1.2 * 2**0.5)
    assert cell[GRAPH].expected == 1.9 and policy_scores.choose_best_plan(cell) == BOTH
    mean = past_gains.correct_by_past_gains(others, 0.0, 0.0)({BOTH: tried(1.0, 1.5)})
    assert mean[BOTH].expected == pytest.approx(4.0)


def test_past_gains_choose_no_better_on_the_first_half() -> None:
    """By a hundredth of what gains are known to, so that expected gains rank plans as they are."""
    plain, *corrected = past_gains.cross_validate(recorded("h200.csv", "fitted"))
    assert max(one.gain for one in corrected) / plain.gain - 1 < 0.001
