"""Records a window of a program that runs in a session of nsys, and says or does what imports the report."""

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from profzoo.cell import schema
from profzoo.cli import attach_run
from profzoo.errors import CollectError, ConfigError
from profzoo.tools.nsys import sessions

# Seconds that are recorded unless told otherwise.
SECONDS = 10.0
# Seconds between two looks at whether the program still runs.
LOOK_S = 10.0
# A day. Reports of minutes already take long to make.
LONGEST_S = 86400.0
ENDING = ".nsys-rep"
# What takes no nsys: the program records itself.
WITHOUT_NSYS = {attach_run.ARM: attach_run.main_arm, attach_run.ATTACH: attach_run.main_attach}
EXAMPLE = "python -m profzoo session server --seconds 10 --name run7"


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    if words and words[0] in WITHOUT_NSYS:
        return WITHOUT_NSYS[words[0]](words[1:])
    parser = _parser()
    options = parser.parse_args(words)
    if not 0 < options.seconds <= LONGEST_S:
        parser.error(f"--seconds {options.seconds:g}: give a time above 0, and of at most {LONGEST_S:g}")
    if not options.session and len(words):
        parser.error(f"name the session, as in `{EXAMPLE}`; `python -m profzoo session` lists those that there are")
    try:
        if not options.session:
            return _list()
        return _stop(options) if options.stop else _record(options)
    except (CollectError, ConfigError) as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"profzoo: interrupted; {_report(options)} holds the time until then", file=sys.stderr)
        return 130


def _list() -> int:
    found = sessions.list_sessions()
    for one in found:
        if one.programs:
            print(f"{one.name}  {'is being recorded' if one.state == sessions.COLLECTING else 'runs'}")
    print(f"record one: {EXAMPLE}" if any(one.programs for one in found) else sessions.describe_sessions(found))
    return 0


def _record(options: argparse.Namespace) -> int:
    report = _report(options)
    if report.exists() and not options.force:
        raise ConfigError(f"{report} exists already: choose another one with --name or --output, or add --force")
    if not report.parent.is_dir():
        raise ConfigError(f"the folder {report.parent} of the report does not exist")
    chosen = sessions.choose_options(options.sample, options.cpuctxsw, options.gpu_metrics)
    if options.start:
        sessions.start_window(options.session, report, chosen)
        print(f"recording; `python -m profzoo session {shlex.quote(options.session)} --stop` ends it")
        return 0

    def wait() -> None:
        print(f"recording session {options.session} for {options.seconds:g} s", flush=True)
        left = options.seconds
        while left > 0:
            time.sleep(min(left, LOOK_S))
            left -= LOOK_S
            if left > 0 and not sessions.runs_program(options.session):
                return

    if not sessions.record_window(options.session, report, chosen, wait):
        print(f"the program of session {options.session} ended within the window, so it is shorter")
    return _import(options, report)


def _stop(options: argparse.Namespace) -> int:
    try:
        report = sessions.stop_window(options.session)
    except sessions.NoSessionError as error:
        # nsys completes the report of a program that ends, and forgets its session.
        if not (report := _report(options)).exists():
            raise
        raise ConfigError(f"{error}; if its program ended while it was recorded, {report} is complete") from None
    return _import(options, report)


def _import(options: argparse.Namespace, report: Path) -> int:
    """Import a report into the workflow where that is wanted, or say how."""
    name = options.name or (propose_name(report.name.removesuffix(ENDING)) if options.stop else _name(options))
    shown = report.relative_to(Path.cwd()) if report.is_relative_to(Path.cwd()) else report
    command = ["snakemake", "import", "--config", f"nsys={shown}", f"name={name}"]
    if not options.to_import:
        print(f"report  {shown}\nimport  {shlex.join(command)}")
        return 0
    if not Path("Snakefile").exists():
        raise ConfigError(f"{shown} is recorded; there is no Snakefile here to import it: {shlex.join(command)}")
    return subprocess.run([sys.executable, "-m", *command], check=False).returncode


def _name(options: argparse.Namespace) -> str:
    """Return the name under which a report is imported."""
    name: str = options.name or propose_name(options.session)
    if not schema.is_name(name, "model"):
        raise ConfigError(f"--name {name!r} is not a valid name of a model ({schema.describe_form('model')})")
    return name


def _report(options: argparse.Namespace) -> Path:
    """Return the file of the report; nsys would replace any other ending, and so write another file."""
    given = options.output or _name(options)
    return Path(given if given.endswith(ENDING) else f"{given}{ENDING}")


def propose_name(session: str) -> str:
    """Propose a name for what was recorded: that of the session, with what a name may not hold replaced.

    >>> propose_name("my server:8000"), propose_name("7")
    ('my_server_8000', 'session_7')
    """
    found = re.sub(r"[^A-Za-z0-9_-]", "_", session)
    return found if schema.is_name(found, "model") else f"session_{found}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m profzoo session", description=__doc__, allow_abbrev=False)
    parser.add_argument("session", nargs="?", help="name of the session, by `nsys launch --session-new=NAME`")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"how long to record; {SECONDS:g} unless given")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--start", action="store_true", help="begin to record, and leave the end to --stop")
    ends.add_argument("--stop", action="store_true", help="end what --start began")
    parser.add_argument("--name", help="name of the recording in results/; that of the session unless given")
    parser.add_argument("--output", help=f"file of the report; NAME{ENDING} unless given")
    parser.add_argument("--force", action="store_true", help="overwrite the report if it exists")
    parser.add_argument("--import", dest="to_import", action="store_true", help="import the report: tables and page")
    parser.add_argument("--gpu-metrics", action="store_true", help="sample the GPU's metrics, which needs permission")
    for option, means in (("--sample", "CPU samples"), ("--cpuctxsw", "context switches")):
        parser.add_argument(option, choices=sessions.CHOICES, default="none", help=f"{means}, which need permission")
    return parser
