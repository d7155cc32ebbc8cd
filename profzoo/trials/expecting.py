"""Writes what the table of verdicts expects of settings, for trials to begin with what is expected to help most."""

from collections.abc import Mapping
from typing import Any

from profzoo.files import write_json
from profzoo.reading import tables as reading
from profzoo.trials import panel
from profzoo.verdicts import columns


def main(verdicts: str, config: Mapping[str, Any], batches: Mapping[str, int], output: str) -> None:
    """Read the verdicts, write expected gains by cell and candidate; the others as panel.expected has them."""
    write_json({"cells": panel.expected(reading.read(verdicts, columns.TABLE), config, batches)}, output)
