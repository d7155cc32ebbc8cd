"""Lists the cells whose steps launch differently, with what that leaves unknown."""

from pathlib import Path

from profzoo.terminal.table_rows import read_rows

# So many cells are named, and the others counted.
SHOWN = 3


def list_differing_cells(path: Path) -> list[str]:
    """Return a sentence per cell whose steps differ; path: the table of repetition, which may be missing."""
    rows = read_rows(path)
    says = [f"{row['model']} {row['phase']}: {row['says']}" for row in rows[:SHOWN]]
    more = len(rows) - SHOWN
    return [
        *says,
        *([f"and {more} more cells, in {path}" if more > 1 else f"and another cell, in {path}"] if more > 0 else []),
    ]
