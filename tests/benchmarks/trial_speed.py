"""How long trials and comparisons take with forked processes, against processes that each start by themselves.

    python -m tests.benchmarks.trial_speed PART [--device cuda] [--processes 4] [--budget 110] [--at-once 4] [--tiny]

Each part takes at most two minutes. `start`: seconds of a process of a small vision transformer, both ways in turn, and
whether both ways measure the same. `settings`: six settings of it, until each is decided. `slowdown`: a step that takes
3 % longer (tests/benchmarks/slowed.py), until that is decided. `settings-separate` and `slowdown-separate`: the same as
it was done before: each process starts by itself, three of a setting, five of a side. --tiny: for a machine without a
GPU, with --device cpu. CPU seconds are those of all processes of a way.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd

from profzoo.collect import environment
from profzoo.collect.command_line import AT_ONCE
from profzoo.compare.sides import interleave
from profzoo.experiments import interleaved_runs, trial_runner
from profzoo.experiments.forked_runs import ProcessStarter
from profzoo.experiments.trial_search import DecidedSearch, Names, Took
from profzoo.records.import_graph import PROJECT
from profzoo.statistics import process_repeats, sequential, speedup
from tests.benchmarks import slowed, small_vit

MARGIN = 0.02
PROGRAM = ["python", "-m", "models.run"]
# The settings to be decided; of a CPU, those that it has.
SETTINGS = {"tf32": ["precision=tf32"], "bf16": ["precision=bf16"], "channels_last": ["channels_last=true"],
            "fused": ["optimizer=fused"], "graph": ["graph=true"], "cudnn_benchmark": ["cudnn_benchmark=true"]}  # fmt: skip
ON_CPU = {"bf16": ["precision=bf16"], "channels_last": ["channels_last=true"], "fused": ["optimizer=fused"],
          "foreach": ["optimizer=foreach"], "for_loop": ["optimizer=for_loop"], "double_batch": ["batch=4"]}  # fmt: skip
TINY_VIT = ["size=32", "layers=2", "heads=2", "width=64", "batch=2", "window=10", "warmup=3", "threads=1"]
TINY_CHAIN = ["width=128", "window=60", "threads=1"]
SLOWER = ["products=2"]
BEFORE_SETTING, BEFORE_SIDE = 3, 5


def cell_words(module: str, device: str, *more: str) -> list[str]:
    """Words of a training cell of one of these models."""
    window = [] if any(word.startswith("window=") for word in more) else ["window=20"]
    # The window is named, as in the words of jobs, so that later rounds can shorten it.
    return [module.rpartition(".")[2], "train", f"module={module}", f"device={device}", *window, *more]


def cpu_seconds() -> float:
    """CPU seconds of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_command(starter: ProcessStarter, words: Sequence[str], path: Path) -> tuple[float, dict]:
    """Run one process; returns its wall seconds and its facts."""
    command = [*PROGRAM, *words, "--steps", str(path), "--facts", str(path.with_suffix(".json"))]
    began = time.monotonic()
    with closing(interleaved_runs.run_in_turn([command], 1, [path.with_suffix(".txt")], starter=starter)) as codes:
        code = next(codes)
    if code:
        raise SystemExit(f"exit code {code}: {path.with_suffix('.txt').read_text()}")
    return time.monotonic() - began, json.loads(path.with_suffix(".json").read_text())


def show_start(words: Sequence[str], processes: int, folder: Path) -> None:
    """Time processes of both ways in turn, and print whether they measure the same."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    used, facts = dict.fromkeys(seconds, 0.0), {way: list[dict]() for way in seconds}
    began = time.monotonic()
    with closing(ProcessStarter(fork=True)) as forking:
        forking.prepare([*PROGRAM, *words])
        print(f"imports and building, once: {time.monotonic() - began:.2f} s; {forking.separate_why or 'forked'}")
        # Compiles bytecode, and fills the page cache.
        run_command(ProcessStarter(fork=False), words, folder / "first.csv")
        for number in range(processes):
            for way in (True, False) if number % 2 else (False, True):
                starter = forking if way else ProcessStarter(fork=False)
                before = cpu_seconds()
                took, own = run_command(starter, words, folder / f"{way}{number}.csv")
                seconds[way].append(took)
                facts[way].append(own)
                used[way] += cpu_seconds() - before
        before = cpu_seconds()
    # The server has waited for its forks, and is waited for as it is closed.
    used[True] = cpu_seconds() - before
    for way, name in ((False, "by itself"), (True, "forked")):
        steps = [own["step_ns"] / 1e6 for own in facts[way]]
        print(f"{name}: {statistics.median(seconds[way]):.2f} s a process ({min(seconds[way]):.2f} to "
              f"{max(seconds[way]):.2f}), step {statistics.median(steps):.4f} ms ({min(steps):.4f} to {max(steps):.4f})")  # fmt: skip
    print(f"CPU seconds: {used[False] / processes:.2f} of a process by itself; {used[True]:.2f} of imports, building and "
          f"all {processes} forks")  # fmt: skip
    for key in ("loss", "peak_memory_bytes", "parameters", "batch", "threads"):
        values = {way: sorted({str(own.get(key)) for own in facts[way]}) for way in facts}
        print(f"{key}: {'the same' if values[True] == values[False] else 'DIFFERENT'} {values[True]} {values[False]}")
    print(f"times as fast: {statistics.median(seconds[False]) / statistics.median(seconds[True]):.2f}")


def show_settings(
    words: Sequence[str], candidates: Mapping[str, list[str]], budget_s: float, fork: bool, at_once: int
) -> None:
    """Try settings until they are decided, as trials do, or as often as they did before; print when each was decided."""
    began, told = time.monotonic(), set[str]()
    given: trial_runner.TriedCell = {
        "name": "vit train", "program": PROGRAM, "words": words, "load": [], "candidates": candidates,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, closing(ProcessStarter(fork)) as starter:
        runner = trial_runner.TrialRunner(given, Path(folder), at_once, starter)
        search, run = DecidedSearch(candidates, MARGIN, runner.done), runner.run

        def run_and_tell(order: Sequence[Names], until: float) -> Took:
            took = run(order, until)
            now = time.monotonic() - began
            print(f"{now:6.1f} s: round {len(runner.done)} of {len(took)} processes", file=sys.stderr)
            for name in candidates:
                found = search.decide((name,))
                failed = runner.failed.get(name)
                if name not in told and (failed or found.outcome != speedup.UNDECIDED):
                    told.add(name)
                    said = failed or f"{found.outcome}, x {1 / found.found.ratio:.3f}"  # type: ignore[union-attr]
                    print(f"{now:6.1f} s: {name} {said}, {found.rounds} rounds", flush=True)
            return took

        runner.run = run_and_tell  # type: ignore[method-assign]
        repeats = None if fork else BEFORE_SETTING
        outcome = trial_runner.run_trials(runner, repeats, budget_s, MARGIN)
    left = [name for name in candidates if name not in told]
    print(f"{time.monotonic() - began:6.1f} s: {outcome}, {len(runner.facts)} processes, undecided: {left}")
    ratios = {name: search.decide((name,)).found for name in left}
    print({name: [round(found.low, 3), round(found.high, 3)] for name, found in ratios.items() if found})
    print("processes forked:", sum(bool(own.get("forked")) for own in runner.facts), "CPU s", round(cpu_seconds(), 1))


def show_slowdown(words: Sequence[str], budget_s: float, fork: bool) -> None:
    """Compare the chain with one that takes 3 % longer; print the decision and the seconds until then."""
    began, planted = time.monotonic(), 1 / (3 * slowed.SHAPE["layers"])
    sides = {"plain": [*PROGRAM, *words], "slow": [*PROGRAM, *words, *SLOWER]}
    order = [(side, sides[side]) for side in interleave(list(sides), 2 if fork else BEFORE_SIDE, "chain")]
    rule = {"margin": MARGIN, "comparisons": 1, "budget_s": budget_s}
    with tempfile.TemporaryDirectory() as folder:
        steps, facts = Path(folder) / "steps.csv", Path(folder) / "facts.json"
        given = ["--rounds", json.dumps(order), "--steps", str(steps), "--facts", str(facts), "--baseline", "plain"]
        given += ["--by-shifts", "2", "--at-once", "4"]
        given += ["--fork", "--most", "40", "--until", json.dumps(rule)] if fork else []
        if code := interleaved_runs.main(given):
            raise SystemExit(code)
        took, said = time.monotonic() - began, json.loads(facts.read_text())
        processes = said["processes"]
        rows = interleaved_rows(steps)
    medians = {side: [statistics.median(process_repeats.drop_warmup(times)) for own, times in zip(processes, rows, strict=True)
                      if own["side"] == side] for side in sides}  # fmt: skip
    between = [float(np.log(slow / plain)) for plain, slow in zip(medians["plain"], medians["slow"], strict=True)]
    print(f"planted {planted:.2%}; {took:.1f} s, {len(processes)} processes, forked: {bool(processes[0].get('forked'))}, "
          f"ended: {said.get('ended', 'fixed')}, CPU s {cpu_seconds():.1f}")  # fmt: skip
    if fork:
        print(sequential.decide(between, MARGIN))
    else:
        (outcome,) = speedup.decide_outcomes(
            [speedup.estimate_ratio(medians["plain"], medians["slow"], None, paired=True)]
        )
        print(outcome, speedup.estimate_ratio(medians["plain"], medians["slow"], None, paired=True))


def interleaved_rows(steps: Path) -> list:
    """Times of the steps of each process in ns, by the GPU's clock if it was used."""
    table = pd.read_csv(steps)
    clock = table["gpu_ns"] if table["gpu_ns"].notna().any() else table["wall_ns"]
    return [times.to_numpy(dtype=float) for _, times in clock.groupby(table["process"])]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.trial_speed", description=__doc__)
    parser.add_argument("part", choices=["start", "settings", "settings-separate", "slowdown", "slowdown-separate"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--budget", type=float, default=110.0)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="processes of `settings` that start up together")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    gpus = 0 if given.device == "cpu" else 1
    os.environ |= environment.thread_variables(len(os.sched_getaffinity(0)), gpus, 1)
    fork, device = not given.part.endswith("-separate"), given.device
    vit = cell_words(small_vit.__name__, device, *(TINY_VIT if given.tiny else []))
    with tempfile.TemporaryDirectory() as folder:
        match given.part.removesuffix("-separate"):
            case "start":
                show_start(vit, given.processes, Path(folder))
            case "settings":
                show_settings(vit, ON_CPU if device == "cpu" else SETTINGS, given.budget, fork, given.at_once)
            case _:
                show_slowdown(
                    cell_words(slowed.__name__, device, *(TINY_CHAIN if given.tiny else ["width=2048"])),
                    given.budget, fork,
                )  # fmt: skip


if __name__ == "__main__":
    main()
