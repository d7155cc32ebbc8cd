"""Makes the tables across the zoo from every exported cell."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from workflow.scripts.lib import cell_tables, ranks, reconcile
from workflow.scripts.lib.files import read_json, reported, write_csv

Exported = list[tuple[str, Mapping[str, str], pd.DataFrame, Mapping[str, Any]]]


def read(tool: str, tables: Sequence[str], sidecars: Sequence[str]) -> Exported:
    """A tool's exported tables with the cell and the sidecar of each."""
    return [
        (tool, cell_tables.cell_of(table), pd.read_csv(table), read_json(sidecar))
        for table, sidecar in zip(tables, sidecars, strict=True)
    ]


def read_cells(paths: Sequence[str]) -> list[tuple[Mapping[str, str], pd.DataFrame]]:
    """Tables of cells, each with its cell."""
    return [(cell_tables.cell_of(path), pd.read_csv(path)) for path in paths]


def main(inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read what each tool exported (inputs: tool and tool_sidecar to paths) and write the tables."""
    timed = [entry[1:] for entry in read("time", inputs["time"], inputs["time_sidecar"])]
    exported = [
        entry
        for tool in cell_tables.TOOLS
        for entry in read(tool, inputs.get(tool, []), inputs.get(f"{tool}_sidecar", []))
    ]
    traced = [entry for entry in exported if entry[0] != "ncu"]
    walls = [(tool, cell, facts["step_ns"]) for tool, cell, _, facts in traced]
    cells, activity = cell_tables.cells(timed), cell_tables.activity(exported)
    write_csv(cells, outputs["cells"])
    write_csv(activity, outputs["activity"])
    write_csv(cell_tables.kernels(read_cells(inputs.get("kernels", []))), outputs["kernels"])
    write_csv(cell_tables.ranges(traced), outputs["ranges"])
    processes = ranks.read(inputs.get("ranks", []))
    write_csv(cell_tables.steps(cells, read_cells(inputs.get("nsys_steps", [])), processes), outputs["steps"])
    paths = inputs.get("coverage", [])
    compared = [
        (cell, Path(path).name.split(".")[2], table)
        for path, (cell, table) in zip(paths, read_cells(paths), strict=True)
    ]
    coverage = cell_tables.coverages(compared)
    write_csv(coverage, outputs["coverage"])
    write_csv(reconcile.explained(cell_tables.agreement(cells, activity, walls), coverage), outputs["agreement"])


if "snakemake" in globals():
    snakemake = globals()["snakemake"]
    with reported(snakemake.log[0]):
        inputs = {name: [files] if isinstance(files, str) else files for name, files in snakemake.input.items()}
        main(inputs, dict(snakemake.output.items()))
