"""schema: coercion of strings, filling of defaults, one line for the first thing that does not fit."""

import re

import pytest

from profzoo.cell import schema
from profzoo.errors import ConfigError, suggest_nearest

INTEGER_OR_NULL = {"type": ["integer", "null"]}
LIST = {"type": "array", "items": {"type": "integer"}}
MAPPING = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "batch": {"type": "integer", "minimum": 1, "default": 8},
        "data": {"type": "object", "properties": {"root": {"type": ["string", "null"], "default": None}}},
        "named": {"type": "object", "additionalProperties": {"type": "object"}, "default": {"a": {"x": 1}}},
        "needed": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    ("given", "part", "value"),
    [
        ("8", {"type": "integer"}, 8),
        ("true", {"type": "boolean"}, True),
        ("null", INTEGER_OR_NULL, None),
        ("2.5", {"type": ["number", "null"]}, 2.5),
        ("1e-05", {"type": ["number", "null"]}, 1e-5),
        ("1e5", INTEGER_OR_NULL, "1e5"),
        ("rest", {"type": ["integer", "string"]}, "rest"),
        ("7", {"type": "string"}, "7"),
        ("none", {"enum": ["none", "base"]}, "none"),
        ("1, 2,", LIST, [1, 2]),
        ("[1, 2]", LIST, [1, 2]),
        ("{batch: '4'}", MAPPING, {"batch": 4}),
        ({"data": {"root": "null"}}, MAPPING, {"data": {"root": None}}),
        ("true", {"type": "integer"}, "true"),
    ],
)
def test_coerce(given: object, part: dict, value: object) -> None:
    coerced = schema.coerce_value(given, part)
    assert coerced == value and type(coerced) is type(value)


def test_fill_reaches_nested_keys_and_merges_named_entries() -> None:
    assert schema.fill_defaults({}, MAPPING) == {"batch": 8, "data": {"root": None}, "named": {"a": {"x": 1}}}
    filled = schema.fill_defaults({"batch": 2, "data": {"root": "r"}, "named": {"b": {}}}, MAPPING)
    assert filled == {"batch": 2, "data": {"root": "r"}, "named": {"a": {"x": 1}, "b": {}}}
    assert schema.fill_defaults({"named": {"a": {"x": 2}}}, MAPPING)["named"] == {"a": {"x": 2}}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"batch": 0}, "here.batch = 0 is too small: at least 1"),
        ({"batch": True}, "here.batch = True is a boolean, not integer"),
        ({"batch": None}, "here.batch = None is null, not integer"),
        ({"bach": 1}, "unknown key 'here.bach' (value 1): did you mean 'batch'?"),
        ({"data": {"root": 3}}, "here.data.root = 3 is an integer, not string or null"),
        ([], "here = [] is a list, not object"),
    ],
)
def test_check_names_key_value_and_what_is_valid(value: object, line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
        schema.check_value(value, MAPPING, "here")


@pytest.mark.parametrize(
    ("value", "words"),
    [("MOBILENETv2", "did you mean 'mobilenetv2'?"), ("xyz", "valid are: mobilenetv2, unet"), (3, "valid are")],
)
def test_suggest(value: object, words: str) -> None:
    assert suggest_nearest(value, ["unet", "mobilenetv2"]).startswith(words)
