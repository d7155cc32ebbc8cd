"""Names the inputs of tables of ranges that a program opened itself."""

from typing import Any

from profzoo import tools
from profzoo.workflow.selection import Selection, Wildcards, file_of_cell
from profzoo.workflow.tables import Tables

# What a tool that sees ranges provides, by which it is found, and what its part is made of: of results that were
# copied, one of these has to be there.
SOURCES = {"trace_database": (".nsys.sqlite", ".nsys-rep"), "layers": (".torch.ranges.csv", ".trace.json.gz")}
TRACE, OWNERS = SOURCES


def user_range_tables(selection: Selection) -> list[str]:
    """The tables of ranges of all cells that a tool traced which sees ranges."""
    return selection.makeable(
        f"<results>/{model}/{phase}.ranges.csv"
        for model, phase in selection.cells
        if tools.BASELINE in selection.available[model, phase]
        and (
            _traced(selection, model, phase)
            or (selection.path(f"<results>/{model}/{phase}.ranges.csv").exists() and not selection.config["collect"])
        )
    )


def user_range_inputs(tables: Tables, wildcards: Wildcards) -> dict[str, Any]:
    """What tools say of a cell's ranges and launches, by the names of a script's inputs."""
    run, cell = tables.selection, (wildcards.model, wildcards.phase)
    # A table that came along without any of what it was made of stays as it is: it cannot be made from nothing.
    traced = _traced(run, *cell) or [name for name in SOURCES if _is_chosen(run, name, *cell)]
    # Without the GPU's peaks: tables that need none of them must not have these measured.
    found: dict[str, Any] = {name: files for name, files in tables.layer_inputs(wildcards).items() if name != "peaks"}
    if TRACE not in traced:
        found = {name: path for name, path in found.items() if not name.startswith(TRACE)}
    if OWNERS in traced:
        endings = {"launches": ".torch.launches.csv", "ranges": ".torch.ranges.csv", "sidecar": ".trace.json.gz.json"}
        found |= {name: file_of_cell(wildcards, ending) for name, ending in endings.items()}
    return found


def _traced(selection: Selection, model: str, phase: str) -> list[str]:
    """Those of SOURCES whose tool's part of a cell is there, or will be."""
    return [
        name
        for name, endings in SOURCES.items()
        if _is_chosen(selection, name, model, phase)
        and (
            selection.config["collect"]
            or any(selection.path(f"<results>/{model}/{phase}{ending}").exists() for ending in endings)
        )
    ]


def _is_chosen(selection: Selection, name: str, model: str, phase: str) -> bool:
    """Whether a tool of the cell provides this."""
    return selection.provides(name) and selection.provided[name][0] in selection.tools_of(model, phase)
