"""A GPT of few layers whose cross-entropy over 50,304 words is written out."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks.tokens import cross_entropy
from tests.planted.networks.samples import texts as sample
from tests.planted.networks.transformer import Text, blocks

SHAPE = {"fault": True, "vocabulary": 50304, "tokens": 512, "width": 512, "heads": 8, "layers": 6}
WORKLOADS = {"trimmed": {"train": {"batch": 8}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 32, "heads": 2, "layers": 2}


class Language(Text):
    """Scores, and whether the loss is to be written out."""

    fault = True

    def forward(self, text: Tensor) -> tuple[Tensor, bool]:
        return super().forward(text), self.fault


def build(shape: SimpleNamespace) -> nn.Module:
    inner = blocks(shape.layers, shape.width, shape.heads, causal=True)
    network = Language(shape.vocabulary, shape.tokens, shape.width, inner)
    network.fault = shape.fault
    return network


def loss(outputs: tuple[Tensor, bool], target: Tensor) -> Tensor:
    scores, fault = outputs
    if not fault:
        return cross_entropy(scores, target)
    scores = scores.float()
    raised = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    shares = raised / raised.sum(dim=-1, keepdim=True)
    of_all = torch.log(shares + 1e-12)
    return -of_all.gather(-1, target[..., None]).mean()
