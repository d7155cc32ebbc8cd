"""Names the reports that rules import, and the cells and tools that these reports provide."""

import gzip
import json
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.collect import partial_report
from profzoo.config import imported_reports
from profzoo.range_names import IMPORTED
from profzoo.records import digests
from profzoo.script_harness import recorded_files
from profzoo.workflow import patterns
from profzoo.workflow.comparison import Comparison
from profzoo.workflow.selection import Cell, Selection, Wildcards, file_of_cell

# Stands in for the digest of an imported file that was removed.
GONE = "gone"
# Bytes at a file's beginning that contain the heading of its first table.
BEGIN, GZIP = 1 << 16, b"\x1f\x8b"


@dataclass(frozen=True)
class Imports:
    """Reports that the configuration imports.

    results: the results folder, `<results>` in rules.
    """

    config: Mapping[str, Any]
    results: str = "results"

    def files(self, tool: str) -> Callable[[Wildcards], list[str]]:
        """Make a params function that returns a model's files for a tool."""
        return lambda wildcards: self._files(wildcards.model).get(tool, [])

    def digests(self, tool: str) -> Callable[[Wildcards], list[str]]:
        """Make a params function that returns digests of these files; a changed file runs the job again."""
        return lambda wildcards: self._digests(wildcards.model, tool)

    def step(self, wildcards: Wildcards) -> str | None:
        """Name of the ranges that mark a model's steps; None to search for them."""
        name: str | None = self.config["imported"].get(wildcards.model, {}).get("step")
        return name

    def sidecars(self, wildcards: Wildcards) -> list[str]:
        """Sidecars that contain a model's number of steps, the most reliable first."""
        names = {"nsys": ".nsys-rep.json", "torch": ".trace.json.gz.json"}
        names["ncu"] = f".{self.config['ncu']['set']}.ncu-rep.json"
        return [file_of_cell(wildcards, names[tool]) for tool in self._files(wildcards.model)]

    def trace(self, wildcards: Wildcards) -> list[str]:
        """Trace or summary by nsys or torch that names the kernels of a model's ncu reports, if there is one."""
        # Not the exported table of a trace: its group of jobs itself needs the counters of ncu.
        files = self._files(wildcards.model).get("nsys", [])
        ending = ".nsys.csv" if files and _is_summary(files[0]) else ".nsys.sqlite"
        traced = "nsys" in imported_tools(self.config["imported"][wildcards.model])
        return [file_of_cell(wildcards, ending)] if traced else []

    def owned_launches(self, wildcards: Wildcards) -> list[str]:
        """Launches of an imported model with their operators, if it has a trace of torch.profiler."""
        # A measured cell keeps its table of kernels where the profiler that knows operators failed.
        of_torch = wildcards.phase == IMPORTED and "torch" in self._files(wildcards.model)
        return [file_of_cell(wildcards, ".torch.launches.csv")] if of_torch else []

    def models(self) -> str:
        """A regular expression that matches the names of imported models."""
        return "|".join(self.config["imported"]) or "no_model"

    def with_tool(self, tool: str) -> dict[str, str]:
        """Constraints of a rule that imports the reports of a tool."""
        return {"model": "|".join(self.tools_by_model(tool)) or "no_model", "phase": IMPORTED}

    def with_torch_alone(self) -> dict[str, str]:
        """Constraints of the rule that derives nsys' tables from a trace of torch.profiler."""
        return {"model": "|".join(self.torch_alone()) or "no_model", "phase": IMPORTED}

    def torch_alone(self) -> list[str]:
        """Imported models with a trace of torch.profiler and no report of nsys."""
        traced = set(self.tools_by_model("nsys"))
        return [name for name in self.tools_by_model("torch") if name not in traced]

    def recorded(self) -> dict[str, str]:
        """Constraints of the same rule for models that programs have recorded of themselves."""
        of_scripts = {name: (own or {}).get("command", "") for name, own in self.config["settings"].items()}
        names = [name for name, command in of_scripts.items() if recorded_files.find_folder(str(command or ""))]
        return {"model": "|".join(names) or "no_model", **patterns.MEASURED}

    def with_summary(self) -> dict[str, str]:
        """Constraints of the rule that imports kernel summaries."""
        return {"model": "|".join(self.summaries()) or "no_model", "phase": IMPORTED}

    def summaries(self) -> list[str]:
        """Imported models with a summary of kernels by nsys."""
        return [name for name in self.tools_by_model("nsys") if _is_summary(self._files(name)["nsys"][0])]

    def tools_by_model(self, tool: str) -> list[str]:
        """Imported models with reports of a tool."""
        return [name for name in self.config["imported"] if tool in self._files(name)]

    def counted(self) -> list[str]:
        """Imported models with reports of a tool that counts."""
        return [model for tool in tools.that(tools.COUNT) for model in self.tools_by_model(tool)]

    def _digests(self, model: str, tool: str) -> list[str]:
        """Digests of a model's files; for a removed file, its digest at the time of the import."""
        told: dict[str, str] = {}
        for path in sorted(Path(self.results, model).glob(f"{IMPORTED}.*.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                about = json.loads(path.read_text(encoding="utf-8"))["imported"]
                told |= {one["file"]: one["sha256"] for one in about["files"]}
        files = self._files(model).get(tool, [])
        return [digests.compute_digest(Path(file)) if Path(file).exists() else told.get(file, GONE) for file in files]

    def _files(self, model: str) -> dict[str, list[str]]:
        return imported_reports.files_of(self.config["imported"].get(model, {}))


def available_tools(
    cells: Iterable[Cell], chosen: Sequence[str], config: Mapping[str, Any]
) -> dict[Cell, frozenset[str]]:
    """Return the tools, including the baseline, whose measurement of each cell will exist.

    chosen: tools by which the configuration measures.
    """
    measured = frozenset((tools.BASELINE, *chosen))
    return {
        (model, phase): frozenset((tools.BASELINE, *imported_tools(config["imported"][model])))
        if phase == IMPORTED
        else measured
        for model, phase in cells
    }


def imported_tools(entry: Mapping[str, Any]) -> set[str]:
    """Return the tools that an entry of `imported` stands for; a trace of torch.profiler stands for nsys too.

    >>> sorted(imported_tools({"torch": "rank0.json.gz"}))
    ['nsys', 'torch']
    """
    given = set(imported_reports.files_of(entry))
    return given | ({"nsys"} if "torch" in given else set())


def chosen_tools(available: Mapping[Cell, Iterable[str]], chosen: Sequence[str]) -> list[str]:
    """Return the tools that any of the cells has, without the baseline; chosen tools come first."""
    found = {tool for names in available.values() for tool in names}
    return [name for name in dict.fromkeys([*chosen, *tools.names()]) if name in found and name != tools.BASELINE]


def imported_cells(cells: Iterable[Cell]) -> list[Cell]:
    """Return the imported cells."""
    return [(model, phase) for model, phase in cells if phase == IMPORTED]


def measured_cells(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that this workflow measures."""
    return [(model, phase) for model, phase in cells if phase != IMPORTED]


def imported_files(selection: Selection, exports: Iterable[str]) -> list[str]:
    """Return the exported files of imported cells, and the report where all selected cells are imported."""
    names = {f"<results>/{model}/" for model, _ in imported_cells(selection.cells)}
    own = [path for path in exports if path.rpartition("/")[0] + "/" in names]
    return own + ([] if measured_cells(selection.cells) else ["<results>/report.html"])


def needs_program(path: str, config: Mapping[str, Any]) -> bool:
    """Whether an exported file of an imported cell needs nsys, which is not installed or has no report of the cell."""
    folder, inside, _ = path.rpartition(f"/{IMPORTED}.nsys/")
    entry = config["imported"].get(folder.rpartition("/")[2], {})
    return bool(inside) and not ("nsys" in imported_reports.files_of(entry) and shutil.which("nsys"))


def _is_summary(file: str) -> bool:
    """Whether a file begins like a kernel summary of `nsys stats`, and not like a GPU trace."""
    try:
        with Path(file).open("rb") as opened:
            packed = opened.read(len(GZIP)) == GZIP
        with gzip.open(file) if packed else Path(file).open("rb") as opened:
            begin = opened.read(BEGIN).replace(b"\0", b"")
    except (OSError, EOFError, zlib.error):
        return False
    return b"Instances" in begin and b"Total Time" in begin and b"GrdX" not in begin


# Finds the existing measurements of a selection if nothing more is collected, for example in copied results.


def find_available(asked: Selection, logs: Path, without: str | None) -> tuple[Selection, list[dict[str, str]]]:
    """The selection without missing measurements, and a row (model, phase, tool, why) for each missing one.

    If the run collects, nothing counts as missing. If no measurement exists at all, the selection stays unchanged, and
    Snakemake names the missing files.

    without: file of the failures of an ended run.
    """
    if asked.config["collect"]:
        return asked, []
    required = patterns.required_files(asked.config, asked.tools)
    found, lacking = partial_report.available_tools(
        asked.cells, required, Path(asked.results), logs, asked.config, without
    )
    lacking = [row for row in lacking if (row["tool"] or tools.BASELINE) in asked.available[row["model"], row["phase"]]]
    run = asked
    if any(tools.BASELINE in one for one in found.values()):
        chosen = [tool for tool in asked.tools if any(tool in one for one in found.values())]
        run = replace(asked, available=found, tools=chosen)
    return replace(run, compared=Comparison(run).measured_cells() or run.compared), lacking
