"""Reads the configuration schema: coerces strings to its types, fills its defaults, explains what does not fit."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from profzoo.errors import ConfigError, suggest

# Not among the FILES of this module: what jobs go by of the schema is in their own words, so that a key more, or other
# words on one, run none of them again.
SCHEMA_FILE = Path(__file__).with_name("schema.yaml")
TOOLS = "tools/*/schema.yaml"


@functools.cache
def load() -> dict[str, Any]:
    """The configuration schema (JSON Schema 2020-12) as a mapping: the general part, and one under each tool's name."""
    schema = _read(SCHEMA_FILE)
    schema["properties"] |= of_tools()
    schema["properties"]["tool"]["items"]["enum"] = sorted(of_tools())
    return schema


@functools.cache
def of_tools() -> dict[str, dict[str, Any]]:
    """Each tool's part of the schema, by the tool's name, in their order."""
    found = {path.parent.name: _read(path) for path in SCHEMA_FILE.parent.glob(TOOLS)}
    return dict(sorted(found.items(), key=lambda item: (item[1]["order"], item[0])))


def _read(path: Path) -> Any:
    # Every start of the workflow reads this, and libyaml, where it is there, takes a tenth of the time.
    return yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def cell_properties() -> dict[str, Any]:
    """Schemas of the settings that say how one cell runs, by key."""
    return load()["$defs"]["cell"]


def coerce(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value with strings, as --config gives them, turned into the schema's types where they fit.

    A comma-separated string becomes a list, a YAML mapping an object, `true`, `8` and `null` what they mean.
    What does not fit is returned as it is, for `check` to name.
    """
    kinds = _types(schema)
    if isinstance(value, str) and not isinstance(value, bool):
        if "array" in kinds and not value.lstrip().startswith(("[", "{")):
            value = [part.strip() for part in value.split(",") if part.strip()]
        elif (kinds and "string" not in kinds) or {"integer", "null", "array", "object"} & kinds:
            value = _scalar(value, kinds)
    if isinstance(value, list) and "items" in schema:
        return [coerce(item, schema["items"]) for item in value]
    if isinstance(value, Mapping):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        return {
            key: coerce(item, properties.get(key, rest if isinstance(rest, Mapping) else {}))
            for key, item in value.items()
        }
    return value


def fill(value: Any, schema: Mapping[str, Any]) -> Any:
    """The value with the schema's defaults for what it leaves out; mappings of named entries are merged by name."""
    if isinstance(value, Mapping):
        properties = schema.get("properties", {})
        default = schema.get("default", {}) if "additionalProperties" in schema or not properties else {}
        filled = {**default, **value} if isinstance(default, Mapping) else dict(value)
        for key, part in properties.items():
            if key in filled:
                filled[key] = fill(filled[key], part)
            elif "default" in part:
                filled[key] = part["default"]
            elif "properties" in part:
                filled[key] = fill({}, part)
        return filled
    return value


def check(value: Any, schema: Mapping[str, Any], where: str = "") -> None:
    """Raise ConfigError in one line for the first place where the value does not fit the schema."""
    from jsonschema import Draft202012Validator

    errors = sorted(Draft202012Validator(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
    if not errors:
        return
    error = errors[0]
    key = ".".join(filter(None, [where, *map(str, error.absolute_path)]))
    raise ConfigError(_explain(key, error))


def _explain(key: str, error: Any) -> str:
    rule, limit, value = error.validator, error.validator_value, error.instance
    shown = f"{key} = {value!r}"
    match rule:
        case "additionalProperties":
            known = error.schema.get("properties", {})
            unknown = sorted(set(value) - set(known))[0]
            name = f"{key}.{unknown}" if key else unknown
            return f"unknown key '{name}' (value {value[unknown]!r}): {suggest(unknown, known)}"
        case "enum":
            return f"{shown}: {suggest(value, [str(item) for item in limit])}"
        case "type":
            kinds = [limit] if isinstance(limit, str) else limit
            return f"{shown} is {_kind(value)}, not {' or '.join(kinds)}"
        case "pattern" if re.fullmatch(r"\^\(?[\w|]+\)?\$", limit):
            choices = limit.strip("^()$").split("|")
            number = " or a whole number" if "integer" in _types(error.schema) else ""
            return f"{shown}: {suggest(value, choices)}{number}"
        case "minimum" | "exclusiveMinimum":
            return f"{shown} is too small: {'more than' if rule == 'exclusiveMinimum' else 'at least'} {limit}"
        case "minItems" | "minProperties":
            return f"{key} is empty: name at least {limit}"
        case "uniqueItems":
            return f"{shown} names something twice"
        case _:
            return f"{shown}: {error.message}"


def _types(schema: Mapping[str, Any]) -> set[str]:
    kinds = schema.get("type", [])
    return {kinds} if isinstance(kinds, str) else set(kinds)


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "a list"}
    return "null" if value is None else names.get(type(value), "a mapping")


def _scalar(text: str, kinds: set[str]) -> Any:
    try:
        parsed = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    fits = {
        "boolean": isinstance(parsed, bool),
        "integer": isinstance(parsed, int) and not isinstance(parsed, bool),
        "number": isinstance(parsed, int | float) and not isinstance(parsed, bool),
        "null": parsed is None,
        "array": isinstance(parsed, list),
        "object": isinstance(parsed, dict),
    }
    return parsed if any(fits.get(kind, False) for kind in kinds) else text
