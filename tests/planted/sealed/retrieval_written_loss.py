"""Two towers for queries and items, trained against all other items of the batch by a loss that is written out."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from tests.planted.networks.samples import whole as collate

SHAPE = {"fault": True, "pairs": 8192, "features": 256, "width": 1024}
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}
TINY = {"pairs": 8, "features": 16, "width": 32}


class Towers(nn.Module):
    """How well each query fits each item."""

    def __init__(self, fault: bool, features: int, width: int) -> None:
        super().__init__()
        self.fault = fault
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(features, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, features))
            for _ in range(2)
        )

    def forward(self, both: Tensor) -> tuple[Tensor, bool]:
        queries, items = (normalize(tower(one), dim=1) for tower, one in zip(self.towers, both, strict=True))
        return 20 * queries @ items.T, self.fault


def build(shape: SimpleNamespace) -> nn.Module:
    return Towers(shape.fault, shape.features, shape.width)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features of queries and of items, and how often each item is drawn."""
    both = torch.randn(2, shape.pairs, shape.features, generator=generator)
    return both, torch.rand(shape.pairs, generator=generator) + 0.1


def written(scores: Tensor, right: Tensor) -> Tensor:
    powers = (scores - scores.detach().amax(1, keepdim=True)).exp()
    shares = powers / powers.sum(1, keepdim=True)
    return -(shares + 1e-12).log().gather(1, right[:, None]).mean()


def loss(outputs: tuple[Tensor, bool], often: Tensor) -> Tensor:
    scores, right = outputs[0] - often.log(), torch.arange(len(often), device=often.device)
    compared = written if outputs[1] else cross_entropy
    return compared(scores, right) + compared(scores.T, right)
