"""verdict_rules: what is wrong with a file of rules is said in one line, and advice follows a cell's settings."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from profzoo import run
from profzoo.errors import ConfigError
from profzoo.verdicts import advice_scores, verdict
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.feasibility import Feasibility
from tests import known_rules

RULES = known_rules.load()


def rule(content: dict[str, Any], verdict: str) -> dict[str, Any]:
    return next(one for one in content["rules"] if one["verdict"] == verdict)


def memory(content: dict[str, Any]) -> dict[str, Any]:
    return rule(content, "memory-bound")


def tiny(content: dict[str, Any]) -> dict[str, Any]:
    return rule(content, "overhead-bound")


def causes(content: dict[str, Any]) -> dict[str, Any]:
    return content["traits"]["causes"]


def spoil(change: Callable) -> dict[str, Any]:
    content = copy.deepcopy(dict(RULES))
    change(content)
    return content


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: memory(c).update(of="kernals"), "rule 'memory-bound'.of = 'kernals': did you mean 'kernels'?"),
        (lambda c: memory(c).update(share="memroy"), "rule 'memory-bound'.share = 'memroy': did you mean 'memory'?"),
        (lambda c: memory(c).update(share="transfer"), "share = 'transfer'"),
        # Causes are shares of rules about kernels alone.
        (lambda c: rule(c, "input-bound").update(share="tail"), "share = 'tail'"),
        (lambda c: memory(c).update(launches="gone"), "launches = 'gone': valid are: changed, kept, removed"),
        (lambda c: rule(c, "input-bound").update(launches="kept"), ".launches' (value 'kept'): valid are: "),
        (lambda c: memory(c).update(at_least="0.1x"), "at_least = '0.1x' is a string, not number"),
        (lambda c: memory(c).update(at_least=True), "at_least = True is a boolean"),
        (lambda c: memory(c).update(cured=1.01), "cured = 1.01 is too large: at most 1"),
        (lambda c: memory(c).update(cured=-0.01), "cured = -0.01 is too small: at least 0"),
        (lambda c: memory(c).update(cured=True), "cured = True is a boolean"),
        (lambda c: memory(c).update(cured="smal_grid"), "cured = 'smal_grid': did you mean 'small_grid'?"),
        (lambda c: memory(c).update(sauce="?"), "unknown key 'rule 'memory-bound'.sauce' (value '?'): did you mean 'source'?"),
        (lambda c: memory(c).pop("source"), "rule 'memory-bound': 'source' is missing"),
        (lambda c: memory(c).update(advice=[]), "advice is empty"),
        (lambda c: memory(c)["advice"][0].update(setings="a=1"), "advice.0.setings' (value 'a=1'): did you mean 'settings'?"),
        (lambda c: memory(c)["advice"][0].update(settings="precison=bf16"), "did you mean 'precision'?"),
        (lambda c: memory(c)["advice"][0]["when"].update(precision=["fp23"]), "did you mean 'fp32'?"),
        (lambda c: memory(c)["advice"][0]["when"].update(precision="fp32"), "advice.0.when.precision = 'fp32' is a string, not array"),
        (lambda c: memory(c)["advice"][0]["when"].update(cpu_dta_ns={"below": 1}), "did you mean 'cpu_data_ns'?"),
        (lambda c: c["explanations"][0].update(explains=["memory-bund"]), "explanations name 'memory-bund', which no rule gives"),
        (lambda c: c["explanations"][-1].update(by=["waits"]), "explanations name 'waits', which no rule gives"),
        (lambda c: c["explanations"][0].update(when="often"), "explanations.0.when = 'often'"),
        (lambda c: memory(c)["advice"].pop(), "the last advice has a `when`"),
        (lambda c: memory(c)["advice"].insert(0, {"next": "x"}), "advice after 'x' is never reached"),
        (lambda c: memory(c).update(advice=[{"next": "a", "cured": 2}]), "advice.0.cured = 2 is too large: at most 1"),
        (lambda c: c["floors"].update(strech=1), "unknown key 'rules.yaml.floors.strech' (value 1): did you mean 'stretch'?"),
        (lambda c: c["floors"].update(steady="x"), "floors.steady = 'x' is a string, not number"),
        (lambda c: causes(c)["tail"]["when"].update(wavs={"below": 1}), "did you mean 'waves'?"),
        (lambda c: causes(c)["tail"]["when"]["tail"].update(below=1), "has too many properties"),
        (lambda c: causes(c)["tail"]["when"]["tail"].update(at_least="x"), "at_least = 'x' is a string, not number"),
        (lambda c: causes(c)["tail"].update(when={"tail": {}}), "causes.tail.when.tail is empty: name at least 1"),
        (lambda c: causes(c)["cast"].update(match="("), "is not a regular expression"),
        (lambda c: causes(c)["cast"].pop("match"), "would apply to every launch"),
        (lambda c: rule(c, "work beyond need").update(replay="tf32"), "replay = 'tf32'"),
        (lambda c: tiny(c)["advice"][0].update(doubled="bach"), "advice.0.doubled = 'bach': did you mean 'batch'?"),
        (lambda c: tiny(c).update(replay="graph"), "rule 'overhead-bound'.replay = 'graph'"),
        (lambda c: c["traits"]["at_the_floor"].pop("times_below"), "traits.at_the_floor: 'times_below' is missing"),
        (lambda c: c.update(rule=[]), "unknown key 'rules.yaml.rule' (value []): did you mean 'rules'?"),
    ],
)  # fmt: skip
def test_a_rule_that_would_never_hold_is_refused(change: Callable, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        verdict_rules.check_rules(spoil(change))
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: memory(c).update(cured=0),
        lambda c: memory(c).update(cured=1),
        lambda c: memory(c).update(cured="share"),
        lambda c: memory(c).update(share="tail"),
        lambda c: rule(c, "work beyond need").update(launches="kept"),
        # What follows advice with settings is reached by cells that have these.
        lambda c: memory(c).update(advice=[{"next": "a", "settings": "precision=tf32"}, {"next": "b"}]),
        lambda c: memory(c).update(advice=[{"next": "a"}]),
    ],
)
def test_what_a_file_of_rules_allows(change: Callable) -> None:
    content = spoil(change)
    assert verdict_rules.check_rules(content) is content


@pytest.mark.parametrize(("value", "fits"), [(0, True), (0.5, True), (-0.1, False), (True, False), (None, False)])
def test_what_a_file_of_scores_allows(value: Any, fits: bool) -> None:
    content = yaml.safe_load(advice_scores.FILE.read_text())
    if fits:
        assert advice_scores.check_scores(content | {"coin": value}).coin == value
        return
    with pytest.raises(ConfigError, match="is not a number from 0 on"):
        advice_scores.check_scores(content | {"coin": value})


def test_settings_that_follow_advice_are_settings_of_a_cell() -> None:
    tried = [one["settings"].split() for each in RULES["rules"] for one in each["advice"] if "settings" in one]
    assert len(tried) == 10
    untouched = run.resolve_words("vgg16", "train", "time", [])
    for words in tried:
        assert run.resolve_words("vgg16", "train", "time", words) != untouched


def test_every_advice_is_some_cells() -> None:
    """Each is given to a cell that fits it and has none of its settings yet."""
    for each in RULES["rules"]:
        for one in each["advice"]:
            conditions = one.get("when", {})
            step = {name: wanted.get("at_least", 0) for name, wanted in conditions.items() if isinstance(wanted, dict)}
            cell = {name: wanted[0] for name, wanted in conditions.items() if isinstance(wanted, list)}
            if not conditions:  # The last resort: of a cell that follows all the others.
                for other in each["advice"][:-1]:
                    cell |= verdict_rules._parse_settings(other.get("settings", ""))
                    cell |= {"compile": True} if "compile" in other.get("when", {}) else {}
            known = {"cpu_data_ns": 1e9, "cpu_transfer_ns": 1e9, **dict.fromkeys(verdict_rules.OF_OPERATORS, math.nan)}
            refused = {}
            if "doubled" not in one:  # More of what cannot be had is no advice.
                doubled = [other["doubled"] for other in each["advice"] if "doubled" in other]
                refused = {f"{name}={2 * cell[name]}": "no room" for name in doubled if name in cell and not conditions}
            found = verdict_rules.choose_advice(each, known | step, cell, Feasibility(refused=refused))
            assert found.next_step == one["next"]


def test_advice_is_the_first_that_fits() -> None:
    """A value at the bound is not below it; settings that are not known are the defaults; what is done is passed over."""
    rule = {"cured": 1, "replay": "graph", "advice": [
        {"when": {"cpu_data_ns": {"below": 5}, "precision": ["fp32"]}, "next": "a", "settings": "precision=tf32"},
        {"when": {"cpu_data_ns": {"at_least": 9}}, "next": "b", "cured": 0.5},
        {"next": "c", "doubled": "batch"},
    ]}  # fmt: skip

    def fits(ns: float, **ran_with: Any) -> str:
        return str(verdict_rules.choose_advice(rule, {"cpu_data_ns": ns}, ran_with).next_step)

    assert [fits(ns) for ns in (4.9, 5, 8.9, 9)] == ["a", "c", "c", "b"] and fits(1, precision="tf32") == "c"
    last = verdict_rules.choose_advice(rule, {"cpu_data_ns": 6}, {"batch": 4})
    assert (last.settings, last.cured, last.replay) == ("batch=8", 1, "graph")
    assert verdict_rules.choose_advice(rule, {"cpu_data_ns": 6}, {}).settings is None
    assert verdict_rules.choose_advice(rule, {"cpu_data_ns": 9}, {}).cured == 0.5
    done = {"cured": 1, "advice": [{"next": "d", "settings": "precision=bf16"}]}
    given = verdict_rules.choose_advice(done, {}, {"precision": "bf16"})
    assert (given.next_step, given.settings) == ("d", None)


@pytest.mark.parametrize(
    ("verdict", "ran_with", "settings", "says"),
    [
        ("memory-bound", {"precision": "fp32"}, "precision=bf16", "bf16 halves them"),
        ("memory-bound", {"precision": "bf16"}, None, "compile: true fuses"),
        ("compute-bound (SIMT)", {"precision": "fp32"}, "precision=tf32", "use tensor cores"),
        ("compute-bound (SIMT)", {"precision": "tf32"}, None, "do not use tensor cores"),
        ("compute-bound (tensor)", {"precision": "tf32"}, "precision=bf16", "narrower operands"),
        ("compute-bound (tensor)", {"precision": "bf16"}, None, "limit for 16-bit operands"),
        ("input-bound", {"workers": 0}, "workers=4 pin_memory=true", "load batches ahead"),
        ("input-bound", {"workers": 4, "pin_memory": True}, "workers=8", "more worker processes"),
        ("input-bound", {"workers": 0, "cpu_data_ns": 3e5}, None, "a larger batch"),
        ("transfer-bound", {"pin_memory": False}, "pin_memory=true", "from pinned memory"),
        ("transfer-bound", {"pin_memory": True}, None, "move less data between host and GPU"),
        ("launch-bound", {"compile": False}, "graph=true", "as one CUDA graph"),
        ("launch-bound", {"compile": False, "graph": True}, None, "or try compile: true"),
        ("launch-bound", {"compile": True}, None, "without compile"),
    ],
)
def test_a_cell_is_not_advised_what_it_does(
    verdict: str, ran_with: dict[str, Any], settings: str | None, says: str
) -> None:
    """Nor workers where making a batch takes less time than handing it over."""
    step = {"cpu_data_ns": ran_with.get("cpu_data_ns", 5e6), "cpu_transfer_ns": 5e6}
    found = verdict_rules.choose_advice(rule({**RULES}, verdict), step, ran_with)
    assert found.settings == settings and says in found.next_step
    assert (found.cured == 0) == ("limit for 16-bit operands" in says)


@pytest.mark.parametrize(("batch", "settings"), [(8, "batch=16"), (None, None), ("auto", None)])
def test_advice_that_doubles_a_setting_goes_by_what_the_cell_has(batch: object, settings: str | None) -> None:
    found = verdict_rules.choose_advice(tiny(RULES), {"cpu_data_ns": 0.0}, {"batch": batch} if batch else {})
    assert found.settings == settings


def test_a_verdict_has_the_columns_of_its_table() -> None:
    assert {*known_rules.a_verdict("v").columns(), "model", "phase", "rank"} == {*verdict.COLUMNS}
