"""Loads the functions of a model's file, and supplies defaults for missing ones."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.errors import ConfigError

Shape = SimpleNamespace
# Of Adam.
RATE = 1e-3


def make_adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with the default learning rate of 1e-3."""
    return torch.optim.Adam(parameters, lr=RATE)


def default_loss(outputs: Any, target: Any) -> Tensor:
    """Loss contained in the outputs, as with transformers, otherwise cross-entropy of class scores.

    Raises:
        ConfigError: the outputs contain no loss and are not class scores.
    """
    own = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if isinstance(own, Tensor):
        return own
    if isinstance(outputs, Tensor) and isinstance(target, Tensor):
        return nn.functional.cross_entropy(outputs, target)
    raise ConfigError(
        f"the network returns {type(outputs).__name__} without a loss: define loss(outputs, target) in the model's "
        "file, or have the batch hold what the network makes a loss of, such as labels"
    )


def no_sample(shape: Shape, generator: torch.Generator) -> Any:
    """Stand-in for `sample` in a model that has a data set."""
    raise ConfigError("the model's file defines no sample(shape, generator)")


def no_others(shape: Shape) -> nn.Module:
    """Stand-in for `others` in a model without further networks."""
    return nn.ModuleDict()


def run_forward(network: nn.Module, inputs: Any) -> Any:
    """Run one forward pass."""
    return network(inputs)


def whole_network(network: nn.Module) -> Sequence[nn.Module]:
    """The whole network as the only module to compile."""
    return (network,)


def call_in_turn(flow: Tensor, inputs: Any, blocks: Sequence[nn.Module]) -> Tensor:
    """What comes out of the blocks, each of which takes what comes out of the one before."""
    for block in blocks:
        flow = block(flow)
    return flow


@dataclass(frozen=True)
class Stages:
    """A network as pipeline parallelism cuts it: it computes last(run(first(inputs), inputs, blocks)).

    first: (inputs) -> flow, a tensor. blocks: in their order; each stage has some. last: (flow) -> outputs.
    before, after: modules and weights that `first` and `last` use.
    run: (flow, inputs, some of the blocks) -> flow; by default each block takes the flow of the one before.
    """

    first: Callable[[Any], Tensor]
    blocks: Iterable[nn.Module]
    last: Callable[[Tensor], Any]
    before: Sequence[nn.Module | Tensor]
    after: Sequence[nn.Module | Tensor]
    run: Callable[[Tensor, Any, Sequence[nn.Module]], Tensor] = call_in_turn


@dataclass(frozen=True)
class ModelFunctions:
    """What a model's file defines; all but `build`, and `sample` or `dataset`, have a default.

    build: (shape) -> the network, with random weights.
    sample: (shape, generator) -> one synthetic (input, target), or a mapping of the network's arguments. Two batches
        are made before the first step and used in turn, so that no step contains the time to make a sample.
    loss: (outputs, target) -> scalar; `outputs.loss` by default, else the cross-entropy of class scores.
    optimizer: (parameters) -> optimizer of the network; Adam by default, with SparseAdam for sparse embeddings.
    dataset: (shape) -> torch Dataset, whose samples are read in every step, instead of `sample`; none by default.
    adapt: (sample of a torchvision dataset, shape) -> (input, target); None if no torchvision data set fits the task.
    collate: (samples) -> batch; torch's own by default.
    transfer: (batch, device) -> batch on the device; moves every tensor by default.
    infer: (network, inputs) -> outputs; one forward pass by default.
    split: (network) -> {name of a linear layer: `columns` or `rows`}, how tensor parallelism splits it over processes.
        After `columns`, each process has some of the outputs; `rows` takes them and adds up. None by default.
    stages: (network) -> Stages, by which pipeline parallelism cuts it between blocks. None by default.
    compiled: (network) -> the modules that `compile: true` compiles; the network itself by default.
    others: (shape) -> networks that only training needs, such as a discriminator; none by default.
    optimizers: (network, others) -> all optimizers, for a training step of the model's own.
    training_step: (trainer, batch) -> loss; forward, loss, backward and optimizer once by default.

    A batch that is a mapping is passed as `network(**batch)`, and the whole mapping is the target of the loss.
    """

    build: Callable[[Shape], nn.Module]
    sample: Callable[[Shape, torch.Generator], Any] = no_sample
    loss: Callable[[Any, Any], Tensor] = default_loss
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = make_adam
    dataset: Callable[[Shape], Any] | None = None
    adapt: Callable[[tuple[Any, Any], Shape], tuple[Any, Any]] | None = None
    collate: Callable[[Sequence[Any]], Any] | None = None
    transfer: Callable[[Any, torch.device], Any] | None = None
    infer: Callable[[nn.Module, Any], Any] = run_forward
    compiled: Callable[[nn.Module], Sequence[nn.Module]] = whole_network
    split: Callable[[nn.Module], Mapping[str, str]] | None = None
    stages: Callable[[Any], Stages] | None = None
    others: Callable[[Shape], nn.Module] = no_others
    optimizers: Callable[[nn.Module, nn.Module], Sequence[torch.optim.Optimizer]] | None = None
    training_step: Callable[[Any, Any], Tensor] | None = None


def load_functions(module: str) -> ModelFunctions:
    """Load the functions of an importable module; missing ones get their defaults."""
    source = importlib.import_module(module)
    names = ModelFunctions.__dataclass_fields__
    return ModelFunctions(**{name: getattr(source, name) for name in names if hasattr(source, name)})


def import_extra(module: str, asked: str, extra: str | None = None) -> Any:
    """Import a module of an optional package; extra: profzoo's name for the package, if it is another.

    Raises:
        ConfigError: the package is missing; asked: the setting that needs it.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{asked} needs {package}, which is not installed: pip install 'profzoo[{extra or package}]'"
        ) from error


def needs_arguments(function: Callable[..., object]) -> bool:
    """Return whether a function cannot be called without arguments.

    >>> needs_arguments(lambda: 1), needs_arguments(lambda inputs: inputs)
    (False, True)
    """
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return True
    return False
