"""Names the inputs of tables of ranges that a program opened itself, which nsys and torch see."""

from typing import Any

from profzoo import tools
from profzoo.workflow.selection import Selection, Wildcards, file_of_cell
from profzoo.workflow.tables import Tables

# By tool, what its part is made of: of results that were copied, one of these has to be there.
SOURCES = {"nsys": (".nsys.sqlite", ".nsys-rep"), "torch": (".torch.ranges.csv", ".trace.json.gz")}


def user_range_tables(selection: Selection) -> list[str]:
    """The tables of ranges of all cells that a tool traced which sees ranges."""
    return selection.makeable(
        f"<results>/{model}/{phase}.ranges.csv"
        for model, phase in selection.cells
        if tools.BASELINE in selection.available[model, phase]
        and (
            _traced_by(selection, model, phase)
            or (selection.path(f"<results>/{model}/{phase}.ranges.csv").exists() and not selection.config["collect"])
        )
    )


def user_range_inputs(tables: Tables, wildcards: Wildcards) -> dict[str, Any]:
    """What tools say of a cell's ranges and launches, by the names of a script's inputs."""
    cell = wildcards.model, wildcards.phase
    # A table that came along without any of what it was made of stays as it is: it cannot be made from nothing.
    traced = _traced_by(tables.selection, *cell) or tables.selection.tools_of(*cell)
    found = tables.layer_inputs(wildcards)
    if "nsys" not in traced:
        found = {name: path for name, path in found.items() if not name.startswith("nsys")}
    if "torch" in traced:
        endings = {"launches": ".torch.launches.csv", "ranges": ".torch.ranges.csv", "sidecar": ".trace.json.gz.json"}
        found |= {name: file_of_cell(wildcards, ending) for name, ending in endings.items()}
    return found


def _traced_by(selection: Selection, model: str, phase: str) -> list[str]:
    """The tools that see ranges and whose part of a cell is there, or will be."""
    chosen = selection.tools_of(model, phase)
    return [
        tool
        for tool, endings in SOURCES.items()
        if tool in chosen
        and (
            selection.config["collect"]
            or any(selection.path(f"<results>/{model}/{phase}{ending}").exists() for ending in endings)
        )
    ]
