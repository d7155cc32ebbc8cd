"""Runs one collecting command: a small environment, its output in a log, a sidecar, and plain words on failure."""

import datetime
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.collect import diagnose, provenance, secrets, surroundings
from profzoo.collect.command import Command
from profzoo.errors import CollectError, ConfigError
from profzoo.imports import PROJECT
from profzoo.machine import gpus, programs


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
    cell, own = job["cell"], tools.commands().get(asked.tool)
    found = gpus.present() if cell["device"] != "cpu" else []
    candidates = gpus.candidates(os.environ, found)
    command = words(asked, bool(candidates))
    _make_room(asked)
    # Asked before the command runs: what goes wrong here must not cost a measurement, and code may change meanwhile.
    tool_version = programs.version(own.PROGRAM) if own and own.PROGRAM else None
    code_version = provenance.commit(PROJECT, cell.get("module", "models"))
    with surroundings.of_job(job, candidates) as (environment, mine):
        started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
        code = surroundings.run(command, log, environment)
        wall = time.monotonic() - clock
    printed = log.read_text(errors="replace")
    _check(asked, command[0], code, printed, log)
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
        **({"plan": planned} if planned else {}),
    }
    asked.sidecar.write_text(json.dumps(sidecar, indent=1, sort_keys=True) + "\n")
    _say(asked.sidecar, sidecar)


def _make_room(asked: Command) -> None:
    """Remove the sidecar of an earlier run, and have an empty folder for what each of several processes leaves."""
    asked.sidecar.unlink(missing_ok=True)
    if ranks := asked.made.get("ranks"):
        shutil.rmtree(ranks, ignore_errors=True)
        ranks.mkdir()


def _check(asked: Command, program: str, code: int, printed: str, log: Path) -> None:
    """That the command ended well and left its files; CollectError, with the cause as far as that is known."""
    why = f"{program} ended with exit code {code}" if code else ""
    if not code:
        lost = [path for path in (*asked.leaves, asked.sidecar) if not path.exists() or path.stat().st_size == 0]
        why = f"{program} ended well but left no {lost[0].name}" if lost else ""
    if why:
        raise CollectError(f"{diagnose.cause(printed) or why} (log: {log})")


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
        secrets.check(
            [*asked.made.values(), *asked.leaves, asked.sidecar],
            log,
            os.environ,
            job["environment"],
            job["cell"].get("nodes", 1),
        )
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
    for path in [*asked.leaves, *asked.aside, asked.sidecar, *asked.made.values()]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
