"""Draw the figure of a given name from the tables that its module declares."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from profzoo import zoo_tables
from profzoo.figures import all_figures, plots


def main(name: str, tables: Mapping[str, str], options: Mapping[str, Any], outputs: Sequence[str]) -> None:
    """Read the tables, draw the figure, and write it to each output file.

    tables: paths of tables by name, including the table with devices and dates (`dated_by`). options: values of the
    configuration's `figures` that the figure takes.
    """
    figure = all_figures()[name]
    given = [zoo_tables.read_table(table, tables[table]) for table in figure.inputs]
    dated_by = zoo_tables.read_table(figure.dated_by, tables[figure.dated_by])
    plots.save_figure(draw_figure(name, given, options), outputs, plots.make_note(dated_by))


def draw_figure(name: str, tables: Sequence[pd.DataFrame], options: Mapping[str, Any]) -> Figure:
    """Draw the figure of this name; tables: the frames of its declared inputs, in their order."""
    made: Figure = importlib.import_module(all_figures()[name].module).draw(*tables, **options)
    return made
