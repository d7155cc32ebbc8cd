"""verdict_rules: what is wrong with a file of rules is said in one line, and advice follows a cell's settings."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from profzoo import run
from profzoo.errors import ConfigError
from profzoo.verdicts import rule_types, table_columns
from profzoo.verdicts import rules as verdict_rules
from tests import known_rules

RULES = known_rules.load()


def rule(content: dict[str, Any], verdict: str) -> dict[str, Any]:
    return next(one for one in content["rules"] if one["verdict"] == verdict)


def memory(content: dict[str, Any]) -> dict[str, Any]:
    return rule(content, "memory-bound")


def tiny(content: dict[str, Any]) -> dict[str, Any]:
    return rule(content, "overhead-bound")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: memory(c).update(of="kernals"), "rule 'memory-bound'.of = 'kernals': did you mean 'kernels'?"),
        (lambda c: memory(c).update(share="memroy"), "rule 'memory-bound'.share = 'memroy': did you mean 'memory'?"),
        (lambda c: memory(c).update(share="transfer"), "share = 'transfer'"),
        (lambda c: memory(c).update(launches="gone"), "launches = 'gone': valid are: changed, kept, removed"),
        (lambda c: memory(c).update(at_least="0.1x"), "at_least = '0.1x' is a string, not number"),
        (lambda c: memory(c).update(cured=2), "cured = 2 is too large: at most 1"),
        (lambda c: memory(c).update(cured="smal_grid"), "cured = 'smal_grid': did you mean 'small_grid'?"),
        (
            lambda c: memory(c).update(sauce="?"),
            "unknown key 'rule 'memory-bound'.sauce' (value '?'): did you mean 'source'?",
        ),
        (lambda c: memory(c).pop("source"), "rule 'memory-bound': 'source' is missing"),
        (lambda c: memory(c).pop("launches"), "'launches' is missing"),
        (lambda c: memory(c).update(advice=[]), "advice is empty"),
        (
            lambda c: memory(c)["advice"][0].update(setings="a=1"),
            "advice.0.setings' (value 'a=1'): did you mean 'settings'?",
        ),
        (lambda c: memory(c)["advice"][0].update(settings="precison=bf16"), "did you mean 'precision'?"),
        (lambda c: memory(c)["advice"][0].update(settings="precision=bf61"), "did you mean 'bf16'?"),
        (lambda c: memory(c)["advice"][0]["when"].update(precision=["fp23"]), "did you mean 'fp32'?"),
        (lambda c: memory(c)["advice"][0]["when"].update(precison=["fp32"]), "did you mean 'precision'?"),
        (
            lambda c: memory(c)["advice"][0]["when"].update(precision="fp32"),
            "advice.0.when.precision = 'fp32' is a string, not array",
        ),
        (lambda c: memory(c)["advice"][0]["when"].update(cpu_dta_ns={"below": 1}), "did you mean 'cpu_data_ns'?"),
        (lambda c: memory(c)["advice"][0]["when"].update(cpu_data_ns={"belo": 1}), "did you mean 'below'?"),
        (lambda c: memory(c)["advice"].pop(), "the last advice has a `when`"),
        (lambda c: memory(c)["advice"].insert(0, {"next": "x"}), "advice after 'x' is never reached"),
        (
            lambda c: c["floors"].update(strech=1),
            "unknown key 'rules.yaml.floors.strech' (value 1): did you mean 'stretch'?",
        ),
        (lambda c: c["floors"].pop("steady"), "floors: 'steady' is missing"),
        (lambda c: c["traits"]["short"].update(classes=["elemntwise"]), "did you mean 'elementwise'?"),
        (
            lambda c: c["traits"]["small_grid"].update(blocks=1),
            "unknown key 'rules.yaml.traits.small_grid.blocks' (value 1)",
        ),
        (lambda c: c["traits"]["causes"]["tail"]["when"].update(wavs={"below": 1}), "did you mean 'waves'?"),
        (
            lambda c: c["traits"]["causes"]["tail"].update(when={"tail": {}}),
            "causes.tail.when.tail is empty: name at least 1",
        ),
        (lambda c: c["traits"]["causes"]["tail"].update(classes=["gem"]), "did you mean 'gemm'?"),
        (lambda c: c["traits"]["causes"]["cast"].update(match="("), "is no regular expression"),
        (lambda c: c["traits"]["causes"]["cast"].pop("match"), "would apply to every launch"),
        (lambda c: memory(c).update(replay="fastr"), "rule 'memory-bound'.replay = 'fastr': did you mean 'faster'?"),
        (lambda c: tiny(c)["advice"][0].update(doubled="bach"), "advice.0.doubled = 'bach': did you mean 'batch'?"),
        (lambda c: tiny(c).update(replay="graph"), "rule 'overhead-bound'.replay = 'graph'"),
        (lambda c: tiny(c).update(share="date"), "rule 'overhead-bound'.share = 'date': did you mean 'data'?"),
        (lambda c: c["traits"]["at_the_floor"].pop("times_below"), "traits.at_the_floor: 'times_below' is missing"),
        (lambda c: c.update(rule=[]), "unknown key 'rules.yaml.rule' (value []): did you mean 'rules'?"),
    ],
)
def test_a_rule_that_would_never_hold_is_refused(spoil: Callable, said: str) -> None:
    content = copy.deepcopy(dict(RULES))
    spoil(content)
    with pytest.raises(ConfigError) as error:
        verdict_rules.check_rules(content)
    assert said in str(error.value) and "\n" not in str(error.value)


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
            found = verdict_rules.choose_advice(each, {"cpu_data_ns": 1e9, "cpu_transfer_ns": 1e9} | step, cell)
            assert found.next_step == one["next"]


@pytest.mark.parametrize(("batch", "settings"), [(8, "batch=16"), (None, None), ("auto", None)])
def test_advice_that_doubles_a_setting_goes_by_what_the_cell_has(batch: object, settings: str | None) -> None:
    found = verdict_rules.choose_advice(tiny(RULES), {"cpu_data_ns": 0.0}, {"batch": batch} if batch else {})
    assert found.settings == settings


def test_the_types_of_rules_have_the_keys_of_the_schema() -> None:
    parts = yaml.safe_load(verdict_rules.SCHEMA_FILE.read_text())
    traits, rule = parts["file"]["properties"]["traits"], parts["rule"]
    declared = {
        "Rules": parts["file"], "ExtensionRules": parts["extension"], "Floors": parts["floors"], "Traits": traits,
        "Rule": rule, "Advice": rule["properties"]["advice"]["items"], "Cause": parts["causes"]["additionalProperties"],
        "Bounds": parts["bounds"], "ShortLaunches": traits["properties"]["short"],
        "SmallGrids": traits["properties"]["small_grid"], "NearRoof": traits["properties"]["at_the_roof"],
        "FarFromRoof": traits["properties"]["far_from_the_roof"], "Padding": traits["properties"]["padded"],
        "CallOverhead": traits["properties"]["at_the_floor"],
    }  # fmt: skip
    for name, part in declared.items():
        kind = getattr(rule_types, name)
        assert set(part["properties"]) == set(kind.__annotations__), name
        assert set(part.get("required", ())) == kind.__required_keys__, name


def test_a_verdict_has_the_columns_of_its_table() -> None:
    assert {*known_rules.a_verdict("v").columns(), "model", "phase", "rank"} == {*table_columns.COLUMNS}
