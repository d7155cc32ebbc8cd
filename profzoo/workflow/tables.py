"""Names the inputs of the tables across the zoo, and the files that `all` makes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.cell import registry, settings
from profzoo.cell.config_types import Config
from profzoo.errors import ConfigError, run_checked
from profzoo.range_names import IMPORTED
from profzoo.tables.table_descriptions import DESCRIPTIONS
from profzoo.tools.ncu import TOOL as NCU
from profzoo.tools.ncu.files import COUNTED
from profzoo.tools.ncu.quantities import CHARTS
from profzoo.tools.nsys import TOOL as NSYS
from profzoo.tools.torch import TOOL, files
from profzoo.workflow import imported, patterns
from profzoo.workflow.section_sets import SectionSets
from profzoo.workflow.selection import NUMBERS, Selection, Wildcards, file_of_cell

# Names the inputs of rules about what torch.profiler leaves besides its last cycle.

INFERS = "inference"
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


# Tables of cells on several GPUs under torch.profiler.
COLLECTIVES = ("collectives", "skew")
# Sidecar of a run whose rule leaves a table of memory too.
TIMED = ".time.csv.json"
NCU_COUNTS = {NCU, f"{NCU}_sidecar", COUNTED}


@dataclass(frozen=True)
class Tables:
    """Inputs of the rules that tabulate, by the input names of their scripts."""

    selection: Selection
    section_sets: SectionSets

    def timing_sidecars(self) -> list[str]:
        """The sidecars of the unprofiled runs of all selected cells."""
        return self.selection.cell_files(self.selection.pattern(f"{tools.BASELINE}_sidecar"))

    def inputs(self) -> dict[str, list[str]]:
        """The inputs of the tables, by tool, each with its sidecars in the same order."""
        config, chosen = self.selection.config, self.selection.tools
        known = patterns.table_patterns_by_tool(config, chosen)
        files = {
            key: self.selection.cell_files(f"<results>/{{model}}/{pattern}", tool)
            for key, (tool, pattern) in known.items()
        }
        # An imported ncu report may hold only some of the launches in the nsys trace, so it does not count them.
        for key in NCU_COUNTS & set(files):
            files[key] = [path for path in files[key] if not self._is_timed_import(path)]
        if self.selection.provides("coverage", "launch_times"):
            files["coverage"] = self.selection.provided_files("coverage", "launch_times")
        return files | {"ranks": self.rank_tables()}

    def _is_timed_import(self, path: str) -> bool:
        """Whether a file belongs to an imported cell whose times come from another tool than ncu."""
        cell = Path(path).parent.name, Path(path).name.partition(".")[0]
        return cell[1] == IMPORTED and NSYS in self.selection.tools_of(*cell)

    def verdict_inputs(self) -> dict[str, str | list[str]]:
        """Inputs of verdicts besides times: ncu's advice, and counters with peaks if the default set has counters.

        A set that measures ranges has neither advice nor counters for kernels.
        """
        config = self.selection.config
        if not self.selection.provides("advice", "advised_launches"):
            return {}
        advice: dict[str, str | list[str]] = {
            "details": self.selection.provided_files("advice"),
            "launches": self.selection.provided_files("advised_launches"),
        }
        peaks = f"<results>/peaks/{config['gpu']}.csv"
        files = [f"{peaks}{end}" for end in ("", ".json")]
        # The peaks of this machine's GPU do not apply to imported cells.
        measured = config["collect"] and bool(imported.measured_cells(self.selection.cells))
        known = measured or all(self.selection.path(file).exists() for file in files)
        known = known and self.selection.can_make_tables("roofline") and self.selection.makeable(files) == files
        if not self.selection.provides("counters", "kernels") or not known:
            return advice
        return advice | {"roofline": "<results>/tables/roofline.csv", "peaks": peaks}

    def layer_inputs(self, wildcards: Wildcards) -> dict[str, str | Sequence[str]]:
        """Files of tools other than torch about a cell's launches, by the script's input names."""
        names = ("trace_database", "trace_database_sidecar")
        files = ((name, self.selection.provided_file(wildcards, name)) for name in names)
        found: dict[str, str | Sequence[str]] = {name: path for name, path in files if path}
        if wildcards.phase != IMPORTED:
            found |= self.section_sets.layer_inputs(wildcards)
        return found | {name: path for name, path in self.verdict_inputs().items() if name == "peaks"}

    def chain_inputs(self, wildcards: Wildcards) -> dict[str, str]:
        """Files from which a cell's chains get launches, steps to simulate, and peaks, by the script's input names."""
        names = ("trace_database", "trace_database_sidecar", "program")
        files = ((name, self.selection.provided_file(wildcards, name)) for name in names)
        peaks = f"<results>/peaks/{self.selection.config['gpu']}.csv"
        known = "peaks" in self.verdict_inputs() or self.selection.path(peaks).exists()
        # The peaks of this machine's GPU do not apply to imported cells.
        own = {"peaks": peaks} if known and wildcards.phase != IMPORTED else {}
        return {name: path for name, path in files if path} | own

    def chain_verdict_inputs(self) -> dict[str, list[str]]:
        """Inputs of verdicts on chains, if tools find and trace them: chains and their kernels."""
        if not self.selection.provides("fusion", "fusion_kernels", "program"):
            return {}
        files = {"chains": "fusion", "chain_kernels": "fusion_kernels"}
        return {key: self.selection.provided_files(name, "program") for key, name in files.items()}

    def layer_verdict_inputs(self) -> dict[str, list[str]]:
        """Inputs of verdicts on layers, if tools attribute and trace launches: kernels by owner, and modules."""
        if not self.selection.provides("layer_kernels", "layers", "launch_times"):
            return {}
        files = {"owned": "layer_kernels", "trees": "layers"}
        return {key: self.selection.provided_files(name, "launch_times") for key, name in files.items()}

    def operator_verdict_inputs(self) -> dict[str, list[str]]:
        """Inputs of verdicts on cells on a CPU, and on the host's time, if a tool that records operators is chosen."""
        names = ("operators", "activities")
        return {name: self.selection.provided_files(name) for name in names if self.selection.provides(name)}

    def replay_verdict_inputs(self) -> dict[str, list[str]]:
        """Step programs for what-if simulations of expected gains, if a tool that traces them is chosen."""
        return {"programs": self.traced_files("program")} if self.selection.provides("program") else {}

    def plan_inputs(self) -> dict[str, str | list[str]]:
        """Inputs of plans that only some tools make: traced steps, counters with the GPU's peaks, operators."""
        counted = {name: path for name, path in self.verdict_inputs().items() if name in ("roofline", "peaks")}
        operators = {name: files for name, files in self.chain_verdict_inputs().items() if name == "chain_kernels"}
        return {**self.replay_verdict_inputs(), **counted, **operators}

    def traced_files(self, name: str) -> list[str]:
        """Files derived from the trace of each cell; in copied results, only if the file or its trace exists.

        name: key of tools.PROVIDED.
        """
        run, files = self.selection, self.selection.provided_files(name)
        if run.config["collect"] or not files:
            return files
        tool, _ = run.provided[name]
        traces = [pattern for by, pattern in [run.provided.get("trace_database", ("", ""))] if by == tool]

        def is_there(file: str) -> bool:
            path = run.path(file)
            phase = path.name.partition(".")[0]
            return any(one.exists() for one in (path, *(path.with_name(name.format(phase=phase)) for name in traces)))

        return list(filter(is_there, files))

    def memory_tables(self) -> list[str]:
        """Tables of the memory of each cell's step, those with remedies where these were predicted."""
        timed = (path.removesuffix(TIMED) for path in self.timing_sidecars() if path.endswith(TIMED))
        found = []
        for cell in timed:
            known = self.selection.path(remedies := f"{cell}.memory-remedies.csv").exists()
            found.append(remedies if known else f"{cell}.memory.csv")
        measured = (path for path in found if Path(path).name.partition(".")[0] != IMPORTED)
        return self.selection.makeable(filter(self._can_be_made, measured))

    def rank_tables(self) -> list[str]:
        """Table of the processes of cells on several GPUs, if such cells are chosen and traced."""
        known = self.rank_inputs() and self.selection.can_make_tables("ranks")
        return ["<results>/tables/ranks.csv"] if known else []

    def rank_inputs(self) -> list[str]:
        """Tables of the processes of each cell on several GPUs, if such cells are chosen and traced."""
        traced = map(Path, self.selection.provided_files("ranks"))
        return [str(path) for path in traced if self._is_spread(path)]

    def rank_table_of_cell(self, wildcards: Wildcards) -> list[str]:
        """Table of the processes of a cell on several GPUs; empty for other cells, and without traces to make it of."""
        _, name = self.selection.provided.get("ranks", ("", ""))
        home = f"<results>/{wildcards.model}"
        file, traces = f"{home}/{name.format(phase=wildcards.phase)}", f"{home}/{wildcards.phase}.nsys-ranks"
        return [file] if name and self._is_spread(Path(file)) and self._can_be_made(file, traces) else []

    def _can_be_made(self, *files: str | Path) -> bool:
        """Whether this run measures, or one of a result and what it is made of exists."""
        return self.selection.config["collect"] or any(self.selection.path(str(one)).exists() for one in files)

    def link_probe(self, wildcards: Wildcards) -> list[str]:
        """Measured links between the GPUs of a cell; empty if there is no such file and nothing is collected."""
        config = self.selection.config
        cell = run_checked(settings.resolve_cell, wildcards.model, wildcards.phase, tools.BASELINE, config)
        file = f"<results>/peaks/{config['gpu']}.links.{cell['nodes']}x{cell['gpus']}.csv"
        files = [file, f"{file}.json"]
        known = config["collect"] or all(self.selection.path(one).exists() for one in files)
        return files[:1] if known and self.selection.makeable(files) == files else []

    def collective_inputs(self) -> dict[str, list[str]]:
        """Tables of collective operations and of skew of each cell on several GPUs, by name, if they can be made."""

        def can_be_made(path: Path) -> bool:
            phase = path.name.partition(".")[0]
            return self._can_be_made(path, path.with_name(f"{phase}.torch-ranks"))

        files = {name: map(Path, self.selection.provided_files(name)) for name in COLLECTIVES}
        return {
            name: [str(path) for path in paths if self._is_spread(path) and can_be_made(path)]
            for name, paths in files.items()
        }

    def collective_tables(self) -> list[str]:
        """Tables of collective operations and of skew of all cells on several GPUs, if they can be made."""
        return [path for paths in self.collective_inputs().values() for path in paths]

    def collective_tables_across(self) -> list[str]:
        """Tables of collective operations and of skew across the zoo, if any cell has such tables."""
        known = self.collective_tables() and self.selection.can_make_tables(*COLLECTIVES)
        return [f"<results>/tables/{name}.csv" for name in COLLECTIVES] if known else []

    def _is_spread(self, path: Path) -> bool:
        return path.parent.name in self.selection.spread and path.name.startswith("train.")

    def layer_tables(self) -> list[str]:
        """Tables of layers across the zoo, if a tool that attributes launches to layers is chosen."""
        known = self.selection.provides("layers") and self.selection.can_make_tables("layers")
        return ["<results>/tables/layers.csv", "<results>/tables/owners.csv"] if known else []

    def chart_inputs(self) -> dict[str, list[str]]:
        """Each cell's tables of ncu's counters, by name; only those that the section set has metrics for."""
        return {name: self.selection.provided_files(name) for name in CHARTS if self.selection.provides(name)}

    def replay_tables(self) -> list[str]:
        """Tables of replayed steps across the zoo, if a tool that traces them is chosen."""
        known = self.selection.provides("replay") and self.selection.can_make_tables("replay")
        return ["<results>/tables/replay.csv", "<results>/tables/host.csv"] if known else []

    def fusion_tables(self) -> list[str]:
        """Table of what could be fused across the zoo, if a tool that records operators' inputs is chosen."""
        known = self.selection.provides("fusion") and self.selection.can_make_tables("fusion")
        return ["<results>/tables/fusion.csv"] if known else []

    def generating(self) -> list[tuple[str, str]]:
        """Selected cells of inference of models that note tokens."""
        own = self.selection.config["settings"]

        def notes(name: str) -> bool:
            return registry.generates_tokens(run_checked(registry.find_program, name, own.get(name, {})))

        known = [(model, settings.split_variant(model)[0]) for model, phase in self.selection.cells if phase == INFERS]
        noting = {name: notes(name) for name in {name for _, name in known}}
        return [(model, INFERS) for model, name in known if noting[name]]

    def token_files(self) -> list[str]:
        """Each cell's parts of the time of its tokens, of cells that torch.profiler measures."""
        files = self.selection.cell_files("<results>/{model}/{phase}.tokens.csv", TOOL)
        wanted = {f"<results>/{model}/{phase}.tokens.csv" for model, phase in self.generating()}
        return [path for path in files if path in wanted] if self.selection.provides("layers") else []

    def token_tables(self) -> list[str]:
        """Table of the parts of the time of tokens across the zoo, if a cell has such a table."""
        known = self.token_files() and self.selection.can_make_tables("tokens")
        return ["<results>/tables/tokens.csv"] if known else []

    def token_peaks(self, wildcards: Wildcards) -> dict[str, str]:
        """Measured peaks, by which the floor of a token's time is known; a CPU has none that tell it."""
        config, peaks = self.selection.config, f"<results>/peaks/{self.selection.config['gpu']}.csv"
        known = config["device"] != "cpu" and (config["collect"] or self.selection.path(peaks).exists())
        return {"peaks": peaks} if known else {}

    def exports(self) -> list[str]:
        """Step tables of the baseline, and exports of every selected cell under every chosen tool."""
        found = [
            path
            for tool, pattern in patterns.exported_patterns(self.selection.config, self.selection.tools)
            for path in self.selection.cell_files(f"<results>/{{model}}/{pattern}", tool)
            if not imported.needs_program(path, self.selection.config)
        ]
        found = self.collective_tables_across() + self.collective_tables() + self.token_tables() + found
        return self.rank_tables() + self.layer_tables() + self.replay_tables() + self.fusion_tables() + found

    def files_of_cell(self) -> set[str]:
        """Patterns of the files of a measured cell that `all` needs, such as `{phase}.kernels.csv`."""
        run = self.selection
        provided = dict(run.provided)
        if "launch_times" not in provided:
            provided.pop("coverage", None)
        known = [*provided.values(), *patterns.exported_patterns(run.config, run.tools)]
        ranges = ["{phase}.ranges.csv"] if set(SOURCES) & set(run.provided) else []
        return {*(pattern for _, pattern in known), *ranges}

    def first_plans(self) -> list[str]:
        """Pattern of the plans that a cell has before its counters, which may change them; empty if nothing counts.

        No target needs them. A run that makes the tables of a cell's trace makes them too, and tells the best one.
        """
        return ["{phase}.first-plan.csv"] if self.selection.provides("trace_database", "counters") else []

    def everything(self) -> list[str]:
        """Files that `all` makes: the exports, and the report with everything that it shows.

        A named run also holds what its cells computed, because it will be a side of a comparison.
        """
        run = self.selection
        measured = imported.measured_cells(run.cells) if run.config["run"] else []
        numbers = [
            f"<results>/{model}/{NUMBERS.format(phase=phase)}" for model, phase in measured if run.repeats(model, phase)
        ]
        return [*self.exports(), *run.makeable(numbers), "<results>/report.html"]


def label_table(report: Callable[..., Any], name: str) -> Any:
    """Mark a table across the zoo for Snakemake's own report; report: Snakemake's function for such marks."""
    _, row = DESCRIPTIONS[name]
    labels = {"table": name, "a row": row}
    return report(f"<results>/tables/{name}.csv", category="Tables", caption="../report/table.rst", labels=labels)


# Names the inputs of tables of user ranges, which a program opens itself, and of how the launches of steps differ.

# Keys of tools.PROVIDED of tools that record ranges, with the files of their measurement. In copied results, one of
# these files has to exist.
SOURCES = {"trace_database": (".nsys.sqlite", ".nsys-rep"), "layers": (".torch.ranges.csv", ".trace.json.gz")}
RANGES_TRACE, OWNERS = SOURCES


def user_range_tables(selection: Selection, name: str = "ranges") -> list[str]:
    """Tables of all cells that were traced by a tool that records ranges: of these, or of `repetition` of launches."""
    files = {cell: "<results>/{}/{}.{}.csv".format(*cell, name) for cell in selection.cells}
    return selection.makeable(
        file
        for cell, file in files.items()
        if tools.BASELINE in selection.available[cell]
        and (_traced(selection, *cell) or (selection.path(file).exists() and not selection.config["collect"]))
    )


def user_range_inputs(tables: Tables, wildcards: Wildcards) -> dict[str, Any]:
    """Files of the tools about a cell's ranges and launches, by the script's input names."""
    run, cell = tables.selection, (wildcards.model, wildcards.phase)
    # A copied table without its inputs stays as it is, as it cannot be made again.
    traced = _traced(run, *cell) or [name for name in SOURCES if _is_chosen(run, name, *cell)]
    found: dict[str, Any] = {**tables.layer_inputs(wildcards)}
    if RANGES_TRACE not in traced:
        found = {name: path for name, path in found.items() if not name.startswith(RANGES_TRACE)}
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
