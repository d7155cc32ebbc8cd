"""Measures how fast collective operations are between the GPUs of a cell, by operation and size.

torchrun starts it, one process for each GPU: `torchrun --nproc-per-node=2 -m profzoo.calibration.links --out x.csv`.

Operations run in a row with nothing beside them, as in NVIDIA's nccl-tests. The time of one is the mean of a series on
the slowest process, and the shortest of several series counts.
"""

import argparse
import csv
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from profzoo.calibration.peaks import describe_run
from profzoo.errors import ConfigError
from profzoo.harness import devices
from profzoo.machine import gpus, job_child
from profzoo.op_costs.collectives import bus_factor
from profzoo.tools.torch.collective_events import LINK_COLUMNS

# Sizes in bytes, four times apart: from what only latency matters for, to what only bandwidth matters for.
SMALLEST = 1 << 12
LARGEST = {"cuda": 1 << 28, "cpu": 1 << 22}
SERIES, SERIES_S, MOST_CALLS = 5, 0.02, 1000
ELEMENT = torch.float32
Row = tuple[str, int, int, int, float, float, float]


def make_operations(size: int, device: torch.device) -> dict[str, Callable[[], object]]:
    """Make the operations of a size in bytes, which is a multiple of the processes' elements; by name."""
    processes = dist.get_world_size()
    # Sums of zeros stay zero. NCCL has other kernels for a maximum than for the sums of gradients.
    whole = torch.zeros(size // ELEMENT.itemsize, device=device)
    part, other = torch.zeros(len(whole) // processes, device=device), torch.empty_like(whole)
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(other, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
    }


def probe_sizes(kind: str, processes: int) -> list[int]:
    """Return the sizes to measure in bytes: each can be divided among the processes.

    >>> probe_sizes("cpu", 3)[:2]
    [4104, 16392]
    """
    step, sizes = processes * ELEMENT.itemsize, []
    size = SMALLEST
    while size <= LARGEST[kind]:
        sizes.append(-(-size // step) * step)
        size *= 4
    return sizes


def measure_links(device: torch.device) -> Iterator[Row]:
    """Yield one row per operation and size: COLUMNS, without the link. All processes have to call it."""
    processes = dist.get_world_size()
    for size in probe_sizes(device.type, processes):
        for name, operate in make_operations(size, device).items():
            calls, seconds = _time(operate, device)
            rate = size / seconds
            yield name, size, processes, calls, seconds * 1e9, rate, rate * bus_factor(name, processes)


def _time(operate: Callable[[], object], device: torch.device) -> tuple[int, float]:
    """Return the calls of a series, and the seconds of a call: of the shortest series on the slowest process."""
    # The first call sets up connections.
    _series(operate, 2, device)
    once = _slowest(_series(operate, 1, device), device)
    calls = min(max(round(SERIES_S / once), 1), MOST_CALLS)
    return calls, min(_slowest(_series(operate, calls, device), device) for _ in range(SERIES)) / calls


def _series(operate: Callable[[], object], calls: int, device: torch.device) -> float:
    dist.barrier()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(calls):
        operate()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _slowest(seconds: float, device: torch.device) -> float:
    """Return the largest value of all processes, so that all of them make as many calls."""
    found = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found.item())


def describe_processes(device: torch.device) -> tuple[list[dict[str, Any]], str]:
    """Return each process's rank, host and GPU, and the kinds of links between the GPUs."""
    own = {"rank": dist.get_rank(), "host": platform.node(), "device_uuid": devices.read_uuid(device)}
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    here = [one["device_uuid"] for one in found if one["host"] == own["host"]]
    linked = gpus.read_links(here, gpus.list_gpus()) if device.type == "cuda" else ""
    over = gpus.NETWORK if len({one["host"] for one in found}) > 1 else ""
    return found, ", ".join(filter(None, [linked, over]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line in each process; returns the exit code. The first process writes and prints."""
    job_child.enter_job()
    parser = argparse.ArgumentParser(prog="python -m profzoo.calibration.links", description=__doc__)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=f"CSV: {', '.join(LINK_COLUMNS)}")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="JSON on the run: device, versions, processes")
    options = parser.parse_args(arguments)
    try:
        device = devices.choose_device(options.device, int(os.environ.get("LOCAL_RANK", "0")))
    except ConfigError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 2
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    ranks, link = describe_processes(device)
    rows = [(*row, link) for row in measure_links(device)]
    first = dist.get_rank() == 0
    dist.barrier()
    dist.destroy_process_group()
    if first:
        _write(options, device, rows, ranks)
    return 0


def _write(
    options: argparse.Namespace, device: torch.device, rows: Sequence[tuple[Any, ...]], ranks: Sequence[dict[str, Any]]
) -> None:
    """Write the rows and the facts of the run, and print the largest size of each operation."""
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(LINK_COLUMNS)
        writer.writerows(rows)
    link = rows[0][-1]
    said = describe_run(options.device, device) | {"ranks": list(ranks), "link": link}
    if options.facts:
        options.facts.write_text(json.dumps(said, indent=1) + "\n")
    print(f"{len(ranks)} x {said['device']}{f', joined by {link}' if link else ''}:")
    for name, size, _, _, nanoseconds, _, bus, _ in rows:
        if size == max(row[1] for row in rows):
            print(f"{name:15} {size >> 20} MiB in {nanoseconds / 1e6:.2f} ms, bus bandwidth {bus / 1e9:.2f} GB/s")


if __name__ == "__main__":
    sys.exit(main())
