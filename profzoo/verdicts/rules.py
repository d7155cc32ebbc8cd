"""Read the rules of rules.yaml, report errors in them, and choose the advice that fits a cell."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo import schema
from profzoo.cell import settings
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.io import strict_yaml
from profzoo.kernels import kernel_classes
from profzoo.tables.step_shares import PARTS
from profzoo.tools.nsys.steps import COLUMNS
from profzoo.verdicts import launch_causes
from profzoo.verdicts.launch_traits import CAUSES

FILES = ("rules.yaml",)
RULES_FILE = Path(__file__).with_name(FILES[0])
# What rules are about: shares of the step, those of launches with a trait, and which parts of these a cure saves.
LAUNCH_IDLE_SHARE = "idle_launching"
SHARES = {
    "step": (LAUNCH_IDLE_SHARE, *PARTS),
    "kernels": ("short", "small_grid", "memory", "simt", "tensor", "underused"),
    "layers": ("padded",),
    "trace": ("allocations_removed", "unrepeated_removed"),
    "cpu": ("data", "operator", "overhead"),
}
# The last: the share that a cause's first condition is about.
CURES = ("small_grid", "to_tensor_cores", "underused", "share")
# Changes by which steps are run again, of profzoo/verdicts/gain_models.py.
SIMULATED_CHANGES = {
    "step": (
        "input_ready", "waits_removed", "graph", "half_the_operators", "transfers_removed", "copies_removed",
        "communication_overlapped", "waiting_removed",
    ),
    "kernels": ("faster", "fused", "tf32", "bf16"),
    "layers": ("faster",),
    "trace": (),
    "cpu": (),
}  # fmt: skip
LAUNCH_EFFECTS = ("kept", "changed", "removed")
FLOOR_KEYS = ("stretch", "steady", "counted", "kernel", "layer")
TRAIT_KEYS = {
    "short": ("mean_ns_below", "classes"),
    "small_grid": ("blocks_below",),
    "at_the_roof": ("efficiency_at_least",),
    "far_from_the_roof": ("efficiency_below",),
    "padded": ("flop_at_least",),
    "at_the_floor": ("times_below", "operators"),
}
BOUND_KEYS = ("below", "at_least")
RULE_KEYS = ("verdict", "of", "share", "at_least", "cured", "replay", "launches", "advice", "source")
ADVICE_KEYS = ("when", "next", "settings", "doubled", "cured", "replay")
# Keys that a rule may lack.
OPTIONAL_RULE_KEYS = ("replay", "launches")


@functools.cache
def load_rules() -> Mapping[str, Any]:
    """Read and check the rules with their floors and traits."""
    return check_rules(strict_yaml.load_yaml(RULES_FILE))


def check_rules(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of a file of rules, as it is.

    Raises:
        ConfigError: a key, share, cure, class, setting or column that there is not, a value of another kind, a rule
            that lacks something or whose advice fits no cell that the advice before it leaves.
    """
    _check_keys("rules.yaml", content, ("floors", "traits", "rules"))
    _check_keys("floors", content["floors"], FLOOR_KEYS)
    _check_keys("traits", content["traits"], (*TRAIT_KEYS, CAUSES))
    for name, keys in TRAIT_KEYS.items():
        _check_keys(f"traits.{name}", content["traits"][name], keys)
    for name, cause in content["traits"][CAUSES].items():
        _check_cause(f"causes.{name}", cause)
    for name in content["traits"]["short"]["classes"]:
        _check_choice("traits.short.classes", name, kernel_classes.content()["classes"])
    for name, value in content["floors"].items():
        _check_number(f"floors.{name}", value)
    for rule in content["rules"]:
        _check_rule(rule, tuple(content["traits"][CAUSES]))
    return content


def choose_advice(rule: Mapping[str, Any], step: Mapping[str, Any], cell: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `next`, `settings`, `cured` and `replay` of a rule's first advice that fits the cell.

    Args:
        step: columns of the table of steps; cell: the settings that the cell ran with. Advice whose settings the cell
            has already does not fit.
    """
    given = {"settings": None, "cured": rule["cured"], "replay": rule.get("replay")}
    for one in rule["advice"]:
        if _fits(one.get("when", {}), step, cell) and not _is_followed(one.get("settings"), cell):
            own = (
                {"settings": f"{name}={2 * cell[name]}"}
                if isinstance(cell.get(name := one.get("doubled")), int)
                else {}
            )
            return {**given, **one, **own}
    return {**rule["advice"][-1], **given}


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


def _is_followed(words: str | None, cell: Mapping[str, Any]) -> bool:
    return bool(words) and all(cell.get(key) == value for key, value in _parse_settings(words or "").items())


def _parse_settings(words: str) -> dict[str, Any]:
    """Parse the setting words of a cell into typed values."""
    known, given = schema.cell_properties(), settings.parse_words(words.split())
    return {key: schema.coerce_value(value, known.get(key, {})) for key, value in given.items()}


def _check_cause(where: str, cause: Mapping[str, Any]) -> None:
    _check_keys(where, cause, launch_causes.CAUSE_KEYS, needed=())
    if not set(cause) & {"when", "match"}:
        raise ConfigError(f"{where} would hold of every launch: give it a `when` or a `match`")
    for name, bounds in cause.get("when", {}).items():
        _check_choice(f"{where}.when", name, launch_causes.CONDITIONS)
        _check_bounds(f"{where}.when.{name}", bounds)
    for name in cause.get("classes", ()):
        _check_choice(f"{where}.classes", name, kernel_classes.content()["classes"])
    try:
        re.compile(cause.get("match", ""))
    except re.error as error:
        raise ConfigError(f"{where}.match = '{cause['match']}' is no regular expression: {error}") from None


def _check_bounds(where: str, given: Any) -> None:
    _check_keys(where, given, BOUND_KEYS, needed=())
    for value in given.values():
        _check_number(where, value)
    if len(given) != 1:
        raise ConfigError(f"{where}: give one of {' and '.join(BOUND_KEYS)}")


def _check_rule(rule: Mapping[str, Any], own: Sequence[str] = ()) -> None:
    where = f"rule '{rule.get('verdict', '?')}'"
    _check_keys(where, rule, RULE_KEYS, needed=[key for key in RULE_KEYS if key not in OPTIONAL_RULE_KEYS])
    _check_choice(f"{where}.of", rule["of"], SHARES)
    known = [key for key in RULE_KEYS if key != "launches" or rule["of"] in ("kernels", "layers")]
    _check_keys(where, rule, known, needed=[key for key in known if key != "replay"])
    _check_choice(f"{where}.share", rule["share"], (*SHARES[rule["of"]], *(own if rule["of"] == "kernels" else ())))
    _check_number(f"{where}.at_least", rule["at_least"])
    _check_cure(f"{where}.cured", rule["cured"])
    if rule["of"] in ("kernels", "layers"):
        _check_choice(f"{where}.launches", rule["launches"], LAUNCH_EFFECTS)
    for one in (rule, *rule["advice"]):
        if "replay" in one:
            _check_choice(f"{where}.replay", one["replay"], SIMULATED_CHANGES[rule["of"]])
    if not isinstance(rule["advice"], Sequence) or not rule["advice"]:
        raise ConfigError(f"{where}.advice is empty: say what to do")
    for index, one in enumerate(rule["advice"]):
        _check_advice(f"{where}.advice", one)
        if not one.get("when") and index < len(rule["advice"]) - 1 and "settings" not in one:
            raise ConfigError(f"{where}.advice: what follows '{one['next']}' is never reached: give it a `when`")
    if rule["advice"][-1].get("when"):
        raise ConfigError(f"{where}.advice: the last one has a `when`, so that none may fit: add one without")


def _check_advice(where: str, one: Mapping[str, Any]) -> None:
    _check_keys(where, one, ADVICE_KEYS, needed=("next",))
    if "cured" in one:
        _check_cure(f"{where}.cured", one["cured"])
    known = schema.cell_properties()
    for name, wanted in one.get("when", {}).items():
        if isinstance(wanted, Mapping):
            _check_choice(f"{where}.when", name, COLUMNS)
            _check_bounds(f"{where}.when.{name}", wanted)
        else:
            _check_choice(f"{where}.when", name, known)
            for value in wanted if isinstance(wanted, list) else [wanted]:
                schema.check_value(value, known[name], f"{where}.when.{name}")
            if not isinstance(wanted, list):
                raise ConfigError(f"{where}.when.{name} = {wanted!r} is no list of values")
    if "doubled" in one:
        _check_choice(
            f"{where}.doubled", one["doubled"], [name for name in known if "integer" in known[name].get("type", "")]
        )
    for name, value in _parse_settings(one.get("settings") or "").items():
        _check_choice(f"{where}.settings", name, known)
        schema.check_value(value, known[name], f"{where}.settings: {name}")


def _check_keys(where: str, given: Any, known: Sequence[str], needed: Sequence[str] | None = None) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is no mapping: it takes {', '.join(known)}")
    for key in given:
        if key not in known:
            raise ConfigError(f"{where}: unknown key '{key}'; {suggest_nearest(key, known)}")
    for key in known if needed is None else needed:
        if key not in given:
            raise ConfigError(f"{where}: '{key}' is missing")


def _check_choice(where: str, value: Any, choices: Any) -> None:
    if value not in choices:
        raise ConfigError(f"{where} = '{value}': {suggest_nearest(value, choices)}")


def _check_number(where: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where} = {value!r} is no number")


def _check_cure(where: str, value: Any) -> None:
    if isinstance(value, str):
        _check_choice(where, value, CURES)
    else:
        _check_number(where, value)
        if not 0 <= value <= 1:
            raise ConfigError(f"{where} = {value} is no part of a share: give 0 to 1")
