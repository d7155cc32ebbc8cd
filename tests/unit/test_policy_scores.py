"""Policies that choose settings: what is claimed of them is what the recorded trials say."""

import functools

import numpy as np
import pandas as pd
import pytest

from profzoo.plans import plan
from profzoo.verdicts import advice_scores
from tests.benchmarks import advice_scoring, past_gains, policy_scores, verdict_score
from tests.benchmarks.policy_scores import PolicyScore, TriedCell


def scores(cells: list[TriedCell], fitted: list[TriedCell]) -> dict[str, PolicyScore]:
    return {one.policy: one for one in policy_scores.score_policies(cells, fitted)}


@functools.cache
def trials() -> pd.DataFrame:
    """All recorded trials by the name of their table, with the intervals that other models give."""
    tables = {path.name: verdict_score.read_trials(path) for path in verdict_score.TABLES}
    return advice_scoring.add_intervals(pd.concat(tables))


def recorded(name: str, half: str) -> list[TriedCell]:
    table = trials().loc[name]
    return policy_scores.list_tried_cells(table[table["model"].map(advice_scoring.find_half) == half])


def test_what_is_claimed_of_policies_is_what_the_recorded_trials_say() -> None:
    """The numbers of docs/guides/trials.md; by hand, from the gains in its tables."""
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
        (True, plan.HELPS): (20, 20), (True, plan.MAY_NOT_HELP): (4, 7), (True, plan.DOES_NOT_HELP): (5, 10),
        (False, plan.HELPS): (35, 35), (False, plan.MAY_NOT_HELP): (15, 22), (False, plan.DOES_NOT_HELP): (3, 23),
        (True, f"best: {plan.HELPS}"): (27, 27), (True, f"best: {plan.MAY_NOT_HELP}"): (3, 4),
    }  # fmt: skip


def test_past_gains_choose_no_better_on_the_first_half() -> None:
    """By a hundredth of what gains are known to, so that expected gains rank plans as they are."""
    plain, *corrected = past_gains.cross_validate(recorded("h200.csv", "fitted"))
    assert max(one.gain for one in corrected) / plain.gain - 1 < 0.001


def test_the_best_plan_gains_what_was_expected_of_it() -> None:
    """The numbers of docs/guides/trials.md; by hand, expected over measured gains of the held-out half."""
    picks = past_gains.list_picks(trials())
    held_out = picks[picks["half"] == advice_scoring.HELD_OUT]
    alone = [1.239, 0.953, 1.104, 1.001, 1.049, 0.779, 1.043, 1.404, 0.949, 1.080, 0.922]
    together = [1.430, 0.670, 0.956, 1.047, 0.778, 0.673, 0.886, 1.119, 0.723]
    several = held_out[held_out["kind"].str.contains(advice_scores.TOGETHER, regex=False)]
    for found, by_hand, right in ((held_out, [*alone, *together], 0.97), (several, together, 0.89)):
        mean = np.exp(np.log(by_hand).mean())
        assert len(found) == len(by_hand) and past_gains.mean_ratio(found) == pytest.approx(mean, abs=1e-3)
        assert mean == pytest.approx(right, abs=5e-3)
    assert advice_scores.load_scores().picked == pytest.approx(past_gains.mean_ratio(several), abs=1e-4)


def test_plans_that_others_show_to_be_too_hopeful_are_corrected_by_them() -> None:
    """Three networks gain half of what was expected; the fourth, as much as was expected, does not raise the others."""
    picks = pd.DataFrame({"network": [*"abcd"], "expected": [2.0, 4.0, 6.0, 3.0], "gain": [1.0, 2.0, 3.0, 3.0]})
    wanted = [2 / 2 ** (2 / 3), 4 / 2 ** (2 / 3), 6 / 2 ** (2 / 3), 3 / 2]
    assert past_gains.correct_by_others(picks).tolist() == pytest.approx(wanted)
    modest = picks.assign(expected=picks["gain"] / 2)
    assert past_gains.correct_by_others(modest).tolist() == modest["expected"].tolist()
