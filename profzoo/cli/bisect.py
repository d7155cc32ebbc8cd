"""Finds the commit of a git repository, or the version of a package, that made a program slower: `profzoo bisect`.

Copies of commits are extracted by `git archive` into a private folder, and the program runs there, so nothing is
written into the user's checkout. What runs is a command, such as `python bench.py`, or a model's file, which the judge
runs.
"""

import argparse
import importlib
import importlib.util
import itertools
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profzoo.compare import contributions
from profzoo.errors import ConfigError, say
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.io import csv_tables as reading
from profzoo.machine import external_programs
from profzoo.referee import bisect, envelope
from profzoo.referee.states import extract_commit, find_commit
from profzoo.statistics import sequential
from profzoo.statistics.speedup import EQUIVALENT, FASTER, SLOWER

# Module of the judge, which runs models' files, and the form in which it takes a commit.
JUDGE, COMMIT = "profzoo.referee.judge", "git:{}"
ROUNDS, MARGIN, TIMEOUT_S = 500, 0.02, 600.0
# Seconds that each side of a judge's round works. Many short rounds answer sooner than few long ones.
TURN_S = 0.2
# A number alone on the last line of what a command prints is its time.
NUMBER = re.compile(r"[+]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
SHORT = 12
# Runs a script under torch.profiler; writes calls, and time in ns of the GPU or else of the CPU, by operator or kernel.
PROFILER = """
import json, os, runpy, sys
import torch
out, sys.argv = sys.argv[1], sys.argv[2:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
with torch.profiler.profile() as profile:
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit:
        pass
rows = profile.key_averages()
kind = "self_device_time_total" if any(row.self_device_time_total for row in rows) else "self_cpu_time_total"
json.dump({row.key: (row.count, 1e3 * getattr(row, kind)) for row in rows if getattr(row, kind)}, open(out, "w"))
"""


@dataclass(frozen=True)
class State:
    """A state of the history: what names it for git or pip, and what it is called for people."""

    word: str
    name: str


@dataclass
class CommandRounds:
    """Rounds of a command that runs with the copies of states.

    home: a private folder for the copies. prepare: makes one. inside: whether the command runs in the copy's folder.
    timeout: of a run, in seconds.
    """

    states: Sequence[State]
    command: Sequence[str]
    home: Path
    prepare: Callable[[str, Path], None]
    inside: bool = True
    timeout: float = TIMEOUT_S
    _ready: set[int] = field(default_factory=set)
    _order: Iterator[bool] = field(default_factory=lambda: itertools.cycle((False, True)))

    def measure(self, reference: int, candidate: int) -> float:
        """Run both states, the candidate first in every other round."""
        for place in (reference, candidate):
            if place not in self._ready:
                # The first run compiles and reads what later runs find ready.
                self._run(place)
                self._ready.add(place)
        places = (candidate, reference) if next(self._order) else (reference, candidate)
        times = {place: self._run(place) for place in places}
        return math.log(times[candidate] / times[reference])

    def describe_change(self, low: int, high: int) -> list[str]:
        """Return the operators or kernels that take another time in two states; none if no script with torch runs."""
        sides = [self._count_operators(place) for place in (low, high)]
        return [str(one) for one in bisect.name_changes(bisect.tabulate_operators(sides))] if all(sides) else []

    def _count_operators(self, place: int) -> Mapping[str, tuple[int, float]]:
        """Return calls and time in ns by operator or kernel."""
        program, *rest = self.command
        counted = self.home / f"operators.{place}.json"
        if not Path(program).name.startswith("python") or not rest or rest[0].startswith("-"):
            return {}
        with suppress(bisect.SkippedError, OSError, ValueError):
            self._execute(place, [program, "-c", PROFILER, str(counted), *rest])
            return {name: (int(calls), float(ns)) for name, (calls, ns) in json.loads(counted.read_text()).items()}
        return {}

    def _run(self, place: int) -> float:
        """Return the time that the command prints on its last line, or else the seconds that it takes."""
        began = time.perf_counter()
        lines = self._execute(place, self.command).strip().splitlines()
        took = time.perf_counter() - began
        printed = lines[-1].strip() if lines else ""
        said = float(printed) if NUMBER.fullmatch(printed) else took
        if not 0 < said < math.inf:
            raise bisect.SkippedError(place, f"it prints {printed} as its time, which is not above 0")
        return said

    def _execute(self, place: int, command: Sequence[str]) -> str:
        folder = self.home / str(place)
        if not folder.exists():
            try:
                self.prepare(self.states[place].word, folder)
            except ConfigError as error:
                raise bisect.SkippedError(place, str(error)) from None
        process = subprocess.Popen(
            command, cwd=folder if self.inside else None, env=os.environ | _python_path(folder),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            text=True, errors="replace",
        )  # fmt: skip
        try:
            printed, errors = process.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            raise bisect.SkippedError(place, f"it takes longer than {self.timeout:g} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode:
            last = (errors.strip() or printed.strip() or "no message").splitlines()[-1]
            raise bisect.SkippedError(place, f"exit code {process.returncode}: {envelope.quote(last, 120)}")
        return printed


def _python_path(folder: Path) -> dict[str, str]:
    """Let Python find modules in a state's folder first, also before those of an editable install."""
    places = [str(folder), str(folder / "src"), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, places))}


def list_commits(good: str, bad: str) -> list[State]:
    """Return the good commit and all that follow on it up to the bad one, along first parents.

    Raises:
        ConfigError: there is no such commit, or the bad one does not follow on the good one.
    """
    ends = [find_commit(one) for one in (good, bad)]
    log = ("log", "--first-parent", "--reverse", "--format=%H %s")
    listed = external_programs.ask_git(Path(), *log, f"{ends[0]}..{ends[1]}").stdout.splitlines()
    if not listed or external_programs.ask_git(Path(), "merge-base", *ends).stdout.strip() != ends[0]:
        raise ConfigError(f"{bad} does not follow on {good}: name an earlier commit first, and a later one second")
    first = external_programs.ask_git(Path(), "log", "-1", "--format=%H %s", ends[0]).stdout.strip()
    pairs = [line.partition(" ") for line in (first, *listed)]
    return [State(commit, f"{commit[:SHORT]} {envelope.quote(title, 60)}".strip()) for commit, _, title in pairs]


def install_version(version: str, to: Path) -> None:
    """Install a version of a package, such as numpy==2.1, into a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(to)]
    done = subprocess.run([*pip, version], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip() or "pip failed").splitlines()[-1]
        raise ConfigError(f"{version} cannot be installed: {envelope.quote(last, 200)}")


@dataclass
class JudgedRounds:
    """Rounds of a model's file in commits, which the judge runs."""

    states: Sequence[State]
    options: Any
    judge: Any
    starter: ProcessStarter = field(default_factory=lambda: ProcessStarter(fork=True))
    _open: ExitStack = field(default_factory=ExitStack)
    _rounds: dict[tuple[int, int], Callable[[], float]] = field(default_factory=dict)

    def measure(self, reference: int, candidate: int) -> float:
        """Run one more round of two commits; those of other questions are closed."""
        middle = candidate if reference == 0 and candidate != len(self.states) - 1 else reference or candidate
        try:
            if (reference, candidate) not in self._rounds:
                if self._rounds and not any(middle in pair for pair in self._rounds):
                    self.close()
                words = (COMMIT.format(self.states[place].word) for place in (reference, candidate))
                opened = self.judge.open_rounds(*words, self.options, self.starter)
                self._rounds[reference, candidate] = self._open.enter_context(opened)
            return self._rounds[reference, candidate]()
        except (self.judge.RefusedError, ConfigError) as error:
            raise bisect.SkippedError(middle, str(error)) from None

    def describe_change(self, low: int, high: int) -> list[str]:
        """Return how the operators that a step calls differ."""
        self.close()
        words = (COMMIT.format(self.states[place].word) for place in (low, high))
        with suppress(ConfigError):
            work = self.judge.judge(*words, self.options, starter=self.starter).work
            return [str(work["differs"])] if "differs" in work else []
        return []

    def close(self) -> None:
        """End the processes of all rounds."""
        self._open.close()
        self._open, self._rounds = ExitStack(), {}


@contextmanager
def _opened(options: argparse.Namespace, states: Sequence[State]) -> Iterator[CommandRounds | JudgedRounds]:
    if not options.command:
        if importlib.util.find_spec(JUDGE) is None:
            raise ConfigError("say what to run, as in `profzoo bisect GOOD BAD -- python bench.py`")
        judge = importlib.import_module(JUDGE)
        judged = JudgedRounds(states, judge.Options(module=options.module, phase=options.phase, turn_s=TURN_S), judge)
        try:
            yield judged
        finally:
            judged.close()
            judged.starter.close()
        return
    with tempfile.TemporaryDirectory(prefix="profzoo-bisect-") as home:
        prepare = install_version if options.versions else extract_commit
        yield CommandRounds(states, options.command, Path(home), prepare, not options.versions, options.timeout)


def run_search(options: argparse.Namespace) -> envelope.Envelope:
    """Run the search that a command line asks for, and describe what it found.

    Raises:
        ConfigError: something that is named is not there, or an end of the history does not run.
    """
    words = options.states
    states = [State(one, one) for one in words] if options.versions else list_commits(*words)
    ends = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
    with _opened(options, states) as opened:

        def measure(reference: int, candidate: int) -> float:
            if time.monotonic() > ends:
                raise bisect.SpentError
            return opened.measure(reference, candidate)

        say(f"{len(states) - 1} states after {states[0].name}")
        try:
            found = bisect.search(
                len(states), measure, options.budget, margin=options.margin, tell=lambda one: _tell(states, one)
            )
        except bisect.SkippedError as error:
            raise ConfigError(f"{states[error.place].name} does not run ({error}): choose ends that do") from None
        changes = _find_changes(options.parts, opened, found)
    return describe(states, found, changes)


def _tell(states: Sequence[State], probe: bisect.Probe) -> None:
    end = {bisect.GOOD: states[0], bisect.BAD: states[-1]}.get(probe.answer)
    like = f"as fast as {end.name}" if end else probe.answer
    say(f"{states[probe.place].name} is {like} ({probe.rounds} rounds)")


def _find_changes(parts: Path | None, opened: CommandRounds | JudgedRounds, found: bisect.Search) -> Sequence[str]:
    """Return what changed: by a table of parts, or else by operators on both sides of the change."""
    if parts:
        return [str(one) for one in bisect.name_changes(reading.read(str(parts), contributions.PARTS_TABLE))]
    return opened.describe_change(found.low, found.high) if found.outcome == bisect.FOUND else []


def describe(states: Sequence[State], found: bisect.Search, changes: Sequence[str] = ()) -> envelope.Envelope:
    """Return the answer of a search as an envelope."""
    question = ("bisect", states[0].word, states[-1].word)
    notes = [f"{states[place].name} was passed over: {why}" for place, why in sorted(found.skipped.items())]
    notes += [f"what changed: {one}" for one in changes]
    notes.append(
        f"{found.rounds} rounds, {len(found.probes)} answers; the state is wrong with at most {sequential.ERROR:.0%}"
    )
    subject = f"{states[0].name} to {states[-1].name}"
    whole = found.size
    if found.outcome == bisect.SAME and whole:
        return envelope.Envelope(question, (_claim(subject, EQUIVALENT, found.why, whole),), notes=notes)
    left = found.suspects
    if found.outcome != bisect.FOUND and (whole is None or len(left) == len(states) - 1):
        return envelope.Envelope(question, abstained=(envelope.Abstention(subject, found.why),), notes=notes)
    assert whole
    outcome = SLOWER if whole.ratio > 1 else FASTER
    told = f"{_percent(whole)} {outcome} from {states[0].name} to {states[-1].name}"
    if found.outcome == bisect.FOUND and found.step:
        share = math.log(found.step.ratio) / math.log(whole.ratio)
        says = f"{states[found.high].name} made it {_percent(found.step)} {outcome}, {share:.0%} of what made it {told}"
        return envelope.Envelope(question, (_claim(states[found.high].word, outcome, says, found.step),), notes=notes)
    among = f"{states[left[0]].name} to {states[left[-1]].name}"
    says = f"one of {len(left)} states, {among}, made it {told}"
    why = envelope.Abstention(among, found.why)
    return envelope.Envelope(question, (_claim(among, outcome, says, whole),), (why,), notes=notes)


def _claim(subject: str, outcome: str, says: str, ratio: Any) -> envelope.Claim:
    return envelope.Claim(
        id=f"bisect:{subject}", kind="comparison", subject=subject, outcome=outcome, says=says,
        value=ratio.ratio, low=ratio.low, high=ratio.high, unit="time / time before", confidence=1 - sequential.ERROR,
    )  # fmt: skip


def _percent(ratio: Any) -> str:
    return f"{abs(ratio.ratio - 1):.1%} ({abs(ratio.low - 1):.1%} to {abs(ratio.high - 1):.1%})"


def format_answer(answer: envelope.Envelope) -> list[str]:
    """Format an answer as lines for people."""
    told = [envelope.quote(one.says) for one in answer.claims]
    told += [f"not decided: {envelope.quote(one.subject)}: {one.why}" for one in answer.abstained]
    return [*told, *(f"  {envelope.quote(note)}" for note in answer.notes)]


def main(words: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    given, command = list(words), list[str]()
    if "--" in given:
        at = given.index("--")
        given, command = given[:at], given[at + 1 :]
    parser = _parser()
    options = parser.parse_intermixed_args(given)
    options.command = command
    if len(options.states) != 2 and not (options.versions and len(options.states) > 2):
        parser.error("name a good and a bad commit, or two or more versions with --versions, the oldest first")
    if options.versions and not command:
        parser.error("say what runs with each version, as in `-- python bench.py`")
    try:
        answer = run_search(options)
    except (ConfigError, OSError) as error:
        answer = envelope.fail(("bisect", *options.states), error, shlex.join(words))
        if not options.json:
            say(str(error))
    except KeyboardInterrupt:
        say("interrupted; the copies of states are removed")
        return 130
    if options.json:
        print(envelope.format_json(answer))
    elif not answer.error:
        print("\n".join(format_answer(answer)))
    return answer.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="profzoo bisect", description=__doc__, allow_abbrev=False,
        usage="%(prog)s GOOD BAD [options] [-- COMMAND ...]",
        epilog="The command runs in a copy of each state. A number alone on the last line that it prints is its time; "
        "without one, the time that it takes counts.",
    )  # fmt: skip
    parser.add_argument(
        "states", nargs="+", metavar="STATE", help="a good and a bad commit; with --versions, all versions"
    )
    parser.add_argument("--versions", action="store_true", help="states are what pip installs, such as numpy==2.1")
    parser.add_argument(
        "--budget", type=int, default=ROUNDS, metavar="ROUNDS", help=f"rounds at most; {ROUNDS} unless given"
    )
    parser.add_argument("--minutes", type=float, default=0.0, help="minutes at most; no limit unless given")
    parser.add_argument("--margin", type=float, default=MARGIN, help="relative difference that counts as none")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="S", help="seconds of a run at most")
    parser.add_argument("--module", default="", help="the model's file, if there is no command")
    parser.add_argument("--phase", default="inference", choices=("train", "inference"), help="of the model's file")
    parser.add_argument(
        "--parts", type=Path, metavar="CSV", help="tables/compare_parts.csv of both ends: names what changed"
    )
    parser.add_argument("--json", action="store_true", help="print an envelope")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
