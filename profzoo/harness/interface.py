"""The functions of a model's file, with what stands in for those that it leaves out."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

Shape = SimpleNamespace
# Of Adam.
RATE = 1e-3


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with its usual rate of 1e-3."""
    return torch.optim.Adam(parameters, lr=RATE)


def no_others(shape: Shape) -> nn.Module:
    """No networks besides the model."""
    return nn.ModuleDict()


def infer(network: nn.Module, inputs: Any) -> Any:
    """One forward pass."""
    return network(inputs)


def whole(network: nn.Module) -> Sequence[nn.Module]:
    """The network itself."""
    return (network,)


@dataclass(frozen=True)
class Functions:
    """What a model's file defines; all but `build` and `sample` have a default.

    build: (shape) -> the network, with random weights.
    sample: (shape, generator) -> one synthetic (input, target).
    loss: (outputs, target) -> scalar; cross-entropy of class scores by default.
    optimizer: (parameters) -> optimizer of the network; Adam by default, with SparseAdam for sparse embeddings.
    adapt: (sample of a torchvision dataset, shape) -> (input, target); None where no such data set fits.
    collate: (samples) -> batch; torch's own by default.
    transfer: (batch, device) -> batch on the device; moves every tensor by default.
    infer: (network, inputs) -> outputs; one forward pass by default.
    compiled: (network) -> the modules that `compile: true` compiles; the network itself by default.
    others: (shape) -> networks that training alone needs, such as a discriminator; none by default.
    optimizers: (network, others) -> all optimizers, for a training step of the model's own.
    training_step: (trainer, batch) -> loss; forward, loss, backward and optimizer once by default.
    """

    build: Callable[[Shape], nn.Module]
    sample: Callable[[Shape, torch.Generator], tuple[Any, Any]]
    loss: Callable[[Any, Any], Tensor] = nn.functional.cross_entropy
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = adam
    adapt: Callable[[tuple[Any, Any], Shape], tuple[Any, Any]] | None = None
    collate: Callable[[Sequence[Any]], Any] | None = None
    transfer: Callable[[Any, torch.device], Any] | None = None
    infer: Callable[[nn.Module, Any], Any] = infer
    compiled: Callable[[nn.Module], Sequence[nn.Module]] = whole
    others: Callable[[Shape], nn.Module] = no_others
    optimizers: Callable[[nn.Module, nn.Module], Sequence[torch.optim.Optimizer]] | None = None
    training_step: Callable[[Any, Any], Tensor] | None = None


def load(module: str) -> Functions:
    """The functions of an importable module; those that it does not define have their defaults."""
    source = importlib.import_module(module)
    names = Functions.__dataclass_fields__
    return Functions(**{name: getattr(source, name) for name in names if hasattr(source, name)})
