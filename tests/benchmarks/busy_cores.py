"""What collating a batch takes beside busy neighbours, on all cores and on half of them.

python -m tests.benchmarks.busy_cores [ROUNDS]

Neighbours are endless loops, as many as half of the cores and as all; the batch is eight images of 224 by 224.
"""

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import time

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


def main(rounds: str = "300") -> None:
    """Print the table."""
    cores = len(os.sched_getaffinity(0))
    print("| neighbours | threads | mean ms | median ms | largest ms |\n|---|---|---|---|---|")
    for neighbours, threads in itertools.product((0, cores // 2, cores), (cores, max(cores // 2, 1))):
        with contextlib.ExitStack() as stack:
            for _ in range(neighbours):
                process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
                stack.callback(process.kill)
            times = collate_ms(threads, int(rounds))
        middle, mean = statistics.median(times), statistics.mean(times)
        print(f"| {neighbours} | {threads} | {mean:.2f} | {middle:.2f} | {max(times):.2f} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
