"""Time both parsers of a large CSV: pandas' own, and the strict reader.

python -m tests.benchmarks.csv_parsers [ROWS]

On two cores of an Intel Xeon, 300,000 rows and 6 columns (33 MB): 0.5 s by pandas, 2 s by the strict reader.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.io import column_types, fast_csv
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv

COLUMNS = {
    "name": column_types.TEXT, "step": column_types.COUNT, "ns": column_types.AMOUNT, "grid_x": column_types.or_missing(column_types.COUNT), "share": column_types.NUMBER,
    "range": column_types.TEXT,
}  # fmt: skip


def made(rows: int) -> pd.DataFrame:
    """Return a table of launches with names that need quotes, fractions, and numbers that are missing."""
    draw = np.random.default_rng(7)
    names = np.array([f"void at::native::kernel_{place}<float, {place}>(T1 *, int)" for place in range(40)])
    grid = np.where(draw.random(rows) < 0.1, np.nan, draw.integers(1, 1000, rows))
    return pd.DataFrame({
        "name": names[draw.integers(0, 40, rows)], "step": np.arange(rows), "ns": draw.random(rows) * 1e6, "grid_x": grid,
        "share": draw.random(rows) - 0.5, "range": "forward",
    })  # fmt: skip


def main(rows: int) -> None:
    """Print the seconds that each parser takes, and compare what they read."""
    table, usual, frames = reading.Table(columns=COLUMNS), fast_csv.MIN_CHARACTERS, []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        write_csv(made(rows), path)
        size = path.stat().st_size / 1e6
        for name, least in [("pandas", usual), ("strict reader", sys.maxsize)] * 2:
            fast_csv.MIN_CHARACTERS = least
            begin = time.perf_counter()
            frames.append(reading.read(path, table))
            print(f"{rows} rows x {len(COLUMNS)} columns, {size:.1f} MB: {time.perf_counter() - begin:.2f} s ({name})")
    for frame in frames[1:]:
        pd.testing.assert_frame_equal(frames[0], frame, check_exact=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000)
