"""Reads the configuration schema, converts strings to its types, fills defaults, and explains invalid values."""

import functools
import json
import re
from collections.abc import Mapping
from math import inf
from pathlib import Path, PurePath
from typing import Any, Final

import yaml

from profzoo import extensions
from profzoo.cell import secret_detection
from profzoo.errors import ConfigError, suggest_nearest
from profzoo.io import strict_yaml
from profzoo.json_types import JsonSchema

# Explains in one line what is wrong with a value, by the error that checking it against a schema raised.

# Characters of a value in a line about it.
LONGEST = 120
# A number that YAML takes for a text, because it has no point or its exponent has no sign.
EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def explain_error(key: str, error: Any) -> str:
    """One line on what is wrong at a key, by an error of jsonschema: what is there, and what would be valid."""
    rule, limit, value = error.validator, error.validator_value, error.instance
    value = secret_detection.hidden(key.rpartition(".")[2], value)
    shown = f"{key} = {_shown(value)}"
    numeric = isinstance(value, str) and {"integer", "number"} & name_types(error.schema)
    if numeric and (wrong := strict_yaml.explain_surprising_value(value)):
        return f"{shown}: {wrong}"
    if "propertyNames" in error.absolute_schema_path:
        key, shown = f"{key} of {_shown(value)}", f"{key} holds {_shown(value)}"
    if "form" in error.schema:
        if isinstance(value, str) and value.endswith(".py"):
            return f"{shown}: name it without folder and .py: {PurePath(value).stem}"
        return f"{shown}, which is not a name: {error.schema['form']}"
    match rule:
        case "additionalProperties":
            known = error.schema.get("properties", {})
            unknown = min(set(value) - set(known), key=str)
            name = f"{key}.{unknown}" if key else unknown
            told = _shown(secret_detection.hidden(unknown, value[unknown]))
            nearest = suggest_nearest(unknown, known)
            if not key and nearest.startswith("valid"):
                shape = f"settings='{{MODEL: {{{unknown}: {told}}}}}'"
                nearest = f"write a parameter of a model's shape as {shape}; {nearest}"
            return f"unknown key '{name}' (value {told}): {nearest}"
        case "enum":
            return f"{shown}: {suggest_nearest(value, map(written_value, limit))}"
        case "type":
            kinds = [limit] if isinstance(limit, str) else limit
            return f"{shown} is {_kind(value)}, not {' or '.join(kinds)}"
        case "pattern" if re.fullmatch(r"\^\(?[\w|]+\)?\$", limit):
            choices = limit.strip("^()$").split("|")
            number = " or a whole number" if "integer" in name_types(error.schema) else ""
            return f"{shown}: {suggest_nearest(value, choices)}{number}"
        case "pattern" if "written" in error.schema:
            return f"{shown}: write {error.schema['written']}"
        case "minimum" | "exclusiveMinimum":
            return f"{shown} is too small: {'more than' if rule == 'exclusiveMinimum' else 'at least'} {limit}"
        case "maximum":
            return f"{shown} is too large: at most {limit}"
        case "required":
            missing = next(name for name in limit if name not in value)
            return f"{key}: '{missing}' is missing"
        case "minItems" | "minProperties":
            return f"{key} is empty: name at least {limit}"
        case "uniqueItems":
            return f"{shown} names something twice"
        case _:
            return f"{shown}: {error.message.replace(repr(error.instance), repr(value))}"


def written_value(value: object) -> str:
    """A value of a list of choices as it is written in a file.

    >>> written_value("graph"), written_value(True), written_value(None)
    ('graph', 'true', 'null')
    """
    return value if isinstance(value, str) else json.dumps(value)


def name_types(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema accepts; none for one that leaves the type open."""
    kinds = schema.get("type", [])
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _shown(value: object) -> str:
    """The value for a line, shortened in its middle where it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}...{text[-LONGEST // 4 :]}"


def _kind(value: object) -> str:
    if isinstance(value, float) and not -inf < value < inf:
        return "not finite"
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list"}
    return "null" if value is None else names.get(type(value), "a mapping")


format_choice = written_value
# Not among the FILES of this module: what jobs go by of the schema is in their own words, so that a key more, or other
# words on one, run none of them again.
SCHEMA_FILE = Path(__file__).with_name("schema.yaml")
PACKAGE = Path(__file__).parents[1]
TOOLS, SETS = "tools/*/schema.yaml", "sets.yaml"
# The tool of the unprofiled baseline, which comes along with every other.
BASELINE: Final = "time"
# What a tool may do: time steps without a profiler; trace when kernels ran; count events of each launch; attribute
# launches to layers; sample the GPU from outside.
DOES = ("time", "trace", "count", "attribute", "sample")
# What profzoo takes for granted of every tool's schema.
OF_TOOL = {
    "type": "object",
    "required": ["order", "properties"],
    "properties": {
        "order": {"type": "number"},
        "does": {"type": "array", "items": {"enum": [*DOES]}},
        "properties": {"type": "object", "required": ["window", "time_limit"]},
    },
}
# What a name is made of, for where the rest of the definition has no place.
PATTERN = "[A-Za-z_][A-Za-z0-9_-]{0,63}"


def load_schema() -> dict[str, Any]:
    """Load the configuration schema (JSON Schema 2020-12): the general part, and one under each tool's name."""
    return _loaded(extensions.folders())


@functools.cache
def _loaded(extended: tuple[Path, ...]) -> dict[str, Any]:
    schema = _inlined(_general(), _definitions())
    schema["properties"] |= tool_schemas()
    schema["properties"]["tool"]["items"]["enum"] = sorted(tool_schemas())
    return schema


def tool_schemas() -> dict[str, dict[str, Any]]:
    """Each tool's part of the schema, by the tool's name, in their order; those of extensions among them.

    Raises:
        ConfigError: an extension's tool or section set has a name that is taken, or is none.
    """
    return _of_tools(extensions.folders())


@functools.cache
def _of_tools(extended: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    shipped, own = list(PACKAGE.glob(TOOLS)), extensions.files(TOOLS)
    taken = [*_general()["properties"], *(path.parent.name for path in shipped)]
    extensions.refuse_clashes("tool", [(path.parent.name, path) for path in own], taken)
    for path in own:
        check_value(strict_yaml.load_yaml(path), OF_TOOL, str(path))
    found = {path.parent.name: _inlined(_read(path), _definitions()) for path in (*shipped, *own)}
    for part in (one for one in found.values() if "sets" in one["properties"]):
        _add_sets(part["properties"]["sets"])
    return dict(sorted(found.items(), key=lambda item: (item[1]["order"], item[0])))


def extension_sets() -> dict[str, Path]:
    """Names of the section sets of extensions, each with the file that defines it."""
    return {name: path for path in extensions.files(SETS) for name in strict_yaml.load_yaml(path)}


def _add_sets(part: dict[str, Any]) -> None:
    """Add the section sets of extensions to those that are there without a word of the configuration."""
    files = {path: strict_yaml.load_yaml(path) for path in extensions.files(SETS)}
    for path, content in files.items():
        check_value(content, part, str(path))
    named = [(name, path) for path, content in files.items() for name in content]
    extensions.refuse_clashes("section set", named, part["default"])
    part["default"] = {**part["default"], **{name: one for content in files.values() for name, one in content.items()}}


def _read(path: Path) -> Any:
    # Every start of the workflow reads this, and libyaml, where it is there, takes a tenth of the time.
    return yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


@functools.cache
def _general() -> dict[str, Any]:
    return _read(SCHEMA_FILE)


def _definitions() -> dict[str, Any]:
    return _general()["$defs"]


def _inlined(part: Any, definitions: JsonSchema) -> Any:
    """Replace references in a part of the schema by their definitions, as parts are validated separately."""
    if isinstance(part, Mapping):
        named = definitions[part["$ref"].rpartition("/")[2]] if "$ref" in part else {}
        return {**named, **{key: _inlined(value, definitions) for key, value in part.items() if key != "$ref"}}
    return [_inlined(item, definitions) for item in part] if isinstance(part, list) else part


@functools.cache
def list_words() -> tuple[frozenset[str], frozenset[str]]:
    """Return the words that settings of the schema may be, and the keys of all settings."""
    words, keys, waiting = set(), set(), [load_schema()]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            default = part.get("default")
            given = [*part.get("enum", ()), *(default if isinstance(default, list) else [default])]
            words |= {word for word in given if isinstance(word, str)}
            keys |= set(part.get("properties", ()))
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return frozenset(words), frozenset(keys)


def is_name(text: object, kind: str = "name") -> bool:
    """Whether a text is a valid name of this kind: `name` or `model`.

    >>> is_name("resnetv2_50", "model"), is_name("../escape"), is_name("tables", "model"), is_name("tables")
    (True, False, False, True)
    """
    part = _definitions()[kind]
    fits = isinstance(text, str) and len(text) <= part["maxLength"] and re.search(part["pattern"], text)
    return bool(fits) and not re.search(part["not"]["pattern"], str(text))


def describe_form(kind: str = "name") -> str:
    """Describe in words what names of this kind look like."""
    return _definitions()[kind]["form"]


def largest_value(key: str) -> int:
    """Largest valid value of a whole-number cell setting."""
    return cell_properties()[key]["maximum"]


def cell_properties() -> dict[str, Any]:
    """Schemas of all cell settings, by key."""
    return load_schema()["$defs"]["cell"]


def script_properties() -> dict[str, JsonSchema]:
    """Schemas of the keys that describe a script, by key."""
    return load_schema()["$defs"]["script"]


def coerce_value(value: Any, schema: JsonSchema, told: Any = None) -> Any:
    """Convert strings, as --config gives them, to the schema's types if they fit.

    A comma-separated string becomes a list, a YAML mapping an object, `true`, `8` and `null` what they mean.
    What does not fit is returned as it is, for `check` to name.

    told: of the value, what the command line gave, where Snakemake leaves strings of all that is nested. Where the
    schema leaves the type open, these too become what they mean in a file.
    """
    kinds = name_types(schema)
    if isinstance(value, str) and not isinstance(value, bool):
        if "array" in kinds and not value.lstrip().startswith(("[", "{")):
            value = [part.strip() for part in value.split(",") if part.strip()]
        elif (kinds and "string" not in kinds) or {"boolean", "integer", "null", "array", "object"} & kinds:
            value = _scalar(value, kinds)
        elif not kinds and "enum" not in schema and value == told:
            return _plain(value)
    if isinstance(value, list):
        parts = told if isinstance(told, list) and len(told) == len(value) else [None] * len(value)
        return [coerce_value(item, schema.get("items", {}), part) for item, part in zip(value, parts, strict=True)]
    if isinstance(value, Mapping):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        given = told if isinstance(told, Mapping) else {}
        return {
            key: coerce_value(item, properties.get(key, rest if isinstance(rest, Mapping) else {}), given.get(key))
            for key, item in value.items()
        }
    return value


def fill_defaults(value: Any, schema: JsonSchema) -> Any:
    """Fill in the schema's defaults for missing keys; mappings of named entries are merged by name."""
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        default = schema.get("default", {}) if "additionalProperties" in schema or not properties else {}
        filled = {**default, **value} if isinstance(default, Mapping) else dict(value)
        for key, part in properties.items():
            if key in filled:
                filled[key] = fill_defaults(filled[key], part)
            elif "default" in part:
                filled[key] = part["default"]
            elif "properties" in part:
                filled[key] = fill_defaults({}, part)
        return filled
    return value


def check_value(value: Any, schema: JsonSchema, where: str = "") -> None:
    """Raise a one-line ConfigError for the first place where the value does not fit the schema."""
    try:
        errors = sorted(_validator()(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
    except ValueError as reason:
        # Of numbers of thousands of digits Python makes no text, as the validator needs it.
        raise ConfigError(f"{where or 'the configuration'} holds a number of too many digits: {reason}") from reason
    if not errors:
        return
    error = errors[0]
    key = ".".join(filter(None, [where, *map(str, error.absolute_path)]))
    raise ConfigError(explain_error(key, error))


@functools.cache
def _validator() -> Any:
    """Validator class that accepts neither 1.0 as integer nor nan as number."""
    from jsonschema import Draft202012Validator, validators

    def number(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and -inf < value < inf

    types = Draft202012Validator.TYPE_CHECKER.redefine_many({
        "integer": lambda _, value: number(value) and isinstance(value, int),
        "number": lambda _, value: number(value),
    })  # fmt: skip
    return validators.extend(Draft202012Validator, type_checker=types)


def _plain(text: str) -> Any:
    """Convert a text to what it means in a YAML file: boolean, number, null, or text.

    Raises:
        ConfigError: it is read as something else than it looks like, as a file's would be.
    """
    if wrong := strict_yaml.explain_surprising_value(text):
        raise ConfigError(wrong)
    try:
        parsed = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text
    return parsed if parsed is None or isinstance(parsed, bool | int | float | str) else text


def _scalar(text: str, kinds: set[str]) -> Any:
    if strict_yaml.explain_surprising_value(text):
        return text
    try:
        parsed = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        # ValueError: such as a number of more digits than Python takes.
        return text
    if "number" in kinds and EXPONENT.fullmatch(text):
        return float(text)
    fits = {
        "boolean": isinstance(parsed, bool),
        "integer": isinstance(parsed, int) and not isinstance(parsed, bool),
        "number": isinstance(parsed, int | float) and not isinstance(parsed, bool),
        "null": parsed is None,
        "array": isinstance(parsed, list),
        "object": isinstance(parsed, dict),
    }
    return parsed if any(fits.get(kind, False) for kind in kinds) else text
