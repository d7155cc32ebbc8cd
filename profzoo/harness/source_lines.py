"""Notes where the `forward` of each class of modules is written, so that a trace can name the lines of a layer."""

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from profzoo.range_names import SOURCES

# Lines by name of a class, since ranges of modules hold no more than this name.
_noted: dict[str, list[str]] = {}
_classes: set[type] = set()


def note_source(kind: type) -> None:
    """Note file and lines of a class's `forward`; a class without source code is left out."""
    if kind in _classes:
        return
    _classes.add(kind)
    # Without calling descriptors, as a scripted module's raises an error.
    found = inspect.getattr_static(kind, "forward", None)
    code = getattr(inspect.unwrap(found) if callable(found) else None, "__code__", None)
    if isinstance(code, CodeType):
        lines = f"{_short_path(code.co_filename)}:{code.co_firstlineno}-{max(_lines(code))}"
        known = _noted.setdefault(kind.__name__, [])
        if lines not in known:
            known.append(lines)


def trace_metadata() -> tuple[str, str]:
    """Return the key and the JSON text by which a trace holds the noted lines: a list of `file:first-last` by class."""
    return SOURCES, json.dumps(_noted)


def _lines(code: CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (line for *_, line in code.co_lines() if line is not None)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _lines(inner)


def _short_path(path: str) -> str:
    """Return a path relative to the folder that Python imported it from, as other machines have other folders."""
    file = Path(path)
    above = [Path(entry or ".").absolute() for entry in sys.path]
    inside = [folder for folder in above if file.is_relative_to(folder)]
    return str(file.relative_to(max(inside, key=lambda folder: len(folder.parts)))) if inside else file.name
