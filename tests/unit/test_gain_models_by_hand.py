"""What a replay is asked and files of rules and scores allow: bounds worked out by hand, on either side of each."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from profzoo.errors import ConfigError
from profzoo.verdicts import advice_gain, advice_scores, gain_models, other_settings
from profzoo.verdicts import rules as verdict_rules
from profzoo.verdicts.gain_models import CellSimulation, RequestedChange
from profzoo.verdicts.launch_traits import mark_traits
from profzoo.verdicts.rule_evaluation import CellRules
from profzoo.verdicts.verdict import Verdict
from profzoo.what_if.program import Program
from tests import known_rules
from tests.known_rules import a_verdict
from tests.unit.test_gain_models import LAUNCH, kernels, simulation, steps
from tests.unit.test_verdicts import ROOFS, UNTRIED
from tests.unit.test_verdicts import made as a_step

RULES = known_rules.load()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Steps of ten launches of 50 us, one after the other: the GPU is the limit."""
    return simulation(steps([LAUNCH] * 10), tmp_path_factory.mktemp("replayed"))[0]


def faster(rows: pd.DataFrame, part: Any, change: str = "faster") -> RequestedChange:
    return RequestedChange(change, rows, pd.Series(part, rows.index, dtype="float64"))


def test_launches_are_found_where_four_fifths_of_their_time_are(program: Program) -> None:
    rows, replayed = kernels(program), CellSimulation(program)
    for more, found in ((1.249, True), (1.251, False)):
        gain = replayed.gain(faster(rows.assign(total_ns=rows["total_ns"] * more), 0.5), {}, 0.0)
        assert (gain is not None) == found


def test_half_of_the_time_of_launches_that_are_the_limit(program: Program) -> None:
    """Of ten launches of 50 us 25 us each are left; what is not known, or of launches that there are none of, has no gain."""
    rows, replayed = kernels(program), CellSimulation(program)
    gain = replayed.gain(faster(rows, 0.5), {}, 0.0)
    assert gain and gain.step_ns - gain.predicted_ns == pytest.approx(250e3, rel=0.02)
    gone = replayed.gain(faster(rows, 1.0), {}, 0.0)
    assert gone and gone.gain > gain.gain
    assert replayed.gain(faster(rows, np.nan), {}, 0.0) is None
    assert replayed.gain(faster(rows.assign(launches=0.0), 0.5), {}, 0.0) is None
    assert replayed.gain(faster(rows.assign(total_ns=np.nan), 0.5), {}, 0.0) is None
    assert replayed.gain(faster(rows.drop(columns="grid_x"), 0.5), {}, 0.0) is None
    none = replayed.gain(faster(rows, 0.0, "fused"), {}, 0.0)
    assert none and none.gain == pytest.approx(1)


def test_intervals_are_as_wide_as_errors_and_processes_apart(program: Program) -> None:
    """Steps that are alike have no spread: an error of a quarter is all there is, or with 0.3 apart exp(hypot(ln 1.25, 0.3))."""
    rows = kernels(program)
    for apart, wide in ((0.0, 1.25), (0.3, np.exp(np.hypot(np.log(1.25), 0.3)))):
        gain = CellSimulation(program, apart).gain(faster(rows, 0.5), {}, 0.25)
        assert gain and gain.high / gain.gain == pytest.approx(wide, rel=0.02)
        assert gain.gain / gain.low == pytest.approx(wide, rel=0.02)
    # What the program knows by itself counts before what is supposed of others.
    assert CellSimulation(replace(program, apart=0.1), 0.3).apart == 0.1 and CellSimulation(program, 0.3).apart == 0.3
    assert gain_models.error_interval(3.0, 0.5) == (2, 4.5)


@pytest.mark.parametrize(
    ("waiting", "talking", "left"),
    [(0.0, 4.0, 1.0), (1.0, 4.0, 0.75), (4.0, 4.0, 1e-3), (9.0, 4.0, 1e-3), (0.0, 0.0, 1.0)],
)
def test_communication_without_its_waits(tmp_path: Path, waiting: float, talking: float, left: float) -> None:
    """A launch of 400 us that communicates takes the part that it does not wait."""
    own, _ = simulation(steps([LAUNCH, replace(LAUNCH, ns=4e5, group=-1)], 2), tmp_path)
    step = {"waiting_ns": waiting * 1e5, "communication_ns": talking * 1e5}
    found = gain_models._remove_waiting(own, step).gpu
    talks = own.gpu["talking"].to_numpy(dtype=bool)
    assert talks.sum() == 2 and found.loc[talks, "ns"].tolist() == pytest.approx([left * 4e5] * 2, rel=1e-3)
    assert found.loc[~talks, "ns"].tolist() == own.gpu.loc[~talks, "ns"].tolist()


def test_settings_that_a_verdict_advises_are_not_told_again(program: Program) -> None:
    """Of what a rule advises with a gain nothing is said; of what abstains that it does, of the rest that it does not hold."""
    rows = mark_traits(kernels(program), None, RULES["traits"], {})
    judged = CellRules(a_step({}).iloc[0], {}, RULES, ROOFS, CellSimulation(program), UNTRIED)

    def said(*verdicts: Verdict) -> dict[str | None, str]:
        return {row.settings: row.next_step for row in other_settings.other_setting_rows(judged, rows, verdicts)}

    every = said()
    assert "graph=true" in every and every == said(a_verdict("v", gain=2.0))
    graph = a_verdict("launch-bound", settings="graph=true", gain=1.5)
    assert set(said(graph)) == set(every) - {"graph=true"}
    silent = said(replace(graph, gain=None))
    assert set(silent) == set(every)
    assert (
        silent["graph=true"] == "not advised: in trials, advice on launch-bound made at most half of the cells faster"
    )
    # One that holds without settings, or with others that gain, does not abstain.
    held = said(replace(graph, settings=None, gain=None), replace(graph, settings="graph=false"))
    assert held["graph=true"] == "not advised: launch-bound does not apply here"
    gains = [row.gain or 0 for row in other_settings.other_setting_rows(judged, rows, [])]
    assert gains == sorted(gains, reverse=True) and len(gains) > 2
    without = CellRules(a_step({}).iloc[0], {}, RULES, ROOFS, None, UNTRIED)
    assert other_settings.other_setting_rows(without, rows, []) == []


@pytest.mark.parametrize(("counted", "guessed"), [(0.8, False), (0.79, True), (0.0, True)])
def test_settings_go_by_counters_where_four_fifths_have_them(program: Program, counted: float, guessed: bool) -> None:
    rows = mark_traits(kernels(program), None, RULES["traits"], {})
    rows = rows.assign(counted_ns=rows["total_ns"] * counted)
    judged = CellRules(a_step({}).iloc[0], {}, RULES, ROOFS, CellSimulation(program), UNTRIED)
    found = {row.settings: row.metric for row in other_settings.other_setting_rows(judged, rows, [])}
    assert found["precision=tf32"].endswith(other_settings.UNCOUNTED) == guessed
    assert not found["graph=true"].endswith(other_settings.UNCOUNTED)


def changed(verdict: str, **given: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: next(one for one in content["rules"] if one["verdict"] == verdict).update(given)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (changed("memory-bound", cured=0), ""),
        (changed("memory-bound", cured=1), ""),
        (changed("memory-bound", cured=1.01), "cured = 1.01 is too large: at most 1"),
        (changed("memory-bound", cured=-0.01), "cured = -0.01 is too small: at least 0"),
        (changed("memory-bound", cured=True), "cured = True is a boolean"),
        (changed("memory-bound", at_least=True), "at_least = True is a boolean"),
        (changed("memory-bound", cured="share"), ""),
        # Causes are shares of rules about kernels alone.
        (changed("memory-bound", share="tail"), ""),
        (changed("input-bound", share="tail"), "share = 'tail'"),
        (changed("input-bound", launches="kept"), ".launches' (value 'kept'): valid are: "),
        (changed("work beyond need", launches="kept"), ""),
        (changed("work beyond need", replay="tf32"), "replay = 'tf32'"),
        # What follows advice with settings is reached by cells that have these.
        (changed("memory-bound", advice=[{"next": "a", "settings": "precision=tf32"}, {"next": "b"}]), ""),
        (changed("memory-bound", advice=[{"next": "a"}, {"next": "b"}]), "advice after 'a' is never reached"),
        (changed("memory-bound", advice=[{"next": "a"}]), ""),
        (changed("memory-bound", advice=[{"next": "a", "cured": 2}]), "advice.0.cured = 2 is too large: at most 1"),
        (changed("memory-bound", advice=[{"next": "a", "replay": "grph"}]), "replay = 'grph'"),
        (lambda c: c["traits"]["causes"]["tail"]["when"]["tail"].update(below=1), "has too many properties"),
        (
            lambda c: c["traits"]["causes"]["tail"]["when"]["tail"].update(at_least="x"),
            "at_least = 'x' is a string, not number",
        ),
        (lambda c: c["floors"].update(steady="x"), "floors.steady = 'x' is a string, not number"),
        (lambda c: c.update(floors=[]), "floors = [] is a list, not object"),
    ],
)
def test_what_a_file_of_rules_allows(change: Callable, wrong: str) -> None:
    content = copy.deepcopy(dict(RULES))
    change(content)
    if not wrong:
        assert verdict_rules.check_rules(content) is content
        return
    with pytest.raises(ConfigError) as error:
        verdict_rules.check_rules(content)
    assert wrong in str(error.value)


@pytest.mark.parametrize(("value", "fits"), [(0, True), (0.5, True), (-0.1, False), (True, False), (None, False)])
def test_what_a_file_of_scores_allows(value: Any, fits: bool) -> None:
    content = yaml.safe_load(advice_scores.FILE.read_text())
    if fits:
        assert advice_scores.check_scores(content | {"coin": value}).coin == value
        return
    with pytest.raises(ConfigError, match="is no number from 0 on"):
        advice_scores.check_scores(content | {"coin": value})


def test_a_verdict_has_the_gain_of_its_replay_where_that_answers(program: Program) -> None:
    """Launches that take half as long gain what the replay says; of what it does not find Amdahl's law says 1.2."""
    rows, replayed = kernels(program), CellSimulation(program)
    row = a_verdict("v", gain=1.2, settings="a=1", share=0.5, cured=0.5)
    gain = replayed.gain(faster(rows, 0.5), {}, UNTRIED.unscored_error)
    asked_for = faster(rows, 0.5)
    found = advice_gain.add_expected_gain(replace(row, change=asked_for), replayed, {}, UNTRIED)
    assert gain and (found.gain, found.gain_low, found.gain_high) == (gain.gain, gain.low, gain.high)
    assert found.method == "replay" and gain.gain > 1.5
    # Verdicts are compared by their changes.
    assert found.change is asked_for
    for asked, own in ((faster(rows, np.nan), replayed), (None, replayed), (faster(rows, 0.5), None)):
        plain = advice_gain.add_expected_gain(replace(row, change=asked), own, {}, UNTRIED)
        assert (plain.gain, plain.method) == (1.2, "Amdahl")
