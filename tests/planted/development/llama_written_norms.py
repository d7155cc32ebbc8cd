"""A Llama-like network whose RMS norms are written out in fp32."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample
from tests.planted.networks.transformer import Attention, Block, Text, two_layers

SHAPE = {"fault": True, "vocabulary": 4096, "tokens": 512, "width": 1024, "heads": 8, "layers": 6}
WORKLOADS = {"trimmed": {"train": {"batch": 24}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 32, "heads": 2, "layers": 2}
EPSILON = 1e-6


class RMSNorm(nn.Module):
    """Divides by the root of the mean square, as model files of language models write it."""

    def __init__(self, width: int) -> None:
        """width: of the last dimension."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, flow: Tensor) -> Tensor:
        wide = flow.to(torch.float32)
        variance = wide.pow(2).mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(variance + EPSILON)
        return (self.weight * wide).to(flow.dtype)


def build(shape: SimpleNamespace) -> nn.Module:
    def norm(width: int) -> nn.Module:
        return RMSNorm(width) if shape.fault else nn.RMSNorm(width, eps=EPSILON)

    inner: list[nn.Module] = [
        Block(shape.width, Attention(shape.width, shape.heads, causal=True), two_layers(shape.width), norm)
        for _ in range(shape.layers)
    ]
    return Text(shape.vocabulary, shape.tokens, shape.width, inner, norm(shape.width))
