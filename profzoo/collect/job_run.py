"""Runs one collecting job: sets its environment, logs its output, writes its sidecar, and explains failures."""

import datetime
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from profzoo import extensions, tools
from profzoo.cell import secret_values
from profzoo.cell.cell_types import CellSettings
from profzoo.cell.job_types import Job, Sidecar
from profzoo.cell.plan_types import Plan
from profzoo.collect import (
    command_line,
    failure_causes,
    inprocess_baseline,
    job_environment,
    logs,
    output_checks,
    provenance,
    retries,
    run_state,
    secret_leaks,
    source_files,
    transaction,
)
from profzoo.collect.command_line import Command, Made
from profzoo.collect.transaction import Transaction
from profzoo.errors import CollectError, ConfigError, DataError
from profzoo.import_graph import PROJECT
from profzoo.io import file_checks
from profzoo.io import sidecars as fact
from profzoo.machine import external_programs, gpus, namespace, oom_kills, processes, supervisor
from profzoo.machine.gpu_turns import GpuTurn
from profzoo.machine.processes import ProcessLimits
from profzoo.records import derived_outputs, record
from profzoo.records.record import Record

SHARED = "another process used the GPU, so that times and counters include its work"
EXPOSED = "the report may contain command lines and environments of other processes: a PID namespace is not available"
OURS = (SHARED, EXPOSED)
# Keys of a plan.
PLAN: fact.Needs = {"options": fact.TEXTS, "estimate_s": fact.NUMBER, "set": fact.TEXT}
# Function that builds a command from a job, the files to make, the options of a plan, and the weights to load.
Build = Callable[[Job, Made, Sequence[str], Path | None], Command]

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
        before = source_files.current_digests(job)
        sidecar = _measured(job, asked, log, planned)
        changed = source_files.changed_sources(before, source_files.current_digests(job))
        secret_leaks.check_for_secrets(asked.made.values(), log, os.environ, job["environment"], nodes)
        sidecar |= {"command": [work.final(word) for word in sidecar["command"]], "run": work.run}
        # The weights of sides are inputs, identified by their content.
        goes_by = {key: value for key, value in job.items() if key != "weights"}
        made_of = Record(goes_by, _named(started_with, made["sidecar"]), before, changed)
        _leave(asked, work, sidecar, made_of)
        output_checks.check_outputs(job, work.private, work.run)
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
    timed = asked.made.get(inprocess_baseline.TIMED)
    files = [path for name, path in work.private.items() if path not in (asked.sidecar, timed)]
    if timed:
        sidecar, beside = inprocess_baseline.split_sidecar(sidecar, work.made["sidecar"].name)
        timed.write_text(record.seal(beside | record.sidecar_part(replace(made_of, files=record.make_entries(files)))))
        files.append(timed)
    asked.sidecar.write_text(
        record.seal(sidecar | record.sidecar_part(replace(made_of, files=record.make_entries(files))))
    )


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
    code_version = provenance.git_commit(PROJECT, cell.get("module", "models"))
    sees = bool(own and own.SEES_OTHERS)
    exposed = _exposed(cell) if sees else None
    sampled = job["tool"] in tools.that(tools.SAMPLE)
    estimate_s = planned["estimate_s"] if planned else None
    around = job_environment.prepare_job(job, candidates, estimate_s, sees and not exposed, sampled)
    with around as (environment, held, guard):
        # These processes do not belong to this workflow, as its jobs hold their GPUs.
        beside = gpus.describe_gpu_processes(held.words)
        # The scratch folder exists only on the first node.
        environment |= extensions.inherited_variables()
        environment |= secret_values.hand_over_secrets(
            job, asked.sidecar.parent if cell.get("nodes", 1) > 1 else Path(guard.scratch)
        )
        started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
        printed, lost = retries.run_with_retry(asked, lambda: _once(asked, program, log, environment, guard))
        waited = held.waited_s if isinstance(held, GpuTurn) else 0.0
        wall, mine = time.monotonic() - clock - waited, held.words
        beside = list(dict.fromkeys([*beside, *gpus.describe_gpu_processes(mine)]))
    facts = output_checks.read_program_facts(asked.sidecar)
    if wrong := unheld_gpus(cast(Sidecar, facts), mine, found):
        raise CollectError(f"ran on {', '.join(wrong)}, but the job held {', '.join(mine)} (log: {log})")
    return {
        **job,
        "command": list(program),
        **(gpus.describe_gpu(mine[0], found) if mine else {}),
        **facts,
        **code_version,
        "tool_version": tool_version or f"torch {facts.get('torch')}",
        "host": socket.gethostname(),
        "started": started.isoformat(timespec="seconds"),
        "wall_s": round(wall, 3),
        **({"waited_s": round(waited, 3)} if isinstance(held, GpuTurn) else {}),
        "warnings": failure_causes.find_warnings(printed)
        + [f"{SHARED}: {other}" for other in beside]
        + ([exposed] if exposed else []),
        **lost,
        **({"plan": planned} if planned else {}),
    }


def _once(
    asked: Command, program: Sequence[str], log: Path, environment: Mapping[str, str], guard: ProcessLimits
) -> str:
    """Run a command once and check that it succeeded and left its files; returns its output."""
    kills = oom_kills.count_oom_kills()
    try:
        code = job_environment.run_logged(program, log, environment, guard)
    finally:
        secret_leaks.mask_settings(log)
    printed = logs.read_excerpt(log)
    _check(asked, program, code, printed, log, oom_kills.count_oom_kills() > kills)
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
    why = (
        failure_causes.explain_exit(f"{words[0]} or what it ran" if passed else words[0], code, starved) if code else ""
    )
    if not code:
        lost = [path for path in (*asked.leaves, asked.sidecar) if not path.exists() or path.stat().st_size == 0]
        why = f"{words[0]} ended well but left no {lost[0].name}" if lost else ""
    if why:
        raise CollectError(f"{failure_causes.find_cause(printed) or why} (log: {log})")


def _say(path: Path, sidecar: Sidecar) -> None:
    """Print a plan's summary and, once per run, a note about times that were measured on the CPU."""
    if planned := sidecar.get("plan"):
        took = f"{path.parent.name} {sidecar['cell']['phase']}: ncu {planned['set']} took {sidecar['wall_s']:.0f} s"
        print(f"profzoo: {took}, {planned['estimate_s']:.0f} s were planned", file=sys.stderr)
    for line in sidecar["warnings"]:
        if line.startswith(OURS) and run_state.is_first_time(line):
            print(f"profzoo: {path.with_suffix('')}: {line}", file=sys.stderr)
    if (why := sidecar.get("device_why")) and run_state.is_first_time(why):
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
        if why := run_state.find_known_failure(job, made["sidecar"]):
            raise CollectError(why)
        with processes.raise_on_signals():
            collect_files(job, made, log, load, plan, build)
    except SystemExit:
        # Raised by a signal. If the command was running, the supervisor has already reported it.
        if supervisor.TOLD_TO_END not in logs.read_excerpt(log):
            _note(log, supervisor.TOLD_TO_END)
        raise
    except (CollectError, ConfigError, DataError, OSError) as error:
        line = failure_causes.explain_os_error(error) if isinstance(error, OSError) else str(error)
        run_state.note_failure(job, made["sidecar"], logs.strip_log_path(line))
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
