"""In how many steps nsys traced a kernel, of small exports whose steps launch differently, up to the cell's tables."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.io.common_columns import IN_STEPS, OF_STEPS
from profzoo.tables import cell_tables, kernel_table, repetition
from profzoo.tables.layer_sums import Others
from profzoo.tools.nsys import tables as nsys_tables
from tests.unit.test_nsys_tables import ONE, TWO, export, kernel

LENGTH = 100


def traced(folder: Path, *steps: list[int], process: int = ONE) -> Path:
    """An export of steps that launch the kernel with these grids, one after the other."""
    kernels, calls, ranges = rows_of(process, *steps)
    return export(folder / "a.sqlite", kernels, calls, ranges)


def rows_of(process: int, *steps: list[int]) -> tuple[list[tuple], list[tuple], list[tuple]]:
    kernels, calls, ranges = [], [], []
    for number, grids in enumerate(steps):
        begin = number * LENGTH
        ranges.append((begin, begin + LENGTH, process, "step"))
        for place, grid in enumerate(grids):
            start, correlation = begin + 5 * place + 1, 1 + len(kernels)
            calls.append((start, correlation, process))
            kernels.append(kernel(start + 2, start + 2 + grid, correlation, process, grid=(grid, 1, 1)))
    return kernels, calls, ranges


def counts(path: Path) -> dict[int, tuple[int, int]]:
    table = nsys_tables.summarise(path)
    return {row.grid_x: (row.in_steps, row.of_steps) for row in table.itertuples()}


def test_rows_say_in_how_many_steps_they_were_launched(tmp_path: Path) -> None:
    assert counts(traced(tmp_path, [1, 2], [1], [2, 1, 3])) == {1: (3, 3), 2: (2, 3), 3: (1, 3)}


def test_another_number_of_the_same_launches_is_a_difference(tmp_path: Path) -> None:
    assert counts(traced(tmp_path, [1, 1], [1])) == {1: (2, 2)}


@pytest.mark.parametrize("steps", [([1, 2], [1, 2]), ([1, 2], [2, 1]), ([1, 2],)])
def test_equal_steps_have_no_such_columns(tmp_path: Path, steps: tuple[list[int], ...]) -> None:
    assert list(nsys_tables.summarise(traced(tmp_path, *steps)).columns) == nsys_tables.COLUMNS


def test_processes_that_differ_from_each_other_are_no_steps_that_differ(tmp_path: Path) -> None:
    (kernels, calls, ranges), others = rows_of(ONE, [1, 2], [1, 2]), rows_of(TWO, [3], [3])
    path = export(tmp_path / "a.sqlite", kernels + others[0], calls + others[1], ranges + others[2])
    assert IN_STEPS not in nsys_tables.summarise(path)


def test_the_cells_tables_have_them_too(tmp_path: Path) -> None:
    path = traced(tmp_path, [1, 2], [1], [2, 1, 3])
    nsys = nsys_tables.summarise(path)
    file = tmp_path / "unet" / "train.kernels.csv"
    file.parent.mkdir()
    kernel_table.join(nsys, 3, [], {}).assign(**{"class": "other"}).to_csv(file, index=False)
    read = reading.read(file, kernel_table.TABLE)
    assert read.set_index("grid_x")[IN_STEPS].to_dict() == {1: 3, 2: 2, 3: 1}
    assert read.set_index("grid_x")["launches"].to_dict() == {1: 1, 2: 2 / 3, 3: 1 / 3}
    across = cell_tables.kernels(cell_tables.read([str(file)], kernel_table.TABLE))
    assert across[OF_STEPS].tolist() == [3, 3, 3]
    assert IN_STEPS not in cell_tables.kernels([({}, read.drop(columns=[IN_STEPS, OF_STEPS]))])


def compared(folder: Path, *steps: list[int]) -> tuple[pd.DataFrame, pd.DataFrame]:
    path, sidecar = traced(folder, *steps), folder / "a.json"
    with closing(sqlite3.connect(path)) as database:
        for column in ("streamId", "deviceId", "contextId"):
            if column not in {row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}:
                database.execute(f"ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN {column} DEFAULT 7")
        database.commit()
    sidecar.write_text(json.dumps({"cell": {"window": len(steps)}}))
    made = [str(folder / name) for name in ("summary.csv", "launches.csv")]
    repetition.main("", Others(nsys=str(path), sidecar=str(sidecar)), *made)
    return reading.read(made[0], repetition.TABLE), reading.read(made[1], repetition.LAUNCHES_TABLE)


def test_a_trace_is_laid_over_itself_step_by_step(tmp_path: Path) -> None:
    """Of kernels of one name, the second step lacks the last, and the third has it in another shape."""
    (row,), places = (frame.to_dict("records") for frame in compared(tmp_path, [1, 2], [1], [1, 3]))
    assert (row["tool"], row["steps"], row["kinds"]) == ("nsys", 3, 3)
    assert (row["least_launches"], row["most_launches"], row["least_ns"], row["most_ns"]) == (1, 2, 1, 4)
    assert row["shared_launches"] == row["same_launches"] == 3 / 5 and row["shared_time"] == 3 / 8
    assert [(place[IN_STEPS], place["configurations"]) for place in places] == [(3, 1), (2, 2)]
    assert [(place["mean_ns"], place["min_ns"], place["max_ns"]) for place in places] == [(1, 1, 1), (2.5, 2, 3)]


def test_a_trace_of_equal_steps_has_no_rows(tmp_path: Path) -> None:
    assert all(frame.empty for frame in compared(tmp_path, [1, 2], [2, 1]))
