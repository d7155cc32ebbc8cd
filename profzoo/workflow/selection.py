"""What a run is about: its configuration, the cells and tools that this selects, and what there is of these."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.cell.config_types import Config
from profzoo.compare.sides import Side
from profzoo.workflow import patterns
from profzoo.workflow.user_errors import run_checked

# A model, perhaps with a variant, and a phase.
Cell = tuple[str, str]
# What Snakemake calls input functions and the like with: it has a value by the name of each wildcard of the rule.
Wildcards = Any


@dataclass(frozen=True)
class Selection:
    """What a run is about.

    Attributes:
        config: the configuration, checked and complete.
        cells: (model, phase) of each selected cell.
        tools: the chosen tools, without the unprofiled baseline.
        available: by cell, the tools whose part of it is there or will be made, the baseline among them.
        results: the folder that `<results>` stands for.
        lost: files that cannot be made, as a run before has found out.
        sides: the sides of a comparison; none where nothing is compared.
        compared: the cells that are compared.
        spread: models that train on several GPUs.
    """

    config: Config
    cells: Sequence[Cell]
    tools: Sequence[str]
    available: Mapping[Cell, Collection[str]]
    results: str = "results"
    lost: Collection[str] = field(default=())
    sides: Sequence[Side] = ()
    compared: Sequence[Cell] = ()
    spread: Collection[str] = ()

    @property
    def provided(self) -> Mapping[str, tuple[str, str]]:
        """Tool and pattern of each file that the chosen tools provide of a cell, by names of tools.PROVIDED."""
        return run_checked(patterns.provided_files_by_tool, self.config, self.tools)

    def provides(self, *names: str) -> bool:
        """Whether the chosen tools provide all of these files of a cell, by names of tools.PROVIDED."""
        return set(names) <= set(self.provided)

    def pattern(self, name: str) -> str:
        """The file of one name of tools.PROVIDED, with wildcards: of the chosen tools, else of any tool."""
        known = self.provided
        if name not in known:
            others = [tool for tool in reversed(tools.names()) if tool != tools.BASELINE]
            known = run_checked(patterns.provided_files_by_tool, self.config, others)
        return f"<results>/{{model}}/{known[name][1]}"

    def provided_files(self, name: str, *with_others: str) -> list[str]:
        """The files of one name of tools.PROVIDED, of all selected cells that there are; none if no tool provides it.

        with_others: further such names; cells count whose part of the tools that provide them is there as well.
        """
        if not self.provides(name, *with_others):
            return []
        known = self.provided
        needed = [known[one][0] for one in (name, *with_others)]
        return self.cell_files(f"<results>/{{model}}/{known[name][1]}", *needed)

    def path(self, file: str) -> Path:
        """A file of the rules where it is: `<results>` stands for the folder of results."""
        return Path(file.replace("<results>", self.results))

    def makeable(self, files: Iterable[str]) -> list[str]:
        """Those of the files that can be made, as far as is known."""
        return [file for file in files if file.replace("<results>", self.results) not in self.lost]

    def can_make_tables(self, *names: str) -> bool:
        """Whether the tables across the zoo of these names can be made."""
        return len(self.makeable(f"<results>/tables/{name}.csv" for name in names)) == len(names)

    def cell_files(self, pattern: str, *needed: str) -> list[str]:
        """The files that a pattern names for all selected cells that there are, with the parts of the needed tools.

        pattern: with {model} and {phase} in it.
        """
        found = [cell for cell in self.cells if {*self.available[cell]} >= {tools.BASELINE, *needed}]
        return self.makeable(pattern.format(model=model, phase=phase) for model, phase in found)

    def provided_file(self, wildcards: Wildcards, name: str) -> str | None:
        """The file of one name of tools.PROVIDED of a job's cell; None where no tool of the cell provides it."""
        tool, pattern = self.provided.get(name, ("", ""))
        if tool not in self.tools_of(wildcards.model, wildcards.phase):
            return None
        return f"<results>/{wildcards.model}/{pattern.format(phase=wildcards.phase)}"

    def tools_of(self, model: str, phase: str) -> Collection[str]:
        """The tools whose part of a cell is there, or will be."""
        return self.available.get((model, phase), self.tools)


def file_of_cell(wildcards: Wildcards, ending: str) -> str:
    """The file of a job's cell that ends so."""
    return f"<results>/{wildcards.model}/{wildcards.phase}{ending}"
