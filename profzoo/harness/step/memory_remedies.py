"""Predicts the memory of a training step under other settings: by the step on fake tensors, which have no memory.

A fake tensor (torch's FakeTensorMode) has a shape, a type and a device. torch runs the step on such tensors as on
others, with autocast, autograd and checkpoints, so that storages come and go as they would. The step as it was measured
and the step with a remedy both run so. What the two differ by is added to what was measured, range by range: so
what fake tensors do not show, such as workspaces of libraries, stays as it was measured. Where that is much, and may
change with the remedy, the peak is not known.
"""

import contextlib
import copy
import dataclasses
import functools
import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from profzoo.cell.process_count import process_count
from profzoo.harness import inspection, interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import batches, peak_memory, step_loop, training_step
from profzoo.harness.step.peak_memory import EARLIER, HELD, MOMENTS, Held, KnownAddresses
from profzoo.harness.variants import eight_bit_layers
from profzoo.range_names import STEP, WHOLE_STEP, make_torch_name

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings

Row = Mapping[str, Any]
# Sizes that CUDA's allocator of torch rounds up to.
ROUNDED = {"cuda": 512}
# The setting that keeps states in eight bits, a byte for a number and four for each block of them. Smaller weights keep
# states of four bytes.
EIGHT_BIT, BLOCK, LEAST = {"optimizer": "8bit"}, 256, 4096
# A peak is not known if more than this share of it is of libraries and may change with the remedy.
UNSURE = 0.05
# What a step has by itself, beside states of optimizers and what was there before.
OWN = tuple(f"{name}_bytes" for name in HELD if name not in ("optimizer", "other"))


def predict_remedies(
    cell: "CellSettings", device: torch.device, remedies: Mapping[str, Mapping[str, Any]], measured: Sequence[Row]
) -> list[dict[str, Any]]:
    """Return one row per remedy, as peak_memory has them: the range in which the peak then falls, and what is held.

    remedies: settings by name. measured: the rows of the cell's step; of modules and remedies none count.
    """
    ranges = [row for row in measured if not row["module"] and not row["remedy"]]
    unlike = cell["compile"] or cell["precision"] in eight_bit_layers.DTYPES or process_count(cell) > 1
    if cell["phase"] != "train" or unlike or not ranges:
        return []
    built = build(cell)
    plain = imagine_step(cell, built, device)
    found = []
    for name, change in remedies.items():
        if change == EIGHT_BIT:
            found += _with_eight_bits(ranges, built, device, name, bool(cell.get("ema")))
            continue
        what = f"the memory of {name} was not predicted"
        changed: CellSettings = {**cell, **change}  # type: ignore[typeddict-item]
        nothing: list[dict[str, Any]] = []
        rows = inspection.attempt(what, functools.partial(imagine_step, changed, built, device), nothing)
        if len(rows) == len(plain) == len(ranges):
            found += _expected(list(zip(ranges, plain, rows, strict=True)), name)
    return [{**row, "order": len(measured) + number} for number, row in enumerate(found)]


def _expected(steps: Sequence[tuple[Row, Row, Row]], name: str) -> list[dict[str, Any]]:
    """Return the row of a remedy, none if its peak is not known; steps: each range measured, plain and with it."""
    each = [_shifted(*own) for own in steps]
    unseen = [0 if new["peak_bytes"] == old["peak_bytes"] else _unseen(row, old) for row, old, new in steps]
    least = [{**row, "peak_bytes": row["peak_bytes"] - more} for row, more in zip(each, unseen, strict=True)]
    # A range whose peak is in a library may need as much as before.
    same = [
        row if more > UNSURE * row["peak_bytes"] else new
        for (row, *_), new, more in zip(steps, each, unseen, strict=True)
    ]
    lowest, peak, most = (_highest(rows, name)["peak_bytes"] for rows in (least, each, same))
    if lowest >= (1 - UNSURE) * peak and most <= (1 + UNSURE) * peak:
        return [_highest(each, name)]
    inspection.print_warning(
        f"the memory of {name} is not known: up to {max(unseen) / 1e6:,.0f} MB of the measured peak are of libraries, "
        "which may need another amount with it"
    )
    return []


def _unseen(measured: Row, plain: Row) -> int:
    """Return how much of a range's measured peak may be of libraries; 0 of an update, which calls none."""
    # The workspaces of fake tensors are the states that the first update makes.
    shown = sum(plain[key] for key in OWN) - plain["workspace_bytes"]
    # Without a workspace the peak may be at another moment, which fake tensors show.
    more = max(abs(sum(measured[key] for key in OWN) - shown), measured["workspace_bytes"])
    return 0 if measured["range"] == "optimizer" else more


def _highest(rows: Sequence[Row], name: str) -> dict[str, Any]:
    """Return the row with the peak, that of a part of the step rather than the step's own."""
    row = max(rows[1:] or rows, key=lambda row: row["peak_bytes"])
    return {**row, "remedy": name, "unused_bytes": ""}


def _shifted(measured: Row, plain: Row, changed: Row) -> dict[str, Any]:
    """Return a measured row with the change that fake tensors show."""
    keys = [f"{name}_bytes" for name in (*HELD, *MOMENTS)]
    return _summed({**measured, **{key: measured[key] + changed[key] - plain[key] for key in keys}})


def _with_eight_bits(
    ranges: Sequence[Row], built: "Built", device: torch.device, name: str, averages: bool
) -> list[dict[str, Any]]:
    """Return the row with states in 8 bits, none if they would not be smaller; averages: whether weights have some."""
    states = _eight_bit_states(built, device)
    held = ranges[0]["optimizer_bytes"] - averages * sum(one.nbytes for one in built.network.parameters())
    if not 0 < states < held / 2:
        return []
    # The update is one kernel for each weight. States are there throughout the step.
    always = {f"{name}_bytes" for name in ("optimizer", "begin", "end")}
    kept = [{**row, **{key: row[key] + states - held for key in always}} for row in ranges]
    none = {"workspace_bytes": 0}
    return [_highest([_summed(row | none if row["range"] == "optimizer" else row) for row in kept], name)]


def _eight_bit_states(built: "Built", device: torch.device) -> int:
    """Return bytes of the optimizers' states in eight bits; 0 if any has no such form."""
    made = training_step.make_all_optimizers(built.model, built.network, built.others)
    if any(map(training_step.explain_no_eight_bits, made)):
        return 0
    weights = (each for one in made for group in one.param_groups for each in group["params"] if each.requires_grad)
    counts = [each.numel() for each in weights]
    sizes = [(count, 4 * -(-count // BLOCK)) if count >= LEAST else (4 * count,) for count in counts]
    step = ROUNDED.get(device.type, 1)
    # Two states of each weight.
    return sum(2 * -(-size // step) * step for each in sizes for size in each)


def _summed(row: Row) -> dict[str, Any]:
    """Return a row whose peak is what is held, and which begins and ends between 0 and the peak."""
    peak = sum(row[f"{name}_bytes"] for name in HELD)
    ends = {f"{name}_bytes": min(max(row[f"{name}_bytes"], 0), peak) for name in ("begin", "end")}
    return {**row, **ends, "peak_bytes": peak}


# The step on fake tensors.


@dataclass(frozen=True)
class Built:
    """A model's functions with its networks on the CPU; others: those that only training needs."""

    model: interface.ModelFunctions
    network: nn.Module
    others: nn.Module


def build(cell: "CellSettings") -> Built:
    """Build the networks of a cell."""
    model = interface.load_functions(cell["module"])
    network = step_loop.build_network(cell, model, None).train()
    return Built(model, network, model.others(SimpleNamespace(**cell["shape"])))


def imagine_step(cell: "CellSettings", built: Built, device: torch.device) -> list[dict[str, Any]]:
    """Run the first step on fake tensors; returns its rows of peak_memory, in which no state precedes the step."""
    cell = {**cell, "workers": 0, "graph": False, **_implementation(cell, device)}  # type: ignore[typeddict-item]
    batch = next(iter(batches.iterate_batches(cell, built.model)))
    watch = StorageWatch(device)
    # What torch keeps of earlier steps gives results of one operator storages of their own, which may have shared one.
    FakeTensorMode.cache_clear()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, watch:
        network, others = (_imitate(one, mode, device) for one in (built.network, built.others))
        # What is there already need not be placed, which fake weights could not be.
        others.to = lambda *_, **__: others  # type: ignore[method-assign]
        model = dataclasses.replace(built.model, others=lambda shape: others)
        step_loop.prepare_network(network)
        batch = inspection.map_leaves(lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf, batch)
        repeated = step_loop.make_step(cell, model, network, device, watch.ranges)
        watch.begin([network, others], batch)
        with watch.ranges(STEP):
            with watch.ranges("transfer"):
                placed = repeated.transfer(batch, device)
            watch.note("inputs", "transfer", inspection.find_tensors(placed))
            repeated.step(placed)
        return watch.rows()


def _implementation(cell: "CellSettings", device: torch.device) -> dict[str, str]:
    """Return the setting by which an optimizer of fake weights does what the cell's does with others."""
    asked = cell.get("optimizer", "auto")
    # One kernel for each weight takes as little beside the states, which are in the first update alone.
    own = {"8bit": "fused", "auto": "foreach" if device.type == "cuda" else "auto"}
    return {"optimizer": own.get(asked, asked)}


def _imitate(network: nn.Module, mode: FakeTensorMode, device: torch.device) -> nn.Module:
    """Return a copy of a network with fake weights and buffers on the device."""
    made: dict[int, Any] = {}
    for one in (*network.parameters(), *network.buffers()):
        fake = torch.empty_like(mode.from_tensor(one.detach()), device=device)
        made[id(one)] = nn.Parameter(fake, one.requires_grad) if isinstance(one, nn.Parameter) else fake
    return copy.deepcopy(network, made)


def _run_recurrent(inputs: Tensor, weights: Sequence[Tensor], stride: int, buffer: Tensor | None, *more: Any) -> Any:
    """Run cuDNN's recurrent layers on fake weights, which are in no common buffer that the gradient would need."""
    return RECURRENT(inputs, weights, stride, inputs.new_empty(0) if buffer is None else buffer, *more)


def _recurrent_gradients(inputs: Tensor, weights: Sequence[Tensor], *more: Any) -> tuple[Any, ...]:
    """Return what the backward pass of cuDNN's recurrent layers makes; torch has no fake kernel of it."""
    states, wanted = more[2:4], more[-1]
    found = (torch.empty_like(one) if want else None for one, want in zip((inputs, *states), wanted, strict=False))
    return *found, [torch.empty_like(one) for one in weights] if wanted[3] else []


RECURRENT = torch.ops.aten._cudnn_rnn.default
IMITATED = {RECURRENT: _run_recurrent, torch.ops.aten._cudnn_rnn_backward.default: _recurrent_gradients}


class StorageWatch(TorchDispatchMode):
    """Notes when storages of a device come and go, and the ranges around, as events of a trace."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device, self._rounded = device, ROUNDED.get(device.type, 1)
        self.ranges = TimedRanges(self)
        self.events: list[dict[str, Any]] = []
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._alive: dict[int, int] = {}
        self._known: list[KnownAddresses] = []
        self._before: Held = {}
        self._weights: Sequence[nn.Parameter] = ()
        self._counts: dict[str, int] = {}
        self._now = self._number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and note the storages of its results that are new."""
        found = IMITATED.get(function, function)(*args, **(kwargs or {}))
        self._addresses(inspection.find_tensors(found))
        return found

    def tick(self) -> int:
        """Return the next moment."""
        self._now += 1
        return self._now

    def _addresses(self, tensors: Iterable[Tensor]) -> set[int]:
        """Return the addresses of those of the tensors that are on the device."""
        own = (one for one in tensors if one.device.type == self._device.type)
        parts = itertools.chain.from_iterable(map(inspection.strided_tensors, own))
        return {self._address(part.untyped_storage()) for part in parts}

    def _address(self, storage: torch.UntypedStorage) -> int:
        if storage not in self._numbers:
            self._number += 1
            number, size = self._number, -(-storage.nbytes() // self._rounded) * self._rounded
            self._numbers[storage], self._alive[number] = number, size
            weakref.finalize(storage, self._free, number).atexit = False
            if size:
                self._note(number, size)
        return self._numbers[storage]

    def _free(self, number: int) -> None:
        if size := self._alive.pop(number):
            self._note(number, -size)

    def _note(self, number: int, size: int) -> None:
        kind = peak_memory.DEVICE_TYPES[self._device.type]
        args = {"Addr": number, "Bytes": size, "Device Type": kind}
        self.events.append({"name": peak_memory.MEMORY, "tid": 0, "ts": self.tick(), "args": args})

    def begin(self, networks: Sequence[nn.Module], batch: Any) -> None:
        """Note what is there before the step, and forget what happened before."""
        self._weights = [one for each in networks for one in each.parameters()]
        held: Mapping[str, Iterable[Tensor]] = {
            "weights": [*self._weights, *(one for each in networks for one in each.buffers())],
            "inputs": inspection.find_tensors(batch),
        }
        own = {name: self._addresses(tensors) for name, tensors in held.items()}
        left, found = dict(self._alive), {}
        for name, numbers in own.items():
            found[name, WHOLE_STEP] = sum(left.pop(number, 0) for number in numbers)
        self._before = {**found, EARLIER: sum(left.values())}
        self.events = []

    def note(self, held: str, after: str, tensors: Iterable[Tensor]) -> None:
        """Note the purpose of tensors that are there as a range of this name has ended."""
        number = self._counts[held] = self._counts.get(held, -1) + 1
        addresses = dict.fromkeys(self._addresses(tensors), WHOLE_STEP)
        self._known.append(KnownAddresses(held, after, number, addresses))

    def note_closed(self, name: str, began: int) -> None:
        """Note a range that has ended."""
        ended = self.tick()
        told = {"name": make_torch_name(name), "cat": "user_annotation", "ts": began, "dur": ended - began}
        self.events.append(told)
        if name == "backward":
            self.note("gradients", name, [one.grad for one in self._weights if one.grad is not None])

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the ranges."""
        kind = peak_memory.DEVICE_TYPES[self._device.type]
        found = peak_memory.memory_rows(self.events, kind, self._before, self._known)
        return [row for row in found if not row["module"]]


class TimedRanges(Ranges):
    """Ranges that tell a watch when they began and ended."""

    def __init__(self, watch: StorageWatch) -> None:
        super().__init__()
        self._watch = watch

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Note a range of that name around the body."""
        began = self._watch.tick()
        try:
            yield
        finally:
            self._watch.note_closed(name, began)
