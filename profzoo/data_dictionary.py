"""The data dictionary: what each column of each CSV under results/ means, as a table."""

import fnmatch
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from profzoo.csv_files import CSV_FILES, DICTIONARY_COLUMNS
from profzoo.io.columns import Column
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv


def list_columns(table: Table) -> list[str]:
    """Return the columns that a table has or may have, families of them by their pattern."""
    declared = [*table.columns, *(name for name in table.optional if name not in table.columns)]
    more = [name for name in table.about if name not in declared and table.others(name.replace("*", "x")) is not None]
    return declared + [name for name in more if "*" not in name or not fnmatch.filter(declared, name)]


def list_entries() -> Iterator[tuple[str, str, Column]]:
    """Yield each file's pattern, each of its columns, and what that means.

    Raises:
        KeyError: a column has no meaning: describe it in the package's dictionary.py.
    """
    for pattern, file in CSV_FILES.items():
        for name in list_columns(file.table):
            column = file.table.describe(name)
            if column is None:
                raise KeyError(f"{pattern}: the column {name} has no meaning")
            yield pattern, name, column


def tabulate_columns() -> pd.DataFrame:
    """Return the dictionary as a table: DICTIONARY_COLUMNS, a row per column of each kind of file."""
    rows = [(file, name, one.unit, one.means, one.tool, one.clock) for file, name, one in list_entries()]
    return pd.DataFrame(rows, columns=list(DICTIONARY_COLUMNS))


def main(csv: str | Path) -> None:
    """Write the dictionary."""
    write_csv(tabulate_columns(), csv)
