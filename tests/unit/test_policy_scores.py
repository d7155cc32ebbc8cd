"""Policies that choose settings: what is claimed of them is what the recorded trials say."""

import functools

import numpy as np
import pandas as pd
import pytest

from profzoo.plans import plan
from profzoo.referee import score
from profzoo.referee.score import Advice
from profzoo.tables.schemas import CELL
from profzoo.verdicts import advice_scores
from tests.benchmarks import advice_scoring, policy_scores, verdict_score
from tests.benchmarks.policy_scores import TriedCell


@functools.cache
def trials() -> pd.DataFrame:
    """All recorded trials by the name of their table, with the intervals that other models give."""
    tables = {path.name: verdict_score.read_trials(path) for path in verdict_score.TABLES}
    return advice_scoring.add_intervals(pd.concat(tables))


def recorded(name: str, half: str) -> list[TriedCell]:
    table = trials().loc[name]
    return policy_scores.list_tried_cells(table[table["model"].map(advice_scoring.find_half) == half])


def test_the_advice_of_verdicts_alone_gains_less_than_the_best_plan() -> None:
    """The number of docs/guides/trials.md; other policies are on the page of advisors."""
    advice = [
        Advice(f"{model} {phase}", " ".join(sorted(policy_scores.choose_advice(cell))) or score.NOTHING, rank=1)
        for (model, phase), rows in trials().groupby(CELL)
        for cell in policy_scores.list_tried_cells(rows)
    ]
    gains = [
        score.score_advisor("", claims, score.load_truth(), score.TRIALS, "held_out").gain
        for claims in (advice, score.load_truth().advice)
    ]
    assert [round(one.value, 2) for one in gains] == [1.63, 2.29] and gains[0].count == 20
    assert [round(end, 2) for end in (gains[0].low, gains[0].high)] == [1.31, 2.16]


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


def test_the_best_plan_gains_what_was_expected_of_it() -> None:
    """The numbers of docs/guides/trials.md; by hand, expected over measured gains of the held-out half."""
    picks = policy_scores.list_picks(trials())
    held_out = picks[picks["half"] == advice_scoring.HELD_OUT]
    alone = [1.239, 0.953, 1.104, 1.001, 1.049, 0.779, 1.043, 1.404, 0.949, 1.080, 0.922]
    together = [1.430, 0.670, 0.956, 1.047, 0.778, 0.673, 0.886, 1.119, 0.723]
    several = held_out[held_out["kind"].str.contains(advice_scores.TOGETHER, regex=False)]
    for found, by_hand, right in ((held_out, [*alone, *together], 0.97), (several, together, 0.89)):
        mean = np.exp(np.log(by_hand).mean())
        assert len(found) == len(by_hand) and policy_scores.mean_ratio(found) == pytest.approx(mean, abs=1e-3)
        assert mean == pytest.approx(right, abs=5e-3)
    assert advice_scores.load_scores().picked == pytest.approx(policy_scores.mean_ratio(several), abs=1e-4)


def test_plans_that_others_show_to_be_too_hopeful_are_corrected_by_them() -> None:
    """Three networks gain half of what was expected; the fourth, as much as was expected, does not raise the others."""
    picks = pd.DataFrame({"network": [*"abcd"], "expected": [2.0, 4.0, 6.0, 3.0], "gain": [1.0, 2.0, 3.0, 3.0]})
    wanted = [2 / 2 ** (2 / 3), 4 / 2 ** (2 / 3), 6 / 2 ** (2 / 3), 3 / 2]
    assert policy_scores.correct_by_others(picks).tolist() == pytest.approx(wanted)
    modest = picks.assign(expected=picks["gain"] / 2)
    assert policy_scores.correct_by_others(modest).tolist() == modest["expected"].tolist()
