"""Builds the command line of a collecting job: process launcher, profiler and program."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profzoo import tools
from profzoo.cell import settings
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.job_types import Job, Trials
from profzoo.cell.process_count import process_count
from profzoo.machine import job_limits

Made = Mapping[str, Path]
# Name of the job that runs ncu around a few kernels to measure the cost of a launch; no tool has this name.
PROBE = "probe"
# Name of the job that measures the links between the GPUs of cells; no tool has this name.
LINKS = "links"
# Name of the job that repeats a cell's first steps for comparisons; no tool has this name. Option that
# asks for it, also of the first process of each side that runs in turn, and of each setting of a trial.
NUMERICS, REPEATING = "numerics", ["--numerics"]
# Name of the job that predicts a cell's memory with other settings; no tool has this name.
REMEDIES = "remedies"
# Programs that measure the machine itself, by the names of their jobs.
OF_MACHINE = {"peaks": "profzoo.calibration.peaks", LINKS: "profzoo.calibration.links"}
# Processes in turn that start side by side: more would take memory that the running process may need.
AT_ONCE = 4
# Launchers: one process per GPU of a node, and the same on each of several nodes.
ON_A_NODE = ["python", "-m", "torch.distributed.run", "--standalone"]
ON_NODES = ["python", "-m", "profzoo.collect.multi_node"]
# The program that runs models of the zoo.
ZOO = ["python", "-m", "models.run"]


@dataclass(frozen=True)
class Command:
    """A collecting command, in parts.

    launcher: words that start one process per GPU; empty for one process. profiler: a tool's program with its options;
    empty for a tool inside the process. program: words of the measured program with all its settings. sidecar: file in
    which the program leaves its facts. tool: name of the tool. made: files to make, by output name. leaves: files that
    must exist after the command.
    """

    launcher: Sequence[str]
    profiler: Sequence[str]
    program: Sequence[str]
    sidecar: Path
    tool: str
    made: Made = field(default_factory=dict)
    leaves: Sequence[Path] = ()


def build_command(job: Job, made: Made, planned: Sequence[str] = (), load: Path | None = None) -> Command:
    """Build the command of a job.

    Args:
        job: `tool`, `cell` (its settings), and `options`, the tool's own words. A job of several processes in turn also
            has `repeats`; or `sides` (cells by name), their `order` and their `weights` by name; or `trials`.
        made: paths of the files to make, by the names of the rule's outputs.
        planned: options chosen by a plan; they precede the tool's other options.
        load: path of the weights that the cell starts with.
    """
    cell, tool, sidecar = job["cell"], job["tool"], made["sidecar"]
    facts = ["--facts", str(sidecar)]
    if tool in OF_MACHINE:
        device = ["--device", cell["device"], "--out", str(made["csv"])]
        launcher = torchrun_words(cell) if tool == LINKS else []
        words = ["python", "-m", OF_MACHINE[tool], *device, *facts]
        return Command(launcher, [], words, sidecar, tool, made, [made["csv"]])
    if tool == PROBE:
        words = ["python", "-m", "profzoo.calibration.launch_costs", "--device", cell["device"], *facts]
        counting = tools.with_setting("sets")[0]
        profiler = tools.commands()[counting].wrap_command(job["options"], made, 1)
        return Command([], profiler, words, sidecar, counting, made, [made["report"]])
    program = cell_words(cell, load)
    if tool == "train":
        save = ["--save", str(made["weights"])]
        return Command([], [], [*program, *save, *facts], sidecar, tool, made, [made["weights"]])
    if tool in (NUMERICS, REMEDIES):
        more = REPEATING if tool == NUMERICS else remedy_words(cell, made)
        return Command(torchrun_words(cell), [], [*program, *more, *facts], sidecar, tool, made)
    own = tools.commands()[tool]
    if rounds := process_words(job, load):
        program = ["python", "-m", "profzoo.experiments.interleaved_runs", "--rounds", json.dumps(rounds)]
        program += parallel_words(job.get("sides", {"": cell}).values(), compared=len(job.get("sides", [])) > 1)
        program += [*fork_words(job), *stop_words(job)]
        # The first process may run any side.
        if "sides" in job:
            program += ["--baseline", next(name for name, own in job["sides"].items() if own == cell), *REPEATING]
        # One outer process starts all the others.
        profiler = own.wrap_command(job.get("options", []), made, 1)
        return Command(
            [], profiler, [*program, *own.program_options(made), *facts], sidecar, tool, made, own.output_files(made)
        )
    if "trials" in job:
        program = [*trial_words(job["trials"], cell, load), *fork_words(job), *REPEATING]
        return Command(
            [], [], [*program, *own.program_options(made), *facts], sidecar, tool, made, own.output_files(made)
        )
    profiler = own.wrap_command([*planned, *job.get("options", [])], made, process_count(cell))
    program += [*own.program_options(made), *facts]
    return Command(torchrun_words(cell), profiler, program, sidecar, tool, made, own.output_files(made))


def remedy_words(cell: CellSettings, made: Made) -> list[str]:
    """Words that predict a cell's memory with other settings."""
    return ["--memory", str(made["memory"]), "--remedies", json.dumps(settings.name_remedies(cell))]


def cell_words(cell: CellSettings, load: str | Path | None) -> list[str]:
    """Words that run a cell in one process."""
    return [*program_words(cell), *settings.setting_words(cell), *(["--load", str(load)] if load else [])]


def program_words(cell: CellSettings) -> list[str]:
    """Words that start the program of a cell, before its settings.

    A script starts in its own folder, which may contain another package named `models`.
    """
    return ["python", "-m", "profzoo.run"] if "command" in cell else ZOO


def process_words(job: Job, load: Path | None) -> list[tuple[str, list[str]]]:
    """Side and words of each process of a job that runs several in turn; empty for any other job."""
    sides, weights = job.get("sides", {"": job["cell"]}), job.get("weights", {"": load})
    order = job.get("order") or [""] * job.get("repeats", 0)
    words = {side: [*torchrun_words(cell), *cell_words(cell, weights.get(side))] for side, cell in sides.items()}
    return [(side, words[side]) for side in order]


def trial_words(given: Trials, cell: CellSettings, load: Path | None) -> list[str]:
    """Words that run trials of settings on a cell.

    given: `candidates`, setting words by name, and their `order`; `expected`, the path of a file of expected gains, or
    empty; `repeats`, processes per setting, or None; `budget_s`, seconds; `most`, largest number of settings to try,
    or None.
    """
    described = {
        "name": f"{cell['model']} {cell['phase']}",
        "program": [*torchrun_words(cell), *program_words(cell)],
        "words": settings.setting_words(cell),
        "load": ["--load", str(load)] if load else [],
        "candidates": {name: given["candidates"][name] for name in given["order"]},
    }
    words = ["python", "-m", "profzoo.experiments.trial_runner", "--cell", json.dumps(described)]
    expected = ["--expected", given["expected"]] if given["expected"] else []
    limits = ["--repeats", str(given["repeats"])] if given["repeats"] else []
    limits += ["--budget", str(given["budget_s"]), "--margin", str(job_limits.read_limits().margin)]
    limits += ["--most", str(given["most"])] if given["most"] else []
    return [*words, *expected, *limits, *parallel_words([cell])]


def parallel_words(cells: Collection[CellSettings], compared: bool = False) -> list[str]:
    """Words that let processes of these cells start side by side; empty if a cell already has several.

    compared: whether a round has one process per cell; these may then take turns in shifts, if memory suffices for all.
    """
    if any(torchrun_words(cell) for cell in cells):
        return []
    own = ["--by-shifts", str(len(cells))] if compared and len(cells) <= AT_ONCE else []
    return ["--at-once", str(AT_ONCE), *own]


def fork_words(job: Job) -> list[str]:
    """Words that let processes of a job be forks of one; empty if torchrun starts them, they run scripts, or for a job
    whose processes are each to start by themselves."""
    cells = [job["cell"], *job.get("sides", {}).values()]
    alone = any(torchrun_words(cell) or "command" in cell for cell in cells)
    return ["--fork"] if job.get("fork", True) and not alone else []


def stop_words(job: Job) -> list[str]:
    """Words by which rounds of processes end once they have decided; empty for a job with a fixed number of rounds."""
    if not (most := job.get("most_rounds")):
        return []
    limits = job_limits.read_limits()
    rule = {"margin": limits.margin, "comparisons": limits.comparisons, "budget_s": limits.budget_s}
    return ["--most", str(most), "--until", json.dumps(rule)]


def torchrun_words(cell: CellSettings) -> list[str]:
    """Words that start one process per GPU of the cell; empty for one GPU.

    >>> torchrun_words({"gpus": 2, "nodes": 1})[3:]
    ['--standalone', '--nproc-per-node=2', '--no-python']
    """
    if process_count(cell) == 1:
        return []
    if cell["nodes"] > 1:
        return [*ON_NODES, str(cell["nodes"]), str(cell["gpus"])]
    return [*ON_A_NODE, f"--nproc-per-node={cell['gpus']}", "--no-python"]
