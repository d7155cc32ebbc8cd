"""Reads the rules of rules.yaml, explains what is wrong with them, and picks the advice that fits a cell."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from profzoo import schema
from profzoo.cell import settings
from profzoo.errors import ConfigError, suggest
from profzoo.tables import kernel_classes
from profzoo.tables.step_shares import PARTS
from profzoo.tools.nsys.steps import COLUMNS

FILES = ("rules.yaml",)
RULES_FILE = Path(__file__).with_name(FILES[0])
# What rules are about: shares of the step, those of launches with a trait, and which parts of these a cure saves.
LAUNCHING = "idle_launching"
SHARES = {
    "step": (LAUNCHING, *PARTS),
    "kernels": ("short", "small_grid", "memory", "simt", "tensor", "underused"),
    "layers": ("padded",),
}
CURES = ("small_grid", "to_tensor_cores", "underused")
LAUNCHES = ("kept", "changed", "removed")
FLOORS = ("stretch", "steady", "counted", "kernel")
TRAITS = {
    "short": ("mean_ns_below", "classes"),
    "small_grid": ("blocks_below",),
    "at_the_roof": ("efficiency_at_least",),
    "far_from_the_roof": ("efficiency_below",),
    "padded": ("flop_at_least",),
}
BOUNDS = ("below", "at_least")
RULE = ("verdict", "of", "share", "at_least", "cured", "launches", "advice", "source")
ADVICE = ("when", "next", "settings", "cured")


@functools.cache
def load() -> Mapping[str, Any]:
    """The checked rules with their floors and traits."""
    return checked(yaml.safe_load(RULES_FILE.read_text(encoding="utf-8")))


def checked(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of a file of rules, as it is.

    Raises:
        ConfigError: a key, share, cure, class, setting or column that there is not, a value of another kind, a rule
            that lacks something or whose advice fits no cell that the advice before it leaves.
    """
    _keys("rules.yaml", content, ("floors", "traits", "rules"))
    _keys("floors", content["floors"], FLOORS)
    _keys("traits", content["traits"], tuple(TRAITS))
    for name, of_trait in content["traits"].items():
        _keys(f"traits.{name}", of_trait, TRAITS[name])
    for name in content["traits"]["short"]["classes"]:
        _one_of("traits.short.classes", name, kernel_classes.content()["classes"])
    for name, value in content["floors"].items():
        _number(f"floors.{name}", value)
    for rule in content["rules"]:
        _check_rule(rule)
    return content


def advice(rule: Mapping[str, Any], step: Mapping[str, Any], cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """`next`, `settings` and `cured` of the first advice of a rule that fits.

    Args:
        step: columns of the table of steps; cell: the settings that the cell ran with. Advice whose settings the cell
            has already does not fit.
    """
    for one in rule["advice"]:
        if _fits(one.get("when", {}), step, cell) and not _followed(one.get("settings"), cell):
            return {"settings": None, "cured": rule["cured"], **one}
    return {**rule["advice"][-1], "settings": None, "cured": rule["cured"]}


def _fits(when: Mapping[str, Any], step: Mapping[str, Any], cell: Mapping[str, Any]) -> bool:
    for name, wanted in when.items():
        if isinstance(wanted, Mapping):
            value = step[name]
            if not (value < wanted["below"] if "below" in wanted else value >= wanted["at_least"]):
                return False
        # A cell whose settings are not known is one of the schema's defaults.
        elif cell.get(name, schema.cell_properties()[name].get("default")) not in wanted:
            return False
    return True


def _followed(words: str | None, cell: Mapping[str, Any]) -> bool:
    return bool(words) and all(cell.get(key) == value for key, value in _settings(words or "").items())


def _settings(words: str) -> dict[str, Any]:
    """Settings of a cell in words, as values of their types."""
    known, given = schema.cell_properties(), settings.parse(words.split())
    return {key: schema.coerce(value, known.get(key, {})) for key, value in given.items()}


def _check_rule(rule: Mapping[str, Any]) -> None:
    where = f"rule '{rule.get('verdict', '?')}'"
    _keys(where, rule, RULE, needed=[key for key in RULE if key != "launches"])
    _one_of(f"{where}.of", rule["of"], SHARES)
    _keys(where, rule, [key for key in RULE if key != "launches" or rule["of"] != "step"])
    _one_of(f"{where}.share", rule["share"], SHARES[rule["of"]])
    _number(f"{where}.at_least", rule["at_least"])
    _cure(f"{where}.cured", rule["cured"])
    if rule["of"] != "step":
        _one_of(f"{where}.launches", rule["launches"], LAUNCHES)
    if not isinstance(rule["advice"], Sequence) or not rule["advice"]:
        raise ConfigError(f"{where}.advice is empty: say what to do")
    for index, one in enumerate(rule["advice"]):
        _check_advice(f"{where}.advice", one)
        if not one.get("when") and index < len(rule["advice"]) - 1 and "settings" not in one:
            raise ConfigError(f"{where}.advice: what follows '{one['next']}' is never reached: give it a `when`")
    if rule["advice"][-1].get("when"):
        raise ConfigError(f"{where}.advice: the last one has a `when`, so that none may fit: add one without")


def _check_advice(where: str, one: Mapping[str, Any]) -> None:
    _keys(where, one, ADVICE, needed=("next",))
    if "cured" in one:
        _cure(f"{where}.cured", one["cured"])
    known = schema.cell_properties()
    for name, wanted in one.get("when", {}).items():
        if isinstance(wanted, Mapping):
            _one_of(f"{where}.when", name, COLUMNS)
            _keys(f"{where}.when.{name}", wanted, BOUNDS, needed=())
            for value in wanted.values():
                _number(f"{where}.when.{name}", value)
            if len(wanted) != 1:
                raise ConfigError(f"{where}.when.{name}: give one of {' and '.join(BOUNDS)}")
        else:
            _one_of(f"{where}.when", name, known)
            for value in wanted if isinstance(wanted, list) else [wanted]:
                schema.check(value, known[name], f"{where}.when.{name}")
            if not isinstance(wanted, list):
                raise ConfigError(f"{where}.when.{name} = {wanted!r} is no list of values")
    for name, value in _settings(one.get("settings") or "").items():
        _one_of(f"{where}.settings", name, known)
        schema.check(value, known[name], f"{where}.settings: {name}")


def _keys(where: str, given: Any, known: Sequence[str], needed: Sequence[str] | None = None) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is no mapping: it takes {', '.join(known)}")
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key '{key}'; {suggest(key, known)}")
    for key in known if needed is None else needed:
        if key not in given:
            raise ConfigError(f"{where}: '{key}' is missing")


def _one_of(where: str, value: Any, choices: Any) -> None:
    if value not in choices:
        raise ConfigError(f"{where} = '{value}': {suggest(value, choices)}")


def _number(where: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where} = {value!r} is no number")


def _cure(where: str, value: Any) -> None:
    if isinstance(value, str):
        _one_of(where, value, CURES)
    else:
        _number(where, value)
        if not 0 <= value <= 1:
            raise ConfigError(f"{where} = {value} is no part of a share: give 0 to 1")
