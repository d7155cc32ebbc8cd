"""A deep residual network whose optimizer updates one parameter after the other."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import nn

from tests.planted.networks.convolutional import ResidualNetwork
from tests.planted.networks.samples import images as sample

SHAPE = {"fault": True, "size": 64, "width": 64, "depths": [6, 6, 6, 4]}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}
TINY = {"batch": 2, "size": 32, "width": 8, "depths": [1, 1]}


def build(shape: SimpleNamespace) -> nn.Module:
    network = ResidualNetwork(shape.width, shape.depths)
    network.fault = shape.fault
    return network


def optimizers(network: nn.Module, others: nn.Module) -> Sequence[torch.optim.Optimizer]:
    many = {"foreach": False} if network.fault else {"foreach": True}
    return [torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05, **many)]
