"""Measures memory in one extra step behind the window: the most that each range holds, by purpose and by module."""

import csv
import functools
import gc
import itertools
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from profzoo.range_names import DOMAIN, MODULE, OTHERS, ROOT, STEP, WHOLE_STEP, original_name, parse_module_range

# Follows memory blocks through a traced step: how much each range holds, by purpose.

# Purposes of memory. Weights are parameters and buffers. Workspace is memory that an operator frees before it ends, or
# that the optimizer allocates for its step. Other memory was there before the step and has none of these purposes.
HELD = ("weights", "optimizer", "gradients", "inputs", "activations", "workspace", "other")
MEMORY = "[memory]"
MOMENTS = ("begin", "peak", "end")
COLUMNS = (*("order", "range", "module", "remedy"), *(f"{name}_bytes" for name in (*MOMENTS, *HELD, "unused")))
# What was there before the step and has no known purpose.
EARLIER = ("other", WHOLE_STEP)
# Operators that allocate memory for their calling operator.
ALLOCATING = ("aten::empty", "aten::new_empty", "aten::resize_")
# What the names of modules' ranges begin with.
OF_MODULE = f"{DOMAIN}:{MODULE}:"


@dataclass
class MemoryBlock:
    """Memory that was allocated at an address in the step, from one event to another; None if it is not freed."""

    address: int
    size: int
    begin: int
    end: int | None = None
    held: str = "activations"
    module: str = WHOLE_STEP


@dataclass(frozen=True)
class KnownAddresses:
    """Addresses of tensors with a known purpose, noted after the n-th range of a name; n counts from 0.

    addresses: the module of each address.
    """

    held: str
    after: str
    number: int
    addresses: Mapping[int, str]


Event = Mapping[str, Any]
# Bytes by purpose and module.
Held = Mapping[tuple[str, str], int]


def memory_rows(events: Sequence[Event], device_type: int, before: Held, known: Sequence[KnownAddresses]) -> list[dict]:
    """One row per range of the step, in order: bytes held at its start and end, its peak, and the peak by purpose.

    Further rows tell what each module has of these numbers of the first range, the step.

    Args:
        events: `traceEvents` of a trace with memory events and the project's ranges.
        device_type: device of the allocations to count, as the trace numbers it: 0 for the CPU, 1 for a GPU.
        before: bytes held when the step began, by purpose and module.
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
    until, modules = _surroundings(moves, events)
    optimizing = [span for span in spans if span["name"] == f"{DOMAIN}:optimizer"]
    for block in blocks:
        block.module = modules[block.begin]
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
                block.held, block.module = one.held, one.addresses[block.address]


def _surroundings(moves: Sequence[Event], events: Sequence[Event]) -> tuple[list[float | None], list[str]]:
    """For each memory event the end time of the operator around it, None outside of any operator; and its module.

    What a node of autograd allocates belongs to the module whose forward operator the node is of.
    """
    operators: dict[object, list[Event]] = {}
    for one in sorted(events, key=lambda one: (one.get("ts", 0), -one.get("dur", 0))):
        if one.get("cat") == "cpu_op":
            operators.setdefault(one["tid"], []).append(one)
    # Modules by sequence number: of operators with a number, the last one made the node that has it too.
    made: dict[int, str] = {}
    for found in operators.values():
        numbered = [one for one in found if _sequence(one) is not None and not _is_node(one)]
        made |= {one["args"]["Sequence number"]: _module(stack, {}) for one, stack in _stacks(numbered, found)}
    around = {id(move): stack for move, stack in _of_threads(moves, operators)}
    ends: list[float | None] = []
    for move in moves:
        owners = (one for one in reversed(around[id(move)]) if not one["name"].startswith((*ALLOCATING, OF_MODULE)))
        owner = next(owners, None)
        ends.append(owner["ts"] + owner["dur"] if owner else None)
    return ends, [_module(around[id(move)], made) for move in moves]


def _of_threads(
    moves: Sequence[Event], operators: Mapping[object, Sequence[Event]]
) -> Iterator[tuple[Event, list[Event]]]:
    """Yield each memory event with the operators of its thread around it, the innermost last."""
    for thread in {move["tid"] for move in moves}:
        yield from _stacks([move for move in moves if move["tid"] == thread], operators.get(thread, []))


def _stacks(moments: Sequence[Event], operators: Sequence[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Yield each event, in order of time, with the operators around it, itself included; the innermost is the last."""
    stack: list[Event] = []
    following = iter(operators)
    waiting = next(following, None)
    for moment in moments:
        while waiting is not None and waiting["ts"] <= moment["ts"]:
            stack = [one for one in stack if _within(waiting["ts"], one)]
            stack.append(waiting)
            waiting = next(following, None)
        stack = [one for one in stack if _within(moment["ts"], one)]
        yield moment, list(stack)


def _module(stack: Sequence[Event], made: Mapping[int, str]) -> str:
    """Path of the innermost module of operators within each other; made: modules of nodes by sequence number."""
    for one in reversed(stack):
        if one["name"].startswith(OF_MODULE):
            return parse_module_range(original_name(one["name"].removeprefix(f"{DOMAIN}:")))[0]
        if _is_node(one) and (found := made.get(one["args"].get("Sequence number", -1))):
            return found
    return WHOLE_STEP


def _sequence(one: Event) -> int | None:
    found: int | None = one["args"].get("Sequence number")
    return found


def _is_node(one: Event) -> bool:
    """Whether an operator is a node of the backward pass."""
    return bool(one["args"].get("Fwd thread id"))


def _within(moment: float, span: Event) -> bool:
    return span["ts"] <= moment <= span["ts"] + span["dur"]


def _followed(
    moves: Sequence[Event],
    spans: Sequence[Event],
    blocks: Sequence[MemoryBlock],
    freed: Mapping[int, int],
    before: Held,
) -> list[dict]:
    """Compute the rows by replaying the memory events in order."""
    changes: list[tuple[tuple[str, str], int]] = [(EARLIER, 0)] * len(moves)
    for block in blocks:
        changes[block.begin] = ((block.held, block.module), block.size)
        if block.end is not None:
            changes[block.end] = ((block.held, block.module), -block.size)
    for index, size in freed.items():
        changes[index] = (EARLIER, -size)
    times = [move["ts"] for move in moves]
    totals = list(itertools.accumulate((size for _, size in changes), initial=sum(before.values())))
    found: list[dict] = []
    for order, span in enumerate(spans):
        # Numbers of events before the range, and before its end.
        begin, end = bisect_left(times, span["ts"]), bisect_right(times, span["ts"] + span["dur"])
        peak = max(range(begin, end + 1), key=totals.__getitem__)
        moments = begin, peak, end
        states = [_state(changes[:moment], before) for moment in moments]
        row = _row(states, span["name"].removeprefix(f"{DOMAIN}:"))
        unused = moves[peak - 1]["args"].get("Total Reserved", 0) - moves[peak - 1]["args"].get("Total Allocated", 0)
        found.append(row | {"order": order, "unused_bytes": unused if peak and unused > 0 else ""})
        if not order:
            modules = dict.fromkeys(module for state in states for _, module in state)
            of_step = [_row(states, row["range"], module) for module in modules]
    rows = [*found, *(sorted(of_step, key=lambda row: -row["peak_bytes"]) if found else [])]
    return [{**row, "order": order} for order, row in enumerate(rows)]


def _state(changes: Iterable[tuple[tuple[str, str], int]], before: Held) -> dict[tuple[str, str], int]:
    state = dict(before)
    for held, size in changes:
        state[held] = state.get(held, 0) + size
    return {held: size for held, size in state.items() if size}


def _row(states: Sequence[Held], name: str, module: str = "") -> dict[str, Any]:
    """Row of a range by what is held at its beginning, peak and end; module: whose part, empty for all."""
    own = [{held: size for held, size in state.items() if module in ("", held[1])} for state in states]
    sizes = {f"{name}_bytes": sum(state.values()) for name, state in zip(MOMENTS, own, strict=True)}
    parts = {f"{part}_bytes": sum(size for held, size in own[1].items() if held[0] == part) for part in HELD}
    return dict.fromkeys(COLUMNS, "") | {"range": name, "module": module, **sizes, **parts}


# Numbers by which a trace names the device of an allocation, by device type.
DEVICE_TYPES = {"cpu": 0, "cuda": 1}


def measure_memory(batch: Any, repeated: StepParts, network: nn.Module, device: torch.device) -> list[dict[str, Any]]:
    """Run one uncaptured step on a batch in host memory; returns one row per range, with COLUMNS.

    The rows count blocks of the device's allocator. On a CPU, memory from before the step counts only if its purpose
    is known.
    """
    trainer, ranges = repeated.trainer, repeated.ranges
    networks = [network, *([trainer.others] if trainer else [])]
    optimizers, averages = (trainer.optimizers, trainer.averages) if trainer else ([], {})
    ranges.watch(torch_ranges=True, torch_modules=True)
    watch = MemoryWatch(networks, optimizers, batch, device, averages)
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
        averages: Mapping[Tensor, Tensor] | None = None,
    ) -> None:
        """batch: in host memory; a step on the CPU uses its tensors without a copy. averages: those of weights."""
        # What torch.profiler consists of. That imports torch's compiler, which takes longer than the step.
        self._profiler = profile(use_kineto=True, profile_memory=True, acc_events=True)
        self._going = ExitStack()
        self._device, owned = device, list(_weights(networks))
        self._parameters = [(path, one) for path, one in owned if isinstance(one, nn.Parameter)]
        self._before = functools.partial(_before, owned, optimizers, batch, device, averages or {})
        self._held: Held = {}
        self._known: list[KnownAddresses] = []
        self._backward = 0

    def begin(self) -> None:
        """Begin to observe, and to count the peak of the device's allocator anew."""
        # Garbage that Python would collect just now is in neither count.
        gc.collect()
        self._going.enter_context(self._profiler)
        self._held = self._before()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

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
        addresses = dict.fromkeys(_sizes(inspection.find_tensors(placed), self._device), WHOLE_STEP)
        self._known.append(KnownAddresses("inputs", "transfer", 0, addresses))

    def note_closed(self, name: str) -> None:
        """Note that a range of this name has ended: after a backward pass the gradients are there."""
        if name == "backward":
            made = [(path, one.grad) for path, one in self._parameters if one.grad is not None]
            addresses = {address: path for path, one in made for address in _sizes([one], self._device)}
            self._known.append(KnownAddresses("gradients", name, self._backward, addresses))
            self._backward += 1

    def rows(self) -> list[dict[str, Any]]:
        """The rows of COLUMNS, once the step has ended."""
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(trace))
            events = chrome_trace.read_events(trace)
        return memory_rows(events, DEVICE_TYPES[self._device.type], self._held, self._known)


def _weights(networks: Iterable[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and buffers with the paths of their modules; those of networks but the first are others."""
    seen: set[int] = set()
    for prefix, network in zip(itertools.chain([""], itertools.repeat(OTHERS)), networks, strict=False):
        for path, module in network.named_modules(prefix=prefix):
            for one in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                if id(one) not in seen:
                    seen.add(id(one))
                    yield path or ROOT, one


def _before(
    weights: Iterable[tuple[str, Tensor]],
    optimizers: Iterable[torch.optim.Optimizer],
    batch: Any,
    device: torch.device,
    averages: Mapping[Tensor, Tensor],
) -> dict[tuple[str, str], int]:
    """Bytes held before the step, by purpose and module; averages: by weight."""
    modules = {one: path for path, one in weights}
    states = [(modules.get(one, WHOLE_STEP), state) for each in optimizers for one, state in each.state.items()]
    held: list[tuple[tuple[str, str], Iterable[Tensor]]] = [
        *((("weights", path), [one]) for one, path in modules.items()),
        *((("optimizer", path), inspection.find_tensors(state)) for path, state in states),
        *((("optimizer", modules.get(one, WHOLE_STEP)), [average]) for one, average in averages.items()),
        # A step on the CPU uses the batch's tensors without a copy.
        (("inputs", WHOLE_STEP), inspection.find_tensors(batch)),
    ]
    found: dict[tuple[str, str], int] = {}
    seen: dict[int, int] = {}
    for key, tensors in held:
        new = {address: size for address, size in _sizes(tensors, device).items() if address not in seen}
        seen |= new
        found[key] = found.get(key, 0) + sum(new.values())
    if device.type == "cuda":
        found[EARLIER] = torch.cuda.memory_allocated(device) - sum(found.values())
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
