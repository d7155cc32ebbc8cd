"""Tries settings on a cell, best expected first, then together what helped: `python -m profzoo.harness.trying`.

Each trial is a process that times the cell with some of its settings changed. They run in rounds that the cell as it is
takes part in, every second one backwards, so that what drifts on the machine falls on all alike. Some of a round start
side by side, and wait for their turns.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from profzoo.harness import rounds
from profzoo.machine import entry

Names = tuple[str, ...]
# The cell as it is.
BASE: Names = ()
TOGETHER = "+"
# What is slower than the cell by more than this after ROUNDS rounds is not tried again, and what is not faster by as
# much helps nothing.
WORTH, ROUNDS = 0.02, 2
LINE = 300
# By what is tried, the time that a sample took; None where it failed.
Took = Mapping[Names, float | None]
Rounds = Generator[tuple[int, list[Names]], Took]


def course(candidates: Sequence[str], repeats: int) -> Generator[tuple[int, list[Names]], Took, Names]:
    """Which round is next, its number and trials in order, given what a sample took in those of the one before.

    Args:
        candidates: names of settings, best expected first; repeats: processes of each that is worth them.

    Returns: the names of those settings that are fastest together.
    """
    times: dict[Names, list[float]] = {}
    failed: set[Names] = set()
    number = 0
    going: list[Names] = [(name,) for name in candidates]
    while number < repeats:
        yield from _round(number, [BASE, *going], times, failed)
        number += 1
        if number >= ROUNDS:
            going = [names for names in going if names in times and _ratio(times, names) <= 1 + WORTH]
    helping = sorted((names for names in going if names in times), key=lambda names: _ratio(times, names))
    helping = [names for names in helping if _ratio(times, names) < 1 - WORTH]
    if not helping:
        return BASE
    best = helping[0]
    for names in helping[1:]:
        both = (*best, *names)
        yield from _round(number, [BASE, both], times, failed)
        number += 1
        if both in times and _ratio(times, both) < (1 - WORTH) * _ratio(times, best):
            best = both
    while best not in failed and len(times[best]) < repeats:
        yield from _round(number, [BASE, best], times, failed)
        number += 1
    return best


def _round(number: int, order: Sequence[Names], times: dict[Names, list[float]], failed: set[Names]) -> Rounds:
    took = yield number, [names for names in (order if number % 2 == 0 else order[::-1]) if names not in failed]
    for names, step_ns in took.items():
        if step_ns is None:
            failed.add(names)
            times.pop(names, None)
        else:
            times.setdefault(names, []).append(step_ns)


def _ratio(times: Mapping[Names, Sequence[float]], names: Names) -> float:
    return median(times[names]) / median(times[BASE])


def changed(words: Sequence[str], changes: Sequence[Sequence[str]]) -> list[str]:
    """The words of a cell with settings changed, the last change of a setting counts.

    >>> changed(["lstm", "train", "batch=8", "seed=0"], [["batch=16"], ["graph=true"]])
    ['lstm', 'train', 'batch=16', 'seed=0', 'graph=true']
    """
    settings = {word.partition("=")[0]: word for word in words}
    settings |= {word.partition("=")[0]: word for change in changes for word in change}
    return list(settings.values())


class Runner:
    """Runs rounds of trials, and keeps what they leave."""

    def __init__(self, given: Mapping[str, Any], folder: Path, at_once: int = 1) -> None:
        """given: `words` of the cell, `program` before them, `load` after them, and `candidates`: words by name.
        at_once: processes that may start side by side."""
        self._given, self._folder, self._at_once = given, folder, at_once
        self.sides: list[str] = []
        self.steps: list[tuple[str, Path]] = []
        self.facts: list[dict[str, Any]] = []
        self.failed: dict[str, str] = {}
        # What a process takes, by what is tried.
        self.seconds: dict[Names, float] = {}

    def run(self, number: int, order: Sequence[Names], until: float) -> dict[Names, float | None]:
        """What a sample takes in a process of each, in ns; None where it failed, with the reason in `failed`.

        Those are missing that come after one which failed as the cell is, or would end later than that (monotonic s).
        """
        began, took = time.monotonic(), dict[Names, float | None]()
        paths = [self._folder / f"{number}-{place}.csv" for place in range(len(order))]
        printed = [path.with_suffix(".txt") for path in paths]
        commands = [self._command(*one) for one in zip(order, paths, strict=True)]
        with closing(rounds.in_turn(commands, self._at_once, printed)) as codes:
            for names, path, said in zip(order, paths, printed, strict=True):
                if self.facts and time.monotonic() + self.expected_s(names) > until:
                    break
                code = next(codes)
                took[names] = self._keep(number, names, path, said.read_text(errors="replace"), code)
                self.seconds[names] = time.monotonic() - began
                began = time.monotonic()
                if code and names == BASE:
                    break
        return took

    def _command(self, names: Names, path: Path) -> list[str]:
        settings = changed(self._given["words"], [self._given["candidates"][name] for name in names])
        files = ["--steps", str(path), "--facts", str(path.with_suffix(".json"))]
        return [*self._given["program"], *settings, *self._given["load"], *files]

    def _keep(self, number: int, names: Names, path: Path, said: str, code: int) -> float | None:
        side = TOGETHER.join(names)
        print(f"[{side or 'as it is'}] exit code {code}\n{said}", flush=True)
        if code:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            self.failed[side] = (lines[-1] if lines else f"exit code {code}")[:LINE]
            return None
        facts = json.loads(path.with_suffix(".json").read_text())
        self.sides.append(side)
        self.steps.append((side, path))
        self.facts.append({**facts, "round": number})
        return float(facts["step_ns"]) / facts["batch"]

    def expected_s(self, names: Names) -> float:
        """What a process will take: as long as it did, else as any did at most."""
        return self.seconds.get(names, max(self.seconds.values(), default=0.0))


def tried(runner: Runner, candidates: Sequence[str], repeats: int, budget_s: float) -> dict[str, Any]:
    """Run the course until it ends, or until the next trial would go beyond the budget; what came of it.

    Raises:
        RuntimeError: the cell as it is fails.
    """
    until, going = time.monotonic() + budget_s, course(candidates, repeats)
    number, order = next(going)
    while True:
        took = runner.run(number, order, until)
        if BASE in took and took[BASE] is None:
            raise RuntimeError(runner.failed[""])
        if len(took) < len(order):
            return {"ended": "budget", "chosen": fastest(runner)}
        try:
            number, order = going.send(took)
        except StopIteration as end:
            return {"ended": "all", "chosen": TOGETHER.join(end.value)}


def fastest(runner: Runner) -> str:
    """The side whose samples took least, if that is worth anything, else the cell as it is."""
    times: dict[Names, list[float]] = {}
    for side, own in zip(runner.sides, runner.facts, strict=True):
        times.setdefault((side,) if side else BASE, []).append(own["step_ns"] / own["batch"])
    best = min(times, key=lambda names: _ratio(times, names))
    return best[0] if best and _ratio(times, best) < 1 - WORTH else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    entry.begin()
    parser = argparse.ArgumentParser(prog="python -m profzoo.harness.trying", description=__doc__)
    parser.add_argument("--cell", type=json.loads, required=True, help="JSON: words, program, load, candidates, names")
    parser.add_argument("--expected", type=Path, help="JSON: expected gain by cell and name of settings")
    parser.add_argument("--repeats", type=int, required=True, help="processes of what is worth them")
    parser.add_argument("--budget", type=float, required=True, help="seconds that all may take")
    parser.add_argument("--most", type=int, help="settings to try at most")
    parser.add_argument("--at-once", type=int, default=1, help="processes that may start side by side")
    parser.add_argument("--steps", type=Path, required=True, help="where the steps of all go")
    parser.add_argument("--facts", type=Path, required=True, help="where the facts of all go")
    options = parser.parse_args(arguments)
    expected = json.loads(options.expected.read_text())["cells"] if options.expected else {}
    own = {name: one["gain"] for name, one in expected.get(options.cell["name"], {}).items()}
    # What nobody expects anything of comes after what is expected to help, in its own order.
    order = sorted(options.cell["candidates"], key=lambda name: -own.get(name, 1.0))[: options.most]
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options.cell, Path(folder), options.at_once)
        try:
            outcome = tried(runner, order, options.repeats, options.budget)
        except RuntimeError as error:
            print(f"profzoo: the cell as it is failed: {error}", file=sys.stderr)
            return 2
        found = rounds.summary(runner.sides, runner.facts, rounds.joined(runner.steps, options.steps))
    options.facts.write_text(json.dumps(found | outcome | {"failed": runner.failed, "tried": order}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
