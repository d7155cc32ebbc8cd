"""Opens named ranges of a step, and a range around each call of a network's modules."""

import functools
import inspect
import json
import os
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import nvtx
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from profzoo.harness.compiled_kernels import note_network, short_path, unwrap_module
from profzoo.harness.tasks import tokens
from profzoo.range_names import (
    COMPILED,
    DECODE,
    DOMAIN,
    LAUNCHING,
    PREFILL,
    ROOT,
    SOURCES,
    STEP,
    WINDOW,
    make_nvtx_name,
    make_torch_name,
    module_range_name,
    sanitised_name,
)

# Notes where the `forward` of each class of modules is written, so that a trace can name the lines of a layer.

# Lines by name of a class, since ranges of modules hold no more than this name.
_noted: dict[str, list[str]] = {}
_classes: set[type] = set()


def note_source(kind: type) -> None:
    """Note file and lines of a class's `forward`; a class without source code is left out."""
    if kind in _classes:
        return
    _classes.add(kind)
    # Without calling descriptors, as a scripted module's raises an error.
    found = inspect.getattr_static(kind, "forward", None)
    code = getattr(inspect.unwrap(found) if callable(found) else None, "__code__", None)
    if isinstance(code, CodeType):
        lines = f"{short_path(code.co_filename)}:{code.co_firstlineno}-{max(_lines(code))}"
        known = _noted.setdefault(kind.__name__, [])
        if lines not in known:
            known.append(lines)


def trace_metadata() -> tuple[str, str]:
    """Return the key and the JSON text by which a trace holds the noted lines: a list of `file:first-last` by class."""
    return SOURCES, json.dumps(_noted)


def _lines(code: CodeType) -> Iterator[int]:
    yield code.co_firstlineno
    yield from (line for *_, line in code.co_lines() if line is not None)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _lines(inner)


# Opens a range around each call of a network's modules, so that every launch has an owning layer.
#
# Hooks mark a module and leave its forward unchanged. Two kinds of modules would run differently with hooks. A module
# compiled by torch.compile gets one range around the whole. In inference, hooks would switch off the fused path of
# torch's encoder layers: their range is opened within `forward`.

# Function of a range's name and a module's inputs: opens the range, and returns the function that closes it.
Opener = Callable[[str, tuple[Any, ...]], Callable[[], Any]]


def written_class(module: nn.Module) -> type:
    """Class of a module as its author wrote it: torch.compile wraps it, and FSDP2 makes a class of its own of it."""
    kind = type(getattr(module, "_orig_mod", module))
    first, *others = kind.__bases__
    return others[0] if others and first.__module__.startswith("torch.distributed.") else kind


def torch_range(name: str, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """Open a torch.profiler range, with input shapes if the profiler records shapes; none where it does not record.

    A step that ends with a network's call starts the profiler within that call's range.
    """
    if not torch.autograd._profiler_enabled():
        return _nothing
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    # Takes a third of the time of torch.profiler.record_function; a step may open thousands of ranges.
    record = torch._C._profiler._RecordFunctionFast(_kept(name), tensors)
    record.__enter__()
    return functools.partial(record.__exit__, None, None, None)


def _nothing() -> None:
    """Close what was not opened."""


@functools.cache
def _kept(name: str) -> str:
    return sanitised_name(f"{DOMAIN}:{name}")


def nvtx_range(name: str, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """Open a range in the project's NVTX domain."""
    domain = nvtx.get_domain(DOMAIN)
    domain.push_range(_attributes(name))
    return domain.pop_range


@functools.cache
def _attributes(name: str) -> Any:
    return nvtx.get_domain(DOMAIN).get_event_attributes(message=name)


# Takes a module's range away again.
Unmark = Callable[[], Any]


def mark_modules(network: nn.Module, opener: Opener, prefix: str = "") -> list[Unmark]:
    """Open a range around each call of each module of a network; torch.compile must already be applied.

    Returns the functions that leave the modules as they were.

    A module that the network holds under several names gets the first name. A module whose forward is called without
    `__call__` gets no range: its work belongs to the calling module, as does the work of functions.

    Args:
        prefix: text before the module paths, for networks besides the cell's own.
    """
    opened, undo = threading.local(), list[Unmark]()
    for path, module, how in _walk(network, prefix, set()):
        kind = written_class(module)
        note_source(kind)
        if how is _around_compiled:
            path = f"{path}.{COMPILED}" if path else COMPILED
        undo += how(module, functools.partial(opener, module_range_name(path or ROOT, kind.__name__)), opened)
    return undo


def _walk(
    module: nn.Module, path: str, seen: set[nn.Module]
) -> Iterator[tuple[str, nn.Module, Callable[..., list[Unmark]]]]:
    """Yield every module with its path and its marking function, a parent before its children."""
    if module in seen:
        return
    seen.add(module)
    inner = unwrap_module(module)
    if inner is not None:
        yield from _walk(inner, path, seen)
        return
    if hasattr(module, "_orig_mod") or module._compiled_call_impl is not None:
        yield path, module, _around_compiled
        return
    if isinstance(module, nn.TransformerEncoderLayer) and not module.training:
        yield from ((name, one, _within_forward) for name, one in module.named_modules(prefix=path))
        seen.update(module.modules())
        return
    # A dictionary or a list of modules is never called.
    if not isinstance(module, nn.ModuleDict | nn.ModuleList):
        yield path, module, _by_hooks
    if not isinstance(module, torch.jit.ScriptModule):
        for name, child in module.named_children():
            yield from _walk(child, f"{path}.{name}" if path else name, seen)


def _by_hooks(
    module: nn.Module, open_range: Callable[[Any], Callable[[], Any]], opened: threading.local
) -> list[Unmark]:
    """Add hooks that open the range before all others and close it after them, also if forward raises."""
    marked = True

    def before(module: nn.Module, inputs: Any) -> None:
        # Where a model compiles parts of itself, Dynamo drops branches that it knows never to run.
        if marked and not torch.compiler.is_compiling():
            if not hasattr(opened, "ranges"):
                opened.ranges = []
            opened.ranges.append(open_range(inputs))

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        # A call that had begun before the module was marked has opened none.
        if not torch.compiler.is_compiling() and getattr(opened, "ranges", None):
            opened.ranges.pop()()

    def unmark() -> None:
        nonlocal marked
        # A call that has begun knows these hooks still.
        marked = False
        for hook in hooks:
            hook.remove()

    hooks = (
        module.register_forward_pre_hook(before, prepend=True),
        module.register_forward_hook(after, always_call=True),
    )
    return [unmark]


def _around_compiled(module: nn.Module, open_range: Callable[[Any], Callable[[], Any]], opened: Any) -> list[Unmark]:
    """Open one range around a compiled module, without the compiler seeing it."""
    name = "forward" if hasattr(module, "_orig_mod") else "_compiled_call_impl"
    return _replace(module, name, _ranged(getattr(module, name), open_range))


def _replace(module: nn.Module, name: str, function: Callable[..., Any]) -> list[Unmark]:
    """Set a function of one module; one of its class comes back once its own is taken away."""
    own, before = name in vars(module), vars(module).get(name)
    setattr(module, name, function)
    return [lambda: setattr(module, name, before) if own else delattr(module, name)]


def _within_forward(module: nn.Module, open_range: Callable[[Any], Callable[[], Any]], opened: Any) -> list[Unmark]:
    """Open a range around a module's forward; a copy of the module gets its own."""

    @functools.wraps(type(module).forward)
    def forward(self: nn.Module, *inputs: Any, **named: Any) -> Any:
        close = open_range(inputs)
        try:
            return type(self).forward(self, *inputs, **named)
        finally:
            close()

    return _replace(module, "forward", types.MethodType(forward, module))


def _ranged(function: Callable[..., Any], open_range: Callable[[Any], Callable[[], Any]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def ranged(*inputs: Any, **named: Any) -> Any:
        close = open_range(inputs)
        try:
            return function(*inputs, **named)
        finally:
            close()

    return ranged


# Environment variable, set for profilers that read module ranges from NVTX.
MODULES = "PROFZOO_MODULES"


class Ranges:
    """Opens ranges: `with ranges("forward"): ...`."""

    def __init__(self) -> None:
        self._domain = nvtx.get_domain(DOMAIN)
        self._attributes = {
            name: self._domain.get_event_attributes(message=make_nvtx_name(name)) for name in (WINDOW, STEP, *LAUNCHING)
        }
        self._openers = [nvtx_range] * (os.environ.get(MODULES) == "1")
        # Networks whose modules have ranges, each with what their paths begin with.
        self.networks: list[tuple[nn.Module, str]] = []
        self._unmark: list[Unmark] = []
        self._begun: list[tuple[str, record_function | None]] = []
        # Whether ranges go to torch.profiler too.
        self._torch_ranges = False
        # Callback that receives the name of each range as it ends.
        self.closed: Callable[[str], None] | None = None
        # Whether the last step noted tokens.
        self._generates = False

    def open(self, name: str) -> None:
        """Open a range on the calling thread; `close` on the same thread ends it."""
        self._domain.push_range(self._attributes[name])

    def close(self) -> None:
        """Close the range that was opened last."""
        self._domain.pop_range()

    def watch(self, torch_ranges: bool, torch_modules: bool) -> None:
        """Set whether step ranges also go to torch.profiler (microseconds each); module ranges, once on, stay on."""
        self._torch_ranges = torch_ranges
        if torch_modules and torch_range not in self._openers:
            self._openers.append(torch_range)
            for network, prefix in self.networks:
                self._unmark += mark_modules(network, torch_range, prefix)

    def mark(self, network: nn.Module, prefix: str = "") -> None:
        """Open a range around each call of the network's modules, if module ranges are enabled."""
        self.networks.append((network, prefix))
        note_network(network, prefix)
        for opener in self._openers:
            self._unmark += mark_modules(network, opener, prefix)

    def unmark(self) -> None:
        """Leave all networks as they were before they were marked."""
        while self._unmark:
            self._unmark.pop()()

    def end_all(self) -> None:
        """End all ranges that were begun and have not ended."""
        while self._begun:
            self.end()

    def begin(self, name: str) -> None:
        """Open a range, in torch.profiler too where ranges go there; `end` on the same thread ends it."""
        self.open(name)
        inner = record_function(make_torch_name(name)) if self._torch_ranges else None
        if inner:
            inner.__enter__()
        self._begun.append((name, inner))

    def end(self) -> None:
        """End the range that was begun last."""
        name, inner = self._begun.pop()
        if inner:
            inner.__exit__(None, None, None)
        self.close()
        if self.closed:
            self.closed(name)

    @property
    def current(self) -> str:
        """Name of the range that was begun last and is open; empty if there is none, or only the step's."""
        name = self._begun[-1][0] if self._begun else STEP
        return "" if name == STEP else name

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Open a range of that name around the body, on the calling thread."""
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Open `prefill` up to the first token of the body and `decode` behind it, if the last body noted tokens.

        Whether a network generates shows in the first warm-up step, which has no such ranges.
        """
        opened, noted = self._generates, 0

        def note() -> None:
            nonlocal noted
            noted += 1
            if opened and noted == 1:
                self.end()
                self.begin(DECODE)

        if opened:
            self.begin(PREFILL)
        tokens.listen(note)
        try:
            yield
        finally:
            tokens.ignore(note)
            self._generates = noted > 0
            if opened:
                self.end()
