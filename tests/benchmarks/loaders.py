"""Steps whose batches a DataLoader's workers load, against what is expected from the same step without workers.

    python -m tests.benchmarks.loaders [CASE...]

The step without workers is measured, with what profzoo notes of its warm-up. From these follows the step with 1 to 8
workers, which then is measured too. Where there is a GPU, workers' batches are pinned, and all are copied to it.
"""

import os
import statistics
import sys
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from profzoo.harness import devices
from profzoo.harness.step.batches import BatchLoading
from profzoo.what_if.loading import Loading

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
BATCH, WARMUP, STEPS, WORKERS = 8, 12, 30, (1, 2, 4, 8)
MATRIX, PRODUCTS = (4096, 3) if GPU else (384, 4)
# Within so much of the measured step an expected one is near.
NEAR = 0.2


@dataclass(frozen=True)
class Case(Dataset[torch.Tensor]):
    """A data set: seconds spent for each sample and for each batch, asleep or not, and the shape of a sample.

    cores: cores that the process and its workers may use, all by default. threads: of the step on a CPU. products:
    how many times as many the step multiplies.
    """

    item_s: float = 0.0
    batch_s: float = 0.0
    sleeps: bool = False
    shape: tuple[int, ...] = (3, 64, 64)
    cores: int | None = None
    threads: int = 1
    products: int = 1

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        self.spend(self.item_s)
        return torch.full(self.shape, float(index % 7))

    def spend(self, seconds: float) -> None:
        if self.sleeps:
            return time.sleep(seconds)
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass
        return None

    def collate(self, samples: list[torch.Tensor]) -> torch.Tensor:
        self.spend(self.batch_s)
        return torch.stack(samples)

    def load(self, workers: int) -> DataLoader[torch.Tensor]:
        """Return a loader of the data set, with torch's own function for batches unless one has to spend time."""
        own = self.collate if self.batch_s else None
        return DataLoader(self, BATCH, num_workers=workers, collate_fn=own, pin_memory=GPU and workers > 0)


LARGE = (1 << 20,)
CASES = {
    "`__getitem__` sleeps": Case(0.005, sleeps=True),
    "`__getitem__` computes": Case(0.005),
    "`collate_fn` sleeps": Case(batch_s=0.049, sleeps=True),
    "`collate_fn` computes": Case(batch_s=0.049),
    "34 MB": Case(shape=LARGE),
    "34 MB, own `collate_fn`": Case(batch_s=1e-6, shape=LARGE),
    "34 MB, sleeps": Case(0.005, sleeps=True, shape=LARGE),
    "one core, sleeps": Case(0.005, sleeps=True, cores=1),
    "one core, computes": Case(0.005, cores=1),
    "two cores, both in the step": Case(0.005, cores=2, threads=2, products=8),
}


def measure(case: Case, workers: int) -> tuple[float, float, dict[str, Any]]:
    """Return ns of the mean step, ns that it waits for its batch, and what was noted of the warm-up."""
    matrix, source, noted = torch.rand(MATRIX, MATRIX, device=DEVICE), iter(case.load(workers)), BatchLoading()
    whole, waits = [], []
    for number in range(WARMUP + STEPS):
        began = time.perf_counter_ns()
        batch = noted.take(source) if number < WARMUP else next(source)
        loaded = time.perf_counter_ns()
        batch.to(DEVICE, non_blocking=True).sum()
        for _ in range(PRODUCTS * case.products):
            torch.mm(matrix, matrix)
        if GPU:
            torch.cuda.synchronize()
        whole.append(time.perf_counter_ns() - began)
        waits.append(loaded - began)
    return statistics.mean(whole[WARMUP:]), statistics.mean(waits[WARMUP:]), dict(noted.read()["loading"])


def expect(step_ns: float, data_ns: float, noted: dict[str, Any], workers: int) -> float:
    known = replace(Loading(cores=devices.count_cores()), **noted).of_step(step_ns, data_ns / step_ns)
    return max(known.rest_ns + (0 if GPU else known.handover_ns), known.least_step_ns(workers))


def main(*chosen: str) -> None:
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    everywhere, off = sorted(os.sched_getaffinity(0)), []
    named = torch.cuda.get_device_name() if GPU else "no GPU"
    print(f"{named}, {devices.count_cores():g} cores, torch {torch.__version__}; ms, expected / measured\n")
    print(f"| case | no workers (loading) | {' | '.join(map(str, WORKERS))} |\n{'|---' * (2 + len(WORKERS))}|")
    for name in chosen or CASES:
        os.sched_setaffinity(0, everywhere[: CASES[name].cores])
        torch.set_num_threads(CASES[name].threads)
        alone, cells = measure(CASES[name], 0), []
        for workers in WORKERS:
            expected, measured = expect(*alone, workers), measure(CASES[name], workers)[0]
            off.append(abs(expected / measured - 1))
            cells.append(f"{expected / 1e6:.1f} / {measured / 1e6:.1f}")
        print(f"| {name} | {alone[0] / 1e6:.1f} ({alone[1] / 1e6:.1f}) | {' | '.join(cells)} |", flush=True)
    near, middle = sum(one <= NEAR for one in off), statistics.median(off)
    print(f"\n{near} of {len(off)} within {NEAR:.0%}, median {middle:.0%}, worst {max(off):.0%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
