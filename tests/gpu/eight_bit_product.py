"""A model of one linear layer, whose product is known by arithmetic: 4096 x 4096 by 4096 x 4096."""

import torch
from torch import Tensor, nn

ORDER = 4096
WORKLOADS = {"trimmed": {"train": {"batch": 4096}, "inference": {"batch": 4096}}}
# Multiplications and additions.
FLOPS = 2 * ORDER**3


def build(shape: object) -> nn.Module:
    return nn.Sequential(nn.Linear(ORDER, ORDER, bias=False))


def sample(shape: object, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.randn(ORDER, generator=generator), 0
