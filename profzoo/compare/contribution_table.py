"""Make the table of parts: contributions to each difference, from traces of every cell on each side."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.compare import comparison_table, contributions
from profzoo.compare.contributions import TracedCell
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.kernels import kernel_classes
from profzoo.tables import cell_tables, kernel_table, layers
from profzoo.tables.schemas import CELL, TABLES
from profzoo.tables.steps_per_export import NEEDS, count_profiled_steps
from profzoo.tools.nsys import steps as nsys_steps
from profzoo.tools.nsys import tables as nsys_tables

Cell = tuple[str, str]


# What is known of a cell on one side: files by these names, of which there may be none of a tool.
FILES_OF = ("kernels", "steps", "layers")


def read_side(files: Mapping[str, str], time_ns: float, items: float = 1.0) -> TracedCell:
    """Read a traced cell on one side.

    files: paths of nsys's CSV of `kernels` and `steps`, and of the CSV of `layers`, if they exist.
    time_ns: unprofiled time in ns, to which the parts are scaled: of a step, or of one of its `items`.
    """
    step_ns = time_ns * items
    kernels, step = _read_nsys(files["kernels"], files["steps"], step_ns) if "kernels" in files else (None, {})
    found = contributions.layer_times(reading.read(files["layers"], layers.TABLE)) if "layers" in files else None
    return TracedCell(kernels, {"step_ns": step_ns, **step}, found, items)


def _read_nsys(kernels: str, steps: str, step_ns: float) -> tuple[pd.DataFrame, reading.Row]:
    cell, launches = cell_tables.cell_of(kernels), reading.read(kernels, nsys_tables.TABLE)
    classes = kernel_classes.classify_all(launches["kernel"].unique())
    table = kernel_table.join(launches, count_profiled_steps(read_facts(f"{kernels}.json", NEEDS)), [], classes)
    unprofiled = pd.DataFrame([{**cell, "step_ns": step_ns, "step_median_ns": step_ns}])
    of_trace = [(cell, reading.read(steps, nsys_steps.TABLE))]
    return table, cell_tables.steps(unprofiled, of_trace, TABLES["ranks"].empty()).iloc[0].to_dict()


def tabulate_contributions(
    compared: pd.DataFrame, seen: Mapping[str, Mapping[Cell, Mapping[str, str]]]
) -> pd.DataFrame:
    """Return the rows of all comparisons, columns contributions.COLUMNS.

    compared: the table of comparisons. seen: for each side, the files of each cell.
    """
    frames = []
    for row in compared.to_dict("records"):
        cell = (row["model"], row["phase"])
        sides = [
            read_side(
                seen.get(row[side], {}).get(cell, {}),
                row[f"{side}_ns"],
                row[f"{side}_items"] if row["per"] == comparison_table.SAMPLE else 1.0,
            )
            for side in contributions.SIDES
        ]
        frames.append(
            contributions.contribution_rows(*sides).assign(
                **{name: row[name] for name in (*CELL, *contributions.SIDES)}
            )
        )
    whole = pd.concat(frames, ignore_index=True) if frames else contributions.PARTS_TABLE.empty()
    return whole[list(contributions.COLUMNS)]


def main(compared: str, files: Mapping[str, Mapping[str, Sequence[str]]], csv: str) -> None:
    """Read the table of comparisons and the tools' files of each side; write the table of parts."""
    seen: dict[str, dict[Any, dict[str, str]]] = {}
    for what, by_side in files.items():
        for side, paths in by_side.items():
            for path in paths:
                model, phase = cell_tables.cell_of(path).values()
                seen.setdefault(side, {}).setdefault((model.partition("@")[0], phase), {})[what] = path
    write_csv(tabulate_contributions(reading.read(compared, comparison_table.COMPARISON_TABLE), seen), csv)
