"""Reads the rules of rules.yaml and of extensions, checks them by rules.schema.yaml, picks the advice for a cell."""

import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from profzoo import extensions
from profzoo.cell import schema, settings
from profzoo.errors import ConfigError
from profzoo.fusion.patterns import PATTERNS_OF_SHARE
from profzoo.io import strict_yaml
from profzoo.json_types import JsonObject
from profzoo.kernels import kernel_classes
from profzoo.tables.cell_tables import PARTS
from profzoo.tools.nsys.steps.steps import COLUMNS
from profzoo.verdicts.rules import launch_traits
from profzoo.verdicts.rules.feasibility import EVERYTHING, Feasibility
from profzoo.verdicts.rules.rule_types import Advice, Bounds, Cause, ExtensionRules, KnownSettings, Rule, Rules
from profzoo.verdicts.verdict import UNDECIDED
from profzoo.what_if.loading import count_workers

FILES = ("rules.yaml", "rules.schema.yaml")
# What advice about an operator on a CPU may depend on: its rate as a share of the roof, and 1 for convolutions and for
# products of matrices.
OF_OPERATORS = ROOF_SHARE, CONVOLUTION, PRODUCT = ("roof_share", "convolution", "product")
# Of extensions.
EXTENDED = ("rules.yaml",)
RULES_FILE, SCHEMA_FILE = (Path(__file__).with_name(name) for name in FILES)
# What rules are about: shares of the step, those of launches with a trait, and which parts of these a cure saves.
LAUNCH_IDLE_SHARE = "idle_launching"
SHARES = {
    "step": (LAUNCH_IDLE_SHARE, *PARTS),
    "kernels": ("short", "small_grid", "memory", "simt", "tensor", "underused"),
    "layers": ("padded",),
    "trace": (
        "allocations_removed", "lock_waits_removed", "host_work_removed", "loading_removed",
        "copies_pinned", "logging_removed",
    ),
    "cpu": ("data", "operator", "overhead"),
    "chains": tuple(PATTERNS_OF_SHARE),
    "noted": (
        "padding", "compiling", "graph_breaks", "tuning", "retries", "unused_memory", "repeated_sync", "guards",
        "repeated_calls", "worker_starts",
    ),
}  # fmt: skip
# The last: the share that a cause's first condition is about.
CURES = ("small_grid", "to_tensor_cores", "underused", "share")
# Changes by which steps are run again, of profzoo/verdicts/gain_models.py.
SIMULATED_CHANGES = {
    "step": (
        "input_ready", "waits_removed", "step_waits_removed", "step_pauses_removed", "graph", "half_the_operators",
        "transfers_removed", "copies_removed", "copies_pinned", "communication_overlapped", "waiting_removed",
    ),
    "kernels": ("faster", "fused", "tf32", "bf16"),
    "layers": ("faster",),
    "trace": (),
    "cpu": (),
    "chains": ("fused_chains",),
    "noted": ("allocations_removed", "gradients_sent_once", "tuning_removed"),
}  # fmt: skip
# Rules of these name what becomes of the launches.
OF_LAUNCHES = ("kernels", "layers")


def load_rules() -> Rules:
    """The checked rules with their floors and traits: profzoo's own, and behind them those of extensions.

    Raises:
        ConfigError: as `check_rules`; an extension's verdict or cause has the name of another.
    """
    return _loaded(extensions.folders())


@dataclass(frozen=True)
class ChosenAdvice:
    """The advice of a rule for a cell; cured and replay as in `Rule`; settings: words of `python -m models.run`.

    refused: words of settings that the rule would rather advise but that the cell cannot run with, and the reason why.
    """

    next_step: str
    settings: str | None
    cured: float | str
    replay: str | None
    refused: tuple[str, str] | None = None

    @property
    def workers(self) -> int:
        """Number of worker processes in the settings; 0 without this setting."""
        return count_workers(self.settings or "")


@functools.cache
def _loaded(extended: tuple[Path, ...]) -> Rules:
    content = check_rules(strict_yaml.load_yaml(RULES_FILE))
    files: dict[Path, ExtensionRules] = {path: strict_yaml.load_yaml(path) for path in extensions.files(*EXTENDED)}
    for path, own in files.items():
        schema.check_value(own, _schema()["extension"], str(path))
    traits, rules = content["traits"], content["rules"]
    causes = [(name, path) for path, own in files.items() for name in own.get("causes", {})]
    extensions.refuse_clashes("cause", causes, {*traits["causes"], *SHARES["kernels"]})
    # A file's own rules may share a verdict.
    named = [(name, path) for path, own in files.items() for name in dict.fromkeys(_verdicts(own["rules"], str(path)))]
    extensions.refuse_clashes("verdict", named, dict.fromkeys(_verdicts(rules, RULES_FILE.name)))
    for path, own in files.items():
        traits = {**traits, "causes": {**traits["causes"], **own.get("causes", {})}}
        _check_parts(own.get("causes", {}), own["rules"], traits["causes"], f"{path}: ")
        rules = [*rules, *own["rules"]]
    return {**content, "traits": traits, "rules": rules}


def check_rules(content: JsonObject) -> Rules:
    """The content of a file of rules, as it is.

    Raises:
        ConfigError: it does not fit the schema; an expression of a cause is none; a setting that advice names, or a
            verdict that explanations name, does not exist; advice fits no cell that the advice before it leaves.
    """
    schema.check_value(content, _schema()["file"], RULES_FILE.name)
    checked = cast(Rules, content)
    names = {UNDECIDED, *_verdicts(checked["rules"], RULES_FILE.name)}
    for one in checked["explanations"]:
        if unknown := [name for name in (*one.get("by", ()), *one["explains"]) if name not in names]:
            raise ConfigError(f"{RULES_FILE.name}: explanations name '{unknown[0]}', which no rule gives: correct it")
    _check_parts(checked["traits"]["causes"], checked["rules"], checked["traits"]["causes"])
    return checked


def _verdicts(rules: Sequence[Rule], where: str) -> Iterator[str]:
    for rule in rules:
        schema.check_value(rule.get("verdict"), {"type": "string"}, f"{where}: the verdict of a rule")
        yield rule["verdict"]


def choose_advice(
    rule: Rule, step: Mapping[str, float], cell: KnownSettings, feasible: Feasibility = EVERYTHING
) -> ChosenAdvice:
    """Return a rule's first advice that fits the cell.

    Args:
        step: columns of the table of steps; cell: the settings that the cell ran with. Advice whose settings the cell
            has already does not fit.
        feasible: what the cell cannot run with. Advice of such settings does not fit either. If it is known how the
            cell's batches are loaded, that says how many workers are advised.
    """
    cured, replay, refused = rule["cured"], rule.get("replay"), None
    for one in rule["advice"]:
        if _fits(one.get("when", {}), step, cell) and not _is_followed(one.get("settings"), cell):
            name = one.get("doubled", "")
            words = f"{name}={2 * cell[name]}" if isinstance(cell.get(name), int) else one.get("settings")
            if name and not cell.get(name, 1):
                continue
            if words and feasible.loading and not (words := feasible.loading.resize(words)):
                continue
            if words and (why := feasible.refusal(words)):
                refused = refused or (words, why)
                continue
            return ChosenAdvice(one["next"], words, one.get("cured", cured), one.get("replay", replay), refused)
    return ChosenAdvice(rule["advice"][-1]["next"], None, cured, replay, refused)


def _fits(when: Mapping[str, Sequence[Any] | Bounds], step: Mapping[str, float], cell: KnownSettings) -> bool:
    for name, wanted in when.items():
        if isinstance(wanted, dict):
            value = step[name]
            if not (value < wanted["below"] if "below" in wanted else value >= wanted["at_least"]):
                return False
        # A cell whose settings are not known is one of the schema's defaults.
        elif cell.get(name, schema.cell_properties()[name].get("default")) not in wanted:
            return False
    return True


def _is_followed(words: str | None, cell: KnownSettings) -> bool:
    return bool(words) and all(cell.get(key) == value for key, value in _parse_settings(words or "").items())


def _parse_settings(words: str) -> dict[str, Any]:
    """Parse the setting words of a cell into typed values."""
    known, given = schema.cell_properties(), settings.parse_words(words.split())
    return {key: schema.coerce_value(value, known.get(key, {})) for key, value in given.items()}


@functools.cache
def _schema() -> dict[str, Any]:
    """The schema's parts by name, with the names of classes and of conditions of causes."""
    parts: dict[str, Any] = strict_yaml.load_yaml(SCHEMA_FILE)
    parts["classes"]["items"]["enum"] = list(kernel_classes.read_rules_file()["classes"])
    conditions = dict.fromkeys(launch_traits.CONDITIONS, parts["bounds"])
    parts["causes"]["additionalProperties"]["properties"]["when"]["properties"] = conditions
    return parts


def _schema_of_rule(of: str, own: Collection[str]) -> dict[str, Any]:
    """The schema of a rule about one of SHARES; own: causes, which rules of kernels may be about."""
    parts, settings_of_cells = strict_yaml.load_yaml(SCHEMA_FILE), schema.cell_properties()
    rule, bounds = parts["rule"], parts["bounds"]
    known, advice = rule["properties"], rule["properties"]["advice"]["items"]["properties"]
    known["share"]["enum"] = [*SHARES[of], *(own if of == "kernels" else ())]
    known["cured"]["pattern"] = f"^({'|'.join(CURES)})$"
    known["replay"]["enum"] = list(SIMULATED_CHANGES[of])
    if of in OF_LAUNCHES:
        rule["required"].append("launches")
    else:
        del known["launches"]
    values = {name: {"type": "array", "items": part} for name, part in settings_of_cells.items()}
    told = (*COLUMNS, *(OF_OPERATORS if of == "cpu" else ()))
    advice["when"]["properties"] = values | dict.fromkeys(told, bounds)
    advice["doubled"]["enum"] = [name for name, part in settings_of_cells.items() if "integer" in part.get("type", "")]
    return {**rule, "properties": {**known, "of": {"enum": list(SHARES)}}}


def _check_parts(own: Mapping[str, Cause], rules: Sequence[Rule], known: Collection[str], where: str = "") -> None:
    """Check causes, and rules that may be about these and others; where: what lines about them begin with."""
    for name, cause in own.items():
        if not set(cause) & {"when", "match"}:
            raise ConfigError(f"{where}causes.{name} would apply to every launch: give it a `when` or a `match`")
        try:
            re.compile(cause.get("match", ""))
        except re.error as error:
            what = f"{where}causes.{name}.match = '{cause['match']}'"
            raise ConfigError(f"{what} is not a regular expression: {error}") from None
    schemas = {of: _schema_of_rule(of, known) for of in SHARES}
    for rule in rules:
        place = f"{where}rule '{rule.get('verdict', '?')}'"
        schema.check_value(rule.get("of"), {"enum": list(SHARES)}, f"{place}.of")
        schema.check_value(rule, schemas[rule["of"]], place)
        _check_advice(f"{place}.advice", rule["advice"])


def _check_advice(where: str, advice: Sequence[Advice]) -> None:
    """Check what no schema tells: settings in words, and whether each advice can be reached."""
    known = {"type": "object", "additionalProperties": False, "properties": schema.cell_properties()}
    for index, one in enumerate(advice):
        schema.check_value(_parse_settings(one.get("settings", "")), known, f"{where}.{index}.settings")
        if not one.keys() & {"when", "settings", "doubled"} and index < len(advice) - 1:
            raise ConfigError(f"{where}: advice after '{one['next']}' is never reached: give it a `when`")
    if advice[-1].get("when"):
        raise ConfigError(f"{where}: the last advice has a `when`, so none may apply: add one without")
