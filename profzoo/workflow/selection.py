"""Describes a run: its configuration, the selected cells and tools, and the existing measurements."""

import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo import extensions, tools
from profzoo.cell import registry, settings
from profzoo.cell.config_types import Config
from profzoo.cell.process_count import process_count
from profzoo.compare.sides import Side
from profzoo.errors import run_checked
from profzoo.records import import_graph
from profzoo.workflow import patterns

# A model, perhaps with a variant, and a phase.
Cell = tuple[str, str]
# Argument of Snakemake's input functions: an object with the value of each wildcard of the rule by its name.
Wildcards = Any
# Pattern of what a cell computed in repeated steps.
NUMBERS = "{phase}.numerics.json"


@dataclass(frozen=True)
class Selection:
    """Configuration, cells and tools of a run.

    Attributes:
        config: the configuration, checked and complete.
        cells: (model, phase) of each selected cell.
        tools: the chosen tools, without the unprofiled baseline.
        available: tools, including the baseline, whose measurement exists or will be made, by cell.
        results: the results folder, `<results>` in rules.
        lost: files that cannot be made, as an earlier run found out.
        sides: the sides of a comparison; empty without a comparison.
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
    _files: dict[tuple[str, ...], list[str]] = field(init=False, repr=False, compare=False, default_factory=dict)

    @functools.cached_property
    def provided(self) -> Mapping[str, tuple[str, str]]:
        """Tool and pattern of each file that the chosen tools provide for a cell, by names of tools.PROVIDED."""
        return run_checked(patterns.provided_files_by_tool, self.config, self.tools)

    def provides(self, *names: str) -> bool:
        """Whether the chosen tools provide all these files for a cell; names: keys of tools.PROVIDED."""
        return set(names) <= set(self.provided)

    def pattern(self, name: str) -> str:
        """Pattern, with wildcards, of a file from the chosen tools, else from any tool; name: key of tools.PROVIDED."""
        known = self.provided
        if name not in known:
            others = [tool for tool in reversed(tools.names()) if tool != tools.BASELINE]
            known = run_checked(patterns.provided_files_by_tool, self.config, others)
        return f"<results>/{{model}}/{known[name][1]}"

    def provided_files(self, name: str, *with_others: str) -> list[str]:
        """Files of all available cells for a key of tools.PROVIDED; empty if no tool provides it.

        with_others: further keys; only cells with measurements of the tools that provide these count.
        """
        if not self.provides(name, *with_others):
            return []
        known = self.provided
        needed = [known[one][0] for one in (name, *with_others)]
        return self.cell_files(f"<results>/{{model}}/{known[name][1]}", *needed)

    def path(self, file: str) -> Path:
        """Path of a file in rules, where `<results>` stands for the results folder."""
        return Path(file.replace("<results>", self.results))

    def makeable(self, files: Iterable[str]) -> list[str]:
        """Files of the given ones that can be made, as far as is known."""
        if not self.lost:
            return list(files)
        return [file for file in files if file.replace("<results>", self.results) not in self.lost]

    def can_make_tables(self, *names: str) -> bool:
        """Whether the tables across the zoo with these names can be made."""
        return len(self.makeable(f"<results>/tables/{name}.csv" for name in names)) == len(names)

    def cell_files(self, pattern: str, *needed: str) -> list[str]:
        """Files of all available cells that have measurements of the needed tools.

        pattern: path with {model} and {phase}.
        """
        # Input functions of every job ask for the same.
        if (pattern, *needed) not in self._files:
            wanted = {tools.BASELINE, *needed}
            found = [cell for cell in self.cells if wanted.issubset(self.available[cell])]
            files = self.makeable(pattern.format(model=model, phase=phase) for model, phase in found)
            self._files[pattern, *needed] = files
        return list(self._files[pattern, *needed])

    def provided_file(self, wildcards: Wildcards, name: str) -> str | None:
        """File of a job's cell for a key of tools.PROVIDED; None if no tool of the cell provides it."""
        tool, pattern = self.provided.get(name, ("", ""))
        if tool not in self.tools_of(wildcards.model, wildcards.phase):
            return None
        return f"<results>/{wildcards.model}/{pattern.format(phase=wildcards.phase)}"

    def repeats(self, model: str, phase: str) -> bool:
        """Whether the first steps of a cell can be repeated here: of one process that is no script's."""
        cell = run_checked(settings.resolve_cell, model, phase, tools.BASELINE, self.config)
        return self.config["collect"] and "command" not in cell and process_count(cell) == 1

    def tools_of(self, model: str, phase: str) -> Collection[str]:
        """Tools whose measurement of a cell exists or will be made."""
        return self.available.get((model, phase), self.tools)


def file_of_cell(wildcards: Wildcards, ending: str) -> str:
    """Path of a file of a job's cell, from the file name's ending."""
    return f"<results>/{wildcards.model}/{wildcards.phase}{ending}"


# Names the source files whose change runs jobs again: scripts and modules of the project, and models.


@dataclass(frozen=True)
class SourceFiles:
    """Source files as inputs of rules.

    main: whether Snakemake was started with this workflow; False if another workflow uses it as a module. local:
    Snakemake's function that marks a path as exempt from a module's prefix.
    """

    config: Config
    main: bool
    local: Callable[[str], Any]
    _of_models: dict[str, list[Any]] = field(default_factory=dict)

    def of_code(self, *paths: str | Path) -> list[Any]:
        """Scripts or modules of the project as inputs, and where extensions are in use, all that they import.

        What they import of the project, records find themselves (`import_graph.files_of_inputs`): Snakemake would spend
        most of its time on such inputs.
        """
        own = map(import_graph.place, paths)
        return self.name_inputs(
            import_graph.files_of(*own) if extensions.folders() else map(import_graph.PROJECT.joinpath, own)
        )

    def of_model(self, wildcards: Wildcards) -> list[Any]:
        """Files of a model whose change runs its collecting jobs again, and the modules by which the harness starts."""
        name, _ = settings.split_variant(wildcards.model)
        if name not in self._of_models:
            program = run_checked(registry.find_program, name, self.config["settings"].get(name, {}))
            self._of_models[name] = self.name_inputs(run_checked(registry.entry_files, program))
        return list(self._of_models[name])

    def name_inputs(self, files: Iterable[Path]) -> list[Any]:
        """Files of the workflow as inputs: relative, so that a checkout can be moved."""
        paths = map(os.path.relpath, files)
        # A module's prefix applies to its outputs only.
        return list(paths) if self.main else list(map(self.local, paths))
