"""Writes the texts of collecting jobs: JSON with everything whose change runs the job again."""

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from profzoo import extensions, tools
from profzoo.cell import data_files, settings
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.config_types import Config
from profzoo.cell.job_types import PlanOptions
from profzoo.cell.process_count import process_count
from profzoo.cell.sidecar_files import read_facts
from profzoo.cell.tool_types import NcuSettings
from profzoo.collect import environment
from profzoo.collect.command_line import NUMERICS, REMEDIES
from profzoo.collect.version_changes import UNMEASURED
from profzoo.compare import sides
from profzoo.errors import DataError, run_checked
from profzoo.machine import forks, gpus, job_limits, profiled_forks
from profzoo.range_names import IMPORTED
from profzoo.records import import_graph
from profzoo.tools import BASELINE, settings_of, unavailable_tools
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import costs as ncu_costs
from profzoo.workflow import imported, patterns
from profzoo.workflow import snakemake_internals as internals
from profzoo.workflow.selection import Selection, Wildcards

# The value of `repeats` by which processes are repeated until their times are known to the margin, or decide.
UNTIL_DECIDED = "auto"


def fork_early(words: Sequence[str], selection: Selection) -> None:
    """Start the processes that fork a run's scripts and its measurements, while the run is planned.

    Only the plan tells whether the run measures. Where all files of the selected cells are there, it is taken to
    measure nothing, and `fork_jobs` starts the process later if it does.

    words: of the command line.
    """
    if {*UNMEASURED} & {*words}:
        return
    # All scripts, which import little more than those of any run.
    scripts = sorted(map(str, (import_graph.PROJECT / "workflow" / "scripts").glob("*.py")))
    internals.run_scripts_by(forks.script_command(scripts, os.environ))
    config = selection.config
    needed = patterns.required_files(config, selection.tools)
    cells = imported.measured_cells(selection.cells)
    files = (Path(selection.results, model, name.format(phase=phase))
             for model, phase in cells for names in needed.values() for name in names)  # fmt: skip
    if config["collect"] and config["fork"] and not all(file.exists() for file in files):
        forks.serve_jobs(_start_variables(config))


def fork_jobs(planned: Iterable[Any], config: Config) -> None:
    """Start the process that forks measurements, if there is none and a run has any; planned: its jobs.

    It begins with the variables of a job. A job whose own differ, as on a machine with GPUs that cannot be used, starts
    by itself.
    """
    if config["fork"] and forks.FORKS not in os.environ and any(map(internals.measures, planned)):
        forks.serve_jobs(_start_variables(config))


def fork_profiled(rules: Collection[str], config: Config) -> None:
    """Start the processes below profilers that attach to their forks, if a run has such jobs; rules: of its jobs."""
    for tool, own in tools.commands().items():
        if any(rule.startswith(f"profile_{tool}") for rule in rules) and own.launch_server(0):
            profiled_forks.serve(tool, own.launch_server, _start_variables(config))


def _start_variables(config: Config) -> dict[str, str]:
    """Variables with which a job's program starts, if the job has no more of its own than each."""
    visible, extra = os.environ.get(gpus.VISIBLE), config["variables"]
    # nvidia-smi would take longer than all else before a run.
    count = unavailable_tools.count_gpus() if visible is None else len([*filter(None, visible.split(","))])
    planned = environment.planned_variables(extra)
    seen = environment.start_variables(planned, extra, 1, 0 if config["device"] == "cpu" else count, 1)
    return {**seen, "LC_ALL": "C", **extensions.inherited_variables()}


@dataclass(frozen=True)
class Jobs:
    """The texts of jobs; functions of Snakemake's wildcards are for `params` of rules."""

    selection: Selection

    @property
    def config(self) -> Config:
        """The configuration."""
        return self.selection.config

    def surroundings(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Part of every job text: names of further environment variables that the program starts with, and the values
        or digests of variables that change measurements of the cell, if there are any."""
        names = self.config["variables"]
        found = environment.planned_variables(names, environment.is_own(cell))
        return {"environment": names} | ({"variables": found} if found else {})

    @property
    def repeats(self) -> dict[str, Any]:
        """Part of a job text: number of unprofiled processes per cell, if there are several."""
        if self.config["repeats"] == UNTIL_DECIDED:
            return {"repeats": 1, "most_rounds": sides.MOST_ROUNDS, **self.started}
        repeats = self.fixed_repeats or 1
        return {"repeats": repeats, **self.started} if repeats > 1 else {}

    @property
    def fixed_repeats(self) -> int | None:
        """Configured number of processes; None if there is none, or if processes are repeated until they decide."""
        return repeats if isinstance(repeats := self.config["repeats"], int) else None

    @property
    def started(self) -> dict[str, bool]:
        """Part of a job text of several processes: whether each starts by itself; results without it stay valid."""
        return {} if self.config["fork"] else {"fork": False}

    def cell_settings(self, wildcards: Wildcards, tool: str, phase: str | None = None) -> CellSettings:
        """Settings of a job's cell under a tool; phase: by default the phase in the wildcards."""
        return run_checked(settings.resolve_cell, wildcards.model, phase or wildcards.phase, tool, self.config)

    def job_text(self, tool: str, cell: CellSettings, **more: Any) -> str:
        """Everything that a collecting job depends on, as one JSON text with sorted keys."""
        job = {"tool": tool, "cell": cell, **self.surroundings(cell)}
        job |= run_checked(data_files.summarise_data_set, cell) | run_checked(data_files.summarise_model_files, cell)
        return json.dumps(job | more, sort_keys=True)

    def describe_by(self, tool: str, phase: str | None = None, **more: Any) -> Callable[[Wildcards], str]:
        """Make a params function that returns the job text of a cell under a tool."""
        return lambda wildcards: self.job_text(tool, self.cell_settings(wildcards, tool, phase), **more)

    def describe_training(self, wildcards: Wildcards) -> str:
        """Job text of the training whose weights inference loads: on one GPU, with as few steps as possible."""
        one = {"gpus", "nodes", "parallel"}
        alone = {
            part: {
                name: {key: changes[key] for key in changes if key not in one}
                for name, changes in self.config[part].items()
            }
            for part in ("settings", "variants")
        }
        shortest: Config = {
            **self.config,
            "settings": alone["settings"],
            "variants": alone["variants"],
            "gpus": 1,
            "nodes": 1,
            "parallel": "ddp",
            BASELINE: {**self.config[BASELINE], "window": 1},
        }
        return self.job_text("train", run_checked(settings.resolve_cell, wildcards.model, "train", BASELINE, shortest))

    def describe_numerics(self, wildcards: Wildcards) -> str:
        """Job text of a cell that repeats its first steps, by which its numbers are compared."""
        return self.job_text(NUMERICS, self.cell_settings(wildcards, BASELINE))

    def describe_remedies(self, wildcards: Wildcards) -> str:
        """Job text of a training whose memory with other settings is predicted."""
        return self.job_text(REMEDIES, self.cell_settings(wildcards, BASELINE, "train"))

    def describe_turns(self, wildcards: Wildcards) -> str:
        """Job text of a cell whose sides of a comparison run in turn."""
        known = self.selection.sides
        cells = {
            side.name: run_checked(
                settings.resolve_cell, side.of(wildcards.model), wildcards.phase, BASELINE, self.config
            )
            for side in known
        }
        baseline = cells[known[0].name]
        seed = f"{baseline['seed']} {wildcards.model} {wildcards.phase} {sides.name_sides(known)}"
        order = sides.interleave(list(cells), self.fixed_repeats or sides.GIVEN, seed)
        more = {} if self.fixed_repeats else {"most_rounds": sides.MOST_ROUNDS}
        return self.job_text(BASELINE, baseline, sides=cells, order=order, order_seed=seed, **more, **self.started)

    def describe_trials(self, wildcards: Wildcards) -> str:
        """Job text of the trials on a cell; it names no input files, so that Snakemake notices a change of it."""
        # Imported here: the code of tables takes long to load.
        from profzoo.trials import trial_table

        known, refused = run_checked(trial_table.candidate_words, wildcards.model, wildcards.phase, self.config)
        expected = self.expected_gains()
        # Sorted keys would lose the order of the candidates.
        job = {
            "candidates": known,
            "order": list(known),
            "refused": refused,
            "expected": expected.replace("<results>", self.selection.results) if isinstance(expected, str) else "",
            "budget_s": run_checked(job_limits.parse_seconds, self.config["trials"]["budget"], "trials.budget"),
            "repeats": self.config["trials"]["repeats"],
            "most": self.config["trials"]["max_settings"],
        }
        return self.job_text(BASELINE, self.cell_settings(wildcards, BASELINE), trials=job, **self.started)

    def describe_peaks(self) -> str:
        """Job text of the measurement of the GPU's peaks."""
        cell = {"device": self.config["device"]}
        return json.dumps({"tool": "peaks", "cell": cell, **self.surroundings(cell)})

    def describe_links(self, wildcards: Wildcards) -> str:
        """Job text of the measurement of the links between GPUs: so many on each of so many nodes."""
        cell = {"device": self.config["device"], "gpus": int(wildcards.gpus), "nodes": int(wildcards.nodes)}
        return json.dumps({"tool": "links", "cell": cell, **self.surroundings(cell)})

    def batches(self, wildcards: Wildcards) -> dict[str, int]:
        """Samples per batch of each cell; advice names twice this number."""
        cells = [cell for cell in self.selection.cells if cell[1] != IMPORTED]
        known = {cell: run_checked(settings.resolve_cell, *cell, BASELINE, self.config) for cell in cells}
        return {f"{model} {phase}": own["batch"] for (model, phase), own in known.items()}

    def expected_gains(self) -> str | list[str]:
        """File of the expected gains of plans, if there is a trace here or a configured table from elsewhere."""
        known = self.selection.provides("program") or self.config["trials"]["plans"]
        return "<results>/tables/trials.expected.json" if known else []

    def failed_settings(self, wildcards: Wildcards) -> dict[str, dict[str, str]]:
        """Why settings failed in the last trials of each cell, by cell and words, without sets that contain others.

        The number of samples, which follows from the batch, is left out. Changed failures make plans and verdicts
        again, but neither ever runs trials.
        """
        found = {}
        for model, phase in self.selection.cells:
            # Without trials, or with a damaged sidecar, which the table of trials reports.
            with suppress(DataError):
                path = self.selection.path(f"<results>/{model}/{phase}.trials.csv.json")
                facts = read_facts(path, {"failed": {}, "words": {}})
                sets = {
                    name: [word for word in words if not word.startswith("samples=")]
                    for name, words in facts["words"].items()
                    if name in facts["failed"]
                }
                least = {
                    " ".join(words): facts["failed"][name]
                    for name, words in sets.items()
                    if words and not any(other and {*other} < {*words} for other in sets.values())
                }
                if least:
                    found[f"{model} {phase}"] = least
        return found

    def weights(self, wildcards: Wildcards) -> str | list[str]:
        """Weights that inference loads, from the model's training; empty if it starts with initial ones."""
        return self.weights_of(wildcards.model, wildcards.get("phase", "inference"))

    def weights_of(self, model: str, phase: str) -> str | list[str]:
        """Weights that a cell loads; empty if it loads none."""
        trained = run_checked(settings.weights_source, model, phase, self.config)
        return f"<results>/{trained}/weights.pt" if trained else []

    def weights_by_side(self, wildcards: Wildcards) -> dict[str, str]:
        """Trained weights of those sides of a comparison that load some, by the side's name."""
        found = {side.name: self.weights_of(side.of(wildcards.model), wildcards.phase) for side in self.selection.sides}
        return {name: path for name, path in found.items() if isinstance(path, str)}


# Writes the texts of ncu's jobs: section sets, their plans, and probes of their cost.


@dataclass(frozen=True)
class SectionSetJobs:
    """Texts of ncu's jobs; methods that take Snakemake's wildcards serve as `params` of rules."""

    jobs: Jobs

    @property
    def ncu(self) -> NcuSettings:
        """The configuration of ncu."""
        return self.jobs.config[TOOL]

    def window(self, wildcards: Wildcards) -> int:
        """Number of steps in ncu's window; 1 if it is unknown, as for imported reports."""
        if wildcards.phase == IMPORTED:
            return 1
        return self.jobs.cell_settings(wildcards, TOOL)["window"]

    def describe_section_set(self, wildcards: Wildcards) -> str:
        """Job text of a section set's collection."""
        options = run_checked(ncu.options, self.section_set_config(wildcards), wildcards.set)
        cell = self.jobs.cell_settings(wildcards, TOOL)
        planned = self.plan_options(wildcards)
        return self.jobs.job_text(TOOL, cell, set=wildcards.set, options=options, planned=planned)

    def describe_probe(self, wildcards: Wildcards) -> str:
        """Job text of a section set's probe."""
        cell = {"device": self.jobs.config["device"]}
        job = {"tool": "probe", "cell": cell, **self.jobs.surroundings(cell), "set": wildcards.set}
        return json.dumps(job | {"options": ncu_costs.probe_options(self.ncu, wildcards.set)}, sort_keys=True)

    def plan_options(self, wildcards: Wildcards) -> PlanOptions | dict[str, Any]:
        """Settings that a plan depends on; empty for a section set without a plan."""
        own, name = self.ncu, wildcards.set
        if not ncu.needs_plan(own, name):
            return {}
        given = self.section_set_config(wildcards)
        # ncu's options too, so that new code that chooses other launches from the same settings collects again.
        words = run_checked(ncu.selection_options, given, name)
        found: PlanOptions = {
            "kernel_name": given["kernel_name"],
            "launches": given["launches"],
            "replay": given["replay"],
            "budget": given["budget"],
            "sets": {name: own["sets"][name]},
            "selection": words,
        }
        if ncu.samples_launches(own, name):
            # Processes that communicate with each other run only once.
            one_run = process_count(self.jobs.cell_settings(wildcards, TOOL)) > 1
            return {**found, "error": given["error"], "one_run": one_run, "operations": given["operations"]}
        return found

    def section_set_config(self, wildcards: Wildcards) -> NcuSettings:
        """The configuration's `ncu` for one section set of a cell."""
        return run_checked(ncu.adapt_to_cell, self.ncu, wildcards.set, self.jobs.cell_settings(wildcards, TOOL))


# Computes the resources of jobs: minutes, MB of memory, cores, GPUs and nodes, and environment modules of a site.

# Memory and cores of a collecting job: for each GPU of a node, and for a job without a GPU.
CORES, MEM_MB = 4, 16000
CORES_OF_CPU, MEM_MB_OF_CPU = 2, 8000
# Minutes of a collecting job, and of an ncu job without a plan, such as the census.
MINUTES, MINUTES_OF_NCU = 30, 120


class Placement(TypedDict):
    """Settings of a cell that decide where it runs."""

    gpus: int
    nodes: int
    device: Literal["auto", "cuda", "cpu"]


CellOf = Callable[[Wildcards], Placement]
Minutes = int | Callable[..., int]


@dataclass(frozen=True)
class JobResources:
    """Resources that jobs request.

    gpus_limited: whether `--resources gpu=` or a profile limits the number of GPUs. loads_modules: whether jobs load
    environment modules.
    """

    jobs: Jobs
    gpus_limited: bool
    loads_modules: bool

    def light(self, minutes: int = 5, mem_mb: int = 4000) -> dict[str, Any]:
        """Estimated resources of a job that exports, tabulates or draws; a second attempt gets twice as much.

        The resource side_by_side lets a profile limit the parallel jobs of a group.
        """
        return {
            "runtime": lambda wildcards, attempt: minutes * attempt,
            "mem_mb": lambda wildcards, attempt: mem_mb * attempt,
            "side_by_side": 1,
        }

    def on_gpus(self, phase: str | None = None, minutes: Minutes = MINUTES) -> dict[str, Any]:
        """Resources of a collecting job: GPUs and nodes of its cell, with memory and minutes to match."""
        return self._resources_of(lambda wildcards: self.jobs.cell_settings(wildcards, BASELINE, phase), minutes)

    def on_one_gpu(self, minutes: Minutes = MINUTES) -> dict[str, Any]:
        """Resources of a job that uses one GPU, even if its cell uses more."""
        one: Placement = {"gpus": 1, "nodes": 1, "device": self.jobs.config["device"]}
        return self._resources_of(lambda wildcards: one, minutes)

    def on_links(self, minutes: Minutes = MINUTES) -> dict[str, Any]:
        """Resources of a job on all GPUs whose links it measures; its wildcards say how many."""
        return self._resources_of(self._linked, minutes)

    def cores_of_links(self, wildcards: Wildcards) -> int:
        """Cores per node of a job that measures links."""
        return self._cores_of(self._linked(wildcards))

    def _linked(self, wildcards: Wildcards) -> Placement:
        device = self.jobs.config["device"]
        return {"gpus": int(wildcards.gpus), "nodes": int(wildcards.nodes), "device": device}

    def cores(self, phase: str | None = None) -> Callable[[Wildcards], int]:
        """Make a threads function that returns the cores of a collecting job per node."""
        return lambda wildcards: self._cores_of(self.jobs.cell_settings(wildcards, BASELINE, phase))

    def cores_of_one(self, wildcards: Wildcards) -> int:
        """Cores of a job that uses one GPU, even if its cell uses more."""
        return self._cores_of({"gpus": 1, "nodes": 1, "device": self.jobs.config["device"]})

    def planned_minutes(self, wildcards: Wildcards, input: Any, attempt: int) -> int:
        """Resource function: ten minutes plus twice the estimate of ncu's plan; a safe default without a plan.

        If the plan does not exist yet, neither does this value: Snakemake asks again later. A damaged plan is reported
        by the job itself.
        """
        minutes = MINUTES_OF_NCU
        if input.plan:
            with suppress(ValueError, KeyError, TypeError, OverflowError):
                minutes = 10 + math.ceil(2 * json.loads(Path(input.plan).read_text())["estimate_s"] / 60)
        return minutes * attempt

    def modules(self, *tools: str) -> list[str]:
        """Environment modules of these tools; empty unless jobs load them, as Snakemake counts names as software."""
        own = [settings_of(self.jobs.config, tool) for tool in tools]
        return [name for part in own for name in part["envmodules"]] if self.loads_modules else []

    def _runs_on_cpu(self, cell: Placement) -> bool:
        """Whether jobs of a cell go to nodes that need no GPU.

        On one machine, where `gpu` is limited, only one cell runs at a time, on a GPU or on the CPU.
        """
        return cell["device"] == "cpu" and not self.gpus_limited

    def _gpus_of(self, cell: Placement) -> int | None:
        """GPUs of a cell over all its nodes; None (no request) for a cell without a GPU."""
        return None if self._runs_on_cpu(cell) else cell["gpus"] * cell["nodes"]

    def _memory_of(self, cell: Placement) -> int:
        """Memory of a cell per node, in MB."""
        return (MEM_MB_OF_CPU if self._runs_on_cpu(cell) else MEM_MB) * cell["gpus"]

    def _cores_of(self, cell: Placement) -> int:
        """Cores of a cell per node."""
        return (CORES_OF_CPU if self._runs_on_cpu(cell) else CORES) * cell["gpus"]

    def _resources_of(self, cell: CellOf, minutes: Minutes) -> dict[str, Any]:
        """Resources of a job, from its cell; minutes: a number, or a resource function."""
        return {
            "gpu": lambda wildcards: self._gpus_of(cell(wildcards)),
            "runtime": minutes,
            "mem_mb": lambda wildcards: self._memory_of(cell(wildcards)),
            "nodes": lambda wildcards: cell(wildcards)["nodes"],
            # For Slurm's plugin on several nodes: the job's own srun starts one task per node. Snakemake ignores a
            # resource of None.
            "mpi": lambda wildcards: "srun" if cell(wildcards)["nodes"] > 1 else None,
            "tasks": lambda wildcards: nodes if (nodes := cell(wildcards)["nodes"]) > 1 else None,
            "tasks_per_gpu": lambda wildcards: 0 if cell(wildcards)["nodes"] > 1 else None,
            # For Kubernetes' plugin: a pod gets its GPU by limits only, and `scale` 0 turns requests into limits.
            "gpu_manufacturer": "nvidia",
            "scale": 0,
        }
