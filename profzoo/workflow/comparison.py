"""Names the files that a comparison of two or more sides takes and makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from profzoo.compare import sides
from profzoo.compare.sides import Side
from profzoo.workflow.selection import Cell, Selection


@dataclass(frozen=True)
class Comparison:
    """Inputs of the rules that compare."""

    selection: Selection

    def side_files(self, side: Side, ending: str) -> list[str]:
        """The file of each compared cell on one side that ends so."""
        home = side.folder or "<results>"
        return [f"{home}/{side.of(model)}/{phase}.{ending}" for model, phase in self.selection.compared]

    def times(self) -> dict[str, list[str]]:
        """The steps of all compared cells, by the names of a script's inputs: of sides in turn, or of each apart."""
        known = self.selection.sides
        if sides.runs_in_turn(known):
            pattern = f"<results>/{{}}/{{}}.{sides.name_sides(known)}.rounds.csv"
            return {"turns": [pattern.format(model, phase) for model, phase in self.selection.compared]}
        return {f"side_{place}": self.side_files(side, "time.csv") for place, side in enumerate(known)}

    def parts(self) -> dict[str, list[str]]:
        """What tools saw of each side of a comparison, by the names of a script's inputs."""
        endings = {"kernels": "nsys.csv", "steps": "nsys-steps.csv"} if self.selection.has("nsys") else {}
        found = {
            f"{what}_{at}": self.side_files(side, ending)
            for what, ending in endings.items()
            for at, side in enumerate(self.selection.sides)
        }
        return found | (self.existing_files({"layers": "layers.csv"}) if self.selection.has("torch") else {})

    def energies(self) -> dict[str, list[str]]:
        """The samples of NVML's counters on each side, by the names of a script's inputs, where that tool is chosen."""
        return self.existing_files({"sampled": "sample.csv"}) if self.selection.has("sample") else {}

    def existing_files(self, endings: Mapping[str, str]) -> dict[str, list[str]]:
        """The files of each side with these endings, by name and place of the side; a folder may lack any of them."""
        return {
            f"{what}_{place}": [
                path for path in self.side_files(side, ending) if not side.folder or Path(path).exists()
            ]
            for what, ending in endings.items()
            for place, side in enumerate(self.selection.sides)
        }

    def tables(self) -> dict[str, str]:
        """The tables of the comparison by name, where there is one: its verdicts, and where the differences lie."""
        attributed = ["compare_parts"] if {"nsys", "torch"} & set(self.selection.tools) else []
        names = ["compare", *attributed] if self.selection.compared else []
        return {
            name: f"<results>/tables/{name}.csv" for name in names if self.selection.can_make_tables("compare", name)
        }

    def measured_cells(self) -> list[Cell]:
        """The compared cells whose steps, and what nsys saw where it was chosen, are there on all sides."""
        of_nsys = [self.side_files(side, "nsys.csv") for side in self.selection.sides if self.selection.has("nsys")]
        rows = zip(self.selection.compared, *self.times().values(), *of_nsys, strict=True)
        return [cell for cell, *files in rows if all(self.selection.path(file).exists() for file in files)]
