"""Check the text of configuration files for mistakes that a YAML parser does not report."""

import os
from collections.abc import Iterable
from pathlib import Path

from profzoo import schema
from profzoo.io import strict_yaml

# Keys whose values map names of models or variants to cell settings.
KEYS_BY_NAME = ("models", "settings", "variants")
# A file with this key is a template from which YAML is generated, and is not checked.
TEMPLATE = "__use_yte__"


def check_files(files: Iterable[Path]) -> None:
    """Check that YAML reads each value in these files as its writer must have meant it.

    Raises:
        ConfigError: a value is read differently; the message names file, line and key, and says what to write.
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
    """Return a path for messages: relative if it is below the current folder, else as it is."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near
