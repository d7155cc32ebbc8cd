"""Writes profzoo/cell/cell_types.py from the schema: a typed dictionary of a cell's settings, for type checkers."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo import schema
from profzoo.cell.settings import LATER

HEAD = '''\
"""Types of a cell's resolved settings; `make docs` writes this file from profzoo/schema.yaml."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict
'''
TYPES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "null": "None", "array": "list[Any]"}
# Settings that may be null or a word in the configuration, and are numbers once a cell is resolved.
RESOLVED = {"batch": "int", "samples": "int", "window": "int"}
PROFILER = ("wait", "warmup", "repeat", "modules", "shapes", "memory", "flops", "stacks", "baseline")
# Keys that a resolved cell has besides its settings.
ADDED = {
    "fit": ("bool", "Whether the batch is halved until it fits into memory."),
    "model": ("str", "Name of the model, without variant."),
    "module": ("str", "Dotted name of the module that holds the model."),
    "phase": ('Literal["train", "inference"]', "What a step does."),
    "profiler": ("NotRequired[ProfilerSettings]", "Options of torch.profiler; only of cells under the tool `torch`."),
    "shape": ("Mapping[str, Any]", "The model's own shape parameters, by name."),
    "steps": ("int", "Steps in all: warm-up, window, and what the profiler's schedule adds."),
}


def python_type(part: Mapping[str, Any], name: str = "") -> str:
    """Return the Python type of one key of the schema, as source text.

    >>> python_type({"type": ["integer", "null"]}), python_type({"enum": ["a", "b"]})
    ('int | None', 'Literal["a", "b"]')
    """
    if name in RESOLVED:
        return RESOLVED[name]
    if "enum" in part:
        return f"Literal[{', '.join(json.dumps(one) if isinstance(one, str) else repr(one) for one in part['enum'])}]"
    if part["type"] == "object":
        return "DataSettings" if part.get("properties") else "Mapping[str, Any]"
    types = [part["type"]] if isinstance(part["type"], str) else part["type"]
    return " | ".join(TYPES[one] for one in types)


def class_text(name: str, meaning: str, fields: Mapping[str, tuple[str, str]]) -> str:
    """Return the source text of one typed dictionary; fields: type and meaning by key."""
    lines = [f"class {name}(TypedDict):", f'    """{meaning}"""', ""]
    for key, (kind, means) in sorted(fields.items()):
        lines += [f"    # {line}" for line in _wrapped(means)]
        lines.append(f"    {key}: {kind}")
    return "\n".join(lines) + "\n"


def module_text() -> str:
    """Return the source text of profzoo/cell/cell_types.py."""
    known = schema.cell_properties()
    data = known["data"]["properties"]
    # Of the profiler that runs inside the measured process.
    own = next(part["properties"] for part in schema.tool_schemas().values() if "inside" in part)
    profiler = {key: own[key] for key in PROFILER}
    script = {key: part for key, part in schema.script_properties().items() if key != "phase"}
    cell = _fields(known, LATER) | _fields(script, list(script)) | ADDED
    classes = [
        class_text("DataSettings", "Where the samples of a cell come from.", _fields(data)),
        class_text("ProfilerSettings", "Options of torch.profiler.", _fields(profiler, ["baseline"])),
        class_text("CellSettings", "How one cell runs, as `profzoo.cell.settings.resolve_cell` returns it.", cell),
    ]
    return "\n\n".join([HEAD, *classes])


def _fields(parts: Mapping[str, Mapping[str, Any]], optional: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """Return type and meaning of each key; optional: keys that a resolved cell may lack."""
    found = {}
    for key, part in parts.items():
        kind = python_type(part, key)
        found[key] = (f"NotRequired[{kind}]" if key in optional else kind, _first_sentence(part))
    return found


def _first_sentence(part: Mapping[str, Any]) -> str:
    return " ".join(part["description"].split()).split(". ")[0].rstrip(".") + "."


def _wrapped(text: str, width: int = 110) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def main(path: str) -> None:
    """Write the module."""
    Path(path).write_text(module_text(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
