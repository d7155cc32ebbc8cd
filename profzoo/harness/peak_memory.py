"""Measures memory in one extra step behind the window: the most that each range holds, by purpose."""

import csv
import functools
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from profzoo.harness import memory_blocks, safe_inspection, tensor_trees
from profzoo.harness.step_loop import StepParts
from profzoo.io import chrome_trace
from profzoo.range_names import STEP

COLUMNS = (
    "order",
    "range",
    "begin_bytes",
    "peak_bytes",
    "end_bytes",
    *(f"{held}_bytes" for held in memory_blocks.HELD),
)
# Of allocations in a trace, by the type of the device.
DEVICE_TYPES = {"cpu": 0, "cuda": 1}


def measure_memory(batch: Any, repeated: StepParts, network: nn.Module, device: torch.device) -> list[dict[str, Any]]:
    """The rows of COLUMNS of a step, not captured, on a batch of the host.

    Blocks are those of the device's allocator. What was there before is on a CPU that of which it is known.
    """
    trainer, ranges, known = repeated.trainer, repeated.ranges, []
    networks = [network, *([trainer.others] if trainer else [])]
    before = _before(networks, trainer.optimizers if trainer else [], batch, device)
    backward = 0

    def closed(name: str) -> None:
        nonlocal backward
        if name == "backward":
            gradients = [one.grad for part in networks for one in part.parameters() if one.grad is not None]
            known.append(memory_blocks.KnownAddresses("gradients", name, backward, set(_sizes(gradients, device))))
            backward += 1

    ranges.watch(torch_ranges=True, torch_modules=False)
    # The CPU's activities alone: what is allocated for a GPU is told there as well.
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler, ranges(STEP):
        with ranges("transfer"):
            placed = repeated.transfer(batch, device)
        known.append(
            memory_blocks.KnownAddresses(
                "inputs", "transfer", 0, set(_sizes(tensor_trees.find_tensors(placed), device))
            )
        )
        ranges.closed = closed
        repeated.plain(placed)
        ranges.closed = None
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = chrome_trace.read_events(trace)
    return memory_blocks.memory_rows(events, DEVICE_TYPES[device.type], before, known)


def _before(
    networks: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer], batch: Any, device: torch.device
) -> dict[str, int]:
    """Bytes held before the step, by purpose."""
    weights = [tensor for one in networks for tensor in (*one.parameters(), *one.buffers())]
    states = [state for one in optimizers for state in one.state.values()]
    held = {
        "weights": weights,
        "optimizer": tensor_trees.find_tensors(states),
        # Of a CPU's step, which takes them where they are.
        "inputs": tensor_trees.find_tensors(batch),
    }
    found = {name: sum(_sizes(tensors, device).values()) for name, tensors in held.items()}
    if device.type == "cuda":
        found["other"] = torch.cuda.memory_allocated(device) - sum(found.values())
    return found


def _sizes(tensors: Iterable[Tensor], device: torch.device) -> dict[int, int]:
    """Bytes of the tensors' storages on the device, by address; unreadable ones are left out."""
    found: dict[int, int] = {}
    nothing: dict[int, int] = {}
    for tensor in tensors:
        what = f"memory does not count a tensor of type {type(tensor).__name__}"
        found |= safe_inspection.attempt(what, functools.partial(_stored, tensor, device), nothing)
    return found


def _stored(tensor: Tensor, device: torch.device) -> dict[int, int]:
    """Bytes of one tensor's storages on the device, by address."""
    storages = [part.untyped_storage() for part in safe_inspection.strided_tensors(tensor)]
    # Of the storage, not of the tensor: FakeTensors name the device that they stand for.
    return {one.data_ptr(): one.nbytes() for one in storages if one.device.type == device.type}


def write_rows(found: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write the rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
