"""Finds columns in a folder of results that the data dictionary does not describe."""

import csv
from collections.abc import Mapping
from pathlib import Path

from profzoo.catalog import csv_files
from profzoo.io.columns import Column, Kind


def declare(kinds: Mapping[str, Kind]) -> dict[str, Column]:
    """Return columns of these kinds, for tables of which only the kinds matter."""
    return {name: Column(kind, f"Values of {name}.") for name, kind in kinds.items()}


def undescribed(results: Path) -> list[tuple[str, str]]:
    """Return file and name of each undescribed column; the name is empty if the dictionary does not have the file."""
    lacking = []
    for path in sorted(results.rglob("*.csv")):
        place = str(path.relative_to(results))
        found = csv_files.find_file(place)
        if found is None:
            lacking.append((place, ""))
            continue
        with path.open(newline="", encoding="utf-8") as file:
            names = next(csv.reader(file), [])
        lacking += [(place, name) for name in names if found[1].table.describe(name) is None]
    return lacking
