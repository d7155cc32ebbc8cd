"""Names the source files whose change runs jobs again: scripts and modules of the project, and models."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import import_graph
from profzoo.cell import programs, settings
from profzoo.cell.config_types import Config
from profzoo.workflow.selection import Wildcards
from profzoo.workflow.user_errors import run_checked


@dataclass(frozen=True)
class SourceFiles:
    """Source files as inputs of rules.

    main: whether Snakemake was started with this workflow; False if another workflow uses it as a module. local:
    Snakemake's function that marks a path as exempt from a module's prefix.
    """

    config: Config
    main: bool
    local: Callable[[str], Any]

    def of_code(self, *paths: str | Path) -> list[Any]:
        """Scripts or modules with all modules they import, as inputs; Snakemake itself ignores imports."""
        return self.name_inputs(import_graph.files_of(*map(import_graph.place, paths)))

    def of_model(self, wildcards: Wildcards) -> list[Any]:
        """Files of a model whose change runs its collecting jobs again."""
        name, _ = settings.split_variant(wildcards.model)
        program = run_checked(programs.find_program, name, self.config["settings"].get(name, {}))
        return self.name_inputs(run_checked(programs.source_files, program))

    def name_inputs(self, files: Iterable[Path]) -> list[Any]:
        """Files of the workflow as inputs: relative, so that a checkout can be moved."""
        paths = map(os.path.relpath, files)
        # A module's prefix applies to its outputs only.
        return list(paths) if self.main else list(map(self.local, paths))
