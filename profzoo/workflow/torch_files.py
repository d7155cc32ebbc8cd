"""Names the inputs of rules about what torch.profiler leaves besides its last cycle."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from profzoo.cell.config_types import Config
from profzoo.errors import ConfigError
from profzoo.range_names import IMPORTED
from profzoo.tools.torch import TOOL, files
from profzoo.workflow.selection import Wildcards
from profzoo.workflow.user_errors import run_checked

MORE, TRACE = "<results>/{model}/{phase}.torch-more", "<results>/{model}/{phase}.trace.json.gz"


@dataclass(frozen=True)
class TorchFiles:
    """Inputs that depend on the configuration of torch.profiler; methods that return functions serve as `input`."""

    config: Config

    @property
    def own(self) -> Mapping[str, Any]:
        """The configuration of torch.profiler."""
        return self.config[TOOL]

    def require_cycles(self) -> Callable[[Wildcards], str]:
        """Make an input function for the folder of earlier cycles; with one cycle, it ends the run in one line."""
        return self._requires("repeat", self.own["repeat"] > 1, "2 or more")

    def require_snapshot(self) -> Callable[[Wildcards], str]:
        """Make an input function for the folder with the snapshot; it ends the run in one line if there is none."""
        return self._requires("snapshot", self.own["snapshot"], "true")

    def require_memory(self) -> Callable[[Wildcards], str]:
        """Make an input function for a trace with memory; it ends the run in one line if none will be recorded.

        What an imported trace holds, or one that was recorded before (`collect=false`), is seen when it is read.
        """
        recorded = self._requires("memory", self.own["memory"] or not self.config["collect"], "true", TRACE)
        return lambda wildcards: _fill(wildcards, TRACE) if wildcards.phase == IMPORTED else recorded(wildcards)

    def list_earlier_cycles(self, wildcards: Wildcards) -> list[str]:
        """Folder of earlier cycles; empty if there is one cycle, and for an imported trace."""
        return [_fill(wildcards)] if self.own["repeat"] > 1 and wildcards.phase != IMPORTED else []

    def further_outputs(self, directory: Callable[[str], Any]) -> dict[str, Any]:
        """Outputs of the profiling rules for what the settings leave besides the last cycle.

        directory: Snakemake's function that marks a folder.
        """
        return {"more": directory(MORE)} if files.leaves_more(self.own) else {}

    def _requires(self, setting: str, given: bool, needed: str, path: str = MORE) -> Callable[[Wildcards], str]:
        def found(wildcards: Wildcards) -> str:
            if not given:
                run_checked(_refuse, wildcards, setting, needed)
            return _fill(wildcards, path)

        return found


def _fill(wildcards: Wildcards, path: str = MORE) -> str:
    return path.format(model=wildcards.model, phase=wildcards.phase)


def _refuse(wildcards: Wildcards, setting: str, needed: str) -> None:
    raise ConfigError(f"{wildcards.model} {wildcards.phase}: this file needs torch.{setting}: set it to {needed}")
