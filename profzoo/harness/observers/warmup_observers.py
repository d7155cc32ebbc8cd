"""Observes single steps of a cell's warm-up: waits, lines of the host, and repeated calls."""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from profzoo.harness import inspection
from profzoo.harness.observers import host_samples
from profzoo.harness.ranges import Ranges
from profzoo.harness.source_places import Place, PlaceFinder, SingleStep
from profzoo.range_names import ROOT

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import RepeatedCall


# Finds modules that a step calls twice on the same inputs, with the same weights and the same result.
#
# One warm-up step is looked at. Inputs are the same if they are the same part of the same memory, which nothing has
# written to in between: torch counts the writes (`Tensor._version`). No values are compared, except for sums of
# outputs, which are read after the step. What draws random numbers, such as dropout, is never the same work, nor is
# what a backward pass computes again for activation checkpointing. A call that wants other gradients than those before
# is needed: a GAN's discriminator judges the same images once for either network.

# With a shorter warm-up nothing is looked at: its steps fill caches, or are observed for waits.
LEAST_WARMUP = 3
# Most modules that become facts.
MOST = 20
# Values that are compared as they are; of an input with anything else nothing is known.
PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
COMPILER = "torch._dynamo.utils"


class UnknownInputError(Exception):
    """Of an input nothing is known."""


@dataclass
class Calls:
    """Calls of one module that are the same by their inputs: sums of their outputs, and the places of the program.

    wanted: of each call, which inputs and weights get gradients; empty for none.
    """

    module: nn.Module
    wanted: list[tuple[bool, ...]] = field(default_factory=list)
    sums: list[list[Tensor]] = field(default_factory=list)
    places: list[tuple[Place, Mapping[str, Any]]] = field(default_factory=list)


class RepeatedCalls:
    """Looks at the calls of modules between `start` and `stop`, on the thread that calls `start`."""

    def __init__(self, ranges: Ranges, outermost: CodeType | None = None) -> None:
        """ranges: knows the networks. outermost: code that runs the steps, beyond which no frame is the program's."""
        self._ranges, self._finder = ranges, PlaceFinder(outermost)
        self._calls: dict[Any, Calls] = {}
        # Keep the addresses of freed memory from being used for other tensors, and no memory.
        self._held: list[StorageWeakRef] = []
        self._original: Callable[..., Any] = nn.Module.__call__
        self._replaced: Callable[..., Any] | None = None
        # Whether a call runs that was made before.
        self._again = False

    def start(self) -> None:
        """Begin to look."""
        self._original = original = nn.Module.__call__

        @functools.wraps(original)
        def call(module: nn.Module, *given: Any, **named: Any) -> Any:
            if self._again or torch.compiler.is_compiling() or _is_recorded():
                return original(module, *given, **named)
            return self._observe(original, module, given, named)

        self._replaced = call
        nn.Module.__call__ = call  # type: ignore[method-assign]

    def stop(self) -> "list[RepeatedCall]":
        """Stop looking; returns the modules that were called again, most calls first."""
        if nn.Module.__call__ is self._replaced:
            nn.Module.__call__ = self._original  # type: ignore[method-assign]
        nothing: list[RepeatedCall] = []
        found = inspection.attempt("repeated calls were not named", self._describe, nothing)
        self._calls.clear()
        self._held.clear()
        return found

    def _observe(self, original: Callable[..., Any], module: nn.Module, given: Any, named: Any) -> Any:
        key, before = None, _random_state()
        with suppress(UnknownInputError):
            key = (id(module), module.training, *self._weights(module), self._key(given), self._key(named))
        wanted = () if key is None else _wanted_gradients(module, given, named)
        again = key in self._calls
        self._again = again
        try:
            result = original(module, *given, **named)
        finally:
            if again:
                self._again = False
        if key is not None and _same(before, _random_state()):
            calls = self._calls.setdefault(key, Calls(module))
            with suppress(Exception):
                calls.sums.append(_sum_outputs(result))
                calls.wanted.append(wanted)
                if place := self._finder.find(sys._getframe(2)):
                    calls.places.append(place)
        return result

    def _weights(self, module: nn.Module) -> Iterator[Any]:
        for one in module.parameters():
            yield id(one), _version(one)

    def _key(self, value: Any) -> Any:
        """Return what an input is known by: equal for equal inputs.

        Raises:
            UnknownInputError: it holds something other than plain tensors and numbers.
        """
        if isinstance(value, PLAIN):
            return type(value), value
        if type(value) in (Tensor, nn.Parameter) and value.layout is torch.strided:
            reference = StorageWeakRef(value.untyped_storage())
            self._held.append(reference)
            return reference.cdata, value.storage_offset(), value.shape, value.stride(), value.dtype, _version(value)
        if type(value) in (tuple, list):
            return type(value), *map(self._key, value)
        if type(value) is dict:
            return dict, *((self._key(name), self._key(one)) for name, one in value.items())
        raise UnknownInputError

    def _describe(self) -> "list[RepeatedCall]":
        names = {id(module): name for name, module in self._name_modules()}
        found: list[RepeatedCall] = []
        for calls in self._calls.values():
            name = names.get(id(calls.module))
            if name is None or not (same := _count_needless(calls)):
                continue
            lines = [self._finder.describe(*place) for place in calls.places[: same + 1]]
            places = list(dict.fromkeys(f"{line.file}:{line.line}" for line in lines))
            kind = type(calls.module).__name__
            found.append({"module": name, "type": kind, "calls": same + 1, "places": places})
        return sorted(found, key=lambda one: -one["calls"])[:MOST]

    def _name_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the modules of all networks with the paths that ranges have, the first name of each last."""
        for network, prefix in self._ranges.networks:
            inner = network.module if isinstance(network, nn.parallel.DistributedDataParallel) else network
            for path, module in reversed(list(inner.named_modules(prefix=prefix))):
                yield path or ROOT, module


def _is_recorded() -> bool:
    """Whether a call runs within something else, which would keep or change the sums.

    That is a backward pass that computes activations again, a captured CUDA graph, or a transform of torch.func, whose
    tensors have no memory of their own.
    """
    captured = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return captured or transformed or torch._C._current_graph_task_id() != -1


def _version(tensor: Tensor) -> int:
    if tensor.is_inference():
        raise UnknownInputError
    return tensor._version


def _random_state() -> tuple[Tensor, int]:
    """State of torch's random numbers on the CPU, and how many the current GPU has drawn; nothing waits for it."""
    drawn = 0
    if torch.cuda.is_initialized():
        drawn = torch.cuda.default_generators[torch.cuda.current_device()].get_offset()
    return torch.default_generator.get_state(), drawn


def _same(one: tuple[Tensor, int], other: tuple[Tensor, int]) -> bool:
    return one[1] == other[1] and torch.equal(one[0], other[0])


def _sum_outputs(result: Any) -> list[Tensor]:
    """Return the sums of all tensors of a result, on their devices."""
    tensors = [one.detach() for one in inspection.find_tensors(result)]
    return [one.sum(dtype=None if one.is_complex() else torch.float64) for one in tensors]


def _wanted_gradients(module: nn.Module, given: Any, named: Any) -> tuple[bool, ...]:
    """Return which inputs and weights get gradients by a call; empty if none does."""
    if not torch.is_grad_enabled():
        return ()
    flags = tuple(one.requires_grad for one in (*inspection.find_tensors((given, named)), *module.parameters()))
    return flags if any(flags) else ()


def _count_needless(calls: Calls) -> int:
    """Return how many calls with the first one's result are not needed: one is, for each kind of gradients wanted."""
    results = [[one.item() for one in each] for each in calls.sums]
    same = [want for want, each in zip(calls.wanted, results, strict=True) if each and each == results[0]]
    return len(same) - max(len({want for want in same if want}), 1) if same else 0


class RepeatedStep(SingleStep[list["RepeatedCall"]]):
    """Looks at the last step of the warm-up; `found` holds the modules afterwards, None if it was not looked at.

    It is not looked at if anything was compiled before, because hooks would have it compiled again.
    """

    def __init__(self, warmup: int, ranges: Ranges, outermost: CodeType | None = None, possible: bool = True) -> None:
        """possible: False where steps are compiled or captured. The others are as for RepeatedCalls."""
        index = warmup - 1 if possible and warmup >= LEAST_WARMUP else None
        super().__init__(index, lambda: None if _has_compiled(ranges) else RepeatedCalls(ranges, outermost))


def _has_compiled(ranges: Ranges) -> bool:
    """Whether torch.compile has compiled anything in this process, or is to compile a part of a network."""
    records: Any = sys.modules.get(COMPILER)
    modules = (module for network, _ in ranges.networks for module in network.modules())
    asked = any(hasattr(one, "_orig_mod") or one._compiled_call_impl is not None for one in modules)
    return asked or bool(records and records.counters["frames"])


class WarmupObservers:
    """Observes warm-up steps of a loop by their indices; `facts` tells afterwards what was seen."""

    def __init__(self, cell: "CellSettings", device: torch.device, ranges: Ranges, loop: CodeType) -> None:
        """loop: the code that runs the steps, beyond which no frame is the program's."""
        self._waits = observe_waits(cell, device, ranges, loop)
        self._host = host_samples.SampledStep(cell["warmup"], ranges, loop)
        # Sums of outputs would be captured, too.
        plain = not (cell.get("graph") or cell["compile"])
        self._repeated = RepeatedStep(cell["warmup"], ranges, loop, plain)

    @contextmanager
    def during(self, index: int) -> Iterator[None]:
        """Observe the body if it is one of the steps to observe; restores everything, also when the body raises."""
        with self._waits.during(index), self._host.during(index), self._repeated.during(index):
            yield

    def facts(self) -> dict[str, Any]:
        """What was seen, by the names of the facts; without what was not observed."""
        found = {
            "blocking_lines": self._waits.found,
            "host_lines": self._host.found,
            "repeated_calls": self._repeated.found,
        }
        return {name: known for name, known in found.items() if known is not None}


def observe_waits(
    cell: "CellSettings", device: torch.device, ranges: Ranges, loop: CodeType
) -> host_samples.ObservedStep:
    """Observer of the lines at which a warm-up step waits for the GPU; loop: the code that runs the steps.

    A step that is captured in a CUDA graph cannot wait.
    """
    waits = device.type == "cuda" and not cell.get("graph")
    return host_samples.ObservedStep(host_samples.BlockingLines(ranges, loop) if waits else None, cell["warmup"])
