"""Makes the table of a comparison's counters, from files of both sides that exist already."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.compare import comparison_table, counter_changes, counter_sides
from profzoo.compare.contributions import SIDES
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tables.cell_tables import cell_of
from profzoo.tables.schemas import CELL

Cell = tuple[str, str]


def tabulate_counters(compared: pd.DataFrame, seen: Mapping[str, Mapping[Cell, str]]) -> pd.DataFrame:
    """Return the rows of all comparisons, columns counter_changes.COLUMNS; none of cells without counters on a side.

    compared: the table of comparisons. seen: for each side, the path of each cell's launches under ncu.
    """
    frames = []
    for row in compared.to_dict("records"):
        cell = (row["model"], row["phase"])
        paths = [seen.get(row[side], {}).get(cell) for side in SIDES]
        if None in paths:
            continue
        per_sample = row["per"] == comparison_table.SAMPLE
        sides = [
            counter_sides.read_counted_cell(str(path), row[f"{side}_items"] if per_sample else 1.0)
            for path, side in zip(paths, SIDES, strict=True)
        ]
        if sides[0] is None or sides[1] is None:
            continue
        found = counter_changes.compare_counters(sides[0], sides[1], row["margin"])
        frames.append(found.assign(**{name: row[name] for name in (*CELL, *SIDES)}))
    if not frames:
        return counter_changes.COUNTERS_TABLE.empty()
    whole = pd.concat(frames, ignore_index=True)
    return whole.assign(outcome=counter_changes.decide_changes(whole))[list(counter_changes.COLUMNS)]


def main(compared: str, files: Mapping[str, Sequence[str]], csv: str) -> None:
    """Read the table of comparisons and ncu's launches of each side; write the table of counters.

    files: paths of the cells' launches under ncu, by side.
    """
    seen: dict[str, dict[Cell, str]] = {}
    for side, paths in files.items():
        for path in paths:
            model, phase = cell_of(path).values()
            seen.setdefault(side, {})[model.partition("@")[0], phase] = path
    table = reading.read(compared, comparison_table.COMPARISON_TABLE)
    write_csv(tabulate_counters(table, seen), csv)
