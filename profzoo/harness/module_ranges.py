"""Opens a range around each call of a network's modules, so that every launch has an owning layer.

Hooks mark a module and leave its forward unchanged. Two kinds of modules would run differently with hooks. A module
compiled by torch.compile gets one range around the whole. In inference, hooks would switch off the fused path of
torch's encoder layers: their range is opened within `forward`.
"""

import functools
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import nvtx
import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from profzoo.harness import source_lines
from profzoo.range_names import COMPILED, DOMAIN, ROOT, module_range_name, sanitised_name

# Function of a range's name and a module's inputs: opens the range, and returns the function that closes it.
Opener = Callable[[str, tuple[Any, ...]], Callable[[], Any]]
REPLICATED = (DataParallel, DistributedDataParallel)
# Attributes in which wrapper modules hold the wrapped module.
WRAPPED = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def torch_range(name: str, inputs: tuple[Any, ...]) -> Callable[[], Any]:
    """Open a torch.profiler range, with input shapes if the profiler records shapes."""
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    # Takes a third of the time of torch.profiler.record_function; a step may open thousands of ranges.
    record = torch._C._profiler._RecordFunctionFast(_kept(name), tensors)
    record.__enter__()
    return functools.partial(record.__exit__, None, None, None)


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


def mark_modules(network: nn.Module, opener: Opener, prefix: str = "") -> None:
    """Open a range around each call of each module of a network; torch.compile must already be applied.

    A module that the network holds under several names gets the first name. A module whose forward is called without
    `__call__` gets no range: its work belongs to the calling module, as does the work of functions.

    Args:
        prefix: text before the module paths, for networks besides the cell's own.
    """
    opened = threading.local()
    for path, module, how in _walk(network, prefix, set()):
        kind = type(getattr(module, "_orig_mod", module))
        source_lines.note_source(kind)
        if how is _around_compiled:
            path = f"{path}.{COMPILED}" if path else COMPILED
        how(module, functools.partial(opener, module_range_name(path or ROOT, kind.__name__)), opened)


def _walk(module: nn.Module, path: str, seen: set[nn.Module]) -> Iterator[tuple[str, nn.Module, Callable[..., None]]]:
    """Yield every module with its path and its marking function, a parent before its children."""
    if module in seen:
        return
    seen.add(module)
    inner = (
        module.module if isinstance(module, REPLICATED) else next(filter(None, map(module._modules.get, WRAPPED)), None)
    )
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


def _by_hooks(module: nn.Module, open_range: Callable[[Any], Callable[[], Any]], opened: threading.local) -> None:
    """Add hooks that open the range before all others and close it after them, also if forward raises."""

    def before(module: nn.Module, inputs: Any) -> None:
        # Where a model compiles parts of itself, Dynamo drops branches that it knows never to run.
        if not torch.compiler.is_compiling():
            if not hasattr(opened, "ranges"):
                opened.ranges = []
            opened.ranges.append(open_range(inputs))

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        if not torch.compiler.is_compiling():
            opened.ranges.pop()()

    module.register_forward_pre_hook(before, prepend=True)
    module.register_forward_hook(after, always_call=True)


def _around_compiled(module: nn.Module, open_range: Callable[[Any], Callable[[], Any]], opened: Any) -> None:
    """Open one range around a compiled module, without the compiler seeing it."""
    name = "forward" if hasattr(module, "_orig_mod") else "_compiled_call_impl"
    setattr(module, name, _ranged(getattr(module, name), open_range))


def _within_forward(module: nn.Module, open_range: Callable[[Any], Callable[[], Any]], opened: Any) -> None:
    """Open a range around a module's forward; a copy of the module gets its own."""

    @functools.wraps(type(module).forward)
    def forward(self: nn.Module, *inputs: Any, **named: Any) -> Any:
        close = open_range(inputs)
        try:
            return type(self).forward(self, *inputs, **named)
        finally:
            close()

    module.forward = types.MethodType(forward, module)


def _ranged(function: Callable[..., Any], open_range: Callable[[Any], Callable[[], Any]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def ranged(*inputs: Any, **named: Any) -> Any:
        close = open_range(inputs)
        try:
            return function(*inputs, **named)
        finally:
            close()

    return ranged
