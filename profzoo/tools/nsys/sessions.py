"""Opens and closes windows on a program that runs in a session of nsys, so that it need not be started again."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from profzoo.errors import CollectError, ConfigError, suggest_nearest
from profzoo.machine import external_programs
from profzoo.tools.nsys.command import GPU_METRICS, INSTALL, PROGRAM, adapt_options

# States of a session, as `nsys sessions list` names them: the program runs and nothing is recorded, or it is recorded.
LAUNCHED, COLLECTING = "Launched", "Collection"
LAUNCH = "start the program with `nsys launch --session-new=NAME --trace=cuda,nvtx,osrt python serve.py`"
ROW = re.compile(r"\s*(?P<number>\d+)\s+\S+\s+(?P<state>\S+)\s+(?P<programs>\d+)\s(?P<name>.*\S)\s*")
# Writing a report of a long window takes minutes.
STOP_S, ASK_S, POLL_S = 1800.0, 60.0, 1.0
# Values of --sample and --cpuctxsw, whose defaults differ by version and by how the program was started.
CHOICES = ("none", "process-tree", "system-wide")


class NoSessionError(ConfigError):
    """nsys knows no session of a name, or it runs no program any more; the message names those that do."""


@dataclass(frozen=True)
class Session:
    """A session of nsys; programs: how many were launched in it."""

    name: str
    state: str
    programs: int


def parse_sessions(printed: str) -> list[Session]:
    """Return the sessions that `nsys sessions list` prints.

    >>> parse_sessions(''' ID    TIME        STATE LAUNCH NAME
    ...  21230059   00:05     Launched      1 my server
    ... ''')
    [Session(name='my server', state='Launched', programs=1)]
    """
    found = [ROW.fullmatch(line) for line in printed.splitlines()]
    return [Session(one["name"], one["state"], int(one["programs"])) for one in found if one]


def list_sessions() -> list[Session]:
    """Return the sessions of nsys on this machine.

    Raises:
        CollectError: nsys is not here, or does not tell.
    """
    return parse_sessions(_ask("sessions", "list"))


def describe_sessions(sessions: Sequence[Session]) -> str:
    """Describe in words which sessions run a program, for messages.

    >>> describe_sessions([Session("server", "Launched", 1), Session("profile-7", "Idle", 0)])
    'the sessions with a program are: server'
    """
    names = [one.name for one in sessions if one.programs]
    return f"the sessions with a program are: {', '.join(names)}" if names else f"no session runs a program: {LAUNCH}"


def find_session(name: str) -> Session:
    """Return the session with a running program.

    nsys itself would make a new session for a wrong name, and record nothing.

    Raises:
        NoSessionError: there is no such session, or it runs no program.
        CollectError: nsys is not here, or does not tell.
    """
    sessions = list_sessions()
    mine = [one for one in sessions if one.name == name]
    if not mine:
        names = [one.name for one in sessions if one.programs]
        told = suggest_nearest(name, names) if names else describe_sessions(sessions)
        raise NoSessionError(f"nsys has no session {name!r}: {told}")
    if not mine[0].programs:
        raise NoSessionError(f"session {name!r} runs no program any more; {describe_sessions(sessions)}")
    return mine[0]


def runs_program(name: str) -> bool:
    """Return whether a session of this name runs a program.

    Raises:
        CollectError: nsys is not here, or does not tell.
    """
    return any(one.name == name and one.programs for one in list_sessions())


def choose_options(sample: str, cpuctxsw: str, gpu_metrics: bool) -> list[str]:
    """Return the options of `nsys start`, as the installed nsys spells them; sample, cpuctxsw: of CHOICES.

    Raises:
        ConfigError: this nsys does not sample metrics of GPUs.
    """
    words = [f"--sample={sample}", f"--cpuctxsw={cpuctxsw}", *[GPU_METRICS] * gpu_metrics]
    offered = external_programs.ask_program([PROGRAM, "start", "--help"]).stdout if gpu_metrics else ""
    return adapt_options(words, offered, gpu=True)


def start_window(name: str, report: Path, options: Sequence[str]) -> None:
    """Begin to record in a session; its program goes on as before. An earlier report of the same name is removed.

    options: of `nsys start`, such as --sample=none.

    Raises:
        ConfigError: there is no such session, or it is recorded already.
        CollectError: nsys refuses; the message says why.
    """
    if find_session(name).state == COLLECTING:
        raise ConfigError(f"session {name!r} is being recorded already: stop that first (--stop)")
    # Otherwise it could not be told from the report of this window.
    report.unlink(missing_ok=True)
    _ask("start", f"--session={name}", *options, "--force-overwrite=true", f"--output={report.absolute()}")


def stop_window(name: str) -> Path:
    """Stop to record in a session, and return the report; the program goes on.

    Raises:
        ConfigError: nothing is recorded in it, or there is no such session.
        CollectError: nsys refuses, or made no report.
    """
    if find_session(name).state != COLLECTING:
        raise ConfigError(f"session {name!r} is not being recorded: begin with --start")
    printed = _ask("stop", f"--session={name}", seconds=STOP_S)
    made = re.findall(r"^\s+(/.*\.nsys-rep)\s*$", printed, re.MULTILINE)
    if not made:
        raise CollectError(f"nsys stopped recording session {name!r} and made no report; it says: {_last(printed)}")
    return Path(made[-1])


def record_window(name: str, report: Path, options: Sequence[str], wait: Callable[[], object]) -> bool:
    """Record a session while `wait` runs; returns whether its program still ran at the end.

    The report is complete also where the program ended before, or `wait` was interrupted.

    Raises:
        ConfigError, CollectError: as start_window and stop_window.
        KeyboardInterrupt: `wait` was interrupted; the report is made before.
    """
    start_window(name, report, options)
    try:
        wait()
    finally:
        runs = _stop_or_await(name, report)
    if not report.exists():
        raise CollectError(f"the program of session {name!r} ended, and nsys made no report {report}")
    return runs


def _stop_or_await(name: str, report: Path) -> bool:
    """Stop to record, or wait until nsys has made the report of a program that ended; returns whether it still runs."""
    until = time.monotonic() + STOP_S
    while time.monotonic() < until:
        states = [one.state for one in list_sessions() if one.name == name]
        if COLLECTING in states:
            try:
                stop_window(name)
            except (CollectError, ConfigError):
                # It may have ended just now.
                if any(one.name == name and one.state == COLLECTING for one in list_sessions()):
                    raise
                continue
            return True
        if not states or LAUNCHED in states:
            return False
        time.sleep(POLL_S)
    return False


def _ask(*words: str, seconds: float = ASK_S) -> str:
    answer = external_programs.ask_program([PROGRAM, *words], seconds)
    if answer.returncode == external_programs.MISSING:
        raise CollectError(f"nsys is not on PATH: {INSTALL}")
    if answer.returncode:
        raise CollectError(f"`nsys {words[0]}` failed: {_first(answer.stderr or answer.stdout)}")
    return answer.stdout


def _first(said: str) -> str:
    return next((line.strip() for line in said.splitlines() if line.strip()), "it says nothing")


def _last(said: str) -> str:
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "nothing")
