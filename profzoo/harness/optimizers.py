"""Recreates a model's optimizers with the implementation that the cell requests, capturable in a CUDA graph."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from profzoo.errors import ConfigError, first_error_line
from profzoo.harness import interface

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings


if TYPE_CHECKING:
    pass


# Keyword arguments of torch's optimizers for each implementation; `auto` passes none.
IMPLEMENTATIONS: Mapping[str, Mapping[str, bool]] = {
    "auto": {},
    "for_loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}


def make_optimizers(
    network: nn.Module, optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
) -> list[torch.optim.Optimizer]:
    """Make optimizers for all parameters: the model's own, or Adam with SparseAdam for sparse embeddings.

    Adam takes no sparse gradients: embeddings with `sparse=True` get torch's SparseAdam, at the same learning rate.
    """
    parts = (part for part in network.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse)
    sparse = list(dict.fromkeys(part.weight for part in parts))
    if optimizer is not interface.make_adam or not sparse:
        return [optimizer(network.parameters())]
    known = set(sparse)
    dense = [parameter for parameter in network.parameters() if parameter not in known]
    return [*([optimizer(dense)] if dense else []), torch.optim.SparseAdam(sparse, lr=interface.RATE)]


def choose_implementation(optimizer: torch.optim.Optimizer, cell: "CellSettings") -> torch.optim.Optimizer:
    """Recreate a fresh optimizer with the cell's implementation; capturable if its step is captured.

    Raises:
        ConfigError: the optimizer has no such implementation.
    """
    asked = cell.get("optimizer", "auto")
    options = dict(IMPLEMENTATIONS[asked])
    # Optimizers without this option, such as SGD, keep no state on the CPU.
    if cell.get("graph") and "capturable" in optimizer.defaults:
        options["capturable"] = True
    if not options:
        return optimizer
    kind, refused = type(optimizer), f"optimizer = '{asked}': {type(optimizer).__name__} of {cell['model']}"
    if any(value and name not in optimizer.defaults for name, value in options.items()):
        raise ConfigError(f"{refused} has no such implementation: set optimizer to auto, or another that it has")
    options = {name: value for name, value in options.items() if name in optimizer.defaults}
    taken = inspect.signature(kind).parameters
    given = {name: value for name, value in optimizer.defaults.items() if name in taken}
    try:
        return kind([{**group, **options} for group in optimizer.param_groups], **{**given, **options})
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"{refused} cannot be made so: {first_error_line(error)}; set optimizer to auto") from error
