"""Runs one collecting command: a small environment, its output in a log, a sidecar, and plain words on failure."""

import datetime
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.collect import diagnose, surroundings
from profzoo.collect.command import Command
from profzoo.errors import CollectError, ConfigError
from profzoo.imports import PROJECT
from profzoo.machine import gpus, programs

# Of the checkout, what jobs run: files there count as changes of it even where git does not know them.
CODE = ("Snakefile", "workflow", "profzoo", "models", "config", "profiles")


def slurm(given: Mapping[str, str]) -> list[str]:
    """The variables by which a Slurm job's commands know it."""
    return [key for key in given if key.startswith("SLURM_")]


def commit(folder: Path, module: str = "models") -> dict[str, Any]:
    """The git commit of the workflow, and whether code that a job may run differs from it; empty where git tells none.

    module: that of the cell's model. Files that git does not know count where code lies; results do not.
    """
    git, package = ["git", "-C", str(folder)], module.partition(".")[0]
    head = programs.answer([*git, "rev-parse", "HEAD"])
    if head.returncode:
        return {}
    status = [*git, "status", "--porcelain"]
    code = [*CODE, package, f"{package}.py"]
    asked = [[*status, "--untracked-files=no", "--", "."], [*status, "--untracked-files=normal", "--", *code]]
    changed = [programs.answer(command) for command in asked]
    if any(answer.returncode for answer in changed):
        return {"commit": head.stdout.strip()}
    return {"commit": head.stdout.strip(), "commit_changed": any(answer.stdout.strip() for answer in changed)}


def words(command: Command, gpu: bool) -> list[str]:
    """The command's words, as the program that is here takes them; gpu: whether the cell will run on one.

    Raises:
        CollectError, ConfigError: the program is not there, or cannot run so.
    """
    tool, (first, *_) = tools.commands().get(command.tool), [*command.profiler, *command.program]
    # Of several processes, another program may run the profiler.
    needed = [first, *([tool.PROGRAM] if tool and tool.PROGRAM else [])]
    for program in needed:
        if not shutil.which(program):
            advice = f": {tool.INSTALL}; `snakemake doctor` says what is there" if tool and tool.INSTALL else ""
            raise CollectError(f"{program} is not on PATH{advice}")
    measured = [*command.profiler, *command.program]
    return [*command.launcher, *(tool.prepared(measured, gpu) if tool else measured)]


def elsewhere(facts: Mapping[str, Any], mine: Sequence[str], found: Sequence[Mapping[str, str]]) -> list[str]:
    """UUIDs of GPUs here that the command says it ran on, and that were not held for it.

    Of a part of a GPU (MIG) it may tell a UUID that nvidia-smi does not list, which says nothing.
    """
    said = [process.get("device_uuid") for process in facts.get("ranks", [facts])]
    here = {gpu["gpu_uuid"] for gpu in found}
    return sorted({uuid for uuid in said if uuid in here and uuid not in mine}) if mine else []


def collect(job: Mapping[str, Any], asked: Command, log: Path, planned: Mapping[str, Any]) -> None:
    """Run a command and leave its sidecar.

    Raises:
        CollectError, ConfigError: the tool is not there, failed, left nothing, or ran on another GPU than it was given.
    """
    cell = job["cell"]
    found = gpus.present() if cell["device"] != "cpu" else []
    candidates = gpus.candidates(os.environ, found)
    command = words(asked, bool(candidates))
    asked.sidecar.unlink(missing_ok=True)
    if "ranks" in asked.made:
        shutil.rmtree(asked.made["ranks"], ignore_errors=True)
        asked.made["ranks"].mkdir()
    own = tools.commands().get(asked.tool)
    count, several = cell.get("gpus", 1), cell.get("nodes", 1) > 1
    # Slurm starts processes on other nodes, where it says which GPUs are theirs, and where the scratch is not.
    env = surroundings.environment(os.environ, [*job["environment"], *(slurm(os.environ) if several else [])])
    env |= surroundings.threads(len(os.sched_getaffinity(0)), len(candidates), count)
    # Asked before the command runs: what goes wrong here must not cost a measurement, and code may change meanwhile.
    tool_version = programs.version(own.PROGRAM) if own and own.PROGRAM else None
    code_version = commit(PROJECT, cell.get("module", "models"))
    with (
        surroundings.own_gpus(count, [] if several else candidates) as mine,
        tempfile.TemporaryDirectory(prefix="profzoo-") as scratch,
    ):
        # ncu waits for others at a lock in TMPDIR, which jobs on different GPUs need not do.
        env |= {} if several else {"TMPDIR": scratch}
        env |= {gpus.VISIBLE: ",".join(mine)} if mine else {}
        started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
        code = surroundings.run(command, log, env)
        wall = time.monotonic() - clock
    printed = log.read_text(errors="replace")
    if code:
        reason = diagnose.cause(printed) or f"{command[0]} ended with exit code {code}"
        raise CollectError(f"{reason} (log: {log})")
    for path in [*asked.leaves, asked.sidecar]:
        if not path.exists() or path.stat().st_size == 0:
            reason = diagnose.cause(printed) or f"{command[0]} ended well but left no {path.name}"
            raise CollectError(f"{reason} (log: {log})")
    if own:
        own.settle(asked.made)
    facts = json.loads(asked.sidecar.read_text())
    if wrong := elsewhere(facts, mine, found):
        raise CollectError(f"ran on {', '.join(wrong)}, and {', '.join(mine)} was held for it (log: {log})")
    sidecar = {
        **job,
        "command": list(command),
        **(gpus.named(mine[0], found) if mine else {}),
        **facts,
        **code_version,
        "tool_version": tool_version or f"torch {facts['torch']}",
        "host": socket.gethostname(),
        "started": started.isoformat(timespec="seconds"),
        "wall_s": round(wall, 3),
        "warnings": diagnose.warnings(printed),
    }
    if planned:
        sidecar["plan"] = planned
    asked.sidecar.write_text(json.dumps(sidecar, indent=1, sort_keys=True) + "\n")
    _say(asked.sidecar, sidecar)


def _say(path: Path, sidecar: Mapping[str, Any]) -> None:
    """On the console, what a plan came to, and that a cell ran on the CPU."""
    if planned := sidecar.get("plan"):
        took = f"{path.parent.name} {sidecar['cell']['phase']}: ncu {planned['set']} took {sidecar['wall_s']:.0f} s"
        print(f"profzoo: {took}, {planned['estimate_s']:.0f} s were planned", file=sys.stderr)
    if why := sidecar.get("device_why"):
        print(f"profzoo: {path.with_suffix('')} is of the CPU: {why}", file=sys.stderr)


def ended(job: Mapping[str, Any], asked: Command, log: Path, planned: Mapping[str, Any] | None = None) -> int:
    """Collect, and say on the console and in the log what went wrong; exit code. What failed leaves nothing."""
    try:
        collect(job, asked, log, planned or {})
    except (CollectError, ConfigError) as error:
        with log.open("a") as file:
            print(f"profzoo: {error}", file=file)
        print(f"profzoo: {error}", file=sys.stderr)
        _forget(asked)
        return 1
    except SystemExit:
        # A signal.
        _forget(asked)
        raise
    return 0


def _forget(asked: Command) -> None:
    """Remove what a command left that did not end well."""
    for path in [*asked.leaves, *asked.aside, asked.sidecar]:
        path.unlink(missing_ok=True)
