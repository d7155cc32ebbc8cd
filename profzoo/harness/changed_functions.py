"""Changes what a network's functions compute in: in double precision instead of narrower types, or without dropout."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

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
