"""An ALBERT-like network, whose layers share their weights and convert them to bf16 in every layer."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample

SHAPE = {"fault": True, "vocabulary": 4096, "tokens": 128, "width": 3072, "heads": 24, "layers": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 32, "heads": 2, "layers": 2}
NARROW = torch.bfloat16


class Shared(nn.Module):
    """One block that is applied again and again; its weights are fp32, its products bf16."""

    def __init__(self, fault: bool, vocabulary: int, width: int, heads: int, layers: int) -> None:
        """fault: whether weights are converted in every layer, instead of once."""
        super().__init__()
        self.fault, self.heads, self.layers = fault, heads, layers
        self.words = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.words.weight, std=0.02)
        shapes = ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))
        self.weights = nn.ParameterList(torch.randn(shape) / shape[1] ** 0.5 for shape in shapes)

    def forward(self, text: Tensor) -> Tensor:
        flow = self.words(text).to(NARROW)
        weights = None if self.fault else [weight.to(NARROW) for weight in self.weights]
        for _ in range(self.layers):
            flow = self.apply_block(flow, weights)
        return linear(layer_norm(flow, flow.shape[-1:]), self.words.weight.to(NARROW)).float()

    def apply_block(self, flow: Tensor, weights: list[Tensor] | None) -> Tensor:
        """Attention and two linear layers; weights: converted ones."""
        project, merge, widen, narrow = weights or [weight.to(NARROW) for weight in self.weights]
        width = flow.shape[-1:]
        parts = linear(layer_norm(flow, width), project).unflatten(-1, (3, self.heads, -1))
        mixed = scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4), is_causal=True)
        flow = flow + linear(mixed.transpose(1, 2).flatten(2), merge)
        return flow + linear(gelu(linear(layer_norm(flow, width), widen)), narrow)


def build(shape: SimpleNamespace) -> nn.Module:
    return Shared(shape.fault, shape.vocabulary, shape.width, shape.heads, shape.layers)


def optimizer(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3)
