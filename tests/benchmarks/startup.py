"""What a run's start-up consists of, and what each means of shortening it is worth.

    python -m tests.benchmarks.startup [MODEL] [PHASE] [REPEATS]
    python -m tests.benchmarks.startup runs REPEATS CHECKOUT [key=value ...] TARGET ...

The second form times whole runs of snakemake for these files: of this checkout with forked jobs, of this checkout with
jobs that start by themselves, and of another checkout, each in turn in a new folder; and how soon jobs can be forked.

Whole processes of `models.run` with a window of one step, medians, alternating: as the workflow starts them; without
compiled bytecode, as under PYTHONDONTWRITEBYTECODE on a machine where torch was never compiled; with cuDNN's autotuner.
Then the parts of one process that the workflow would start.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from profzoo.machine import forks

PARTS = """
import time
began = time.perf_counter()
def lap(what):
    global began
    now = time.perf_counter()
    print(f"{now - began:7.2f} s  {what}")
    began = now
import torch
lap("import torch")
from profzoo import run
from profzoo.harness.observers import recorders
from profzoo.harness.step import batches
from profzoo.harness import interface
from profzoo.harness.step import step_loop
from profzoo.harness import ranges
lap("import the harness")
cell = run.resolve_words(MODEL, PHASE, "time", ["window=1"])
model = interface.load_functions(cell["module"])
lap("import the model's libraries")
device = step_loop.choose_cell_device(cell)
clock = recorders.timer_of(device)
torch.zeros(1, device=device)
clock.wait()
lap("start CUDA")
network = step_loop.make_network(cell, model, device, None)
clock.wait()
lap("build the network and move it")
step = step_loop.make_step(cell, model, network, device, ranges.Ranges()).step
batch = batches.move_to_device(next(iter(batches.iterate_batches(cell, model))), device, torch.contiguous_format)
lap("first batch, optimizer")
for what in ("first step", "second step"):
    step(batch)
    clock.wait()
    lap(what)
"""


def wall(words: list[str], **environment: str) -> float:
    given = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | environment
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "models.run", *words], env=given, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


HERE = Path(__file__).parents[2]


def whole_run(checkout: Path, words: list[str], targets: list[str]) -> tuple[float, float]:
    """Seconds of a run in a new folder, and of its jobs' programs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "snakemake", "--directory", folder, "-j1", *targets, "--config", *words]
        began = time.monotonic()
        subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took = time.monotonic() - began
        sidecars = [path for path in Path(folder).glob("results/**/*.json") if "logs" not in path.parts]
        return took, sum(json.loads(path.read_text()).get("wall_s", 0.0) for path in sidecars)


def ready_s(stage: int) -> float:
    """Seconds until a server of jobs answers a request to a stage; the request is refused, as it has no variables."""
    variables = {**os.environ, "PYTHONPATH": str(HERE), "PYTHONSAFEPATH": "1"}
    began = time.monotonic()
    process, path = forks.start(forks.JOBS, forks.STAGES, variables, sys.executable)
    from profzoo.machine import fork_client

    with socket.socket(socket.AF_UNIX) as server:
        fork_client._begin(server, forks.stage_path(path, stage), fork_client._request(["", ""], {}, [], []), [0])
    took = time.monotonic() - began
    process.communicate()
    return took


def runs(repeats: str, other: str, *words: str) -> None:
    settings, targets = ([word for word in words if ("=" in word) == kind] for kind in (True, False))
    kinds = {"forked": (HERE, ["fork=true"]), "fork=false": (HERE, ["fork=false"]), other: (Path(other), [])}
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(int(repeats)):
        for kind, (checkout, own) in kinds.items():
            times[kind].append(whole_run(checkout, [*settings, *own], targets))
    print(f"{' '.join(targets)}, median of {repeats}:")
    for kind, values in times.items():
        whole, programs = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{whole:7.2f} s, of which {programs:6.2f} s programs  {kind}")
    for number, modules in enumerate(forks.STAGES):
        ready = statistics.median(ready_s(number) for _ in range(int(repeats)))
        print(f"{ready:7.2f} s until jobs that import {', '.join(modules)} can be forked")


def main(model: str = "mobilenetv2", phase: str = "train", repeats: str = "3") -> None:
    words = [model, phase, "window=1"]
    wall(words)  # Compiles bytecode and fills the page cache.
    with tempfile.TemporaryDirectory() as nothing:
        bare = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": nothing}
        kinds = {
            "as the workflow starts it": lambda: wall(words),
            "no compiled bytecode": lambda: wall(words, **bare),
            "cuDNN's autotuner on": lambda: wall([*words, "cudnn_benchmark=true"]),
        }
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(int(repeats)):
            for kind, run in kinds.items():
                times[kind].append(run())
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    first = medians["as the workflow starts it"]
    print(f"{model} {phase}, whole process, median of {repeats}:")
    for kind, median in medians.items():
        print(f"{median:7.2f} s  {median / first:5.2f} x  {kind}")
    print("parts of one process:", flush=True)
    subprocess.run([sys.executable, "-c", f"MODEL, PHASE = {model!r}, {phase!r}\n{PARTS}"], check=True)


if __name__ == "__main__":
    runs(*sys.argv[2:]) if sys.argv[1:2] == ["runs"] else main(*sys.argv[1:])
