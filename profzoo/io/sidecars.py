"""Reads sidecars by declaration: which keys are required, and what values each key may have."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.errors import DataError
from profzoo.io import text_files
from profzoo.io.columns import with_article
from profzoo.io.text_files import BEYOND, SAME, quote

AGAIN = "delete it and the file that it belongs to, and the next run makes both again"


@dataclass(frozen=True)
class Fact:
    """A permitted kind of value: its name for readers, and a function that checks a value."""

    name: str
    holds: Callable[[Any], bool]


def _number(value: object) -> bool:
    # JSON's whole numbers may have any number of digits; of NaN this is false.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < BEYOND


TEXT = Fact("text", lambda value: isinstance(value, str))
NUMBER = Fact("number", _number)
POSITIVE = Fact("number above 0", lambda value: _number(value) and value > 0)
COUNT = Fact("whole number from 0 on", lambda value: _whole(value) and value >= 0)
SEVERAL = Fact("whole number from 1 on", lambda value: _whole(value) and value >= 1)
FLAG = Fact("true or false", lambda value: isinstance(value, bool))
LIST = Fact("list", lambda value: isinstance(value, list))
TEXTS = Fact("list of texts", lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value))
PROCESSES = Fact(
    "list of processes", lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value)
)


def or_null(fact: Fact) -> Fact:
    """Return a fact that also permits null."""
    return Fact(f"{fact.name} or null", lambda value: value is None or fact.holds(value))


# Required keys, each with its kind of value or with keys of its own. A key that ends in `?` may be missing.
Needs = Mapping[str, "Fact | Needs"]
NOTHING: Needs = {}


def read_sidecar(path: str | Path, needs: Needs) -> dict[str, Any]:
    """Read a sidecar and check its declared keys.

    Raises:
        DataError: the file cannot be read, is not a JSON object, or lacks a required key.
    """
    try:
        content = json.loads(text_files.read_text(path, AGAIN), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is not JSON, or damaged: {error}: {AGAIN}") from error
    if wrong := _wrong(content, needs, ""):
        raise DataError(f"{path}: {wrong}: {AGAIN}{SAME}")
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)} occurs twice")
    return content


def _wrong(content: object, needs: Needs, place: str) -> str | None:
    """Describe what content lacks, or return None; place: keys that lead to the content, with a point at the end."""
    if not isinstance(content, dict):
        return f"{place.rstrip('.') or 'it'} is not an object but {quote(json.dumps(content))}"
    for key, need in needs.items():
        name = key.removesuffix("?")
        if name not in content:
            if key != name:
                continue
            return f"has no key {place}{name}"
        value = content[name]
        if not isinstance(need, Fact):
            if wrong := _wrong(value, need, f"{place}{name}."):
                return wrong
        elif not need.holds(value):
            return f"{place}{name} is {quote(json.dumps(value))}, which is not {with_article(need.name)}"
    return None
