"""Plays rounds between two commands that run scripts: each run has processes of its own, in a new copy of its state.

A script is measured by what profzoo attaches to its process, which says through a pipe when the window of its steps
begins and ends. The clock is here. Because the script could write into the pipe too, no gain counts that whole
processes do not show, from their start to their end: directly, or beside shorter runs of the same commands.
"""

import argparse
import math
import os
import secrets
import select
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profzoo.cell import schema, settings
from profzoo.compare import numeric_checks, sides
from profzoo.compare.numeric_checks import OUTPUTS, WORDS, Check
from profzoo.errors import CollectError, ConfigError
from profzoo.machine import process_tree
from profzoo.referee import envelope, states
from profzoo.referee.exchange import CANDIDATE, REFERENCE, DifferentError, Header, InvalidError
from profzoo.referee.rounds import PRECISIONS, SETTING_UP, SETTING_UP_S, Options, Turn, check_copies
from profzoo.referee.states import State
from profzoo.script_harness import launcher, task
from profzoo.statistics import rounding_errors, sequential
from profzoo.statistics.speedup import FASTER, UNDECIDED

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import OutputSample

# Steps before each window, of the first runs and of shorter ones, and at most.
WARMUP, FEW_STEPS, MOST_STEPS = 3, 8, 20_000
# Seconds of a window, as a part of the budget, and at least and at most.
WINDOWS_OF_BUDGET, LEAST_WINDOW_S, MOST_WINDOW_S = 16, 1.0, 20.0
# Outputs are looked at in this phase, and losses in both.
PHASE = "inference"
# By how many units of rounding weights are nudged, and how many times as far off as that leads a candidate may be.
NUDGE, OF_NUDGE = 2.0, 8.0
# By how much the clocks of a window may differ, as a part of it and in seconds: a busy machine reads marks late.
LATE, LATE_S = 0.1, 0.1
# Caches of compiled code, which are of no use to the inputs of another seed; each side keeps its own.
COMPILED = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


@dataclass(frozen=True)
class Run:
    """A run of a command: seconds from its start to its end, those of its window, and what it said of itself."""

    whole_s: float
    window_s: float
    facts: Mapping[str, Any]


class WindowClock:
    """Notes when the marks of a window come through a pipe."""

    def __init__(self, path: Path) -> None:
        self.path, self._seen = path, list[tuple[int, float]]()
        os.mkfifo(path, 0o600)
        # Opened for writing too, so that it has no end while nobody writes.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Note no further marks."""
        os.close(self._end)
        self._thread.join()
        for one in (self._pipe, self._ended):
            os.close(one)

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._pipe, self._ended], [], [])
            now = time.monotonic()
            if self._pipe not in ready:
                return
            self._seen += [(one, now) for one in os.read(self._pipe, 4096)]

    def read_s(self) -> float | None:
        """Return the seconds between the two marks; None if others were seen."""
        words = bytes(word for word, _ in self._seen)
        return self._seen[1][1] - self._seen[0][1] if words == task.BEGUN + task.ENDED else None


class CommandMatch:
    """Two commands that play rounds; `open` first, and `close` in the end."""

    # Rounds are of whole processes, as those of trials.
    known, confirming = sequential.ASSUMED, "the clock of whole processes has"

    def __init__(self, reference: State, candidate: State, options: Options, home: Path) -> None:
        """home: a private folder."""
        self.options, self._home = options, home
        self._states = {REFERENCE: reference, CANDIDATE: candidate}
        self.notes: list[str] = []
        self.facts: Header = {"device": options.device}
        self.numbers = CommandChecks()
        self.turns: list[dict[str, Turn]] = []
        self.begun_at: list[int] = []
        self.steps = FEW_STEPS
        # Seconds of whole processes by round and side: of those with windows, and of shorter ones.
        self._whole: list[dict[str, float]] = []
        self._short: list[dict[str, float]] = []
        self._outside: dict[str, list[float]] = {REFERENCE: [], CANDIDATE: []}
        self._is_short_due = False
        self._order, self._own = secrets.token_hex(8), states.digest_package()
        self._told: dict[str, Mapping[str, Any]] = {}
        self._adopts = False

    @property
    def subject(self) -> str:
        """What is judged, in words."""
        return " against ".join(self._states[name].word for name in (CANDIDATE, REFERENCE))

    @property
    def states(self) -> tuple[State, State]:
        """The reference and the candidate."""
        return self._states[REFERENCE], self._states[CANDIDATE]

    @property
    def steps_of_turn(self) -> int:
        """Steps by which the times of a turn are divided, which are those of one step here."""
        return 1

    def expect_s(self) -> float:
        """Return about how many seconds another round takes."""
        return sum(self._whole[-1].values()) * (2 if self._is_short_due else 1) if self._whole else 0.0

    def open(self) -> None:
        """Run both commands for a few steps, check that they compute the same, and find how many steps a window has.

        Raises:
            RefusedError: the candidate is not to be compared.
            ConfigError: the reference cannot be run.
        """
        process_tree.adopt_orphans(True)
        self._adopts = True
        for state in self.states:
            _check_program(state)
        began, seed = time.monotonic(), _draw_seed()
        mine = self._run(REFERENCE, seed, FEW_STEPS)
        self.facts = {"device": mine.facts["device_type"]}
        step_s = mine.window_s / FEW_STEPS
        # Rounding is known from a run whose weights are a little off.
        declared = self.options.precision or mine.facts["script"]["observed"]["precision"]
        self.numbers.declare(declared)
        self.numbers.learn(mine.facts, self._run(REFERENCE, seed, FEW_STEPS, self.numbers.nudge).facts)
        self._compare(mine, self._run(CANDIDATE, seed, FEW_STEPS))
        window_s = min(max(self.options.budget_s / WINDOWS_OF_BUDGET, LEAST_WINDOW_S), MOST_WINDOW_S)
        self.steps = int(min(max(window_s / step_s, FEW_STEPS), MOST_STEPS))
        self.notes.append(f"setting up took {time.monotonic() - began:.1f} s")

    def close(self) -> None:
        """End what commands have left behind."""
        if self._adopts:
            process_tree.adopt_orphans(False)

    def play_round(self) -> float:
        """Run both commands with a seed that is drawn now; return the log of the candidate's over the reference's time.

        Raises:
            RefusedError: the candidate is not to be compared.
            ConfigError: the reference cannot be run.
        """
        self.begun_at.append(len(self.turns))
        order = sides.interleave((REFERENCE, CANDIDATE), len(self.turns) + 1, self._order)[-2:]
        seed = _draw_seed()
        if not self.turns:
            # Errors grow with the number of steps.
            nudged = self._run_longest(seed)
        # No program is to know by its number which step is the one behind the window, whose results are looked at.
        steps = self.steps if not self.turns else self.steps - secrets.randbelow(self.steps // 4 + 1)
        runs = {name: self._run(name, seed, steps) for name in order}
        if not self.turns:
            self.numbers.learn(runs[REFERENCE].facts, nudged.facts)
        self._compare(runs[REFERENCE], runs[CANDIDATE])
        self.turns.append({name: self._take(one, steps) for name, one in runs.items()})
        self._whole.append({name: one.whole_s for name, one in runs.items()})
        for name, one in runs.items():
            self._outside[name].append(one.whole_s - one.window_s)
        if self._is_short_due:
            self._short.append({name: self._run(name, seed, FEW_STEPS).whole_s for name in order})
        return math.log(runs[CANDIDATE].window_s / runs[REFERENCE].window_s)

    def _take(self, run: Run, steps: int) -> Turn:
        device_s = run.facts["step_ns"] / 1e9 if self.facts["device"] == "cuda" else None
        return Turn(wall_s=run.window_s / steps, device_s=device_s)

    def renew(self) -> None:
        """Play further rounds with shorter runs besides, which tell time in steps from the rest of whole processes."""
        self._is_short_due = True

    def confirm(self, decision: sequential.Decision) -> bool:
        """Return whether the clock of whole processes shows a gain too.

        Raises:
            InvalidError: it shows that there is none.
        """
        if decision.outcome != FASTER:
            return True
        whole = [math.log(one[CANDIDATE] / one[REFERENCE]) for one in self._whole]
        if self._decide(whole).outcome == FASTER:
            return True
        paired = list(zip(self._whole[len(self._whole) - len(self._short) :], self._short, strict=True))
        kept = [{name: long[name] - short[name] for name in long} for long, short in paired]
        if any(one[REFERENCE] <= 0 or one[CANDIDATE] <= 0 for one in kept):
            return False
        found = self._decide([math.log(one[CANDIDATE] / one[REFERENCE]) for one in kept])
        if found.outcome in (FASTER, UNDECIDED):
            return found.outcome == FASTER
        assert found.found
        raise InvalidError(
            "the candidate: its window takes less time, and by the clock of whole processes its steps take "
            f"{found.found.ratio:.2f} times as long as the reference's ({found.found.low:.2f} to "
            f"{found.found.high:.2f})"
        )

    def _decide(self, between: Sequence[float]) -> sequential.Decision:
        return sequential.decide(between, self.options.margin, known=self.known)

    def finish(self) -> dict[str, Any]:
        """Say what happens in a step of each side."""
        mine, its = (statistics.median(self._outside[name]) for name in (REFERENCE, CANDIDATE))
        self.notes.append(f"outside of the window, as for its start: {mine:.1f} -> {its:.1f} s")
        return {
            name: {"calls": told["script"]["per_step"], "flop": 0, "types": []} for name, told in self._told.items()
        }

    # Runs.

    def _run_longest(self, seed: int) -> Run:
        """Run the reference with nudged weights for a window, which becomes shorter if the reference does not last."""
        try:
            return self._run(REFERENCE, seed, self.steps, self.numbers.nudge)
        except launcher.FewStepsError as error:
            # The last one lies behind the window.
            self.steps = error.steps - WARMUP - 1
            if self.steps < FEW_STEPS:
                raise self._blame(REFERENCE, str(error)) from None
            return self._run(REFERENCE, seed, self.steps, self.numbers.nudge)

    def _run(self, name: str, seed: int, steps: int, nudge: float = 0.0) -> Run:
        """Run a command in a new copy of its state.

        Raises:
            FewStepsError: it ended before, with nudged weights.
            DifferentError, InvalidError: the candidate failed, or did what falsifies its times.
            ConfigError: the reference did.
        """
        check_copies(name, self._states[name], self._own)
        state, folder = self._states[name], Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._home))
        copy, temporary = folder / "state", folder / "tmp"
        shutil.copytree(state.folder, copy, symlinks=True)
        states.unlock(copy)
        temporary.mkdir()
        before = set(process_tree.list_descendants(os.getpid()))
        limit_s = max(SETTING_UP * self.options.budget_s, SETTING_UP_S)
        late = threading.Timer(limit_s, _end_others, (before,))
        try:
            late.start()
            with closing(WindowClock(folder / "marks")) as clock, (folder / "printed").open("wb") as printed:
                asked = argparse.Namespace(
                    at_least_s=0.0, marks=clock.path, nudge=nudge, printed=printed,
                    variables=self._variables(name, copy, temporary),
                )  # fmt: skip
                began = time.monotonic()
                facts = launcher.run_script(self._resolve(name, copy, seed, steps), asked)
                whole_s, window_s = time.monotonic() - began, clock.read_s()
        except CollectError as error:
            if isinstance(error, launcher.FewStepsError) and nudge:
                raise
            why = f"it did not end within {limit_s:.0f} s" if late.finished.is_set() else str(error)
            raise self._blame(name, envelope.quote(why.removeprefix(f"{name} {PHASE}: "), 500)) from None
        finally:
            late.cancel()
            left = _end_others(before)
            states.remove_copies(folder)
        self._check_run(name, window_s, facts, left)
        self._told[name] = facts
        return Run(whole_s, window_s or 0.0, facts)

    def _blame(self, name: str, why: str) -> Exception:
        """Return the error of a side that cannot be judged."""
        if name == REFERENCE:
            return ConfigError(f"the reference '{self._states[name].word}' cannot be run: {why}")
        return DifferentError(f"the candidate: {why}")

    def _check_run(self, name: str, window_s: float | None, facts: Mapping[str, Any], left: int) -> None:
        """Check that a run did nothing that falsifies its times."""
        own_s = facts["window_wall_ns"] / 1e9
        wrong = ""
        if window_s is None:
            wrong = "its window was not marked once by its beginning and once by its end"
        elif abs(own_s - window_s) > LATE * window_s + LATE_S:
            wrong = f"by its own clock its window took {own_s:.3f} s, and by the referee's {window_s:.3f} s"
        elif left:
            wrong = f"it has left {left} process{'es' if left > 1 else ''} behind"
        if wrong and name == CANDIDATE:
            raise InvalidError(f"the candidate: {wrong}")
        if wrong:
            raise self._blame(name, wrong)

    def _variables(self, name: str, copy: Path, temporary: Path) -> dict[str, str]:
        """Return variables by which runs are alike, and find neither the user's folder nor what an earlier one left."""
        here = Path.cwd()
        paths = [Path(path) for path in os.environ.get(launcher.PATHS, "").split(os.pathsep) if path]
        own = [copy / one.relative_to(here) if one.is_relative_to(here) else one for one in paths]
        caches = {one: str(self._home / f"{name}-{one}") for one in COMPILED if one not in os.environ}
        return {
            launcher.PATHS: os.pathsep.join(map(str, own)),
            "TMPDIR": str(temporary),
            "PYTHONHASHSEED": "0",
            **caches,
        }

    def _resolve(self, name: str, folder: Path, seed: int, steps: int) -> "CellSettings":
        config = schema.fill_defaults({}, schema.load_schema())
        own = {
            "command": self._states[name].command, "folder": str(folder), "warmup": WARMUP, "window": steps,
            "seed": seed, "phase": PHASE, "step": self.options.step, "device": self.options.device,
        }  # fmt: skip
        config["settings"] = {name: own | ({"threads": self.options.threads} if self.options.threads else {})}
        return settings.resolve_cell(name, PHASE, schema.BASELINE, config)

    def _compare(self, mine: Run, its: Run) -> None:
        """Compare what both sides have computed.

        Raises:
            DifferentError: they compute something else.
            InvalidError: the candidate computes in a coarser format than is declared.
        """
        coarse = its.facts["script"]["observed"]["precision"]
        if PRECISIONS.index(coarse) > PRECISIONS.index(self.numbers.declared):
            raise InvalidError(f"the candidate: it computes in {coarse}, and {self.numbers.declared} is declared")
        samples = mine.facts["batch"], its.facts["batch"]
        if all(samples) and samples[0] != samples[1]:
            raise DifferentError(
                f"the candidate: its steps have {samples[1]} samples, and the reference's {samples[0]}"
            )
        if its.facts["parameters"] < mine.facts["parameters"]:
            told = f"{its.facts['parameters']:,} parameters, and the reference {mine.facts['parameters']:,}"
            raise DifferentError(f"the candidate: it has {told}")
        self.numbers.compare(mine.facts, its.facts)


def _check_program(state: State) -> None:
    """Raise ConfigError unless the program of a state's command is there."""
    try:
        launcher.split_command(state.command, f"'{state.word}': --command", str(state.folder))
    except ConfigError as error:
        # The copy is of no use to whoever reads it.
        raise ConfigError(str(error).replace(str(state.folder), "there")) from None


def _draw_seed() -> int:
    return 1 + secrets.randbelow((1 << 31) - 1)


def _end_others(before: set[int]) -> int:
    """End all descendants of this process but those before; returns how many there were."""
    others = set(process_tree.list_descendants(os.getpid())) - before
    for one in others:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    return len(others)


# Checks what a candidate computes by losses and outputs of the reference with the same seed.


LOSSES = "losses"


class CommandChecks:
    """Checks of losses and outputs; errors that rounding explains are those of a run with nudged weights."""

    def __init__(self) -> None:
        self.declared, self.checks = "fp32", list[Check]()
        self._known: dict[str, list[float]] = {}
        self._unit, self._obstacle = rounding_errors.unit_of_rounding("fp32"), ""

    @property
    def nudge(self) -> float:
        """By what part of themselves weights are nudged."""
        return NUDGE * self._unit

    def declare(self, precision: str) -> None:
        """Note the number format that is declared."""
        self.declared, self._unit = precision, rounding_errors.unit_of_rounding(precision)

    def learn(self, mine: Mapping[str, Any], nudged: Mapping[str, Any]) -> None:
        """Learn from two runs of the reference how far rounding goes."""
        self._known = _differences(mine, nudged)
        self._obstacle = ""
        if not any(self._known.values()):
            self._obstacle = "the reference has neither a loss nor an output that could be looked at"
        for quantity in self._known:
            if self._known[quantity] and self._allow(quantity, 0) > rounding_errors.LOOSE:
                told = f"with the same seed its {quantity} of the first step differ by {self._known[quantity][0]:.2g}"
                self._obstacle = f"the reference does not repeat itself: {told}"

    def _allow(self, quantity: str, step: int) -> float:
        """Return the error of a quantity that is allowed in one of its steps."""
        if quantity == WORDS:
            return max([0.0, *self._known.get(quantity, [])]) * 3
        # What one step happens to hit exactly, another one does not.
        known = [*self._known.get(quantity, [])[: step + 1], *self._known.get(OUTPUTS, [])[:1]]
        return max([rounding_errors.ALWAYS_ALLOWED * self._unit, *(OF_NUDGE * one for one in known)])

    def compare(self, mine: Mapping[str, Any], its: Mapping[str, Any]) -> None:
        """Compare a candidate with the reference.

        Raises:
            DifferentError: it computes something else.
        """
        found = _differences(mine, its)
        for quantity, errors in found.items():
            if len(errors) < len(self._known.get(quantity, [])):
                told = f"{len(errors)} of its {quantity} are there, and {len(self._known[quantity])} of the reference's"
                if quantity == LOSSES and None in its["first_steps"]["losses"]:
                    told = "its losses are not finite"
                raise DifferentError(f"the candidate: {told}")
            for step, error in enumerate(errors):
                allowed = self._allow(quantity, step)
                if allowed > rounding_errors.LOOSE and quantity != WORDS:
                    break
                # A nudge comes once. Rounding adds to the weights' error in each update, and always alike at worst.
                allowed = min(allowed * (1 + _count_updates(mine, quantity, step)), rounding_errors.LOOSE)
                check = Check(quantity, error, allowed, allowed)
                if not error <= allowed:
                    self._refuse(check, mine, its)
                    return
                self.checks.append(check)

    def _refuse(self, check: Check, mine: Mapping[str, Any], its: Mapping[str, Any]) -> None:
        """Refuse a candidate whose numbers differ, unless other random numbers are why."""
        drawn = [facts["first_steps"]["draws"] for facts in (mine, its)]
        if self._obstacle:
            return
        if all(drawn) and drawn[0] != drawn[1]:
            self._obstacle = f"{check.describe()}, but it draws other random numbers"
            return
        raise DifferentError(f"the candidate: {check.describe()}")

    def explain_unchecked(self) -> str:
        """Say why numbers could not be compared; empty if they could."""
        return self._obstacle or ("" if self.checks else "there was nothing to compare")


def _differences(right: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return relative differences by quantity and step: losses of early steps and of the last one, and outputs.

    right, found: facts of two runs. A number that is missing in one of them only ends the series.
    """
    losses = [[*one["first_steps"]["losses"], one["loss"]] for one in (found, right)]
    outputs: list[float] = []
    words: list[float] = []
    several = [[*one["first_steps"]["outputs"], one["first_steps"]["last_outputs"]] for one in (found, right)]
    for its, mine in zip(*several, strict=False):
        floats, whole = _errors(its, mine)
        outputs += [rounding_errors.root_mean_square(floats)] if floats else []
        words += [sum(whole) / len(whole)] if whole else []
    return {LOSSES: numeric_checks.loss_errors(*losses), OUTPUTS: outputs, WORDS: words}


def _errors(its: "Sequence[OutputSample]", mine: "Sequence[OutputSample]") -> tuple[list[float], list[float]]:
    return numeric_checks.output_errors(its, mine) if mine else ([], [])


def _count_updates(facts: Mapping[str, Any], quantity: str, step: int) -> int:
    """Return how many updates of weights a run may have made before the value of a quantity at this place."""
    seen = facts["first_steps"]
    if not seen["losses"]:
        return 0
    early = len(seen["losses"] if quantity == LOSSES else seen["outputs"])
    return step if step < early else facts["steps"] + WARMUP
