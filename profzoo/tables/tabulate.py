"""Makes the tables across the zoo from every exported cell."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from profzoo import tools
from profzoo.files import read_json, write_csv
from profzoo.tables import cell_tables, ranks, reconcile

FILES = ("../tools/*/activity.py",)
Exported = list[tuple[str, Mapping[str, str], pd.DataFrame, Mapping[str, Any]]]


def read(tool: str, tables: Sequence[str], sidecars: Sequence[str]) -> Exported:
    """A tool's exported tables with the cell and the sidecar of each."""
    return [
        (tool, cell_tables.cell_of(table), pd.read_csv(table), read_json(sidecar))
        for table, sidecar in zip(tables, sidecars, strict=True)
    ]


def main(inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read what each tool exported (inputs: tool and tool_sidecar to paths) and write the tables."""
    timed = [entry[1:] for entry in read("time", inputs["time"], inputs["time_sidecar"])]
    exported = [
        entry
        for tool in tools.activities()
        for entry in read(tool, inputs.get(tool, []), inputs.get(f"{tool}_sidecar", []))
    ]
    alone = {tool for tool, activity in tools.activities().items() if activity.ALONE}
    walls = [(tool, cell, facts["step_ns"]) for tool, cell, _, facts in exported if tool not in alone]
    cells, activity = cell_tables.with_tools(cell_tables.cells(timed), exported), cell_tables.activity(exported)
    write_csv(cells, outputs["cells"])
    write_csv(activity, outputs["activity"])
    write_csv(cell_tables.kernels(cell_tables.read(inputs.get("kernels", []))), outputs["kernels"])
    write_csv(cell_tables.ranges(exported), outputs["ranges"])
    processes = ranks.read(inputs.get("ranks", []))
    write_csv(cell_tables.steps(cells, cell_tables.read(inputs.get("nsys_steps", [])), processes), outputs["steps"])
    paths = inputs.get("coverage", [])
    compared = [
        (cell, Path(path).name.split(".")[2], table)
        for path, (cell, table) in zip(paths, cell_tables.read(paths), strict=True)
    ]
    coverage = cell_tables.coverages(compared)
    write_csv(coverage, outputs["coverage"])
    write_csv(reconcile.explained(cell_tables.agreement(cells, activity, walls), coverage), outputs["agreement"])
