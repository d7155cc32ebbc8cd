"""Runs one collecting job: sets its environment, logs its output, writes its sidecar, and explains failures."""

import datetime
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, cast

from profzoo import extensions, tools
from profzoo.cell import data_files, registry, schema, secret_values
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.job_types import Job, Plan, Sidecar
from profzoo.cell.process_count import process_count
from profzoo.collect import command_line, failures, secret_leaks, transaction
from profzoo.collect.command_line import Command, Made
from profzoo.collect.environment import (
    is_own,
    own_variables,
    prepare_job,
    read_variables,
    run_logged,
    select_environment,
    withheld_variables,
)
from profzoo.collect.transaction import Transaction
from profzoo.errors import CollectError, ConfigError, DataError
from profzoo.harness import observed_files
from profzoo.io import file_checks
from profzoo.io import sidecars as fact
from profzoo.json_types import JsonObject
from profzoo.machine import (
    external_programs,
    forks,
    gpus,
    namespace,
    processes,
    profiled_forks,
    program_variables,
    supervisor,
)
from profzoo.machine.gpu_slots import GpuTurn
from profzoo.machine.processes import ProcessLimits
from profzoo.records import derived_outputs, digests, import_graph, read_files, record
from profzoo.records.import_graph import PROJECT
from profzoo.records.read_files import ReadFiles
from profzoo.records.record import Record

# Records the git commit of the code that made a measurement.

# Folders of the checkout with code that jobs run: untracked files in them count as changes.
CODE = ("Snakefile", "workflow", "profzoo", "models", "config", "profiles")


class GitState(TypedDict, total=False):
    """Commit of the workflow, and whether the working tree differs from it."""

    commit: str
    commit_changed: bool


def git_commit(folder: Path, module: str = "models") -> GitState:
    """Git commit of the workflow, and whether the working tree differs from it; empty if git knows none.

    module: module of the cell's model. Untracked files count in folders of code, but not among results.
    """
    package = module.partition(".")[0]
    head = external_programs.ask_git(folder, "rev-parse", "HEAD", "--show-prefix")
    if head.returncode:
        return {}
    number, _, inside = head.stdout.partition("\n")
    # A copy inside an unrelated repository, which does not track it, has no commit.
    if inside.strip() and not external_programs.ask_git(folder, "ls-files", "--", *CODE).stdout:
        return {}
    code = [*CODE, package, f"{package}.py"]
    asked = (["--untracked-files=no", "--", "."], ["--untracked-files=normal", "--", *code])
    changed = [external_programs.ask_git(folder, "status", "--porcelain", *words) for words in asked]
    if any(answer.returncode for answer in changed):
        return {"commit": number}
    return {"commit": number, "commit_changed": any(answer.stdout.strip() for answer in changed)}


# Finds the source files that a collecting job's program consists of: the workflow's and the user's own.

# Modules of jobs that measure the GPU itself, by tool.
OF_GPU = {"peaks": "profzoo/calibration/peaks.py", "probe": "profzoo/calibration/launch_costs.py",
          "links": "profzoo/calibration/links.py"}  # fmt: skip
SURROUNDINGS = "profzoo/collect/environment.py"
IN_TURN, TRIALS = "profzoo/experiments/interleaved_runs.py", "profzoo/experiments/trial_runner.py"


def job_sources(job: Job) -> list[Path]:
    """Source files of a job, sorted; its rule lists the same files as inputs.

    job: description of the collecting job.

    Raises:
        UnusableError: a file cannot be read, or is not valid Python.
    """
    if own := OF_GPU.get(job["tool"]):
        return list(import_graph.files_of(own, SURROUNDINGS))
    cell = job["cell"]
    found = {*registry.program_sources(registry.find_program(cell["model"], cell))}
    if {"order", "repeats"} & set(job):
        found |= {*import_graph.files_of(IN_TURN)}
    if own_tool := tools.commands().get(job["tool"]):
        found |= {*import_graph.files_of(*own_tool.BESIDE)}
    if "trials" in job:
        found |= {*import_graph.files_of(TRIALS)}
    return sorted(found)


def current_digests(job: Job) -> dict[str, str]:
    """Current digests of these files, by their record keys; empty if the job's model has no file.

    Raises:
        OSError: a file cannot be read.
    """
    try:
        files = job_sources(job)
    except (ConfigError, KeyError):
        # The job need not run a model; for models, the rule has checked the files before.
        return {}
    return {record.source_key(path, import_graph.PROJECT): digests.compute_digest(path) for path in files}


def notes_folder(sidecar: Path) -> Path:
    """Folder of the notes on what a job's processes read, beside the files that they make."""
    return sidecar.with_name("observed-files").absolute()


def note_variables(sidecar: Path) -> dict[str, str]:
    """Variable by which the job's processes note what they read; sidecar: its path while the job makes it."""
    return {observed_files.NOTES: str(notes_folder(sidecar))}


def begin_notes(job: Job, sidecar: Path) -> None:
    """Make the folder for notes on what a job's processes read, with the files that a script's command names.

    A program of the shell, or a library, may read these without Python.

    Raises:
        OSError: it cannot be made.
    """
    (notes := notes_folder(sidecar)).mkdir(exist_ok=True)
    commands = {(cell["command"], cell.get("folder", ".")) for cell in _cells(job) if "command" in cell}
    read_files.note_named(notes, [file for given in commands for file in registry.named_files(*given)])


def _cells(job: Job) -> list[CellSettings]:
    """Settings of all cells that a job runs."""
    return [job["cell"], *job.get("sides", {}).values()]


def describe_reads(job: Job, sidecar: Path, inputs: Iterable[Path]) -> ReadFiles:
    """What a job's program read by itself, beyond its sources, its data set and the job's inputs.

    sidecar: its path while the job makes it. inputs: files that the record holds otherwise.

    Raises:
        OSError: the notes cannot be read.
    """
    known = [*map(str, inputs)]
    # The job need not run a model, and a folder may be gone by now.
    with suppress(ConfigError, KeyError):
        known += map(str, job_sources(job))
        folders = [data_files.data_set_folder(cell) for cell in _cells(job) if "data" in cell]
        known += [folder for folder in folders if folder]
    return read_files.describe_notes(read_files.read_notes(notes_folder(sidecar)), {*map(os.path.realpath, known)})


def changed_sources(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Keys of files that were added, removed or changed.

    >>> changed_sources({"a.py": "1", "b.py": "2"}, {"a.py": "1", "b.py": "3", "c.py": "4"})
    ('b.py', 'c.py')
    """
    return tuple(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))


# Derives the sidecar of a baseline that was timed in another tool's process, before that tool started.

# Output name of the baseline's sidecar, and key of the facts that differ for the baseline.
TIMED, BASELINE = "timed", "baseline"


def split_sidecar(sidecar: JsonObject, beside: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a process's sidecar into its own, without the baseline's values, and the baseline's.

    beside: file name of the first sidecar. The second sidecar names it under `process`, as they share one process.

    >>> cell = {"warmup": 3, "window": 2, "steps": 26, "profiler": {"baseline": 20}}
    >>> own, timed = split_sidecar({"tool": "torch", "cell": cell, "steps": 2, "baseline": {"steps": 20}}, "x.json")
    >>> own["steps"], timed["steps"], timed["tool"], timed["process"], timed["cell"]
    (2, 20, 'time', {'tool': 'torch', 'sidecar': 'x.json'}, {'warmup': 3, 'window': 20, 'steps': 23})
    """
    own = {key: value for key, value in sidecar.items() if key != BASELINE}
    steps = sidecar[BASELINE]["steps"]
    cell = {key: value for key, value in own["cell"].items() if key != "profiler"}
    cell |= {"window": steps, "steps": cell["warmup"] + steps}
    process = {"tool": own["tool"], "sidecar": beside}
    return own, {**own, **sidecar[BASELINE], "tool": schema.BASELINE, "cell": cell, "process": process}


# Checks a job's outputs before they move into place: complete, and made by this job.


def read_program_facts(path: Path) -> dict[str, Any]:
    """Read the facts that a program wrote about its run; CollectError if they are not a JSON object."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CollectError(f"the program left facts that are not JSON: {error}") from error
    if not isinstance(said, dict):
        raise CollectError(f"the program left facts that are not a JSON object: {str(said)[:40]!r}")
    return said


def check_outputs(job: Job, made: Mapping[str, Path], run: str) -> None:
    """Check that the files exist and are complete, and that sidecar and table agree with this job and run.

    Raises:
        CollectError: a file is missing or incomplete, or does not agree.
    """
    sidecar = read_program_facts(made["sidecar"])
    for key, value in {**job, "run": run}.items():
        if sidecar.get(key) != value:
            raise CollectError(f"the sidecar says {key} = {sidecar.get(key)!r}, but the job says {value!r}")
    for path in made.values():
        why = file_checks.find_flaw(path) if path.exists() else "it is not there"
        if why:
            raise CollectError(f"a collected file is damaged or incomplete: {path.name}: {why}")
    if steps := made.get("steps"):
        rows = len(steps.read_text().splitlines()) - 1
        said = read_program_facts(made.get(TIMED, made["sidecar"])).get("steps")
        if rows != said:
            raise CollectError(f"{steps.name} has {rows} steps, but the run had {said}")
    if ranks := made.get("ranks"):
        _check_ranks(ranks, process_count(job["cell"]))


def _check_ranks(folder: Path, count: int) -> None:
    """Check that each process left one file of each kind."""
    kinds: dict[str, int] = {}
    for path in folder.iterdir():
        kinds[path.suffix] = kinds.get(path.suffix, 0) + 1
    wrong = [f"{number} {kind}" for kind, number in sorted(kinds.items()) if number != count]
    if wrong or not kinds:
        raise CollectError(f"{count} processes left {', '.join(wrong) or 'no file'} in {folder.name}")


# Runs a job's command, and repeats it once if its tool lost a part of the recording.

FILES = ("../tools/*/losses.py",)
EXTENDED = ("tools/*/losses.py",)


def run_with_retry(asked: Command, once: Callable[[], str]) -> tuple[str, dict[str, Any]]:
    """Run a command; returns its last output, and facts for the sidecar: the reason of a second run, and losses.

    once: function that runs the command once, and raises on failure. The command runs at most twice: a loss in each of
    two processes would occur in a third.
    """
    printed, own = once(), tools.losses(asked.tool)
    why, facts = own.explain_losses(asked.made) if own else ("", {})
    if not own or not why:
        return printed, {}
    print(f"profzoo: {asked.tool} lost a part of {asked.sidecar.stem} and is run again: {why}", file=sys.stderr)
    printed = once()
    left, facts = own.explain_losses(asked.made)
    return printed, {"repeated": why, **facts, **({"lost": left} if left else {})}


SHARED = "another process used the GPU, so that times and counters include its work"
EXPOSED = "the report may contain command lines and environments of other processes: a PID namespace is not available"
OURS = (SHARED, EXPOSED)
# Keys of a plan.
PLAN: fact.Needs = {"options": fact.TEXTS, "estimate_s": fact.NUMBER, "set": fact.TEXT}
# Function that builds a command from a job, the files to make, the options of a plan, and the weights to load.
Build = Callable[[Job, Made, Sequence[str], Path | None], Command]
# Modules of programs that import torch as they start, and no network before they do.
FORKED = ("models.run", "profzoo.calibration.peaks")
# Larger exit codes stand for signals, as in a shell.
SIGNALLED = 128


def command_words(asked: Command, gpu: bool) -> list[str]:
    """Build the command's words for the installed program; gpu: whether the cell will run on a GPU.

    Raises:
        CollectError, ConfigError: the program is not installed, or cannot run with these options.
    """
    tool, (first, *_) = tools.commands().get(asked.tool), [*asked.profiler, *asked.program]
    # With several processes, a launcher may start the profiler.
    needed = [first, *([tool.PROGRAM] if tool and tool.PROGRAM else [])]
    for program in needed:
        if not shutil.which(program):
            advice = f": {tool.INSTALL}; `snakemake doctor` says what is there" if tool and tool.INSTALL else ""
            raise CollectError(f"{program} is not on PATH{advice}")
    measured = [*asked.profiler, *asked.program]
    return [*asked.launcher, *(tool.adapt_command(measured, gpu) if tool else measured)]


def fork_socket(job: Job, asked: Command, words: Sequence[str]) -> str:
    """Socket of the server that may fork the job's program; empty if the program starts by itself.

    words: the command for the installed program. A fork has imported what each program of its kind imports, and no
    more. Programs of the user's own read variables that were set before they import anything.
    """
    server, cell = os.environ.get(forks.FORKS, ""), job["cell"]
    if not server or list(words) != list(asked.program) or is_own(cell) or words[:2] != ["python", "-m"]:
        return ""
    if words[2] not in FORKED:
        return ""
    trains = cell.get("phase") == "train"
    return forks.stage_path(server, 2 if _uses_torchvision(job) else int(trains))


def attached_words(job: Job, asked: Command, words: Sequence[str], planned: Plan | None) -> list[str]:
    """Command that runs the job's tool on forks of the run's server below it; empty if it starts the program itself.

    words: the command for the installed program; planned: the job's plan.
    """
    own, server = tools.commands().get(asked.tool), os.environ.get(profiled_forks.variable_of(asked.tool), "")
    program = list(asked.program)
    if not own or not server or asked.launcher or is_own(job["cell"]) or program[:3] != command_line.ZOO:
        return []
    return own.attach_command(words, server.split(), attached_note(asked), planned)


def attached_note(asked: Command) -> Path:
    """File in which a job's command notes how many of its processes were forks."""
    return asked.sidecar.with_name("attached")


def attached_runs(asked: Command) -> dict[str, int]:
    """Fact on how many runs of the job's tool were attached to forks; none if it has a command without."""
    note = attached_note(asked)
    return {"attached": int(note.read_text())} if note.exists() else {}


def _uses_torchvision(job: Job) -> bool:
    """Whether the file of the job's model imports torchvision."""
    own = (path for path in job_sources(job) if import_graph.place(path).startswith("models/"))
    found = (import_graph.read_statements(path, path.stem).imports for path in own)
    return any(not level and module.partition(".")[0] == "torchvision" for one in found for level, module, _ in one)


def unheld_gpus(facts: Sidecar, mine: Sequence[str], found: Sequence[Mapping[str, str]]) -> list[str]:
    """UUIDs of this machine's GPUs that the command reports it ran on although the job did not hold them.

    For a part of a GPU (MIG), the command may report a UUID that nvidia-smi does not list; such UUIDs are ignored.
    """
    said = [process.get("device_uuid") for process in facts.get("ranks", [facts])]
    here = {gpu["gpu_uuid"] for gpu in found}
    return sorted({uuid for uuid in said if uuid in here and uuid not in mine}) if mine else []


def collect_files(job: Job, made: Made, log: Path, load: Path | None, plan: Path | None, build: Build) -> None:
    """Run a job's command in a private folder; move complete outputs into place, and write a sidecar.

    Raises:
        CollectError, ConfigError: the tool is not installed, failed, left no files, or ran on a GPU that the job did
            not hold; or another job has started to make the same files.
        DataError: the weights or the plan are damaged.
    """
    weights = map(Path, job.get("weights", {}).values())
    started_with = file_checks.require_whole([*(path for path in (load, plan) if path), *weights])
    planned = cast(Plan, fact.read_sidecar(plan, PLAN)) if plan else None
    nodes = job["cell"].get("nodes", 1)
    with transaction.begin(made, nodes == 1) as work:
        asked = build(job, work.private, planned["options"] if planned else [], load)
        # Digests before and after: if a source changed meanwhile, it is unknown which version was measured.
        before = current_digests(job)
        begin_notes(job, asked.sidecar)
        sidecar = _measured(job, asked, log, planned)
        observed = describe_reads(job, asked.sidecar, [*started_with])
        observed = secret_leaks.without_secrets(observed, os.environ, job["environment"], nodes)
        changed = *changed_sources(before, current_digests(job)), *observed.changed
        secret_leaks.check_for_secrets(asked.made.values(), log, os.environ, job["environment"], nodes)
        sidecar |= {"command": [work.final(word) for word in sidecar["command"]], "run": work.run}
        sidecar |= attached_runs(asked)
        # The weights of sides are inputs, identified by their content.
        goes_by = {key: value for key, value in job.items() if key != "weights"}
        made_of = Record(goes_by, _named(started_with, made["sidecar"]), before, changed, observed=observed)
        _leave(asked, work, sidecar, made_of)
        check_outputs(job, work.private, work.run)
        work.commit()
    _say(made["sidecar"], cast(Sidecar, sidecar))
    if changed:
        print(f"profzoo: {made['sidecar'].with_suffix('')}: {', '.join(changed)} changed while it was measured, so that"
              " the next run measures it again", file=sys.stderr)  # fmt: skip


def _named(inputs: Mapping[Path, str], sidecar: Path) -> dict[str, str]:
    """Digests of inputs by their paths relative to the sidecar, which stay valid if the folder is moved."""
    return {derived_outputs.relative_name(path, sidecar): digest for path, digest in inputs.items()}


def _leave(asked: Command, work: Transaction, sidecar: dict[str, Any], made_of: Record) -> None:
    """Write the sidecar of the private folder's files, and that of a baseline timed in the same process."""
    timed = asked.made.get(TIMED)
    files = [path for name, path in work.private.items() if path not in (asked.sidecar, timed)]
    if timed:
        sidecar, beside = split_sidecar(sidecar, work.made["sidecar"].name)
        timed.write_text(record.seal(beside | record.sidecar_part(replace(made_of, files=record.make_entries(files)))))
        files.append(timed)
    own = replace(made_of, files=record.make_entries(files))
    asked.sidecar.write_text(record.seal(sidecar | record.sidecar_part(own)))


def _measured(job: Job, asked: Command, log: Path, planned: Plan | None) -> dict[str, Any]:
    """Run a command that writes its files to the given paths; returns the content of its sidecar."""
    cell, own = job["cell"], tools.commands().get(asked.tool)
    found = gpus.list_gpus() if cell["device"] != "cpu" else []
    candidates = gpus.choose_candidates(os.environ, found)
    program = command_words(asked, bool(candidates))
    # An empty folder for the files of each process, if there are several.
    if ranks := asked.made.get("ranks"):
        ranks.mkdir()
    # Before the command: an error here must not cost a measurement, and the code may change during it.
    tool_version = external_programs.read_version(own.PROGRAM) if own and own.PROGRAM else None
    code_version = git_commit(PROJECT, cell.get("module", "models"))
    exposed = _exposed(cell) if (sees := bool(own and own.SEES_OTHERS)) else None
    sampled = job["tool"] in tools.that(tools.SAMPLE)
    around = prepare_job(job, candidates, planned and planned["estimate_s"], sees and not exposed, sampled)
    with around as (environment, held, guard):
        guard = replace(guard, forks=fork_socket(job, asked, program))
        # These processes do not belong to this workflow, as its jobs hold their GPUs.
        beside = gpus.describe_gpu_processes(held.words)
        # The scratch folder exists only on the first node.
        environment |= extensions.inherited_variables() | note_variables(asked.sidecar)
        home = (asked.sidecar.parent if cell.get("nodes", 1) > 1 else Path(guard.scratch)).absolute()
        environment |= secret_values.hand_over_secrets(job, home) | _hand_over_variables(job, home, tool_version)
        started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
        attached = attached_words(job, asked, program, planned)
        printed, lost = run_with_retry(asked, lambda: _once(asked, program, attached, log, environment, guard))
        waited = held.waited_s if isinstance(held, GpuTurn) else 0.0
        wall, mine = time.monotonic() - clock - waited, held.words
        beside = list(dict.fromkeys([*beside, *gpus.describe_gpu_processes(mine)]))
    facts = read_program_facts(asked.sidecar)
    if wrong := unheld_gpus(cast(Sidecar, facts), mine, found):
        raise CollectError(f"ran on {', '.join(wrong)}, but the job held {', '.join(mine)} (log: {log})")
    return {
        **job,
        "command": list(program),
        **(gpus.describe_gpu(mine[0], found) if mine else {}),
        **facts,
        **_variables(job, facts),
        **code_version,
        "tool_version": tool_version or f"torch {facts.get('torch')}",
        "host": socket.gethostname(),
        "started": started.isoformat(timespec="seconds"),
        "wall_s": round(wall, 3),
        **({"waited_s": round(waited, 3)} if isinstance(held, GpuTurn) else {}),
        "warnings": failures.find_warnings(printed)
        + [f"{SHARED}: {other}" for other in beside]
        + ([exposed] if exposed else []),
        **lost,
        **({"plan": planned} if planned else {}),
    }


def _hand_over_variables(job: Job, folder: Path, profiler: str | None) -> dict[str, str]:
    """Leave the user's own variables for a program of the user's own; profiler: version of the one that runs it."""
    if not is_own(job["cell"]):
        return {}
    seen = select_environment(os.environ, job["environment"], job["cell"].get("nodes", 1))
    found = own_variables(os.environ, job["environment"])
    secrets = secret_leaks.withheld_secrets(os.environ, seen).keys() & found.keys()
    return program_variables.hand_over_variables(folder, found, sorted(secrets), profiler is not None)


def _variables(job: Job, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the user's own variables: those that the program has read, and those that did not reach it."""
    if not is_own(job["cell"]):
        return {}
    withheld = withheld_variables(os.environ, job["environment"])
    return {
        "read_variables": read_variables(facts.get("read_variables", {}), job["environment"]),
        "withheld_variables": sorted(name for names in withheld.values() for name in names),
    }


def _once(
    asked: Command,
    program: Sequence[str],
    attached: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    guard: ProcessLimits,
) -> str:
    """Run a command once and check that it succeeded and left its files; returns its output.

    program: the command as a user may repeat it. attached: the command that does the same on forks; empty for none.
    """
    kills, run = namespace.count_oom_kills(), list(attached)
    try:
        code = run_logged(run or program, log, environment, guard, program)
    finally:
        secret_leaks.mask_secrets(log, environment)
    printed = failures.read_excerpt(log)
    _check(asked, program, code, printed, log, namespace.count_oom_kills() > kills)
    if own := tools.commands().get(asked.tool):
        own.arrange_outputs(asked.made)
    return printed


def _exposed(cell: CellSettings) -> str | None:
    """Warning that recorded data of other processes cannot be kept out, and why; None if it can."""
    # Processes on other nodes cannot share a namespace with local processes.
    why = namespace.why_unavailable() if cell.get("nodes", 1) == 1 else "the cell runs on several nodes"
    return f"{EXPOSED}: {why}" if why else None


def _check(asked: Command, words: Sequence[str], code: int, printed: str, log: Path, starved: bool) -> None:
    """Check that the command succeeded and left its files; otherwise raise CollectError with the cause if known."""
    # Launchers and profilers pass on the program's exit code.
    passed = code > SIGNALLED and (asked.launcher or asked.profiler)
    own = tools.commands().get(asked.tool)
    # Several runs of a profiler are started by a program of the workflow's.
    program = own.PROGRAM if own and own.PROGRAM and not asked.launcher else words[0]
    why = failures.explain_exit(f"{program} or what it ran" if passed else program, code, starved) if code else ""
    if not code:
        lost = [path for path in (*asked.leaves, asked.sidecar) if not path.exists() or path.stat().st_size == 0]
        why = f"{program} ended well but left no {lost[0].name}" if lost else ""
    if why:
        raise CollectError(f"{failures.find_cause(printed) or why} (log: {log})")


def _say(path: Path, sidecar: Sidecar) -> None:
    """Print a plan's summary and, once per run, a note about times that were measured on the CPU."""
    if planned := sidecar.get("plan"):
        took = f"{path.parent.name} {sidecar['cell']['phase']}: ncu {planned['set']} took {sidecar['wall_s']:.0f} s"
        print(f"profzoo: {took}, {planned['estimate_s']:.0f} s were planned", file=sys.stderr)
    for line in sidecar["warnings"]:
        if line.startswith(OURS) and failures.is_first_time(line):
            print(f"profzoo: {path.with_suffix('')}: {line}", file=sys.stderr)
    if (why := sidecar.get("device_why")) and failures.is_first_time(why):
        print(f"profzoo: {path.with_suffix('')}: measured on the CPU: {why}", file=sys.stderr)


def run_job(
    job: Job,
    made: Made,
    log: Path,
    load: Path | None = None,
    plan: Path | None = None,
    build: Build = command_line.build_command,
) -> int:
    """Collect, and report failures on the console and in the log; returns the exit code. Failed jobs leave no files.

    job: description of the job (`Job`). made: files to make, by the names of the rule's outputs. load: path of the
    weights that the cell starts with. plan: path of a plan (JSON); its options go first. build: builds the command.
    """
    try:
        if why := failures.find_known_failure(job, made["sidecar"]):
            raise CollectError(why)
        with processes.raise_on_signals():
            collect_files(job, made, log, load, plan, build)
    except SystemExit:
        # Raised by a signal. If the command was running, the supervisor has already reported it.
        if supervisor.TOLD_TO_END not in failures.read_excerpt(log):
            _note(log, supervisor.TOLD_TO_END)
        raise
    except (CollectError, ConfigError, DataError, OSError) as error:
        line = failures.explain_os_error(error) if isinstance(error, OSError) else str(error)
        failures.note_failure(job, made["sidecar"], failures.strip_log_path(line))
        # The log may belong to a following job by now, or the disk may be full.
        if not isinstance(error, transaction.SupersededError):
            _note(log, line)
        print(f"profzoo: {line}", file=sys.stderr)
        return 1
    return 0


def _note(log: Path, line: str) -> None:
    # Do not follow a link, and do not write into a pipe without a reader.
    how = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError), os.fdopen(os.open(log, how, 0o666), "a") as file:
        print(f"profzoo: {line}", file=file)
