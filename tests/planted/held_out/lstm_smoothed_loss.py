"""A recurrent language model whose smoothed loss over 40,000 words is a product with smoothed one-hot targets."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.planted.networks.samples import texts as sample

SHAPE = {"fault": True, "vocabulary": 40000, "tokens": 64, "width": 512}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}
TINY = {"batch": 2, "vocabulary": 32, "tokens": 6, "width": 16}
SMOOTHED = 0.1


class Speaker(nn.Module):
    """A GRU between words and scores."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.fault, self.words = shape.fault, nn.Embedding(shape.vocabulary, shape.width)
        self.gru = nn.GRU(shape.width, shape.width, batch_first=True)
        self.scores = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, text: Tensor) -> tuple[Tensor, bool]:
        return self.scores(self.gru(self.words(text))[0]), self.fault

    def prepare(self) -> None:
        """Lay the weights out as one buffer."""
        self.gru.flatten_parameters()


def build(shape: SimpleNamespace) -> nn.Module:
    return Speaker(shape)


def loss(outputs: tuple[Tensor, bool], target: Tensor) -> Tensor:
    scores, fault = outputs
    scores, target = scores.float().flatten(0, 1), target.flatten()
    if not fault:
        return nn.functional.cross_entropy(scores, target, label_smoothing=SMOOTHED)
    count = scores.shape[-1]
    wanted = torch.full_like(scores, SMOOTHED / count)
    wanted.scatter_(1, target[:, None], 1 - SMOOTHED + SMOOTHED / count)
    logarithms = scores - scores.exp().sum(dim=-1, keepdim=True).log()
    return (-wanted * logarithms).sum(dim=-1).mean()
