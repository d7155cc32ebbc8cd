"""Measures memory in one extra step behind the window: the most that each range holds, by purpose."""

import csv
import functools
import tempfile
from collections.abc import Iterable, Mapping, Sequence
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
# Numbers by which a trace names the device of an allocation, by device type.
DEVICE_TYPES = {"cpu": 0, "cuda": 1}


def measure_memory(batch: Any, repeated: StepParts, network: nn.Module, device: torch.device) -> list[dict[str, Any]]:
    """Run one uncaptured step on a batch in host memory; returns one row per range, with COLUMNS.

    The rows count blocks of the device's allocator. On a CPU, memory from before the step counts only if its purpose
    is known.
    """
    trainer, ranges = repeated.trainer, repeated.ranges
    networks = [network, *([trainer.others] if trainer else [])]
    watch = MemoryWatch(networks, trainer.optimizers if trainer else [], batch, device)
    ranges.watch(torch_ranges=True, torch_modules=False)
    with watch.profiler, ranges(STEP):
        with ranges("transfer"):
            placed = repeated.transfer(batch, device)
        watch.note_inputs(placed)
        ranges.closed = watch.note_closed
        repeated.plain(placed)
        ranges.closed = None
    return watch.rows()


class MemoryWatch:
    """Observes the allocations of a step, and notes the blocks whose purpose is known.

    profiler: torch profiler to run during the step. It records CPU activities only, which include GPU allocations.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        optimizers: Iterable[torch.optim.Optimizer],
        batch: Any,
        device: torch.device,
    ) -> None:
        """batch: batch in host memory; a step on the CPU uses its tensors without a copy."""
        self.profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)
        self._networks, self._device = networks, device
        self._held = _before(networks, optimizers, batch, device)
        self._known: list[memory_blocks.KnownAddresses] = []
        self._backward = 0

    def note_inputs(self, placed: Any) -> None:
        """Note the batch on the device."""
        addresses = set(_sizes(tensor_trees.find_tensors(placed), self._device))
        self._known.append(memory_blocks.KnownAddresses("inputs", "transfer", 0, addresses))

    def note_closed(self, name: str) -> None:
        """Note that a range of this name has ended: after a backward pass the gradients are there."""
        if name == "backward":
            gradients = [one.grad for part in self._networks for one in part.parameters() if one.grad is not None]
            addresses = set(_sizes(gradients, self._device))
            self._known.append(memory_blocks.KnownAddresses("gradients", name, self._backward, addresses))
            self._backward += 1

    def rows(self) -> list[dict[str, Any]]:
        """The rows of COLUMNS, once the step has ended."""
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            self.profiler.export_chrome_trace(str(trace))
            events = chrome_trace.read_events(trace)
        return memory_blocks.memory_rows(events, DEVICE_TYPES[self._device.type], self._held, self._known)


def _before(
    networks: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer], batch: Any, device: torch.device
) -> dict[str, int]:
    """Bytes held before the step, by purpose."""
    weights = [tensor for one in networks for tensor in (*one.parameters(), *one.buffers())]
    states = [state for one in optimizers for state in one.state.values()]
    held = {
        "weights": weights,
        "optimizer": tensor_trees.find_tensors(states),
        # A step on the CPU uses the batch's tensors without a copy.
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
    # Ask the storage, not the tensor: a FakeTensor names the device that it imitates.
    return {one.data_ptr(): one.nbytes() for one in storages if one.device.type == device.type}


def write_rows(found: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write the rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
