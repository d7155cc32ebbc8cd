"""Makes the table of where differences lie, from what nsys saw of every cell on each side."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from profzoo.compare import parts, tabulate
from profzoo.compare.parts import Traced
from profzoo.files import read_json, write_csv
from profzoo.reading import tables as reading
from profzoo.tables import cell_tables, kernel_classes, kernel_table
from profzoo.tables.across import CELL, TABLES
from profzoo.tables.counted_steps import NEEDS, profiled_steps
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables

Cell = tuple[str, str]


def traced(kernels: str, steps: str, step_ns: float) -> Traced:
    """A cell on one side; kernels, steps: nsys' CSV; step_ns: the unprofiled step, which its parts are scaled to."""
    cell, launches = cell_tables.cell_of(kernels), reading.read(kernels, nsys_tables.TABLE)
    classes = kernel_classes.classify_all(launches["kernel"].unique())
    table = kernel_table.join(launches, profiled_steps(read_json(f"{kernels}.json", NEEDS)), [], classes)
    unprofiled = pd.DataFrame([{**cell, "step_ns": step_ns, "step_median_ns": step_ns}])
    of_trace = [(cell, reading.read(steps, nsys_steps.TABLE))]
    found = cell_tables.steps(unprofiled, of_trace, TABLES["ranks"].empty())
    return Traced(table, found.iloc[0].to_dict())


def table(compared: pd.DataFrame, seen: Mapping[str, Mapping[Cell, tuple[str, str]]]) -> pd.DataFrame:
    """The rows of all comparisons, columns as parts.COLUMNS.

    compared: the table of comparisons. seen: of each side, the CSV of kernels and of steps, by cell.
    """
    frames = []
    for row in compared.to_dict("records"):
        cell = (row["model"], row["phase"])
        sides = [traced(*seen[row[side]][cell], row[f"{side}_ns"]) for side in parts.SIDES]
        frames.append(parts.table(*sides).assign(**{name: row[name] for name in (*CELL, *parts.SIDES)}))
    whole = pd.concat(frames, ignore_index=True) if frames else parts.TABLE.empty()
    return whole[list(parts.COLUMNS)]


def main(compared: str, kernels: Mapping[str, Sequence[str]], steps: Mapping[str, Sequence[str]], csv: str) -> None:
    """Read the table of comparisons, and of each side the CSV of nsys' kernels and steps, and write the parts."""
    seen: dict[str, dict[Any, tuple[str, str]]] = {}
    for side, paths in kernels.items():
        cells = [tuple(cell_tables.cell_of(path).values()) for path in paths]
        plain = [(model.partition("@")[0], phase) for model, phase in cells]
        seen[side] = dict(zip(plain, zip(paths, steps[side], strict=True), strict=True))
    write_csv(table(reading.read(compared, tabulate.TABLE), seen), csv)
