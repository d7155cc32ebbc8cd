"""Inserts activation checkpointing: activations inside module sequences are recomputed in the backward pass.

The sequences are the outermost `nn.Sequential` and `nn.ModuleList` of the network that hold several modules. Each
module of a list is checkpointed by itself. The n modules of a Sequential are checkpointed in about sqrt(n) groups, and
only the input of each group is kept. The inputs then take about as much memory as the activations of one group (Chen
et al. 2016, arXiv:1604.06174). In a network without such sequences, each direct child with children is checkpointed.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from profzoo.errors import ConfigError


def insert_checkpoints(network: nn.Module, model: str) -> None:
    """Checkpoint the network's sequences from now on; model: the model's name, for error messages.

    Raises:
        ConfigError: the network has no such sequences.
    """
    found = list(_sequences(network, set())) or list(_blocks(network))
    for module in found:
        if isinstance(module, nn.Sequential):
            module.forward = functools.partial(_in_runs, group_modules(list(module)))  # type: ignore[method-assign]
        else:
            # Checkpoint the forward only: around `__call__`, the module's hooks would run twice.
            module.forward = functools.partial(_again, module.forward)
    if not found:
        raise ConfigError(
            f"checkpoint: true finds nothing in {model}, whose network holds no nn.Sequential or nn.ModuleList of "
            "several modules, nor modules that consist of others: leave it out"
        )


def group_modules(modules: Sequence[nn.Module]) -> list[nn.Sequential]:
    """Group consecutive modules into about sqrt(n) Sequentials.

    No group begins with an in-place module, as that module would overwrite the kept input of the group.

    >>> [len(run) for run in group_modules([nn.Linear(1, 1), nn.Linear(1, 1), nn.ReLU(inplace=True), nn.Linear(1, 1)])]
    [3, 1]
    """
    longest = math.ceil(len(modules) / math.ceil(math.sqrt(len(modules))))
    parts: list[list[nn.Module]] = []
    for module in modules:
        if not parts or (len(parts[-1]) >= longest and not _in_place(module)):
            parts.append([])
        parts[-1].append(module)
    return [nn.Sequential(*part) for part in parts]


def _sequences(module: nn.Module, seen: set[nn.Module]) -> Iterator[nn.Module]:
    """Yield the modules to checkpoint: the outermost Sequentials and the modules of lists, each module once."""
    if module in seen:
        return
    seen.add(module)
    # A subclass with its own forward may call its modules in another order.
    if type(module).forward is nn.Sequential.forward and len(module) > 1:  # type: ignore[arg-type]
        yield module
        return
    for child in module.children():
        listed = isinstance(module, nn.ModuleList) and len(module) > 1 and not isinstance(child, nn.ModuleList)
        if not listed or isinstance(child, nn.ModuleDict):
            yield from _sequences(child, seen)
        elif child not in seen and not _in_place(child):
            seen.add(child)
            yield child


def _blocks(network: nn.Module) -> Iterator[nn.Module]:
    for child in dict.fromkeys(network.children()):
        called = not isinstance(child, nn.ModuleList | nn.ModuleDict)
        if called and any(child.children()) and not _in_place(child):
            yield child


def _in_place(module: nn.Module) -> bool:
    """Whether the module's first operation modifies its input in place."""
    first = next((part for part in module.modules() if not any(part.children())), module)
    return bool(getattr(first, "inplace", False))


def _in_runs(parts: Sequence[nn.Sequential], inputs: Any) -> Any:
    for part in parts:
        inputs = checkpoint(part, inputs, use_reentrant=False)
    return inputs


def _again(function: Any, *inputs: Any, **named: Any) -> Any:
    return checkpoint(function, *inputs, use_reentrant=False, **named)
