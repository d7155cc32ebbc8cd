"""Plays rounds between two states of a program: both run the same steps in turn, by the referee's clock and inputs.

Each state has a process of its own (`contestant`), and this one never imports what it judges. The clock of a turn runs
from the moment in which the seed of its inputs is drawn until results of all steps are here as bytes. While one side
works, the processes of the other one are stopped.
"""

import math
import os
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from profzoo.compare import sides
from profzoo.errors import ConfigError
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.machine import process_tree
from profzoo.records import digests
from profzoo.referee import envelope, states
from profzoo.referee.exchange import (
    CANDIDATE,
    REFERENCE,
    Asked,
    DifferentError,
    Header,
    InvalidError,
    RefusedError,
    Side,
    find_strays,
    list_children,
)
from profzoo.referee.result_checks import ResultChecks
from profzoo.referee.states import State
from profzoo.statistics import sequential

# Number formats from the finest to the coarsest one.
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
# Seconds that a turn lasts, as a part of the budget, and at least and at most.
# Processes that live on a GPU for several rounds decide sooner by more and shorter turns.
TURNS_OF_BUDGET, LEAST_TURN_S, MOST_TURN_S = {"cpu": 48, "cuda": 75}, 0.04, 1.0
# Steps of a go of a training, which begins with the reference's weights: rounding grows from step to step.
TRAINED, MOST_STEPS, MOST_GOES = 8, 4096, 64
# Results of a go that a contestant keeps, in bytes, and how many of them the referee looks at.
KEPT_BYTES, WHOLE, SAMPLED, TENSORS, OF_TENSOR = {"cpu": 1 << 28, "cuda": 1 << 30}, 1 << 16, 1 << 16, 48, 256
# Turns of each side in a round. On a CPU each round has processes of its own, as one may stay on a core that others
# use.
TURNS = {"cpu": 2, "cuda": 1}
# Rounds that a pair of processes plays on a GPU.
LEAST_ROUNDS, MOST_ROUNDS = 2, 8
# Seconds that setting up takes at most, as a part of the budget and at least, and an answer besides twenty turns.
SETTING_UP, SETTING_UP_S, ANSWERING_S = 4, 120.0, 60.0
# A process that nobody has asked for anything is left alone for a while, and then looked at.
SETTLING_S, QUIET_S, BUSY_S = 0.1, 0.3, 0.08
# A clock may be so much off, relative to a turn and in seconds; and so much later than its steps may results come.
OFF, OFF_S, LATE, LATE_S = 0.02, 0.002, 0.25, 0.25
# More cores than threads, and seconds of them, that do not count.
MORE, MORE_S = 0.3, 0.1


@dataclass(frozen=True)
class Options:
    """How two states are judged.

    module: file of the program, empty for the only one. shape: sizes in place of those of the workload. threads: of
    torch, 0 for its own choice. budget_s: seconds in all. margin: largest relative difference of times that counts as
    equivalent. turn_s: seconds of a turn, 0 for a part of the budget. command: runs a script in place of a model's
    file. step: the event that ends a step of a script, as in the settings. precision: empty for the reference's own.
    """

    module: str = ""
    phase: str = "inference"
    shape: Mapping[str, Any] = field(default_factory=dict)
    workload: str = ""
    device: str = "auto"
    precision: str = "fp32"
    threads: int = 0
    budget_s: float = 60.0
    margin: float = 0.02
    turn_s: float = 0.0
    command: str = ""
    step: str = "auto"

    def choose_turn_s(self, device: str) -> float:
        """Return the seconds that a turn should last on this type of device."""
        return self.turn_s or min(max(self.budget_s / TURNS_OF_BUDGET[device], LEAST_TURN_S), MOST_TURN_S)


@dataclass
class Turn:
    """What one side did in a turn: seconds by each clock, CPU seconds of all and of the busiest thread, and values."""

    wall_s: float = 0.0
    own_s: float = 0.0
    used_s: float = 0.0
    busiest_s: float = 0.0
    device_s: float | None = None
    values: list[list[np.ndarray]] = field(default_factory=list)

    def add(self, other: "Turn") -> None:
        """Add the times of another turn."""
        self.wall_s, self.own_s = self.wall_s + other.wall_s, self.own_s + other.own_s
        self.used_s, self.busiest_s = self.used_s + other.used_s, self.busiest_s + other.busiest_s
        if other.device_s is not None:
            self.device_s = (self.device_s or 0.0) + other.device_s


@dataclass
class Pair:
    """Processes of both sides, by the side; stack: ends them."""

    sides: dict[str, Side] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """End the processes."""
        self.stack.close()


class Match:
    """Two states that play rounds; `open` first, and `close` in the end."""

    # Turns are short, so that their spread is that of the machine in this minute. Nothing is known of it before.
    known, confirming = sequential.Spread(1.0, 3.0), "new processes have"

    def __init__(self, reference: State, candidate: State, options: Options, starter: ProcessStarter, home: Path):
        """home: a private folder."""
        self.options, self._starter, self._home = options, starter, home
        self._states = {REFERENCE: reference, CANDIDATE: candidate}
        self._stack, self._sides = ExitStack(), dict[str, Side]()
        self._pair, self._next_pair, self._reserve = Pair(), Pair(), Pair()
        self.notes: list[str] = []
        self.facts: Header = {}
        self.numbers = ResultChecks(options.precision, options.phase == "train")
        self.turns: list[dict[str, Turn]] = []
        # Numbers of rounds before which new processes began.
        self.begun_at: list[int] = []
        self.steps = self.goes = 1
        self._draw = np.random.default_rng(secrets.randbits(64))
        self._order = secrets.token_hex(8)
        self._own, self._material, self._material_digest = states.digest_package(), home / "material.pt", ""
        self._started, self._starting_s, self._is_renewed = 0, 0.0, False

    @property
    def turn_s(self) -> float:
        """Seconds that a turn should last."""
        return self.options.choose_turn_s(self.facts["device"])

    @property
    def steps_of_turn(self) -> int:
        """Steps by which the times of a turn are divided."""
        return self.steps * self.goes * TURNS[self.facts["device"]]

    def confirm(self, decision: sequential.Decision) -> bool:
        """Return whether nothing else contradicts a decision."""
        return True

    def expect_s(self) -> float:
        """Return about how many seconds another round and the end take."""
        ending_s = SETTLING_S + QUIET_S + self.turn_s
        round_s = max((sum(turn.wall_s for turn in turns.values()) for turns in self.turns[-2:]), default=0.0)
        return round_s + ending_s + (self._starting_s if self._is_pair_done() else 0.0)

    @property
    def subject(self) -> str:
        """What is judged, in words."""
        words = (self._states[name].word for name in (CANDIDATE, REFERENCE))
        return f"{' against '.join(words)}, {self.options.phase}"

    @property
    def states(self) -> tuple[State, State]:
        """The reference and the candidate."""
        return self._states[REFERENCE], self._states[CANDIDATE]

    # Beginning and end.

    def open(self) -> None:
        """Start both states, check that they compute the same, and find how many steps a turn takes.

        Raises:
            RefusedError: the candidate is not to be compared.
            ConfigError: the reference cannot be run.
        """
        process_tree.adopt_orphans(True)
        self._stack.callback(process_tree.adopt_orphans, False)
        began = time.monotonic()
        # Processes begin with the device while the reference makes weights and base batches.
        exact, double = (self._start(name, self._stack, double=True) for name in (REFERENCE, CANDIDATE))
        self._next_pair, self._reserve = self._start_pair(), self._start_pair()
        self._children = list_children()
        self._stack.callback(self._end_strays)
        self._prepare()
        self._exact = exact
        self._set_up(exact, double=True)
        self._begin_pair(double)
        self._calibrate()
        self.notes.append(f"setting up took {time.monotonic() - began:.1f} s")

    def close(self) -> None:
        """End all processes."""
        with self._stack:
            for pair in (self._pair, self._next_pair, self._reserve):
                pair.close()

    def _end_strays(self) -> None:
        for process in find_strays(self._children):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _prepare(self) -> None:
        side = self._connect(REFERENCE, "prepare")
        try:
            self.facts, _ = side.ask("prepare", **self._setup(REFERENCE))
        finally:
            side.close()
        self.notes += self.facts["notes"]
        self._material_digest = digests.compute_digest(self._material)

    def _setup(self, name: str, double: bool = False) -> dict[str, Any]:
        state, options, reference = self._states[name], self.options, self._states[REFERENCE]
        own = {"folder": str(reference.folder), "module": str(reference.module)}
        loss = (own if self.facts.get("own_loss") else {}) if name == CANDIDATE else None
        return {
            "folder": str(state.folder), "module": str(state.module), "phase": options.phase,
            "device": self.facts.get("device", options.device), "threads": options.threads,
            "precision": options.precision, "double": double, "material": str(self._material),
            "shape": dict(options.shape), "workload": options.workload, "loss": loss,
        }  # fmt: skip

    def _connect(self, name: str, kind: str) -> Side:
        self._check_files(name)
        self._started += 1
        output = self._home / f"{self._started}.{name}.{kind}.log"
        limit_s = max(SETTING_UP * self.options.budget_s, SETTING_UP_S)
        return Side(name, self._states[name], self._starter, output, limit_s)

    def _start_pair(self) -> "Pair":
        """Start processes of both sides, which import nothing of the states yet."""
        pair = Pair()
        for name in (REFERENCE, CANDIDATE):
            pair.sides[name] = self._start(name, pair.stack)
        return pair

    def _start(self, name: str, stack: ExitStack, double: bool = False) -> Side:
        """Start a process, and have it begin, without waiting for that; stack: ends it."""
        side = self._connect(name, "double" if double else "own")
        stack.callback(side.close)
        side.tell("begin", **self._setup(name, double))
        return side

    def _set_up(self, side: Side, double: bool = False) -> None:
        """Have a process that has begun set its state up, without waiting for that."""
        side.answer()
        side.tell("set up", **self._setup(side.name, double))

    def _begin_pair(self, double: Side | None = None) -> None:
        """Let processes of both sides get ready to play; double: the candidate's for checks, with the first ones."""
        began = time.monotonic()
        self.begun_at.append(len(self.turns))
        self._is_renewed = False
        # The second pair has begun with the device in advance, as that takes seconds on a GPU.
        self._pair = self._next_pair if self._next_pair.sides else self._start_pair()
        self._next_pair, self._reserve = self._reserve, Pair()
        self._sides = self._pair.sides
        for side in self._sides.values():
            self._set_up(side)
        if double:
            self._set_up(double, double=True)
        told = {name: side.answer()[0] for name, side in self._sides.items()}
        self.numbers.results = told[REFERENCE]["results"]
        self._compare_forms(told[CANDIDATE]["results"])
        if double:
            self._exact.answer()
            self._verify(self._answered(double), told[REFERENCE]["numbers"])
            double.close()
            self._check_quiet()
        self._check_integrity()
        for side in self._sides.values():
            side.limit(ANSWERING_S + 20 * self.turn_s)
            side.stop()
        self._starting_s = time.monotonic() - began

    def _answered(self, double: Side) -> Side | None:
        """Return the candidate in double precision once it is set up; None if it cannot compute so."""
        try:
            double.answer()
        except RefusedError as error:
            if "weights do not fit" in str(error):
                raise
            self.notes.append(f"not checked in double precision, as the candidate cannot compute so: {error}")
            return None
        return double

    def renew(self) -> None:
        """Play the next round with new processes."""
        self._is_renewed = True

    def _end_pair(self) -> None:
        for side in self._sides.values():
            side.go_on()
        self._check_integrity()
        self._pair.close()
        for name in self._states:
            self._check_files(name)

    def finish(self) -> dict[str, Any]:
        """Count the work of a step of both sides, and check once more that nothing was tampered with."""
        found = {}
        for name, side in self._sides.items():
            side.go_on()
            with suppress(DifferentError):
                found[name] = side.ask("count")[0]
        self._check_quiet()
        self._end_pair()
        return found

    # Checks of processes and files.

    def _check_files(self, name: str) -> None:
        check_copies(name, self._states[name], self._own)
        if self._material_digest and digests.compute_digest(self._material) != self._material_digest:
            raise InvalidError("the file of the reference's weights and base batches was changed")

    def _check_quiet(self) -> None:
        """Check that no process works on while nothing is asked of it."""
        time.sleep(SETTLING_S)
        before = {name: side.wanted_s() for name, side in self._sides.items()}
        time.sleep(QUIET_S)
        for name, side in self._sides.items():
            used = side.wanted_s() - before[name]
            if used > BUSY_S:
                self._invalidate(name, f"it worked for {used:.2f} of {QUIET_S:g} s in which nothing was asked of it")
            self._check_others(name)

    def _check_others(self, name: str) -> None:
        side = self._sides[name]
        if others := side.explain_others():
            self._invalidate(name, others)
        if strays := find_strays(self._children):
            raise InvalidError(
                f"the candidate: it has left {len(strays)} other process{'es' if len(strays) > 1 else ''} behind"
            )
        if side.has_changed():
            # Nobody else would do so; the reference is no more to be judged by then.
            raise InvalidError(f"priority or cores of the {name}'s process were changed")

    def _check_integrity(self) -> None:
        for name, side in self._sides.items():
            told, _ = side.ask("check")
            if told["wrong"]:
                self._invalidate(name, envelope.quote("; ".join(map(str, told["wrong"][:5]))))

    def _invalidate(self, name: str, why: str) -> None:
        if name == REFERENCE:
            raise ConfigError(f"the reference '{self._states[name].word}' cannot be judged by: {why}")
        raise InvalidError(f"the candidate: {why}")

    def _compare_forms(self, found: Sequence[Mapping[str, Any]]) -> None:
        def form(one: Mapping[str, Any]) -> str:
            return f"{str(one['dtype']).removeprefix('torch.')} {tuple(one['shape'])}"

        mine, its = (list(map(form, several)) for several in (self.numbers.results, found))
        if mine != its:
            if len(mine) != len(its):
                raise DifferentError(f"the reference has {len(mine)} results, and the candidate {len(its)}")
            place = next(at for at, pair in enumerate(zip(mine, its, strict=True)) if pair[0] != pair[1])
            raise DifferentError(
                f"result {place + 1} of a step is {mine[place]} in the reference, and {its[place]} in the candidate"
            )

    # Turns.

    @property
    def _trains(self) -> bool:
        return self.options.phase == "train"

    def _choose(self, steps: int) -> tuple[list[Asked], int]:
        """Draw which values of a go are looked at; returns them, and the row of which the exact ones are computed."""
        row, asked = int(self._draw.integers(steps)), []
        if self._trains:
            held = self._draw.permutation(np.arange(1, len(self.numbers.results)))[:TENSORS].tolist()
            asked = [Asked(0, None, None), *(self._sample(leaf, None, 1, OF_TENSOR) for leaf in held)]
            return asked, row
        for leaf in range(len(self.numbers.results)):
            asked.append(self._sample(leaf, (row,), 1, WHOLE))
            most = max(SAMPLED // (steps * len(self.numbers.results)), 4)
            asked.append(self._sample(leaf, None, steps, most))
        return asked, row

    def _sample(self, leaf: int, rows: tuple[int, ...] | None, count: int, most: int) -> Asked:
        size = int(self.numbers.results[leaf]["size"])
        return Asked(leaf, rows, None if size <= most else self._draw.integers(0, size, (count, most)))

    def _likes(self, rows: int) -> list[dict[str, Any]]:
        """Results with the number of rows that each has in a go of so many steps."""
        return [
            {**one, "rows": rows if not (self._trains and leaf) else 1} for leaf, one in enumerate(self.numbers.results)
        ]

    def _go(self, side: Side, seed: int, steps: int, probe: str = "", rows: list[int] | None = None) -> Header:
        return side.ask("go", seed=seed, steps=steps, rows=rows, probe=probe)[0]

    def _take_turn(self, name: str, seeds: Sequence[int], chosen: list[tuple[list[Asked], int]]) -> Turn:
        """Let one side take its turn; chosen: what is looked at after each go, drawn here by the first side."""
        side, turn = self._sides[name], Turn()
        side.go_on()
        used, ended_s = side.used_by_threads(), side.used_s(ended=True)
        for number, seed in enumerate(seeds):
            if self._trains:
                side.ask("reset")
            began = time.monotonic()
            told = self._go(side, seed, self.steps)
            if number == len(chosen):
                chosen.append(self._choose(self.steps))
            values = side.give(chosen[number][0], self._likes(self.steps))
            wall_s = time.monotonic() - began
            turn.values.append(values)
            turn.wall_s, turn.own_s = turn.wall_s + wall_s, turn.own_s + float(told["own_s"])
            if told["device_s"] is not None:
                turn.device_s = (turn.device_s or 0.0) + float(told["device_s"])
        took = [seconds - used.get(thread, 0.0) for thread, seconds in side.used_by_threads().items()]
        turn.used_s, turn.busiest_s = sum(took), max(took, default=0.0)
        if side.used_s(ended=True) > ended_s:
            self._invalidate(name, "it ran another process within its turn")
        self._check_others(name)
        side.stop()
        return turn

    def play_round(self) -> float:
        """Let both sides take turns; returns the logarithm of the candidate's time over the reference's.

        Raises:
            RefusedError: the candidate is not to be compared.
        """
        if self.turns and self._is_pair_done():
            self._end_pair()
            self._begin_pair()
        count = TURNS[self.facts["device"]]
        order = sides.interleave((REFERENCE, CANDIDATE), count * (len(self.turns) + 1), self._order)
        turns = {name: Turn() for name in (REFERENCE, CANDIDATE)}
        self.turns.append(turns)
        for place in range(2 * count * (len(self.turns) - 1), len(order), 2):
            for name, part in self._play_turns(order[place : place + 2]).items():
                turns[name].add(part)
        self._check_clocks(turns)
        return math.log(turns[CANDIDATE].wall_s / turns[REFERENCE].wall_s)

    def _play_turns(self, order: Sequence[str]) -> dict[str, Turn]:
        """Let both sides take a turn in this order, and compare what they computed."""
        seeds = [secrets.randbits(62) for _ in range(self.goes)]
        chosen: list[tuple[list[Asked], int]] = []
        turns = {name: self._take_turn(name, seeds, chosen) for name in order}
        for number, (asked, row) in enumerate(chosen):
            exact = self._compute_exact(seeds[number], asked, row) if self._is_exact_due(number) else None
            values = [turns[name].values[number] for name in (REFERENCE, CANDIDATE)]
            self.numbers.compare(asked, values[0], values[1], exact)
        return turns

    def _is_pair_done(self) -> bool:
        """Whether a pair of processes has played its rounds: so many that starting them took no more time."""
        if self._is_renewed or self.facts["device"] == "cpu":
            return True
        played = self.turns[self.begun_at[-1] :]
        spent_s = sum(turn.wall_s for turns in played for turn in turns.values())
        return len(played) >= LEAST_ROUNDS and (spent_s >= self._starting_s or len(played) >= MOST_ROUNDS)

    def _is_exact_due(self, go: int) -> bool:
        """Whether results of a go are computed in double precision: of a training, only at first with new processes."""
        return go == 0 and (not self._trains or len(self.turns) - 1 == self.begun_at[-1])

    def _compute_exact(self, seed: int, asked: Sequence[Asked], row: int) -> dict[int, np.ndarray]:
        """Return values of the reference in double precision, by their place among those that were asked for."""
        if self._trains:
            self._exact.ask("reset")
            before = self._exact.give(asked[1:], self._likes(1))
            self._go(self._exact, seed, self.steps)
            found = self._exact.give(asked, self._likes(self.steps))
            self.numbers.note_movement(asked[1:], before, found[1:], self.steps)
            return dict(enumerate(found))
        self._go(self._exact, seed, self.steps, rows=[row])
        places = [at for at, one in enumerate(asked) if one.rows is not None]
        own = [Asked(asked[at].leaf, (0,), asked[at].places) for at in places]
        return dict(zip(places, self._exact.give(own, self._likes(1)), strict=True))

    def _check_clocks(self, turns: Mapping[str, Turn]) -> None:
        """Check that no other clock contradicts the referee's."""
        turn = turns[CANDIDATE]
        for told, seconds in (("the device's clock", turn.device_s), ("its own clock", turn.own_s)):
            if seconds is not None and seconds > turn.wall_s * (1 + OFF) + OFF_S:
                raise InvalidError(
                    f"the candidate: by {told} its steps took {seconds:.3f} s, and by the referee's {turn.wall_s:.3f} s"
                )
        threads = self.options.threads
        mine = [turns[CANDIDATE] for turns in self.turns]
        used_s, busiest_s = sum(turn.used_s for turn in mine), sum(turn.busiest_s for turn in mine)
        if threads and self.facts["device"] == "cpu" and used_s > (threads + MORE) * busiest_s + MORE_S:
            raise InvalidError(
                f"the candidate: it kept {used_s / busiest_s:.1f} cores busy, and its number of threads is {threads}"
            )
        # Of all turns, as a busy machine may delay an answer.
        wall = {name: sum(one[name].wall_s for one in self.turns) for name in turns}
        late = {name: sum(one[name].wall_s - one[name].own_s for one in self.turns) for name in turns}
        if late[CANDIDATE] > 3 * max(late[REFERENCE], 0.0) + LATE * wall[CANDIDATE] + LATE_S:
            own_s = wall[CANDIDATE] - late[CANDIDATE]
            raise InvalidError(
                f"the candidate: by its own clock its steps took {own_s:.3f} s, and their results were there after "
                f"{wall[CANDIDATE]:.3f} s"
            )

    def _calibrate(self) -> None:
        """Find how many steps a turn takes, by the reference."""
        side, step_s = self._sides[REFERENCE], 0.0
        side.go_on()
        size = sum(one["size"] for one in self.numbers.results[: 1 if self._trains else None])
        most = TRAINED if self._trains else max(min(MOST_STEPS, KEPT_BYTES[self.facts["device"]] // (8 * size)), 1)
        steps = 1
        while True:
            if self._trains:
                side.ask("reset")
            began = time.monotonic()
            self._go(side, secrets.randbits(62), steps)
            taken = time.monotonic() - began
            step_s = taken / steps
            if taken > self.turn_s / 8 or steps >= most:
                break
            steps = min(steps * 2, most)
        side.stop()
        self.steps = int(min(max(self.turn_s / step_s, 1), most))
        self.goes = int(min(max(round(self.turn_s / (step_s * self.steps)), 1), MOST_GOES))

    # Checks of results.

    def _verify(self, double: Side | None, numbers: bool) -> None:
        """Check results of a few steps, of all sides and in double precision; then those of inputs of one value."""
        for probe in ("", *(("zeros", "ones") if numbers and not self._trains else ())):
            seed, steps = secrets.randbits(62), 2
            asked, _ = self._choose(steps)
            given, before = {}, list[np.ndarray]()
            every = {**self._sides, "exact": self._exact, **({"double": double} if double else {})}
            for side in every.values():
                if self._trains:
                    side.ask("reset")
                    before = self._exact.give(asked[1:], self._likes(1)) if side is self._exact else before
                side.tell("go", seed=seed, steps=steps, rows=None, probe=probe)
            for name, side in every.items():
                side.answer()
                given[name] = side.give(asked, self._likes(steps))
            if probe and not all(np.isfinite(one).all() for one in given[REFERENCE]):
                continue
            exact = dict(enumerate(given["exact"]))
            if self._trains:
                self.numbers.note_movement(asked[1:], before, given["exact"][1:], steps)
            if not probe:
                self.numbers.learn(asked, given[REFERENCE], exact)
            self.numbers.compare(asked, given[REFERENCE], given[CANDIDATE], exact, probe)
            if double:
                self.numbers.compare_double(asked, given, probe)


def check_copies(name: str, state: State, package: Mapping[str, str]) -> None:
    """Check that a side's copy and the referee itself are as they were; package: digests of the referee's modules.

    Raises:
        InvalidError: one of them was changed.
    """
    if changed := states.explain_change(state.digests, states.digest_files(state.folder)):
        raise InvalidError(f"the private copy of the {name} was changed: {envelope.quote(changed)}")
    if changed := states.explain_change(dict(package), states.digest_package()):
        raise InvalidError(f"the referee's own package was changed: {envelope.quote(changed)}")
