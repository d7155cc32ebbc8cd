"""The words of the page and what they mean, from the one place that says so."""

import functools
import re
from pathlib import Path
from typing import Any

import yaml

FILES = ("words.yaml",)
HERE = Path(__file__).parent


@functools.cache
def groups() -> dict[str, list[dict[str, Any]]]:
    """The words by group, each with `word`, `means`, `also`, and `anchor`, its place in the page."""
    content = yaml.safe_load((HERE / FILES[0]).read_text(encoding="utf-8"))
    return {
        group: [{"also": [], **entry, "anchor": _anchor(entry["word"])} for entry in entries]
        for group, entries in content.items()
    }


@functools.cache
def meanings() -> dict[str, dict[str, str]]:
    """Of each word in every form: `means`, and the `anchor` of its entry.

    >>> meanings()["launch-bound"]["anchor"], meanings()["compute-bound (SIMT)"]["anchor"]
    ('word-launch-bound', 'word-compute-bound')
    """
    return {
        form: {"means": entry["means"], "anchor": entry["anchor"]}
        for entries in groups().values()
        for entry in entries
        for form in (entry["word"], *entry["also"])
    }


def _anchor(word: str) -> str:
    return "word-" + re.sub(r"\W+", "-", word).strip("-").lower()
