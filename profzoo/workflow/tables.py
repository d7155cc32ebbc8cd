"""Names the inputs of the tables across the zoo, and the files that `all` makes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.range_names import IMPORTED
from profzoo.tables.table_descriptions import DESCRIPTIONS
from profzoo.tools.ncu import census as ncu_census
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu.files import COUNTED
from profzoo.workflow import imported, patterns
from profzoo.workflow.section_sets import SectionSets
from profzoo.workflow.selection import Selection, Wildcards, file_of_cell

NCU_COUNTS = {"ncu", "ncu_sidecar", COUNTED}


@dataclass(frozen=True)
class Tables:
    """Inputs of the rules that tabulate, by the names that their scripts have for them."""

    selection: Selection
    section_sets: SectionSets

    def pattern(self, name: str) -> str:
        """The file of a cell that tables know by this name, with wildcards for the cell."""
        return f"<results>/{{model}}/{patterns.table_patterns(self.selection.config, self.selection.tools)[name]}"

    def timing_sidecars(self) -> list[str]:
        """The sidecars of the unprofiled runs of all selected cells."""
        return self.selection.cell_files(self.pattern("time_sidecar"))

    def inputs(self) -> dict[str, list[str]]:
        """The inputs of the tables, by tool, each with its sidecars in the same order."""
        config, chosen = self.selection.config, self.selection.tools
        known = patterns.table_patterns_by_tool(config, chosen)
        files = {
            key: self.selection.cell_files(f"<results>/{{model}}/{pattern}", tool)
            for key, (tool, pattern) in known.items()
        }
        # ncu's launches of an import may be few of those that nsys saw: they are no count of them.
        for key in NCU_COUNTS & set(files):
            files[key] = [path for path in files[key] if not self._is_timed_import(path)]
        if self.selection.has("ncu", "nsys") and self._has_counters_of_launches():
            covered = f"<results>/{{model}}/{{phase}}.ncu.{config['ncu']['set']}.coverage.csv"
            files["coverage"] = self.selection.cell_files(covered, "ncu", "nsys")
        return files | {"ranks": self.rank_tables()}

    def _is_timed_import(self, path: str) -> bool:
        """Whether a file is of a cell that was made elsewhere, and whose times other tools tell than ncu."""
        cell = Path(path).parent.name, Path(path).name.partition(".")[0]
        return cell[1] == IMPORTED and "nsys" in self.selection.tools_of(*cell)

    def verdict_inputs(self) -> dict[str, str | list[str]]:
        """What verdicts go by besides times: ncu's advice; where the default set has them, counters held against peaks.

        A set that measures ranges has neither for kernels.
        """
        config = self.selection.config
        if not self.selection.has("ncu") or not self._has_counters_of_launches():
            return {}
        advice: dict[str, str | list[str]] = {
            "details": self.selection.cell_files("<results>/{model}/{phase}.ncu-details.csv", "ncu"),
            "launches": self.selection.cell_files("<results>/{model}/{phase}.ncu.csv", "ncu"),
        }
        peaks = f"<results>/peaks/{config['gpu']}.csv"
        files = [f"{peaks}{end}" for end in ("", ".json")]
        # Peaks of the GPU here say nothing of what ran elsewhere.
        measured = config["collect"] and bool(imported.measured_cells(self.selection.cells))
        known = measured or all(self.selection.path(file).exists() for file in files)
        known = known and self.selection.can_make_tables("roofline") and self.selection.makeable(files) == files
        if config["ncu"]["set"] == ncu.CENSUS or not self.selection.has("nsys") or not known:
            return advice
        return advice | {"roofline": "<results>/tables/roofline.csv", "peaks": peaks}

    def layer_inputs(self, wildcards: Wildcards) -> dict[str, Any]:
        """What other tools than torch say of a cell's launches, by the names of a script's inputs."""
        chosen = self.selection.tools_of(wildcards.model, wildcards.phase)
        own, found = self.selection.config["ncu"], dict[str, Any]()
        if "nsys" in chosen:
            found |= {
                "nsys": file_of_cell(wildcards, ".nsys.sqlite"),
                "nsys_sidecar": file_of_cell(wildcards, ".nsys-rep.json"),
            }
        if "ncu" in chosen and own["set"] in ncu.launch_sets(own) and wildcards.phase != IMPORTED:
            by_ncu = self.section_sets.is_counted_by_ncu(wildcards)
            found |= {
                "census": file_of_cell(wildcards, ncu_census.census_csv_name(by_ncu)),
                "sets": self.section_sets.joined_sets(wildcards),
            }
        return found | {name: path for name, path in self.verdict_inputs().items() if name == "peaks"}

    def layer_verdict_inputs(self) -> dict[str, list[str]]:
        """What verdicts on layers go by, where torch and nsys were chosen: kernels by owner, trees of modules."""
        if not self.selection.has("torch", "nsys"):
            return {}
        files = {"owned": "layer-kernels", "trees": "layers"}
        pattern = "<results>/{{model}}/{{phase}}.{}.csv"
        return {
            name: self.selection.cell_files(pattern.format(ending), "torch", "nsys") for name, ending in files.items()
        }

    def operator_verdict_inputs(self) -> dict[str, list[str]]:
        """What verdicts on cells that ran on a CPU go by, where the tool is chosen that sees their operators."""
        operators = "<results>/{model}/{phase}.operators.csv"
        return {"operators": self.selection.cell_files(operators, "torch")} if self.selection.has("torch") else {}

    def replay_verdict_inputs(self) -> dict[str, list[str]]:
        """The programs that expected gains are simulated with, where the tool is chosen that traces them."""
        return {"programs": self.traced_files("program.npz")} if self.selection.has("nsys") else {}

    def traced_files(self, ending: str) -> list[str]:
        """What is made of the trace of each cell; of results that were copied, where that or the trace came along."""
        run, ends = self.selection, (ending, "nsys.sqlite")
        return run.makeable(
            f"<results>/{model}/{phase}.{ending}"
            for model, phase in run.cells
            if {*run.available[model, phase]} >= {tools.BASELINE, "nsys"}
            and (run.config["collect"] or any(Path(run.results, model, f"{phase}.{end}").exists() for end in ends))
        )

    def rank_tables(self) -> list[str]:
        """The table of the processes of cells on several GPUs, where such are chosen and traced."""
        known = self.rank_inputs() and self.selection.can_make_tables("ranks")
        return ["<results>/tables/ranks.csv"] if known else []

    def rank_inputs(self) -> list[str]:
        """The processes of each cell on several GPUs, where such are chosen and traced."""
        if not self.selection.has("nsys"):
            return []
        traced = map(Path, self.selection.cell_files("<results>/{model}/{phase}.ranks.csv", "nsys"))
        return [
            str(path) for path in traced if path.parent.name in self.selection.spread and path.name.startswith("train.")
        ]

    def layer_tables(self) -> list[str]:
        """The tables of layers across the zoo, where the tool is chosen that tells them apart."""
        known = self.selection.has("torch") and self.selection.can_make_tables("layers")
        return ["<results>/tables/layers.csv", "<results>/tables/owners.csv"] if known else []

    def replay_tables(self) -> list[str]:
        """The tables of replayed steps across the zoo, where the tool is chosen that traces them."""
        known = self.selection.has("nsys") and self.selection.can_make_tables("replay")
        return ["<results>/tables/replay.csv", "<results>/tables/host.csv"] if known else []

    def exports(self) -> list[str]:
        """The baseline, and what is exported for every selected cell under every chosen tool."""
        found = [
            path
            for tool, pattern in patterns.exported_patterns(self.selection.config, self.selection.tools)
            for path in self.selection.cell_files(f"<results>/{{model}}/{pattern}", tool)
            if not imported.needs_program(path, self.selection.config)
        ]
        return self.rank_tables() + self.layer_tables() + self.replay_tables() + found

    def everything(self) -> list[str]:
        """What `all` makes: that, and the report with all that it shows."""
        return [*self.exports(), "<results>/report.html"]

    def _has_counters_of_launches(self) -> bool:
        """Whether ncu's default section set measures launches, not ranges."""
        own = self.selection.config["ncu"]
        return own["set"] in ncu.launch_sets(own)


def label_table(report: Callable[..., Any], name: str) -> Any:
    """A table across the zoo as an output that Snakemake's own report carries; report: Snakemake's mark of such."""
    _, row = DESCRIPTIONS[name]
    labels = {"table": name, "a row": row}
    return report(f"<results>/tables/{name}.csv", category="Tables", caption="../report/table.rst", labels=labels)
