"""Draws a figure by its name, from the tables that its module declares."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from profzoo.figures import inputs, known, plots


def main(name: str, tables: Mapping[str, str], options: Mapping[str, Any], outputs: Sequence[str]) -> None:
    """Read the tables (by name, their paths; that which it is dated by among them), draw, and write each file."""
    figure = importlib.import_module(f"profzoo.figures.{name}")
    given, dated_by = [inputs.read(table, tables[table]) for table in figure.INPUTS], known()[name].dated_by
    plots.save(figure.draw(*given, **options), outputs, plots.note(inputs.read(dated_by, tables[dated_by])))
