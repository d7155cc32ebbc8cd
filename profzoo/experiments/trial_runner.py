"""Tries settings on a cell: the most promising first, then combinations of those that helped.

Run as `python -m profzoo.experiments.trial_runner`.

Each trial is a process that times the cell with some settings changed. Trials run in rounds, which decided_search.py
plans, or trial_search.py for a fixed number of processes per setting. Several processes of a round start at the same
time and wait for their turns. If the budget does not suffice for a full round, the round runs only the unchanged cell
and the fastest settings so far.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from profzoo.experiments import interleaved_runs, shorter_windows
from profzoo.experiments.decided_search import DecidedSearch
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.experiments.trial_order import add_plans, order_settings
from profzoo.experiments.trial_search import BASE, WORTH, Names, Took, find_fastest, plan_rounds, time_ratio
from profzoo.machine import job_child

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

TOGETHER = "+"
# Why trials ended: all settings were tried, the budget was used up, or the unchanged cell failed.
ALL, BUDGET, FAILED = "all", "budget", "failed"
LINE = 300


def change_words(words: Sequence[str], changes: Sequence[Sequence[str]]) -> list[str]:
    """Apply changed settings to a cell's words; the last change of a setting wins.

    >>> change_words(["lstm", "train", "batch=8", "seed=0"], [["batch=16"], ["graph=true"]])
    ['lstm', 'train', 'batch=16', 'seed=0', 'graph=true']
    """
    settings = {word.partition("=")[0]: word for word in words}
    settings |= {word.partition("=")[0]: word for change in changes for word in change}
    return list(settings.values())


class TriedCell(TypedDict):
    """A cell on which settings are tried, in words of its command line."""

    # Model and phase.
    name: str
    # Words before the cell's own, these, and words after them.
    program: Sequence[str]
    words: Sequence[str]
    load: Sequence[str]
    # Setting words by the candidate's name.
    candidates: Mapping[str, Sequence[str]]


class TrialRunner:
    """Runs rounds of trials and stores their results."""

    def __init__(
        self,
        given: TriedCell,
        folder: Path,
        at_once: int = 1,
        starter: ProcessStarter | None = None,
        numerics: bool = False,
        margin: float = WORTH,
    ) -> None:
        """Begin without a round.

        Args:
            given: the cell. folder: where files of processes go. at_once: number of processes that may start at the
                same time.
            starter: starts the processes; without it, each starts by itself.
            numerics: whether the first process of each setting repeats its first steps in double precision.
            margin: largest relative difference that counts as equivalent; it decides how long later windows are.
        """
        self._given, self._folder, self._at_once, self._numerics = given, folder, at_once, numerics
        self._starter = starter or ProcessStarter(fork=False)
        self.sides: list[str] = []
        self.steps: list[tuple[str, Path]] = []
        self.facts: list[Sidecar] = []
        self.failed: dict[str, str] = {}
        self.done: list[Took] = []
        # Seconds of a process, by its settings.
        self.seconds: dict[Names, float] = {}
        self._forked, self._margin = False, margin
        # Changes of the cell's words after the first round.
        self._window: list[str] = []

    def run(self, order: Sequence[Names], until: float) -> Took:
        """Run one process of each; return the time of a data sample in ns, None if it failed (see `failed`).

        Processes after a failure of the unchanged cell are missing. Processes that would end after `until` (monotonic
        clock, s) are missing too: in the first round the last ones, later the slowest ones.
        """
        took = dict[Names, float | None]()
        number, order = len(self.done), self.within(order, until) if self.done else order
        paths = [self._folder / f"{number}-{place}.csv" for place in range(len(order))]
        printed = [path.with_suffix(".txt") for path in paths]
        commands = [self._command(*one) for one in zip(order, paths, strict=True)]
        # The time of the first process must not contain that of imports which all have in common.
        self._forked = bool(commands) and self._starter.prepare(self._command(BASE, paths[0]))
        began, in_turn = time.monotonic(), interleaved_runs.run_in_turn
        with closing(in_turn(commands, self._at_once, printed, starter=self._starter)) as codes:
            for names, path, said in zip(order, paths, printed, strict=True):
                if took and not self.done and time.monotonic() + self.expected_s(names) > until:
                    break
                code = next(codes)
                took[names] = self._keep(number, names, path, said.read_text(errors="replace"), code)
                self.seconds[names] = time.monotonic() - began
                began = time.monotonic()
                if code and names == BASE:
                    break
        if not self.done:
            steps = [path for _, path in self.steps]
            self._window = shorter_windows.shorten_window(self._given["words"], steps, self._margin)
        self.done.append(took)
        return took

    def within(self, order: Sequence[Names], until: float) -> list[Names]:
        """Return the part of a round that ends before `until`: the unchanged cell, with the fastest settings that fit.

        It is empty if only the unchanged cell fits.
        """
        left = until - time.monotonic() - self.expected_s(BASE)
        kept = {BASE} if left >= 0 else set()
        for names in sorted(filter(None, order), key=lambda names: time_ratio(self.done, names)):
            if self.expected_s(names) <= left:
                kept.add(names)
                left -= self.expected_s(names)
        return [names for names in order if names in kept] if len(kept) > 1 or len(order) == len(kept) else []

    def _command(self, names: Names, path: Path) -> list[str]:
        settings = change_words(
            self._given["words"], [*(self._given["candidates"][name] for name in names), self._window]
        )
        files = ["--steps", str(path), "--facts", str(path.with_suffix(".json"))]
        first = self._numerics and TOGETHER.join(names) not in self.sides
        return [*self._given["program"], *settings, *self._given["load"], *files, *(["--numerics"] if first else [])]

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
        self.facts.append({**facts, "round": number, **({"forked": True} if self._forked else {})})
        return float(facts["step_ns"]) / facts["batch"]

    def expected_s(self, names: Names) -> float:
        """Expected seconds of a process: its own last time, otherwise the longest time so far."""
        return self.seconds.get(names, max(self.seconds.values(), default=0.0))


def run_trials(
    runner: TrialRunner,
    candidates: Mapping[str, Sequence[str]],
    repeats: int | None,
    budget_s: float,
    margin: float = WORTH,
) -> dict[str, str]:
    """Run trials until all are done, the next ones would exceed the budget, or the unchanged cell fails.

    repeats: processes for settings that are not dropped; None repeats rounds until each setting is decided.

    Returns: `ended`, the reason, and `chosen`, the names of the chosen settings.

    Raises:
        RuntimeError: the unchanged cell fails at once, so nothing was measured.
    """
    until = time.monotonic() + budget_s
    search = DecidedSearch(candidates, margin, runner.done)
    going = search.rounds() if repeats is None else plan_rounds(candidates, repeats)
    order, ended = next(going), ""
    while not ended:
        took = runner.run(order, until)
        if took.get(BASE, 0.0) is None:
            if not runner.facts:
                raise RuntimeError(runner.failed[""])
            ended = FAILED
        elif len(took) < len(order):
            ended = BUDGET
        else:
            search.give_up(2 * runner.expected_s(BASE), until - time.monotonic())
            try:
                order = going.send(took)
            except StopIteration as end:
                ended = BUDGET if repeats is None and search.given_up else ALL
                return {"ended": ended, "chosen": TOGETHER.join(end.value)}
    chosen = search.find_fastest() if repeats is None else find_fastest(runner.done)
    return {"ended": ended, "chosen": TOGETHER.join(chosen)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    job_child.enter_job()
    parser = argparse.ArgumentParser(prog="python -m profzoo.experiments.trial_runner", description=__doc__)
    parser.add_argument("--cell", type=json.loads, required=True, help="JSON: words, program, load, candidates, names")
    parser.add_argument("--expected", type=Path, help="JSON: expected gain by cell and name of settings")
    parser.add_argument("--repeats", type=int, help="processes of what is worth them; without, until it is decided")
    parser.add_argument("--margin", type=float, default=WORTH, help="largest difference that counts as equivalent")
    parser.add_argument("--fork", action="store_true", help="fork processes from one that has imported what they need")
    parser.add_argument("--budget", type=float, required=True, help="seconds that all may take")
    parser.add_argument("--most", type=int, help="settings to try at most")
    parser.add_argument("--at-once", type=int, default=1, help="processes that may start side by side")
    parser.add_argument("--numerics", action="store_true", help="what the first process of each setting is told")
    parser.add_argument("--steps", type=Path, required=True, help="where the steps of all go")
    parser.add_argument("--facts", type=Path, required=True, help="where the facts of all go")
    options = parser.parse_args(arguments)
    expected = json.loads(options.expected.read_text())["cells"] if options.expected else {}
    own = expected.get(options.cell["name"], {})
    candidates = add_plans(options.cell["candidates"], own)
    order = order_settings(candidates, own)[: options.most]
    planned = {name: words for name, words in candidates.items() if name not in options.cell["candidates"]}
    options.cell["candidates"] = candidates
    with tempfile.TemporaryDirectory() as folder, closing(ProcessStarter(options.fork)) as starter:
        runner = TrialRunner(options.cell, Path(folder), options.at_once, starter, options.numerics, options.margin)
        try:
            words = {name: options.cell["candidates"][name] for name in order}
            outcome = run_trials(runner, words, options.repeats, options.budget, options.margin)
        except RuntimeError as error:
            print(f"profzoo: the unchanged cell failed: {error}", file=sys.stderr)
            return 2
        if outcome["ended"] == FAILED:
            print(
                f"profzoo: trials ended because the unchanged cell failed: {runner.failed['']}",
                file=sys.stderr,
            )
        found = interleaved_runs.summarize_processes(
            runner.sides, runner.facts, interleaved_runs.join_steps(runner.steps, options.steps)
        )
    told = {
        "failed": runner.failed,
        "tried": order,
        "planned": planned,
        "round_s": round(2 * runner.expected_s(BASE), 3),
    }
    options.facts.write_text(json.dumps(found | outcome | told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
