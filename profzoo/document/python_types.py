"""Writes profzoo/cell/{cell,tool,config}_types.py from the schema: typed dictionaries for type checkers."""

import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from profzoo.cell import schema
from profzoo.cell.settings import LATER, LATER_DATA
from profzoo.json_types import JsonSchema
from profzoo.tools.ncu import TOOL

HEAD = '''\
"""Types of a cell's resolved settings; `make docs` writes this file from profzoo/cell/schema.yaml."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict
'''
TOOL_HEAD = '''\
"""Types of the tools' parts of the configuration; `make docs` writes this file from profzoo/tools/*/schema.yaml."""

from collections.abc import Mapping
from typing import Literal, TypedDict
'''
CONFIG_HEAD = '''\
"""Types of the checked and complete configuration; `make docs` writes this file from profzoo/cell/schema.yaml."""

from collections.abc import Mapping
from typing import Literal, TypedDict

from profzoo.cell.cell_types import DataSettings
from profzoo.cell.tool_types import {tools}
from profzoo.json_types import GivenSettings
'''
TYPES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "null": "None"}
# Settings that may be null or a word in the configuration, and are numbers once a cell is resolved.
RESOLVED = {"batch": "int", "samples": "int", "window": "int"}
# A key may also be written as a mapping, which becomes a list; settings of cells are checked where a cell is resolved.
CHECKED = {
    "models": "list[str]",
    "imported": "Mapping[str, GivenSettings]",
    "settings": "Mapping[str, GivenSettings]",
    "variants": "Mapping[str, GivenSettings]",
}
SECTION_SET = "SectionSet"
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


def python_type(part: JsonSchema, name: str = "", known: Mapping[str, str] = RESOLVED) -> str:
    """Return the Python type of one key of the schema, as source text; known: types by key that differ from it.

    >>> python_type({"type": ["integer", "null"]}), python_type({"enum": ["a", "b"]})
    ('int | None', 'Literal["a", "b"]')
    >>> python_type({"type": ["array", "string"], "items": {"type": "integer"}})
    'list[int] | str'
    """
    if name in known:
        return known[name]
    if "enum" in part:
        return f"Literal[{', '.join(json.dumps(one) if isinstance(one, str) else repr(one) for one in part['enum'])}]"
    types = [part["type"]] if isinstance(part["type"], str) else part["type"]
    return " | ".join(_type_of(one, part, name) for one in types)


def _type_of(kind: str, part: JsonSchema, name: str) -> str:
    """Return the Python type of one of the types that a key may have."""
    if kind == "array":
        return f"list[{'str' if 'enum' in part['items'] else python_type(part['items'])}]"
    if kind != "object":
        return TYPES[kind]
    rest = part.get("additionalProperties")
    if part.get("properties"):
        return class_name(name)
    return f"Mapping[str, {_type_of_entry(rest, name) if isinstance(rest, Mapping) else 'Any'}]"


def _type_of_entry(part: JsonSchema, name: str) -> str:
    """Return the Python type of the entries of a mapping with any names."""
    return SECTION_SET if name == "sets" else python_type(part)


def class_name(key: str) -> str:
    """Return the name of the class for the settings under a key of the configuration."""
    return f"{key.capitalize()}Settings"


def class_text(name: str, meaning: str, fields: Mapping[str, tuple[str, str]], total: bool = True) -> str:
    """Return the source text of one typed dictionary; fields: type and meaning by key; total: whether all are there."""
    lines = [f"class {name}(TypedDict{'' if total else ', total=False'}):"]
    lines += ["    " + "\n    ".join(_wrapped(f'"""{meaning}"""')), ""]
    for key, (kind, means) in sorted(fields.items()):
        lines += [f"    # {line}" for line in _wrapped(means)] if means else []
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
        class_text("DataSettings", "Where the samples of a cell come from.", _fields(data, LATER_DATA)),
        class_text("ProfilerSettings", "Options of torch.profiler.", _fields(profiler, ["baseline"])),
        class_text("CellSettings", "How one cell runs, as `profzoo.cell.settings.resolve_cell` returns it.", cell),
    ]
    return "\n\n".join([HEAD, *classes])


def tool_module_text() -> str:
    """Return the source text of profzoo/cell/tool_types.py: a class for each tool, and one for section sets."""
    known = schema.tool_schemas()
    sets = known[TOOL]["properties"]["sets"]["additionalProperties"]["properties"]
    meaning = "What ncu collects under the name of a section set."
    return "\n\n".join([TOOL_HEAD, class_text(SECTION_SET, meaning, _fields(sets), total=False), *_classes_of(known)])


def config_module_text() -> str:
    """Return the source text of profzoo/cell/config_types.py: a class for each key with keys of its own, and Config."""
    known, tools = schema.load_schema()["properties"], schema.tool_schemas()
    own = {key: part for key, part in known.items() if part.get("properties") and key not in (*tools, "data")}
    meaning = "The configuration, as `profzoo.config.configuration.normalise_config` returns it."
    config = class_text("Config", meaning, _fields(known, known=CHECKED))
    head = CONFIG_HEAD.format(tools=", ".join(sorted(map(class_name, tools))))
    return "\n\n".join([head, *_classes_of(own), config])


def _classes_of(parts: Mapping[str, JsonSchema]) -> list[str]:
    """Return the source text of a class for each key."""
    return [
        class_text(class_name(key), _first_sentence(part), _fields(part["properties"], known=CHECKED))
        for key, part in parts.items()
    ]


def _fields(
    parts: Mapping[str, JsonSchema], optional: Sequence[str] = (), known: Mapping[str, str] = RESOLVED
) -> dict[str, tuple[str, str]]:
    """Return type and meaning of each key; optional: keys that may be missing; known: types that differ from the
    schema's."""
    found = {}
    for key, part in parts.items():
        kind = python_type(part, key, known)
        found[key] = (f"NotRequired[{kind}]" if key in optional else kind, _first_sentence(part))
    return found


def _first_sentence(part: JsonSchema) -> str:
    if "description" not in part:
        return ""
    return " ".join(part["description"].split()).split(". ")[0].rstrip(".") + "."


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False)


def main(folder: str) -> None:
    """Write the modules."""
    texts = {"cell": module_text(), "tool": tool_module_text(), "config": config_module_text()}
    for name, text in texts.items():
        (Path(folder) / f"{name}_types.py").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
