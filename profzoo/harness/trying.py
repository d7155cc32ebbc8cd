"""Tries settings on a cell, best expected first, then together what helped: `python -m profzoo.harness.trying`.

Each trial is a process that times the cell with some of its settings changed. They run in rounds that the cell as it is
takes part in, every second one backwards, so that what drifts on the machine falls on all alike.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
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
Course = Generator[tuple[int, Names], float | None, Names]


def course(candidates: Sequence[str], repeats: int) -> Course:
    """Which trial is next, round and names, given what a sample took in the one before, None where that failed.

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


def _round(number: int, order: Sequence[Names], times: dict[Names, list[float]], failed: set[Names]) -> Course:
    for names in order if number % 2 == 0 else reversed(order):
        if names in failed:
            continue
        step_ns = yield number, names
        if step_ns is None:
            failed.add(names)
            times.pop(names, None)
        else:
            times.setdefault(names, []).append(step_ns)
    return BASE


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
    """Runs trials one after the other, and keeps what they leave."""

    def __init__(self, given: Mapping[str, Any], folder: Path) -> None:
        """given: `words` of the cell, `program` before them, `load` after them, and `candidates`: words by name."""
        self._given, self._folder = given, folder
        self.sides: list[str] = []
        self.steps: list[tuple[str, Path]] = []
        self.facts: list[dict[str, Any]] = []
        self.failed: dict[str, str] = {}
        # What a process takes, by what is tried.
        self.seconds: dict[Names, float] = {}

    def run(self, number: int, names: Names) -> float | None:
        """What a sample takes in one process, in ns; None where it failed, with the reason in `failed`."""
        side, began = TOGETHER.join(names), time.monotonic()
        own = self._folder / f"{len(self.facts) + len(self.failed)}.csv"
        told, printed = own.with_suffix(".json"), own.with_suffix(".txt")
        settings = changed(self._given["words"], [self._given["candidates"][name] for name in names])
        words = [*self._given["program"], *settings, *self._given["load"], "--steps", str(own), "--facts", str(told)]
        with printed.open("wb") as file:
            code = subprocess.run(words, check=False, stdout=file, stderr=subprocess.STDOUT).returncode
        said = printed.read_text(errors="replace")
        print(f"[{side or 'as it is'}] exit code {code}\n{said}", flush=True)
        self.seconds[names] = time.monotonic() - began
        if code:
            lines = [line.strip() for line in said.splitlines() if line.strip()]
            self.failed[side] = (lines[-1] if lines else f"exit code {code}")[:LINE]
            return None
        facts = json.loads(told.read_text())
        self.sides.append(side)
        self.steps.append((side, own))
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
    began, going = time.monotonic(), course(candidates, repeats)
    number, names = next(going)
    while True:
        if runner.facts and time.monotonic() - began + runner.expected_s(names) > budget_s:
            return {"ended": "budget", "chosen": fastest(runner)}
        step_ns = runner.run(number, names)
        if step_ns is None and names == BASE:
            raise RuntimeError(runner.failed[""])
        try:
            number, names = going.send(step_ns)
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
    parser.add_argument("--steps", type=Path, required=True, help="where the steps of all go")
    parser.add_argument("--facts", type=Path, required=True, help="where the facts of all go")
    options = parser.parse_args(arguments)
    expected = json.loads(options.expected.read_text())["cells"] if options.expected else {}
    own = {name: one["gain"] for name, one in expected.get(options.cell["name"], {}).items()}
    # What nobody expects anything of comes after what is expected to help, in its own order.
    order = sorted(options.cell["candidates"], key=lambda name: -own.get(name, 1.0))
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(options.cell, Path(folder))
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
