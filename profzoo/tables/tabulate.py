"""Makes the tables across cells from every exported cell."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from profzoo import tools
from profzoo.cell.sidecar_files import read_facts
from profzoo.io import sidecars as fact
from profzoo.io.scripts import write_csv
from profzoo.tables import (
    baseline_steps,
    cell_tables,
    disagreements,
    kernel_table,
    layers_across,
    ncu_coverage,
    rank_imbalance,
    repetition,
    steps_per_export,
    user_ranges,
    version_columns,
)
from profzoo.tools.nsys import steps as nsys_steps

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

FILES = ("../tools/*/activity.py",)
EXTENDED = ("tools/*/activity.py",)
Exported = list[tuple[str, Mapping[str, str], pd.DataFrame, "Sidecar"]]
# Of sidecars of all tools.
OF_TOOL: fact.Needs = {"step_ns": fact.POSITIVE, **steps_per_export.NEEDS}


def read(tool: str, tables: Sequence[str], sidecars: Sequence[str]) -> Exported:
    """Read a tool's exported tables with the cell and sidecar of each."""
    activity = tools.activities()[tool]
    found: Exported = []
    for exported, sidecar in zip(cell_tables.read(tables, activity.TABLE), sidecars, strict=True):
        facts = read_facts(sidecar, {**OF_TOOL, **activity.FACTS})
        cell_tables.check_sidecars(sidecar, facts)
        found.append((tool, *exported, facts))
    return found


def _measured(
    timed: baseline_steps.Timed, exported: Exported, counted: Mapping[str, Sequence[str]]
) -> "list[tuple[str, Mapping[str, str], Sidecar]]":
    """Return tool, cell and sidecar of all inputs; counted: sidecars of tools without a table here, by tool."""
    found = [(tools.BASELINE, cell, facts) for cell, _, facts in timed]
    found += [(tool, cell, facts) for tool, cell, _, facts in exported]
    return found + [
        (tool, cell_tables.cell_of(path), read_facts(path)) for tool, paths in counted.items() for path in paths
    ]


def main(inputs: Mapping[str, Sequence[str]], outputs: Mapping[str, str]) -> None:
    """Read what each tool exported (inputs: tool and tool_sidecar to paths) and write the tables."""
    timed = baseline_steps.read(inputs[tools.BASELINE], inputs[f"{tools.BASELINE}_sidecar"])
    exported = [
        entry
        for tool in tools.activities()
        for entry in read(tool, inputs.get(tool, []), inputs.get(f"{tool}_sidecar", []))
    ]
    alone = {tool for tool, activity in tools.activities().items() if activity.ALONE}
    # Of what was made elsewhere, no step without a profiler is known that one under it could be slower than.
    walls = [
        (tool, cell, facts["step_ns"])
        for tool, cell, _, facts in exported
        if tool not in alone and "imported" not in facts
    ]
    cells, activity = cell_tables.add_tool_columns(cell_tables.cells(timed), exported), cell_tables.activity(exported)
    counted = {tool: inputs.get(f"{tool}{tools.COUNTED}", []) for tool in tools.that(tools.COUNT)}
    cells = version_columns.add_version_columns(cells, _measured(timed, exported, counted))
    write_csv(cells, outputs["cells"])
    write_csv(activity, outputs["activity"])
    write_csv(layers_across.concatenate_cells(inputs.get("repetition", []), repetition.TABLE), outputs["repetition"])
    write_csv(cell_tables.kernels(cell_tables.read(inputs.get("kernels", []), kernel_table.TABLE)), outputs["kernels"])
    own_ranges = cell_tables.read(inputs.get("user_ranges", []), user_ranges.TABLE)
    write_csv(user_ranges.append_user_ranges(cell_tables.ranges(exported), own_ranges), outputs["ranges"])
    processes = rank_imbalance.read(inputs.get("ranks", []))
    traced = cell_tables.read(inputs.get("steps", []), nsys_steps.TABLE)
    write_csv(cell_tables.steps(cells, traced, processes), outputs["steps"])
    paths = inputs.get("coverage", [])
    compared = [
        (cell, Path(path).name.split(".")[2], table)
        for path, (cell, table) in zip(paths, cell_tables.read(paths, ncu_coverage.TABLE), strict=True)
    ]
    covered = cell_tables.coverages(compared)
    write_csv(covered, outputs["coverage"])
    write_csv(
        disagreements.explain_disagreements(cell_tables.agreement(cells, activity, walls), covered),
        outputs["agreement"],
    )
