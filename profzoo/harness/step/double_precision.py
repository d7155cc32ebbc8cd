"""Repeats the first steps of a cell in double precision, with which the numbers of the measured steps are compared.

The steps begin with the same weights, batches and random numbers as the measured ones. They are neither compiled nor
captured, so that two cells that compute the same thing have the same numbers here, up to rounding in double precision.
They are also repeated several times in a narrow format, which tells how far rounding to it moves this cell's numbers.
"""

import functools
import gc
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from profzoo.cell.process_count import process_count
from profzoo.errors import first_error_line
from profzoo.harness import inspection, interface
from profzoo.harness.observers.first_steps import LOSSES, STEPS, FirstSteps
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import batches, step_loop, training_step
from profzoo.statistics.rounding_errors import ROUNDED

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import DoubleNumbers, StepNumbers


# Changes what a network's functions compute in: in double precision instead of narrower types, or without dropout.

NARROW = (torch.float32, torch.float16, torch.bfloat16)
DROPOUTS = (
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
)
# Where attention has its share of dropout among its arguments.
ATTENTION_SHARE = 4


@dataclass
class Changes:
    """What is changed; dropouts: shares of the dropout that was stopped."""

    double: bool
    drops: bool
    dropouts: list[float] = field(default_factory=list)


def stop_dropout(network: nn.Module) -> list[float]:
    """Stop the dropout within recurrent layers and torch's own attention; return its shares."""
    found = []
    for module in network.modules():
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout:
            found.append(float(module.dropout))
            module.dropout = 0.0
    return found


@contextmanager
def change_functions(changes: Changes) -> Iterator[None]:
    """Apply the changes to everything that the body computes."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if changes.double else before)
    try:
        with _ChangedFunctions(changes):
            yield
    finally:
        torch.set_default_dtype(before)


class _ChangedFunctions(TorchFunctionMode):
    """Replaces arguments of torch's functions."""

    def __init__(self, changes: Changes) -> None:
        super().__init__()
        self._changes = changes

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if not self._changes.drops:
            if function in DROPOUTS:
                return self._stop(args, named)
            if function is functional.scaled_dot_product_attention:
                args, named = self._stop_in_attention(args, named)
        if self._changes.double:
            if function in (Tensor.float, Tensor.half, Tensor.bfloat16):
                function, args = Tensor.double, args[:1]
            args = tuple(_wide_type(one) for one in args)
            named = {name: _wide_type(one) for name, one in named.items()}
        return function(*args, **named)

    def _stop(self, args: Any, named: dict[str, Any]) -> Any:
        """Return the input of a dropout as it is, and note its share."""
        share = args[1] if len(args) > 1 else named.get("p", 0.5)
        if args[2] if len(args) > 2 else named.get("training", True):
            self._changes.dropouts.append(float(share))
        return args[0] if args else named["input"]

    def _stop_in_attention(self, args: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        share = args[ATTENTION_SHARE] if len(args) > ATTENTION_SHARE else named.get("dropout_p", 0.0)
        if share:
            self._changes.dropouts.append(float(share))
        if len(args) > ATTENTION_SHARE:
            return (*args[:ATTENTION_SHARE], 0.0, *args[ATTENTION_SHARE + 1 :]), named
        return args, {**named, "dropout_p": 0.0}


def _wide_type(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


# Settings of the repeated steps: how the cell computes, but not what it computes.
PLAIN = {
    "precision": "fp32",
    "compile": False,
    "graph": False,
    "channels_last": False,
    "checkpoint": False,
    "cudnn_benchmark": False,
    "optimizer": "auto",
    "workers": 0,
    "pin_memory": False,
    "warmup": STEPS,
}
# After the first STEPS steps, no further step begins after so many seconds.
BUDGET_S = 2.0
# A cell of longer steps is not repeated: in double precision, they take up to ten times as long.
LONGEST_S = 1.0
# How often step 0 is repeated with other random numbers, and how many other seeds are run.
REDRAWN, SEEDS = 4, 2
# How often the steps are repeated with rounded weights, by the precision of the steps, and how often at least.
ROUNDINGS = {ROUNDED: 6, "fp32": 3}
FEWEST_ROUNDINGS = 3
# After the first STEPS steps of each, no further step begins after so many seconds for all together. The fewest
# repetitions in a precision are given up if they would take more seconds, as on a CPU that emulates it.
ROUNDING_S, GIVEN_UP_S = 3.0, 9.0
# So many steps after the warm-up are rounded, too.
BEHIND = 5
# Bits of a number in fp32 that one in bf16 does not have.
DROPPED_BITS = 16
WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def repeat_steps(
    cell: "CellSettings", weights: Path | None, device: torch.device, steps: int, step_s: float
) -> "DoubleNumbers":
    """Repeat the first steps in double precision and return their numbers, or why that was not possible.

    Args:
        cell: the cell that was measured.
        weights: what it loaded first.
        device: what it ran on; only the caller's references keep its memory from being used here.
        steps: how many steps it ran; STEPS are repeated, and as many as take BUDGET_S, at most LOSSES.
        step_s: how long a measured step took, in seconds.
    """
    began = time.monotonic()
    if step_s > LONGEST_S:
        return {"why": f"a step takes longer than {LONGEST_S:g} s"}
    if process_count(cell) > 1:
        return {"why": "the cell runs in several processes"}
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    plain: Any = {**cell, **PLAIN}
    try:
        found = _repeat(plain, weights, device, min(steps, LOSSES), began + BUDGET_S)
    except Exception as error:
        return {"why": f"{type(error).__name__}: {first_error_line(error)}"}
    # Some models have no weights.
    with suppress(Exception):
        found["roundings"] = _round_steps(plain, weights, device, min(steps, cell["warmup"] + BEHIND, LOSSES))
    return {**found, "wall_s": round(time.monotonic() - began, 3)}


def _round_steps(
    cell: "CellSettings", weights: Path | None, device: torch.device, steps: int
) -> "dict[str, list[StepNumbers]]":
    """Run at most so many first steps several times, from weights that are rounded at random.

    Outputs of inference tell by themselves how far fp32 rounds, as there are many of them.
    """
    run, found = _Run(cell, weights, device, double=False), {}
    formats = [precision for precision in ROUNDINGS if precision == ROUNDED or cell["phase"] == "train"]
    share_s = ROUNDING_S / sum(ROUNDINGS[precision] for precision in formats)
    for precision in formats:
        # Some models do not compute in bf16, or too slowly.
        with suppress(Exception):
            found[precision] = run.repeat_rounded(precision, steps, share_s)
    run.clear()
    return found


def _repeat(
    cell: "CellSettings", weights: Path | None, device: torch.device, steps: int, until: float
) -> "DoubleNumbers":
    run = _Run(cell, weights, device, double=True)
    numbers, random = run.take_steps(steps, until), run.random
    operations, operators = run.count_work() if time.monotonic() < until else (None, None)
    run.clear()
    redrawn = _Run(cell, weights, device, double=False).redraw_losses() if random else []
    undropped = _repeat_undropped(cell, weights, device) if random else {}
    seeds = []
    for number in range(1, SEEDS + 1):
        if cell["phase"] == "train" and time.monotonic() < until:
            other: Any = {**cell, "seed": cell["seed"] + number}
            seen = _Run(other, None, device, double=False).take_steps(len(numbers["losses"]), until)
            seeds.append([loss for loss in seen["losses"] if loss is not None])
    return {
        "steps": numbers,
        "random": random,
        "redrawn_losses": redrawn,
        "operations": operations,
        "operators": operators,
        "seed_losses": seeds,
        **undropped,
    }


def _repeat_undropped(cell: "CellSettings", weights: Path | None, device: torch.device) -> "DoubleNumbers":
    """Repeat the first step in double precision once more, without dropout."""
    run = _Run(cell, weights, device, double=True, drops=False)
    numbers = run.take_steps(1, 0.0)
    return {"undropped": numbers, "undropped_random": run.random, "dropouts": sorted(run.changes.dropouts)}


class _Run:
    """A cell that runs once more from its first step on.

    random: whether a step was seen to draw random numbers.
    """

    def __init__(
        self, cell: "CellSettings", weights: Path | None, device: torch.device, double: bool, drops: bool = True
    ) -> None:
        """double: compute in double precision. drops: leave dropout as it is."""
        self._cell, self._device, self._double = cell, device, double
        self.changes = Changes(double, drops)
        self._model = interface.load_functions(cell["module"])
        # Weights are drawn before they are widened: in double precision, other numbers would be drawn.
        self._network = step_loop.build_network(cell, self._model, weights)
        step_loop.set_up_network(self._widened(self._network), cell, device)
        if not drops:
            self.changes.dropouts += stop_dropout(self._network)
        self._states = _generator_states(device)
        self._saved: list[Tensor] = []
        self.random = False
        self._begin()

    def _begin(self) -> None:
        """Make the steps of the network as it is, before the first one."""
        self._source = iter(batches.iterate_batches(self._cell, self._model))
        self._first = FirstSteps(self._cell, self._network)
        self._parts = step_loop.make_step(self._cell, self._model, self._network, self._device, Ranges())
        if trainer := self._parts.trainer:
            self._widened(trainer.others)
            trainer.first_steps = self._first
        self._batch = next(self._source)

    def begin_rounded(self, precision: str, number: int) -> None:
        """Go back to the first step, which computes in a precision that weights are rounded to; number: of the draw.

        Raises:
            ValueError: there are no weights to be rounded.
        """
        self._cell = cast("CellSettings", {**self._cell, "precision": precision})
        tensors = [*self._network.parameters(), *self._network.buffers()]
        self._saved = self._saved or [one.detach().clone() for one in tensors]
        generator = torch.Generator(self._device).manual_seed(number)
        rounded = 0
        with torch.no_grad():
            for one, saved in zip(tensors, self._saved, strict=True):
                weight = isinstance(one, nn.Parameter) and saved.is_floating_point() and saved.itemsize in WHOLE
                one.copy_(round_at_random(saved, precision, generator) if weight else saved)
                rounded += weight
                one.grad = None
        if not rounded:
            raise ValueError("there are no weights")
        step_loop.prepare_network(self._network)
        _restore_generators(self._states, self._device)
        self._begin()

    def repeat_rounded(self, precision: str, steps: int, share_s: float) -> "list[StepNumbers]":
        """Repeat the first steps from rounded weights; share_s: how long one repetition may take, in seconds.

        Raises:
            TimeoutError: the first repetition shows that the fewest would take longer than GIVEN_UP_S.
        """
        runs: list[StepNumbers] = []
        until = began = time.monotonic()
        for number in range(ROUNDINGS[precision]):
            until += share_s
            if number == 1 and (time.monotonic() - began) * FEWEST_ROUNDINGS > GIVEN_UP_S:
                raise TimeoutError(f"{FEWEST_ROUNDINGS} repetitions in {precision} take longer than {GIVEN_UP_S:g} s")
            if number < FEWEST_ROUNDINGS or time.monotonic() < until:
                self.begin_rounded(precision, number)
                runs.append(self.take_steps(steps, until))
        return runs

    def clear(self) -> None:
        """Give the memory of the run back."""
        del self._network, self._parts, self._first, self._batch, self._source, self._saved

    def _widened(self, network: nn.Module) -> nn.Module:
        return network.double() if self._double else network

    def _place(self, batch: Any) -> Any:
        placed = self._parts.transfer(batch, self._device)
        return inspection.map_leaves(_widen, placed) if self._double else placed

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Compute in the run's precision, and note whether random numbers are drawn."""
        before = _generator_states(self._device)
        with change_functions(self.changes):
            yield
        after = _generator_states(self._device)
        self.random |= not all(torch.equal(one, other) for one, other in zip(before, after, strict=True))

    def redraw_losses(self) -> list[float]:
        """Losses of step 0 with other random numbers; empty where a step does not consist of forward and loss alone."""
        if not self._parts.trainer or self._model.training_step:
            return []
        found = []
        for number in range(REDRAWN):
            torch.manual_seed(self._cell["seed"] + 1 + number)
            found.append(self._lose())
        return found

    def _lose(self) -> float:
        """Loss of the first step, without an update of weights."""
        trainer, placed = self._parts.trainer, self._place(self._batch)
        assert trainer
        with torch.no_grad(), self._computing():
            return float(sum(training_step.run_pass(trainer, one)[1] for one in trainer.split_step(placed)))

    def take_steps(self, steps: int, until: float) -> "StepNumbers":
        """Run the first of so many steps that begin before `until` (monotonic clock, s); return their numbers."""
        losses: list[float | None] = []
        last = None
        for index, batch in enumerate(itertools.chain([self._batch], itertools.islice(self._source, steps - 1))):
            placed = self._place(batch)
            with self._computing():
                last = self._parts.plain(placed)
            self._first.note(placed, last)
            losses += [float(last)] if self._parts.trainer else []
            if index + 1 >= STEPS and (time.monotonic() > until or not self._parts.trainer):
                break
        return self._first.read(losses, last)

    def count_work(self) -> tuple[int | None, int | None]:
        """Count the floating-point operations of one more step, and its operators; None if that is not possible."""
        counter, calls = FlopCounterMode(display=False), _OperatorCount()
        placed = self._place(self._batch)
        try:
            with self._computing(), counter, calls:
                self._parts.plain(placed)
        except Exception:
            return None, None
        return counter.get_total_flops(), calls.calls


class _OperatorCount(TorchDispatchMode):
    """Counts the operators that reach the device."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return function(*args, **(kwargs or {}))


def _widen(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def round_at_random(numbers: Tensor, precision: str, generator: torch.Generator) -> Tensor:
    """Round numbers to bf16, up or down by the chance that keeps their mean; those in bf16 stay as they are.

    For another precision, or if the numbers are not in fp32, go to one of the nearest numbers of the same type or stay.
    """
    bits = numbers.contiguous().view(WHOLE[numbers.itemsize])
    draw = functools.partial(torch.randint, size=bits.shape, dtype=bits.dtype, device=bits.device, generator=generator)
    if precision == ROUNDED and numbers.dtype == torch.float32:
        return (bits + draw(2**DROPPED_BITS)).bitwise_and(-(2**DROPPED_BITS)).view(numbers.dtype)
    return torch.where(numbers == 0, numbers, (bits + draw(-1, 2)).view(numbers.dtype))


def _restore_generators(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)


def _generator_states(device: torch.device) -> list[Tensor]:
    """States of the generators of random numbers that a step on the device may use."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
