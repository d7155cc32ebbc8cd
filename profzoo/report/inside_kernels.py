"""Reads the tables of source lines that there are, and says for the page where kernels wait and spill."""

from collections.abc import Iterable

import pandas as pd

from profzoo.io import csv_tables as reading
from profzoo.tables.cell_tables import cell_of
from profzoo.tools.ncu import source_columns
from profzoo.tools.ncu.source_summary import describe_kernels

COLUMNS = ("model", "phase", "says")


def read_sentences(paths: Iterable[str]) -> pd.DataFrame:
    """Return COLUMNS: a sentence on each of the most expensive kernels; paths: tables of source lines of cells.

    Raises:
        DataError: a table is damaged.
    """
    rows = [
        {**cell_of(path), "says": says}
        for path in paths
        for says in describe_kernels(reading.read(path, source_columns.TABLE))
    ]
    # Several section sets may tell the same.
    return pd.DataFrame(rows, columns=list(COLUMNS)).drop_duplicates(ignore_index=True)
