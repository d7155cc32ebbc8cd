"""What a run's start-up consists of, and what each means of shortening it is worth.

    python -m tests.benchmarks.startup [MODEL] [PHASE] [REPEATS]

Whole processes of `models.run` with a window of one step, medians, alternating: as the workflow starts them; without
compiled bytecode, as under PYTHONDONTWRITEBYTECODE on a machine where torch was never compiled; with cuDNN's autotuner.
Then the parts of one process that the workflow would start.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

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
clock = timers.timer_of(device)
torch.zeros(1, device=device)
clock.wait()
lap("start CUDA")
network = step_loop.make_network(cell, model, device, None)
clock.wait()
lap("build the network and move it")
step = step_loop.make_step(cell, model, network, device, ranges.Ranges()).step
batch = data_loading.move_to_device(next(iter(data_loading.iterate_batches(cell, model))), device, torch.contiguous_format)
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
    main(*sys.argv[1:])
