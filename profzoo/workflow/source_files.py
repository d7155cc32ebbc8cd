"""Names the source files that jobs are run again for: of the project's scripts and modules, and of models."""

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

    main: whether this is the workflow that Snakemake was started with, and no module of another one. local:
    Snakemake's, which marks a path as one that the prefix of a module is not for.
    """

    config: Config
    main: bool
    local: Callable[[str], Any]

    def of_code(self, *paths: str | Path) -> list[Any]:
        """What scripts or modules are made of, as inputs: Snakemake itself does not look at what they import."""
        return self.name_inputs(import_graph.files_of(*map(import_graph.place, paths)))

    def of_model(self, wildcards: Wildcards) -> list[Any]:
        """The files of a model whose change means that its cells have to be collected again."""
        name, _ = settings.split_variant(wildcards.model)
        program = run_checked(programs.find_program, name, self.config["settings"].get(name, {}))
        return self.name_inputs(run_checked(programs.source_files, program))

    def name_inputs(self, files: Iterable[Path]) -> list[Any]:
        """Files of the workflow as inputs: relative, so that a checkout can be moved."""
        paths = map(os.path.relpath, files)
        # The prefix of a module is for what it makes.
        return list(paths) if self.main else list(map(self.local, paths))
