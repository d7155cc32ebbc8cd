"""A small GPT whose training logs the norm of each parameter's gradient."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample
from tests.planted.networks.training import Accompanied, compute_loss
from tests.planted.networks.transformer import Text, blocks

SHAPE = {"fault": True, "vocabulary": 8192, "tokens": 256, "width": 512, "heads": 8, "layers": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 32, "heads": 2, "layers": 2}


class LoggedText(Text):
    """Text with what was logged of its gradients."""

    fault = True
    logged: Any = None


def build(shape: SimpleNamespace) -> nn.Module:
    inner = blocks(shape.layers, shape.width, shape.heads, causal=True)
    network = LoggedText(shape.vocabulary, shape.tokens, shape.width, inner)
    network.fault = shape.fault
    return network


def norm_of_each(network: LoggedText) -> dict[str, float]:
    """The norm of each gradient, read from the GPU."""
    return {name: weight.grad.norm().item() for name, weight in network.named_parameters()}


def norms_at_once(network: LoggedText) -> Tensor:
    """The same norms, left on the GPU."""
    return torch.stack(torch._foreach_norm([weight.grad for weight in network.parameters()]))


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Forward, loss and backward, then a look at the gradients before the optimizer's step."""
    network = trainer.network

    def look() -> None:
        network.logged = norm_of_each(network) if network.fault else norms_at_once(network)

    found = compute_loss(trainer, *batch)
    trainer.update(found, Accompanied(trainer.optimizers[0], before=look))
    return found
