"""Reads rows of result tables for the last lines of a run, without pandas, whose import would delay them."""

import csv
from pathlib import Path


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table; empty if the file is missing or cannot be read."""
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, csv.Error):
        return []


def read_cell_verdicts(path: Path) -> list[dict[str, str]]:
    """Return profzoo's own verdicts on whole cells; path: the table of verdicts, which may be missing."""
    return [row for row in read_rows(path) if row.get("level") == "cell" and row.get("by", "profzoo") == "profzoo"]
