"""Names the inputs of tables of user ranges, which a program opens itself, and of how the launches of steps differ."""

from typing import Any

from profzoo import tools
from profzoo.workflow.selection import Selection, Wildcards, file_of_cell
from profzoo.workflow.tables import Tables

# Keys of tools.PROVIDED of tools that record ranges, with the files of their measurement. In copied results, one of
# these files has to exist.
SOURCES = {"trace_database": (".nsys.sqlite", ".nsys-rep"), "layers": (".torch.ranges.csv", ".trace.json.gz")}
TRACE, OWNERS = SOURCES


def user_range_tables(selection: Selection) -> list[str]:
    """Tables of user ranges of all cells that were traced by a tool that records ranges."""
    return _tables(selection, "ranges")


def repetition_tables(selection: Selection) -> list[str]:
    """Tables of how the launches of steps differ, of the same cells."""
    return _tables(selection, "repetition")


def _tables(selection: Selection, name: str) -> list[str]:
    return selection.makeable(
        f"<results>/{model}/{phase}.{name}.csv"
        for model, phase in selection.cells
        if tools.BASELINE in selection.available[model, phase]
        and (
            _traced(selection, model, phase)
            or (selection.path(f"<results>/{model}/{phase}.{name}.csv").exists() and not selection.config["collect"])
        )
    )


def user_range_inputs(tables: Tables, wildcards: Wildcards) -> dict[str, Any]:
    """Files of the tools about a cell's ranges and launches, by the script's input names."""
    run, cell = tables.selection, (wildcards.model, wildcards.phase)
    # A copied table without its inputs stays as it is, as it cannot be made again.
    traced = _traced(run, *cell) or [name for name in SOURCES if _is_chosen(run, name, *cell)]
    found: dict[str, Any] = {**tables.layer_inputs(wildcards)}
    if TRACE not in traced:
        found = {name: path for name, path in found.items() if not name.startswith(TRACE)}
    if OWNERS in traced:
        endings = {"launches": ".torch.launches.csv", "ranges": ".torch.ranges.csv", "sidecar": ".trace.json.gz.json"}
        found |= {name: file_of_cell(wildcards, ending) for name, ending in endings.items()}
    return found


def _traced(selection: Selection, model: str, phase: str) -> list[str]:
    """Keys of SOURCES whose tool's measurement of a cell exists or will be made."""
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
