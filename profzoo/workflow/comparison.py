"""Names the input and output files of a comparison of two or more sides."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from profzoo import tools
from profzoo.compare import sides
from profzoo.compare.counter_quantities import are_counted
from profzoo.compare.sides import Side
from profzoo.workflow.selection import NUMBERS, Cell, Selection

# End of the name of a cell's launches under ncu, of its default section set.
COUNTED = ".ncu.csv"
# Pattern of a side's baseline, timed in separate processes.
STEPS = f"{{phase}}.{tools.BASELINE}.csv"


@dataclass(frozen=True)
class Comparison:
    """Inputs of the rules that compare sides."""

    selection: Selection

    def side_files(self, side: Side, pattern: str) -> list[str]:
        """File of each compared cell on one side; pattern: path below the model's folder, with {phase}."""
        home = side.folder or "<results>"
        return [f"{home}/{side.of(model)}/{pattern.format(phase=phase)}" for model, phase in self.selection.compared]

    def patterns(self, **names: str) -> dict[str, str]:
        """Patterns of files that a chosen tool provides, by names of a script's inputs; names: of tools.PROVIDED."""
        known = self.selection.provided
        return {key: known[name][1] for key, name in names.items() if name in known}

    def times(self) -> dict[str, list[str]]:
        """Step times of all compared cells, by the script's input names; sides ran in turn, or each by itself."""
        known = self.selection.sides
        if sides.runs_in_turn(known):
            pattern = f"<results>/{{}}/{{}}.{sides.name_sides(known)}.rounds.csv"
            return {"turns": [pattern.format(model, phase) for model, phase in self.selection.compared]}
        return {f"side_{place}": self.side_files(side, STEPS) for place, side in enumerate(known)}

    def parts(self) -> dict[str, list[str]]:
        """Files of the tools for each side of a comparison, by the script's input names."""
        known = self.selection.provides("launch_times", "steps")
        traced = self.patterns(kernels="launch_times", steps="steps") if known else {}
        found = {
            f"{what}_{at}": self.side_files(side, pattern)
            for what, pattern in traced.items()
            for at, side in enumerate(self.selection.sides)
        }
        return found | self.existing_files(self.patterns(layers="layers"))

    def energies(self) -> dict[str, list[str]]:
        """NVML samples of each side, by the script's input names; empty if no chosen tool samples NVML."""
        return self.existing_files(self.patterns(sampled="samples"))

    def existing_files(self, patterns: Mapping[str, str]) -> dict[str, list[str]]:
        """Existing files of each side, by pattern name and the side's index; a folder may lack some files."""
        return {
            f"{what}_{place}": [
                path for path in self.side_files(side, pattern) if not side.folder or Path(path).exists()
            ]
            for what, pattern in patterns.items()
            for place, side in enumerate(self.selection.sides)
        }

    def numbers(self) -> dict[str, list[str]]:
        """What each side computed in repeated steps, by the side's index, where sides did not run in turn.

        A folder may lack some; here they are made, unless nothing is measured or the steps cannot be repeated.
        """
        if sides.runs_in_turn(self.selection.sides):
            return {}
        return {
            f"numbers_{place}": [
                path
                for path, cell in zip(self.side_files(side, NUMBERS), self.selection.compared, strict=True)
                if self.selection.path(path).exists()
                or (not side.folder and self.selection.repeats(side.of(cell[0]), cell[1]))
            ]
            for place, side in enumerate(self.selection.sides)
        }

    def counters(self) -> dict[str, list[str]]:
        """Launches under ncu of each side in this results folder, by the side's index; empty if ncu is not chosen."""
        return {
            f"counters_{place}": self.side_files(side, pattern)
            for pattern in self.patterns(counters="counters").values()
            for place, side in enumerate(self.selection.sides)
            if not side.folder
        }

    def counted_files(self) -> dict[str, list[list[str]]]:
        """Launches under ncu of cells that exist already, each with its digest, by name of sides without an input.

        Where ncu is not chosen, a comparison reads counters that exist, and makes none: that takes minutes.
        """
        made = self.counters()
        return {
            side.name: [
                [str(path), hashlib.sha256(path.read_bytes()).hexdigest()]
                for path in self._counted_paths(side)
                if _has_counters(path)
            ]
            for place, side in enumerate(self.selection.sides)
            if f"counters_{place}" not in made
        }

    def is_counted(self) -> bool:
        """Whether counters of any compared cell exist, or will be made, on two sides."""
        made = self.counters()
        known = [
            [f"counters_{place}" in made or _has_counters(path) for path in self._counted_paths(side)]
            for place, side in enumerate(self.selection.sides)
        ]
        return any(sum(cell) > 1 for cell in zip(*known, strict=True))

    def _counted_paths(self, side: Side) -> list[Path]:
        """Launches under ncu of each compared cell on one side, whether they exist or not."""
        return [self.selection.path(file) for file in self.side_files(side, f"{{phase}}{COUNTED}")]

    def tables(self) -> dict[str, str]:
        """Tables of the comparison by name: outcomes, parts of differences, counters; empty without a comparison."""
        attributed = ["compare_parts"] if {"steps", "layers"} & {*self.selection.provided} else []
        attributed += ["compare_counters"] if self.is_counted() else []
        names = ["compare", *attributed] if self.selection.compared else []
        return {
            name: f"<results>/tables/{name}.csv" for name in names if self.selection.can_make_tables("compare", name)
        }

    def latency_tables(self) -> list[str]:
        """The table of percentiles of each side's steps, if cells are compared and it can be made."""
        files = ["<results>/tables/compare_latency.csv"] if self.selection.compared else []
        return self.selection.makeable(files)

    def measured_cells(self) -> list[Cell]:
        """Compared cells whose step times exist on all sides, and launches too if a chosen tool times them."""
        timed = self.patterns(kernels="launch_times").values()
        launches = [self.side_files(side, pattern) for pattern in timed for side in self.selection.sides]
        rows = zip(self.selection.compared, *self.times().values(), *launches, strict=True)
        return [cell for cell, *files in rows if all(self.selection.path(file).exists() for file in files)]


def _has_counters(path: Path) -> bool:
    """Return whether a table of ncu's launches exists and has counters that are compared, by its first line."""
    if not path.exists():
        return False
    with path.open(encoding="utf-8", errors="replace") as file:
        return are_counted(file.readline().rstrip().split(","))
