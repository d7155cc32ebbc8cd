"""Holds expected gains of tf32 and bf16 against measured ones, on programs that no constant was fitted to.

python -m tests.benchmarks.precision_gains --results FOLDER --minutes 6 --pack ARCHIVES [--programs a,b] [--tiny]
python -m tests.benchmarks.precision_gains --results ELSEWHERE --score ARCHIVES/*.tar.xz

The first call traces each program of precision_programs.py on a GPU, and times it in fp32, tf32 and bf16 by CUDA events; the
next call goes on. The second derives tables, which needs no GPU, and prints expected beside measured gains.
"""

import argparse
import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from profzoo import tools
from profzoo.config import configuration
from tests.benchmarks.precision_programs import PROGRAMS, TINY
from tests.planted import packing, running
from tests.planted.derive import unpack

PRECISIONS = ("tf32", "bf16")
# In this order, so that what changes with time is seen.
ORDER = ("fp32", *PRECISIONS, "fp32")
TIMES = "times.json"
WARMUP, STEPS = 8, 24
# Programs whose jobs start beside each other in one snakemake, and snakemakes beside each other.
TOGETHER, SIDE_BY_SIDE = 3, 4
# Minutes that timing takes, and packing.
TIMING, PACKING = 1.5, 0.5
# One child at a time has the GPU.
GPU = multiprocessing.Lock()


def describe_run(names: Sequence[str], results: Path, tiny: bool) -> dict[str, Any]:
    """The configuration of snakemake for some programs."""
    settings = {}
    for name in names:
        of_phase = {"workload": "reference"} if PROGRAMS[name].phase == "inference" else {}
        sizes = TINY if tiny else {"batch": PROGRAMS[name].batch}
        settings[name] = {"module": "tests.benchmarks.precision_programs", "program": name, **of_phase, **sizes}
        if tiny and PROGRAMS[name].batch == 1:
            settings[name]["batch"] = 1
    chosen: dict[str, Any] = {
        "models": [*names], "settings": settings, "phases": ["train", "inference"], "tool": ["nsys", "torch"],
        "locks": {"overlap": True}, "time": {"window": 12}, "nsys": {"window": 4}, "torch": {"window": 2},
        "pathvars": {"results": str(results)},
    }  # fmt: skip
    if tiny:
        chosen |= {"tool": ["torch"], "device": "cpu", "warmup": 1, "time": {"window": 3}, "torch": {"window": 1}}
    return chosen


def list_files(name: str, results: Path, tiny: bool) -> list[str]:
    """Files that a program takes, and those of the GPU."""
    config = configuration.normalise_config(describe_run([name], results, tiny))
    patterns = [
        pattern for tool in ("time", *config["tool"]) for pattern in tools.files()[tool].required_files(config[tool])
    ]
    shared = [] if tiny else [str(results / f"peaks/{configuration.normalise_config({})['gpu']}.csv")]
    return [*shared, *(str(results / name / one.format(phase=PROGRAMS[name].phase)) for one in patterns)]


def is_complete(name: str, results: Path, tiny: bool) -> bool:
    return all(Path(file).is_file() for file in list_files(name, results, tiny))


def begin(names: Sequence[str], folder: Path, tiny: bool, label: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start snakemake for some programs; what it says goes to `LABEL.log`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{label}.yaml"
    # JSON is YAML.
    file.write_text(json.dumps(describe_run(names, folder / "results", tiny)))
    command = [sys.executable, "-m", "snakemake", "--nolock", *words, "--configfile", str(file)]
    with (folder / f"{label}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=running.PROJECT, stdout=log, stderr=log, start_new_session=True)


def collect(names: Sequence[str], folder: Path, until: float, tiny: bool) -> None:
    """Have snakemake make what is missing, some programs at a time, so that they are complete however early time is up."""
    lacking = [name for name in names if not is_complete(name, folder / "results", tiny)]
    groups = [lacking[place : place + TOGETHER] for place in range(0, len(lacking), TOGETHER)]
    runs: list[subprocess.Popen[bytes]] = []
    while (groups or runs) and time.monotonic() < until:
        runs = [run for run in runs if run.poll() is None]
        while groups and len(runs) < SIDE_BY_SIDE:
            own = groups.pop(0)
            targets = [file for name in own for file in list_files(name, folder / "results", tiny)]
            limits = [f"-j{3 * TOGETHER}", "--keep-going", "--resources", f"gpu={3 * TOGETHER}"]
            runs.append(begin(own, folder, tiny, own[0], [*dict.fromkeys(targets), *limits]))
        time.sleep(0.2)
    for run in runs:
        running.wait_for(run, until)


def time_program(device: str, folder: Path, name: str) -> dict[str, list[list[float]]] | str:
    """Milliseconds of the steps of a program by precision, a list for each time that it was run; or why it failed."""
    import torch

    from profzoo.cell.settings import resolve_cell
    from profzoo.errors import first_error_line
    from profzoo.harness import interface
    from profzoo.harness.ranges import Ranges
    from profzoo.harness.step import step_loop
    from profzoo.harness.step.batches import iterate_batches
    from tests.planted.try_out import between, mark

    config = configuration.normalise_config(describe_run([name], folder / "results", device == "cpu"))
    cell = resolve_cell(name, PROGRAMS[name].phase, "time", config) | {"device": device}
    model, found = interface.load_functions(cell["module"]), dict[str, list[list[float]]]()
    batches = iterate_batches(cell, model)
    try:
        with GPU:
            place = torch.device(device)
            network = step_loop.make_network(cell, model, place, None)
            for precision in ORDER:
                repeated = step_loop.make_step(cell | {"precision": precision}, model, network, place, Ranges())
                batch, marks = repeated.transfer(next(iter(batches)), place), list[Any]()
                for _ in range(WARMUP + STEPS):
                    marks.append(mark(place))
                    repeated.step(batch)
                marks.append(mark(place))
                if device == "cuda":
                    torch.cuda.synchronize()
                steps = [between(one, other) for one, other in pairwise(marks)]
                found.setdefault(precision, []).append(steps[WARMUP:])
                repeated = None
    except Exception as error:
        return f"{type(error).__name__}: {first_error_line(error)}"
    return found


def time_programs(names: Sequence[str], folder: Path, device: str, until: float) -> None:
    """Time programs that are not yet timed, each in a child of its own, and write TIMES after each."""
    from tests.planted.try_out import try_each

    file = folder / TIMES
    known: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    wanted = [name for name in names if not isinstance(known.get(name), dict)]
    for name, found in zip(wanted, try_each(wanted, partial(time_program, device, folder), 3), strict=False):
        known[name] = found
        file.write_text(json.dumps(known))
        if time.monotonic() > until:
            break


def measured_gains(found: dict[str, list[list[float]]]) -> Iterator[tuple[str, float, float, float]]:
    """Yield each precision with its gain over fp32, and the gains over the slower and the faster of two runs in fp32."""
    base = [float(np.median(steps)) for steps in found["fp32"]]
    for precision in PRECISIONS:
        own = float(np.median(np.concatenate(found[precision])))
        yield precision, float(np.median(np.concatenate(found["fp32"]))) / own, min(base) / own, max(base) / own


def compare(plans: pd.DataFrame, times: dict[str, Any]) -> pd.DataFrame:
    """A row per program and precision with the expected and the measured gain.

    plans: tables/plans.csv. times: milliseconds as `time_program` returns them, by program.
    """
    rows = []
    for name, found in times.items():
        if isinstance(found, str):
            continue
        for precision, gain, low, high in measured_gains(found):
            own = plans[(plans["model"] == name) & (plans["settings"] == f"precision={precision}")]
            expected = own[["gain", "gain_low", "gain_high"]].iloc[0] if len(own) else pd.Series([math.nan] * 3)
            names = (
                "program",
                "setting",
                "expected",
                "expected_low",
                "expected_high",
                "gain",
                "low",
                "high",
                "step_ms",
            )
            step = float(np.median(np.concatenate(found["fp32"])))
            rows.append(dict(zip(names, (name, precision, *expected, gain, low, high, step), strict=True)))
    table = pd.DataFrame(rows)
    inside = table["gain"].between(table["expected_low"], table["expected_high"])
    return table.assign(error=(table["expected"] / table["gain"] - 1).abs(), inside=inside)


def summarise(table: pd.DataFrame) -> Iterator[str]:
    """Sentences about each precision: errors, intervals, and what one gain for all programs would miss."""
    for precision, own in table.dropna(subset="expected").groupby("setting"):
        constant = (own["gain"].median() / own["gain"] - 1).abs().median()
        width = (own["expected_high"] / own["expected_low"]).median()
        within = (own["error"] <= 0.2).mean()
        yield (
            f"{precision}: {len(own)} programs, median error {own['error'].median():.0%} (one gain for all:"
            f" {constant:.0%}), within 20 %: {within:.0%}, inside the interval: {own['inside'].mean():.0%} (median"
            f" width {width:.2f}), geometric mean of expected over measured"
            f" {np.exp(np.log(own['expected'] / own['gain']).mean()):.2f}"
        )


def score(names: Sequence[str], folder: Path) -> pd.DataFrame:
    """Derive the tables of the complete programs, print expected beside measured gains, and return them."""
    complete = [name for name in names if is_complete(name, folder / "results", tiny=False)]
    words = [str(folder / "results/tables/plans.csv"), "-j2", "--config", "collect=false"]
    if running.wait_for(begin(complete, folder, False, "tables", words), math.inf):
        raise SystemExit(f"snakemake failed:\n{running.last_lines(folder, 'tables')}")
    table = compare(pd.read_csv(folder / "results/tables/plans.csv"), json.loads((folder / TIMES).read_text()))
    with pd.option_context("display.width", 160, "display.max_rows", None):
        print(table.round(2).to_string(index=False))
    print("\n".join(summarise(table)))
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.precision_gains")
    parser.add_argument("--results", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=6.0, help="when to end, counted from the start")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="names, separated by commas; all by default")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="where archives of complete programs go")
    parser.add_argument("--tiny", action="store_true", help="sizes for a CPU, under time and torch alone")
    parser.add_argument("--score", nargs="*", type=Path, metavar="ARCHIVE", help="derive tables of these, and compare")
    options = parser.parse_args(arguments)
    names, folder = options.programs.split(","), options.results.absolute()
    if options.score is not None:
        unpack(options.score, folder)
        score(names, folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    # A parent that counts GPUs by the driver could not have children that use them.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    until = time.monotonic() + 60 * (options.minutes - PACKING)
    time_programs(names, folder, "cpu" if options.tiny else "cuda", until)
    collect(names, folder, until - running.ENDING_S, options.tiny)
    complete = [name for name in names if is_complete(name, folder / "results", options.tiny)]
    print(f"{len(complete)} of {len(names)} programs are traced")
    print("\n".join(f"{name}: {found}" for name, found in json.loads((folder / TIMES).read_text()).items()
                    if isinstance(found, str)))  # fmt: skip
    if options.pack:
        packing.pack(folder / "results", complete, options.pack, "precision")
        (options.pack / TIMES).write_text((folder / TIMES).read_text())


if __name__ == "__main__":
    main()
