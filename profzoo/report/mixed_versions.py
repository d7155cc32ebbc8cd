"""Find cells that were measured with different versions of torch, the driver or a profiler."""

from collections.abc import Mapping

import pandas as pd

from profzoo.io.csv_tables import Row
from profzoo.tables.schemas import VERSION, VERSIONS

# Cells named per version.
SHOWN = 4


def most_common_versions(cells: pd.DataFrame) -> dict[str, str]:
    """Return the most common version by column of the table of cells, for columns with several versions."""
    found = {}
    for name in (name for name in VERSIONS if name in cells):
        counts = cells.loc[_is_known(cells[name]), name].value_counts()
        if len(counts) > 1 or any(" (" in version for version in counts.index):
            found[name] = str(counts.index[0])
    return found


def format_versions(cells: pd.DataFrame) -> list[str]:
    """Return a line per version with its cells, for each program that has several versions."""
    said = []
    for name in most_common_versions(cells):
        known = cells[_is_known(cells[name])]
        for version, rows in known.groupby(name, sort=False):
            names = [f"{row.model} {row.phase}" for row in rows.itertuples()]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            said.append(f"{name.removesuffix(VERSION)} {version}: {', '.join(names[:SHOWN])}{more}")
    return said


def name_unusual_versions(row: Row, usual: Mapping[str, str]) -> str:
    """Name the versions of a cell that differ from the most common ones; empty if none do.

    >>> usual = {"torch_version": "2.9.0", "nsys_version": "2025.3"}
    >>> name_unusual_versions({"torch_version": "2.8.0", "nsys_version": ""}, usual)
    'torch 2.8.0'
    """
    others = [
        (name, row[name]) for name, most in usual.items() if isinstance(row[name], str) and row[name] not in ("", most)
    ]
    return ", ".join(f"{name.removesuffix(VERSION)} {version}" for name, version in others)


def _is_known(column: pd.Series) -> pd.Series:
    return column.notna() & column.ne("")
