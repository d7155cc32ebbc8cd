"""What collating a batch, and a cell's step, take beside busy neighbours, on all cores and on half of them.

python -m tests.benchmarks.busy_cores [ROUNDS [MODEL/PHASE...]]

Neighbours are endless loops, as many as half of the cores and as all; the batch is eight images of 224 by 224. Of a
cell, each row is a process of its own.
"""

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import torch

PAUSE_S = 0.005


def collate_ms(threads: int, rounds: int) -> list[float]:
    """The time of each of so many batches."""
    torch.set_num_threads(threads)
    images = [torch.rand(3, 224, 224) for _ in range(8)]
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        torch.stack(images)
        times.append((time.perf_counter() - begin) * 1e3)
        # The GPU's step, in which the threads go to sleep.
        time.sleep(PAUSE_S)
    return times


def step_ms(threads: int, model: str, phase: str) -> list[float]:
    """The time of each step of a process of its own, but the first."""
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder) / "steps.csv"
        command = [sys.executable, "-m", "models.run", model, phase, "window=20", "--steps", str(steps)]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": str(threads)}
        )
        return list(pd.read_csv(steps)["wall_ns"].iloc[1:] / 1e6)


@contextlib.contextmanager
def busy(neighbours: int) -> Iterator[None]:
    """So many processes that never rest."""
    with contextlib.ExitStack() as stack:
        for _ in range(neighbours):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def main(rounds: str = "300", *cells: str) -> None:
    cores = len(os.sched_getaffinity(0))
    print("| of | neighbours | threads | mean ms | median ms | largest ms |\n|---|---|---|---|---|---|")
    for neighbours, threads in itertools.product((0, cores // 2, cores), (cores, max(cores // 2, 1))):
        with busy(neighbours):
            measured = {"collating": collate_ms(threads, int(rounds))}
            for cell in cells:
                measured[cell] = step_ms(threads, *cell.split("/"))
        for name, times in measured.items():
            middle, mean = statistics.median(times), statistics.mean(times)
            print(f"| {name} | {neighbours} | {threads} | {mean:.2f} | {middle:.2f} | {max(times):.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
