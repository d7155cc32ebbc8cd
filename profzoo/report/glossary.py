"""The page's glossary: words and their meanings, from words.yaml."""

import functools
import re
from pathlib import Path
from typing import Any

import yaml

FILES = ("words.yaml",)
HERE = Path(__file__).parent


@functools.cache
def load_groups(on_cpu: bool = False) -> dict[str, list[dict[str, Any]]]:
    """Return the words by group, each with `word`, `means`, `also`, and `anchor` (its HTML id).

    on_cpu: whether all cells of the page ran on a CPU: words that are of GPUs alone are then left out.
    """
    content = yaml.safe_load((HERE / FILES[0]).read_text(encoding="utf-8"))
    found = {group: [_make_entry(entry, on_cpu) for entry in entries] for group, entries in content.items()}
    return {group: [entry for entry in entries if entry["means"]] for group, entries in found.items()}


def _make_entry(entry: dict[str, Any], on_cpu: bool) -> dict[str, Any]:
    means = entry.get("cpu", entry["means"]) if on_cpu else entry["means"]
    return {"also": [], **entry, "means": means, "anchor": _make_anchor(entry["word"])}


@functools.cache
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
