"""Draw a figure by its name, from the tables that its module declares."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from profzoo import zoo_tables
from profzoo.figures import all_figures, plots


def main(name: str, tables: Mapping[str, str], options: Mapping[str, Any], outputs: Sequence[str]) -> None:
    """Read the tables (by name, their paths; that which it is dated by among them), draw, and write each file."""
    figure = all_figures()[name]
    given = [zoo_tables.read_table(table, tables[table]) for table in figure.inputs]
    dated_by = zoo_tables.read_table(figure.dated_by, tables[figure.dated_by])
    plots.save_figure(draw_figure(name, given, options), outputs, plots.make_note(dated_by))


def draw_figure(name: str, tables: Sequence[pd.DataFrame], options: Mapping[str, Any]) -> Figure:
    """Draw the figure of that name from the tables that its module declares, in their order."""
    made: Figure = importlib.import_module(all_figures()[name].module).draw(*tables, **options)
    return made
