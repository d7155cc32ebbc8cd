"""Measures memory in one extra step behind the window: the most that each range holds, by purpose."""

import csv
import functools
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile

from profzoo.harness import inspection
from profzoo.harness.step.step_loop import StepParts
from profzoo.io import chrome_trace
from profzoo.range_names import DOMAIN, STEP

# Follows memory blocks through a traced step: how much each range holds, by purpose.

# Purposes of memory. Weights are parameters and buffers. Workspace is memory that an operator frees before it ends, or
# that the optimizer allocates for its step. Other memory was there before the step and has none of these purposes.
HELD = ("weights", "optimizer", "gradients", "inputs", "activations", "workspace", "other")
MEMORY = "[memory]"
# Operators that allocate memory for their calling operator.
ALLOCATING = ("aten::empty", "aten::new_empty", "aten::resize_")


@dataclass
class MemoryBlock:
    """Memory that was allocated at an address in the step, from one event to another; None if it is not freed."""

    address: int
    size: int
    begin: int
    end: int | None = None
    held: str = "activations"


@dataclass(frozen=True)
class KnownAddresses:
    """Addresses of tensors with a known purpose, noted after the n-th range of a name; n counts from 0."""

    held: str
    after: str
    number: int
    addresses: Collection[int]


Event = Mapping[str, Any]


def memory_rows(
    events: Sequence[Event], device_type: int, before: Mapping[str, int], known: Sequence[KnownAddresses]
) -> list[dict]:
    """One row per range of the step, in order: bytes held at its start and end, its peak, and the peak by purpose.

    Args:
        events: `traceEvents` of a trace with memory events and the project's ranges.
        device_type: device of the allocations to count, as the trace numbers it: 0 for the CPU, 1 for a GPU.
        before: bytes held when the step began, by purpose.
        known: addresses of blocks whose purpose is known.
    """
    moves = sorted(
        (one for one in events if one["name"] == MEMORY and one["args"]["Device Type"] == device_type),
        key=lambda one: (one["ts"], one["args"].get("Ev Idx", 0)),
    )
    spans = _ranges(events)
    blocks, freed = _blocks(moves)
    _classify(blocks, moves, spans, events, known)
    return _followed(moves, spans, blocks, freed, before)


def _ranges(events: Sequence[Event]) -> list[Event]:
    """Ranges of the project, sorted by start; an enclosing range precedes the ranges inside it."""
    found = [one for one in events if one["name"].startswith(f"{DOMAIN}:") and one.get("cat") == "user_annotation"]
    return sorted(found, key=lambda one: (one["ts"], -one["dur"]))


def _blocks(moves: Sequence[Event]) -> tuple[list[MemoryBlock], dict[int, int]]:
    """Blocks allocated in the step; and, by index of the freeing event, sizes of blocks from before the step."""
    alive: dict[int, MemoryBlock] = {}
    found: list[MemoryBlock] = []
    earlier: dict[int, int] = {}
    for index, move in enumerate(moves):
        address, size = move["args"]["Addr"], move["args"]["Bytes"]
        if size > 0:
            alive[address] = MemoryBlock(address, size, index)
            found.append(alive[address])
        elif address in alive:
            alive.pop(address).end = index
        else:
            earlier[index] = -size
    return found, earlier


def _classify(
    blocks: Sequence[MemoryBlock],
    moves: Sequence[Event],
    spans: Sequence[Event],
    events: Sequence[Event],
    known: Sequence[KnownAddresses],
) -> None:
    """Assign each block the purpose that it is held for."""
    until = _ends_of_operators(moves, events)
    optimizing = [span for span in spans if span["name"] == f"{DOMAIN}:optimizer"]
    for block in blocks:
        begin, last = moves[block.begin]["ts"], until[block.begin]
        given_back = block.end is not None and last is not None and moves[block.end]["ts"] <= last
        if given_back or any(_within(begin, span) for span in optimizing):
            block.held = "workspace"
    for one in known:
        named = [span for span in spans if span["name"] == f"{DOMAIN}:{one.after}"]
        moment = named[one.number]["ts"] + named[one.number]["dur"]
        for block in blocks:
            there = moves[block.begin]["ts"] <= moment and (block.end is None or moves[block.end]["ts"] > moment)
            if there and block.address in one.addresses:
                block.held = one.held


def _ends_of_operators(moves: Sequence[Event], events: Sequence[Event]) -> list[float | None]:
    """For each memory event the end time of the operator around it; None outside of any operator."""
    operators: dict[object, list[Event]] = {}
    for one in sorted(events, key=lambda one: (one.get("ts", 0), -one.get("dur", 0))):
        if one.get("cat") == "cpu_op":
            operators.setdefault(one["tid"], []).append(one)
    open_now: dict[object, list[Event]] = {thread: [] for thread in operators}
    following = {thread: iter(found) for thread, found in operators.items()}
    waiting = {thread: next(found, None) for thread, found in following.items()}
    ends: list[float | None] = []
    for move in moves:
        thread, stack = move["tid"], open_now.get(move["tid"], [])
        while (coming := waiting.get(thread)) is not None and coming["ts"] <= move["ts"]:
            stack.append(coming)
            waiting[thread] = next(following[thread], None)
        stack[:] = [one for one in stack if _within(move["ts"], one)]
        owners = (one for one in reversed(stack) if not one["name"].startswith(ALLOCATING))
        owner = next(owners, None)
        ends.append(owner["ts"] + owner["dur"] if owner else None)
    return ends


def _within(moment: float, span: Event) -> bool:
    return span["ts"] <= moment <= span["ts"] + span["dur"]


def _followed(
    moves: Sequence[Event],
    spans: Sequence[Event],
    blocks: Sequence[MemoryBlock],
    freed: Mapping[int, int],
    before: Mapping[str, int],
) -> list[dict]:
    """Compute the rows by replaying the memory events in order."""
    changes: list[tuple[str, int]] = [("other", 0)] * len(moves)
    for block in blocks:
        changes[block.begin] = (block.held, block.size)
        if block.end is not None:
            changes[block.end] = (block.held, -block.size)
    for index, size in freed.items():
        changes[index] = ("other", -size)
    found = []
    for order, span in enumerate(spans):
        states = list(_states(moves, changes, span, before))
        totals = [sum(state.values()) for state in states]
        most = states[totals.index(max(totals))]
        sizes = {"begin_bytes": totals[0], "peak_bytes": max(totals), "end_bytes": totals[-1]}
        name = span["name"].removeprefix(f"{DOMAIN}:")
        found.append({"order": order, "range": name, **sizes, **{f"{held}_bytes": most[held] for held in HELD}})
    return found


def _states(
    moves: Sequence[Event], changes: Sequence[tuple[str, int]], span: Event, before: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Yield the held bytes by purpose at the start of a range and after each event in it."""
    state = {held: before.get(held, 0) for held in HELD}
    begun = False
    for move, (held, size) in zip(moves, changes, strict=True):
        if not begun and move["ts"] >= span["ts"]:
            begun = True
            yield dict(state)
        if move["ts"] > span["ts"] + span["dur"]:
            return
        state[held] += size
        if begun:
            yield dict(state)
    if not begun:
        yield dict(state)


COLUMNS = (
    "order",
    "range",
    "begin_bytes",
    "peak_bytes",
    "end_bytes",
    *(f"{held}_bytes" for held in HELD),
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
    optimizers, averages = (trainer.optimizers, trainer.averages.values()) if trainer else ([], ())
    watch = MemoryWatch(networks, optimizers, batch, device, averages)
    ranges.watch(torch_ranges=True, torch_modules=False)
    with watch.observing(), ranges(STEP):
        with ranges("transfer"):
            placed = repeated.transfer(batch, device)
        watch.note_inputs(placed)
        ranges.closed = watch.note_closed
        repeated.plain(placed)
        ranges.closed = None
    return watch.rows()


class MemoryWatch:
    """Observes the allocations of a step between `begin` and `end`, and notes the blocks whose purpose is known.

    It records CPU activities only, which include GPU allocations.
    """

    def __init__(
        self,
        networks: Sequence[nn.Module],
        optimizers: Iterable[torch.optim.Optimizer],
        batch: Any,
        device: torch.device,
        averages: Iterable[Tensor] = (),
    ) -> None:
        """batch: in host memory; a step on the CPU uses its tensors without a copy. averages: those of weights."""
        # What torch.profiler consists of. That imports torch's compiler, which takes longer than the step.
        self._profiler = profile(use_kineto=True, profile_memory=True, acc_events=True)
        self._going = ExitStack()
        self._networks, self._device = networks, device
        self._held = _before(networks, optimizers, batch, device, averages)
        self._known: list[KnownAddresses] = []
        self._backward = 0

    def begin(self) -> None:
        """Begin to observe."""
        self._going.enter_context(self._profiler)

    def end(self) -> None:
        """Observe no more."""
        self._going.close()

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observe what the body does."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def note_inputs(self, placed: Any) -> None:
        """Note the batch on the device."""
        addresses = set(_sizes(inspection.find_tensors(placed), self._device))
        self._known.append(KnownAddresses("inputs", "transfer", 0, addresses))

    def note_closed(self, name: str) -> None:
        """Note that a range of this name has ended: after a backward pass the gradients are there."""
        if name == "backward":
            gradients = [one.grad for part in self._networks for one in part.parameters() if one.grad is not None]
            addresses = set(_sizes(gradients, self._device))
            self._known.append(KnownAddresses("gradients", name, self._backward, addresses))
            self._backward += 1

    def rows(self) -> list[dict[str, Any]]:
        """The rows of COLUMNS, once the step has ended."""
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(trace))
            events = chrome_trace.read_events(trace)
        return memory_rows(events, DEVICE_TYPES[self._device.type], self._held, self._known)


def _before(
    networks: Iterable[nn.Module],
    optimizers: Iterable[torch.optim.Optimizer],
    batch: Any,
    device: torch.device,
    averages: Iterable[Tensor] = (),
) -> dict[str, int]:
    """Bytes held before the step, by purpose."""
    weights = [tensor for one in networks for tensor in (*one.parameters(), *one.buffers())]
    states = [state for one in optimizers for state in one.state.values()]
    held = {
        "weights": weights,
        "optimizer": [*inspection.find_tensors(states), *averages],
        # A step on the CPU uses the batch's tensors without a copy.
        "inputs": inspection.find_tensors(batch),
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
        found |= inspection.attempt(what, functools.partial(_stored, tensor, device), nothing)
    return found


def _stored(tensor: Tensor, device: torch.device) -> dict[int, int]:
    """Bytes of one tensor's storages on the device, by address."""
    storages = [part.untyped_storage() for part in inspection.strided_tensors(tensor)]
    # Ask the storage, not the tensor: a FakeTensor names the device that it imitates.
    return {one.data_ptr(): one.nbytes() for one in storages if one.device.type == device.type}


def write_rows(found: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write the rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
