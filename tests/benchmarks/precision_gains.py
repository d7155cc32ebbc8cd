"""Holds expected gains of tf32 and bf16 against measured ones, on programs that no constant was fitted to.

python -m tests.benchmarks.precision_gains --results FOLDER --minutes 8.5 --into ARCHIVES [--programs a,b] [--counters]
python -m tests.benchmarks.precision_gains --results ELSEWHERE --into ELSEWHERE --score ARCHIVES/*.tar.xz

The first call times each program of precision_programs.py on a GPU in fp32, tf32 and bf16 in turns, by CUDA events, and
traces it in fp32; the next call goes on. With the time that is left it derives tables and writes CSV, a row for each
program. The second call does that from the archives, without a GPU.
"""

import argparse
import importlib
import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from profzoo import tools
from profzoo.cell.settings import resolve_cell
from profzoo.config import configuration
from profzoo.errors import first_error_line
from profzoo.harness import interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import step_loop
from profzoo.harness.step.batches import iterate_batches
from profzoo.harness.step.training_step import set_arithmetic
from tests.benchmarks.precision_programs import PROGRAMS, TINY
from tests.planted import configuration as planted
from tests.planted import packing, running, try_out
from tests.planted.derive import unpack

PRECISIONS = ("tf32", "bf16")
# Of each precision in CSV; behind each gain the ends of its interval, those of the measured one by its rounds.
COLUMNS = ("expected", "expected_low", "expected_high", "gain", "gain_low", "gain_high", "error", "inside")
CSV, TIMES = "precision_gains.csv", "times.json"
# Rounds of a program, each with all precisions in turn, so that what changes with time meets all of them; steps of
# each, the first of which are not counted: more of them in the first round, which chooses algorithms.
ROUNDS, STEPS, WARMUP, AGAIN = 5, 8, 8, 2
# No more rounds begin after so many seconds, but for the second one.
LONGEST_S = 8.0
# Programs whose jobs start beside each other in one snakemake, and snakemakes beside each other: with 18 jobs that
# started at once, steps were up to 1.5 times as long (H100, 16 cores). Children that start beside the one that has the
# GPU.
TOGETHER, SIDE_BY_SIDE, CHILDREN = 2, 1, 3
# Minutes for packing and for tables.
ENDING = 1.0
# One child at a time has the GPU.
GPU = multiprocessing.Lock()


@dataclass(frozen=True)
class Run:
    """What a call works on.

    folder: of results, logs and times. tiny: sizes for a CPU, under time and torch alone. counters: have ncu count.
    """

    folder: Path
    tiny: bool = False
    counters: bool = False

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def describe(self, names: Sequence[str]) -> dict[str, Any]:
        """The configuration of snakemake for some programs."""
        settings = {}
        for name in names:
            program = PROGRAMS[name]
            of_phase = {"workload": "reference"} if program.phase == "inference" else {}
            sizes = {
                **(TINY if self.tiny else {}),
                "batch": min(program.batch, TINY["batch"] if self.tiny else math.inf),
            }
            settings[name] = {"module": "tests.benchmarks.precision_programs", "program": name, **of_phase, **sizes}
        chosen: dict[str, Any] = {
            "models": [*names], "settings": settings, "phases": ["train", "inference"],
            "tool": ["nsys", "torch", *(["ncu"] if self.counters else [])], "locks": {"overlap": True},
            **({"ncu": planted.COUNTERS} if self.counters else {}),
            **{tool: {"window": window} for tool, window in planted.WINDOWS.items()},
            "pathvars": {"results": str(self.results)},
        }  # fmt: skip
        if self.tiny:
            chosen |= {"tool": ["torch"], "device": "cpu", "warmup": 1, "time": {"window": 3}, "torch": {"window": 1}}
        return chosen

    def files(self, name: str) -> list[str]:
        """Files that a program takes."""
        config = configuration.normalise_config(self.describe([name]))
        tools_files = [tools.files()[tool].required_files(config[tool]) for tool in ("time", *config["tool"])]
        patterns = [pattern for several in tools_files for pattern in several]
        return [str(self.results / name / one.format(phase=PROGRAMS[name].phase)) for one in patterns]

    def missing(self, name: str) -> list[str]:
        return [file for file in self.files(name) if not Path(file).is_file()]

    def complete(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self.missing(name)]

    def times(self) -> dict[str, Any]:
        """Milliseconds as `time_program` returns them, by program."""
        file = self.folder / TIMES
        return json.loads(file.read_text()) if file.is_file() else {}


def begin(run: Run, names: Sequence[str], label: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start snakemake for some programs; what it says goes to `LABEL.log`."""
    run.folder.mkdir(parents=True, exist_ok=True)
    file = run.folder / f"{label}.yaml"
    # JSON is YAML.
    file.write_text(json.dumps(run.describe(names)))
    command = [sys.executable, "-m", "snakemake", "--nolock", *words, "--configfile", str(file)]
    with (run.folder / f"{label}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=running.PROJECT, stdout=log, stderr=log, start_new_session=True)


def collect(run: Run, names: Sequence[str], until: float) -> dict[str, int | None]:
    """Have snakemake make what is missing, some programs at a time, so that they are complete however early time is up.

    What all share comes first: the peaks of the GPU, by which bounds are measured.

    Returns: what failed, by the label of its log, with the exit code of snakemake; None for what was ended.
    """
    codes: dict[str, int | None] = {}
    shared = [] if run.tiny else [str(run.results / file) for file in planted.shared_files()]
    if wanted := [file for file in shared if not Path(file).is_file()]:
        codes["peaks"] = running.wait_for(begin(run, names, "peaks", [*wanted, "-j1"]), until)
    lacking = [name for name in names if run.missing(name)]
    groups = [lacking[place : place + TOGETHER] for place in range(0, len(lacking), TOGETHER)]
    jobs, runs = 4 * TOGETHER, dict[str, subprocess.Popen[bytes]]()
    while (groups or runs) and time.monotonic() < until:
        while groups and len(runs) < SIDE_BY_SIDE:
            own = groups.pop(0)
            targets = [file for name in own for file in run.missing(name)]
            words = [*targets, f"-j{jobs}", "--keep-going", "--resources", f"gpu={jobs}"]
            runs[own[0]] = begin(run, own, own[0], words)
        time.sleep(0.2)
        for label in [label for label, one in runs.items() if one.poll() is not None]:
            codes[label] = runs.pop(label).returncode
    codes |= {label: running.wait_for(one, until) for label, one in runs.items()}
    return {label: code for label, code in codes.items() if code != 0}


def time_program(run: Run, name: str) -> dict[str, list[list[float]]] | str:
    """Milliseconds of the steps of a program by precision, a list for each round; or why it failed."""
    place = torch.device("cpu" if run.tiny else "cuda")
    try:
        config = configuration.normalise_config(run.describe([name]))
        cell = resolve_cell(name, PROGRAMS[name].phase, "time", config) | {"device": place.type}
        model = interface.load_functions(cell["module"])
        inputs = repeat_batches(cell, model)
        # Begins to use the device, which takes seconds, while another child may still have it.
        torch.zeros((), device=place)
        with GPU:
            return time_rounds(cell, model, inputs, place)
    except Exception as error:
        return f"{type(error).__name__}: {first_error_line(error)}"


def repeat_batches(cell: Any, model: Any) -> Iterator[Any]:
    """Yield a cell's batches without end, loaded as a step loads them, because a gain is one of the whole step."""
    while True:
        yield from iterate_batches(cell, model)


def time_rounds(cell: Any, model: Any, inputs: Iterator[Any], place: torch.device) -> dict[str, list[list[float]]]:
    """Milliseconds of the steps of a cell by precision, a list for each round; a step loads and copies its batch."""
    network, began = step_loop.make_network(cell, model, place, None), time.monotonic()
    cells = {precision: cell | {"precision": precision} for precision in ("fp32", *PRECISIONS)}
    parts = {name: step_loop.make_step(one, model, network, place, Ranges()) for name, one in cells.items()}
    found: dict[str, list[list[float]]] = {name: [] for name in cells}
    for number in range(ROUNDS):
        if number > 1 and time.monotonic() - began > LONGEST_S:
            break
        for name, one in cells.items():
            set_arithmetic(one)
            marks, warmup = list[Any](), AGAIN if number else WARMUP
            for _ in range(warmup + STEPS):
                marks.append(try_out.mark(place))
                parts[name].step(parts[name].transfer(next(inputs), place))
            marks.append(try_out.mark(place))
            if place.type == "cuda":
                torch.cuda.synchronize()
            found[name].append([try_out.between(*both) for both in pairwise(marks)][warmup:])
    return found


def time_programs(run: Run, names: Sequence[str], until: float) -> None:
    """Time programs that are not yet timed, each in a child of its own, and write TIMES after each."""
    known = run.times()
    wanted: list[Any] = [name for name in names if not isinstance(known.get(name), dict)]
    for name, found in zip(wanted, try_out.try_each(wanted, partial(time_program, run), CHILDREN), strict=False):
        known[name] = found
        (run.folder / TIMES).write_text(json.dumps(known))
        if time.monotonic() > until:
            break


def measured_gain(found: dict[str, list[list[float]]], precision: str) -> tuple[float, float, float]:
    """The median of the gains over fp32 in each round, and the least and the largest of them."""
    of_rounds = [np.median(base) / np.median(own) for base, own in zip(found["fp32"], found[precision], strict=True)]
    return float(np.median(of_rounds)), float(min(of_rounds)), float(max(of_rounds))


def compare(plans: pd.DataFrame, times: dict[str, Any]) -> pd.DataFrame:
    """A row per program with expected and measured gains, and the ends of their intervals.

    plans: tables/plans.csv; a program without plans has no expected gain. times: as from `Run.times`. An interval holds
    the gain too where only its upper end is told.
    """
    rows = []
    for name, found in times.items():
        if isinstance(found, str):
            continue
        row = {
            "program": name,
            "phase": PROGRAMS[name].phase,
            "step_ms": float(np.median(np.concatenate(found["fp32"]))),
        }
        for precision in PRECISIONS:
            own = plans[(plans["model"] == name) & (plans["settings"] == f"precision={precision}")]
            expected, low, high = (
                own[["gain", "gain_low", "gain_high"]].iloc[0].astype(float) if len(own) else [math.nan] * 3
            )
            gain, least, largest = measured_gain(found, precision)
            inside = math.nan if math.isnan(high) else float(gain <= high and not gain < low)
            values = (expected, low, high, gain, least, largest, abs(expected / gain - 1), inside)
            row |= {f"{precision}_{column}": value for column, value in zip(COLUMNS, values, strict=True)}
        rows.append(row)
    columns = ["program", "phase", "step_ms", *(f"{one}_{column}" for one in PRECISIONS for column in COLUMNS)]
    return pd.DataFrame(rows, columns=columns)


def summarise(table: pd.DataFrame) -> Iterator[str]:
    """Sentences about each precision: errors, intervals, and what one gain for all programs would miss."""
    for precision in PRECISIONS:
        columns = {f"{precision}_{column}": column for column in COLUMNS}
        own = table.rename(columns=columns).dropna(subset=["expected"])
        if not len(own):
            yield f"{precision}: no program has an expected gain"
            continue
        constant = (own["gain"].median() / own["gain"] - 1).abs().median()
        width = (own["expected_high"] / own["expected_low"]).median()
        mean = np.exp(np.log(own["expected"] / own["gain"]).mean())
        spread = (own["gain_high"] / own["gain_low"]).median()
        yield (
            f"{precision}: {len(own)} programs, median error {own['error'].median():.0%} (one gain for all:"
            f" {constant:.0%}), within 20 %: {(own['error'] <= 0.2).mean():.0%}, inside the interval:"
            f" {own['inside'].mean():.0%} (median width {width:.2f}; of rounds {spread:.2f}), geometric mean of"
            f" expected over measured {mean:.2f}"
        )


def score(run: Run, names: Sequence[str], csv: Path, until: float = math.inf) -> int | None:
    """Derive the tables of the complete programs, write CSV with expected beside measured gains, and print it.

    Without tables, as where time is up, only measured gains are known. Returns what snakemake did.
    """
    plans, code = run.results / "tables/plans.csv", 0
    # Tables of fewer programs are not to be taken for these.
    plans.unlink(missing_ok=True)
    if complete := run.complete(names):
        words = [str(plans), f"-j{len(os.sched_getaffinity(0))}", "--config", "collect=false"]
        code = running.wait_for(begin(run, complete, "tables", words), until)
    known = pd.read_csv(plans) if plans.is_file() and code == 0 else pd.DataFrame(columns=["model", "settings"])
    table = compare(known, {name: found for name, found in run.times().items() if name in names})
    csv.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(csv, index=False)
    with pd.option_context("display.width", 200, "display.max_rows", None, "display.max_columns", None):
        print(table.drop(columns=["phase"]).round(2).to_string(index=False))
    print("\n".join(summarise(table)))
    return code


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.precision_gains")
    parser.add_argument("--results", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER", help="where archives and CSV go")
    parser.add_argument("--minutes", type=float, default=8.5, help="when to end, counted from the start")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="names, separated by commas; all by default")
    parser.add_argument("--counters", action="store_true", help="have ncu count the launches, too")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU, under time and torch alone")
    parser.add_argument("--score", nargs="*", type=Path, metavar="ARCHIVE", help="derive tables of these, and compare")
    options, began = parser.parse_args(arguments), time.monotonic()
    names, into = options.programs.split(","), options.into.absolute()
    if unknown := set(names) - set(PROGRAMS):
        raise SystemExit(f"--programs: there is no {', '.join(sorted(unknown))}")
    run = Run(options.results.absolute(), options.tiny, options.counters)
    run.folder.mkdir(parents=True, exist_ok=True)
    if options.score is not None:
        unpack(options.score, run.folder)
        for file in {archive.parent / TIMES for archive in options.score}:
            (run.folder / TIMES).write_text(json.dumps(run.times() | json.loads(file.read_text())))
        if score(run, names, into / CSV) != 0:
            raise SystemExit(f"snakemake failed:\n{running.last_lines(run.folder, 'tables')}")
        return
    # A parent that counts GPUs by the driver could not have children that use them.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # What the first optimizer imports; children would each do it again.
    importlib.import_module("torch._dynamo")
    end = began + 60 * options.minutes
    until = end - 60 * ENDING - running.ENDING_S
    time_programs(run, names, until)
    print(f"timed after {time.monotonic() - began:.0f} s", flush=True)
    failed = collect(run, names, until)
    complete = run.complete(names)
    print(f"{len(complete)} of {len(names)} programs are traced after {time.monotonic() - began:.0f} s", flush=True)
    for name, found in run.times().items():
        if isinstance(found, str):
            print(f"{name}: {found}")
    for archive in packing.pack(run.results, complete, into, "precision"):
        print(f"packed {archive.name}: {archive.stat().st_size / 2**20:.1f} MiB")
    (into / TIMES).write_text(json.dumps(run.times()))
    if score(run, names, into / CSV, end - running.ENDING_S) != 0:
        print(f"tables were not made, see --score:\n{running.last_lines(run.folder, 'tables')}")
    for label in [label for label, code in failed.items() if code is not None]:
        print(f"snakemake failed, as {label}.log ends:\n{running.last_lines(run.folder, label, 12)}")
    if left := [name for name in names if name not in complete]:
        print(f"--programs {','.join(left)}")


if __name__ == "__main__":
    main()
