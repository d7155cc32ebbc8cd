"""The page's glossary: words and their meanings, from words.yaml."""

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

import yaml

from profzoo import extensions
from profzoo.cell import schema
from profzoo.io import strict_yaml

FILES = ("words.yaml",)
EXTENDED = ("words.yaml",)
HERE = Path(__file__).parent
# What an extension's file holds.
FORM = {
    "type": "object",
    "additionalProperties": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["word", "means"],
            "additionalProperties": False,
            "properties": {
                "word": {"type": "string"},
                "means": {"type": "string"},
                "cpu": {"type": "string"},
                "also": {"type": "array", "items": {"type": "string"}},
            },
        },
    },
}


class Word(TypedDict):
    """A word as words.yaml explains it."""

    word: str
    # Other forms of the word.
    also: NotRequired[Sequence[str]]
    means: str
    # The meaning on a page of cells on a CPU; empty for a word about GPUs alone.
    cpu: NotRequired[str]


class Entry(TypedDict):
    """A word as the page explains it; anchor: HTML id."""

    word: str
    also: Sequence[str]
    means: str
    anchor: str


def load_groups(on_cpu: bool = False) -> dict[str, list[Entry]]:
    """Return the words by group, each with `word`, `means`, `also`, and `anchor` (its HTML id).

    on_cpu: whether all cells of the page ran on a CPU; words about GPUs are then left out.

    Raises:
        ConfigError: an extension's file has another form, or explains a word that is explained already.
    """
    return _groups(on_cpu, extensions.folders())


@functools.cache
def _groups(on_cpu: bool, extended: tuple[Path, ...]) -> dict[str, list[Entry]]:
    content = _content()
    found = {group: [_make_entry(entry, on_cpu) for entry in entries] for group, entries in content.items()}
    return {group: [entry for entry in entries if entry["means"]] for group, entries in found.items()}


def _content() -> dict[str, list[Word]]:
    """Return the entries by group: profzoo's own, then the entries of extensions."""
    content: dict[str, list[Word]] = yaml.safe_load((HERE / FILES[0]).read_text(encoding="utf-8"))
    own = {path: strict_yaml.load_yaml(path) for path in extensions.files(*EXTENDED)}
    for path, groups in own.items():
        schema.check_value(groups, FORM, str(path))
    entries = [(entry, path) for path, groups in own.items() for group in groups.values() for entry in group]
    named = [(form, path) for entry, path in entries for form in _forms(entry)]
    shipped = [form for group in content.values() for entry in group for form in _forms(entry)]
    extensions.refuse_clashes("word", named, shipped)
    for groups in own.values():
        content |= {group: [*content.get(group, []), *entries] for group, entries in groups.items()}
    return content


def _forms(entry: Word) -> tuple[str, ...]:
    return (entry["word"], *entry.get("also", ()))


def _make_entry(entry: Word, on_cpu: bool) -> Entry:
    means = entry.get("cpu", entry["means"]) if on_cpu else entry["means"]
    return {"word": entry["word"], "also": entry.get("also", []), "means": means, "anchor": _make_anchor(entry["word"])}


def load_meanings(on_cpu: bool = False) -> dict[str, dict[str, str]]:
    """Return `means` and `anchor` for every form of each word; on_cpu: whether all cells ran on a CPU.

    >>> load_meanings()["launch-bound"]["anchor"], load_meanings()["compute-bound (SIMT)"]["anchor"]
    ('word-launch-bound', 'word-compute-bound')
    """
    return {
        form: {"means": entry["means"], "anchor": entry["anchor"]}
        for entries in load_groups(on_cpu).values()
        for entry in entries
        for form in (entry["word"], *entry["also"])
    }


def _make_anchor(word: str) -> str:
    return "word-" + re.sub(r"\W+", "-", word).strip("-").lower()
