"""Draw the figure of a given name from the tables that its module declares."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from profzoo.catalog import csv_files
from profzoo.figures import all_figures, plots


def main(tables: Mapping[str, str], options: Mapping[str, Any], outputs: Sequence[str], dpi: int) -> None:
    """Read the tables, draw the figure by whose name the output files go, and write it to each of them.

    tables: paths of tables by name, including the table with devices and dates (`dated_by`). options: values of the
    configuration's `figures` that the figure takes. dpi: resolution of PNG files, in dots per inch.
    """
    name = Path(outputs[0]).stem
    figure = all_figures()[name]
    given = [csv_files.read_table(table, tables[table]) for table in figure.inputs]
    dated_by = csv_files.read_table(figure.dated_by, tables[figure.dated_by])
    plots.save_figure(draw_figure(name, given, options), outputs, plots.make_note(dated_by), dpi)


def draw_figure(name: str, tables: Sequence[pd.DataFrame], options: Mapping[str, Any]) -> Figure:
    """Draw the figure of this name; tables: the frames of its declared inputs, in their order."""
    made: Figure = importlib.import_module(all_figures()[name].module).draw(*tables, **options)
    return made
