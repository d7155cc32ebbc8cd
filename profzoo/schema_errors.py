"""Explains in one line what is wrong with a value, by the error that checking it against a schema raised."""

import json
import re
from collections.abc import Mapping
from math import inf
from pathlib import PurePath
from typing import Any

from profzoo import secret_detection
from profzoo.errors import suggest_nearest
from profzoo.io import strict_yaml

# Characters of a value in a line about it.
LONGEST = 120


def explain(key: str, error: Any) -> str:
    """One line on what is wrong at a key, by an error of jsonschema: what is there, and what would be valid."""
    rule, limit, value = error.validator, error.validator_value, error.instance
    value = secret_detection.hidden(key.rpartition(".")[2], value)
    shown = f"{key} = {_shown(value)}"
    numeric = isinstance(value, str) and {"integer", "number"} & types(error.schema)
    if numeric and (wrong := strict_yaml.explain_surprising_value(value)):
        return f"{shown}: {wrong}"
    if "propertyNames" in error.absolute_schema_path:
        key, shown = f"{key} of {_shown(value)}", f"{key} holds {_shown(value)}"
    if "form" in error.schema:
        if isinstance(value, str) and value.endswith(".py"):
            return f"{shown}: name it without folder and .py: {PurePath(value).stem}"
        return f"{shown}, which is no name: {error.schema['form']}"
    match rule:
        case "additionalProperties":
            known = error.schema.get("properties", {})
            unknown = min(set(value) - set(known), key=str)
            name = f"{key}.{unknown}" if key else unknown
            told = _shown(secret_detection.hidden(unknown, value[unknown]))
            return f"unknown key '{name}' (value {told}): {suggest_nearest(unknown, known)}"
        case "enum":
            return f"{shown}: {suggest_nearest(value, map(written, limit))}"
        case "type":
            kinds = [limit] if isinstance(limit, str) else limit
            return f"{shown} is {_kind(value)}, not {' or '.join(kinds)}"
        case "pattern" if re.fullmatch(r"\^\(?[\w|]+\)?\$", limit):
            choices = limit.strip("^()$").split("|")
            number = " or a whole number" if "integer" in types(error.schema) else ""
            return f"{shown}: {suggest_nearest(value, choices)}{number}"
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


def written(value: object) -> str:
    """A value of a list of choices as it is written in a file.

    >>> written("graph"), written(True), written(None)
    ('graph', 'true', 'null')
    """
    return value if isinstance(value, str) else json.dumps(value)


def types(schema: Mapping[str, Any]) -> set[str]:
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
