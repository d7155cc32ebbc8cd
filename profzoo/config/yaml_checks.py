"""Check configuration files as they are written for mistakes that YAML's rules hide."""

import os
from collections.abc import Iterable
from pathlib import Path

from profzoo import schema
from profzoo.io import strict_yaml

# Settings by model or variant, each of which may have the keys of cells.
KEYS_BY_NAME = ("models", "settings", "variants")
# By this key a file is a template, of which YAML is made.
TEMPLATE = "__use_yte__"


def check_files(files: Iterable[Path]) -> None:
    """Check that these files mean what they look like.

    Raises:
        ConfigError: which file, line and key does not, and what to write.
    """
    rules = schema.load_schema()
    of_cells = {"additionalProperties": {"properties": schema.cell_properties()}}
    named = {key: {**rules["properties"][key], **of_cells} for key in KEYS_BY_NAME}
    meant = strict_yaml.allows_boolean({**rules, "properties": {**rules["properties"], **named}})
    for path in files:
        text = strict_yaml.read_yaml_text(path, _format_path(path))
        if TEMPLATE not in text:
            strict_yaml.check_yaml(text, _format_path(path), meant)


def _format_path(path: Path) -> str:
    """Return a path as its user may have written it: relative, if it is below the current folder."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near
