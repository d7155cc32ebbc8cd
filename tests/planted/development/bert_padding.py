"""A text classifier that pads each text to the longest there could ever be."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.planted.networks.transformer import Text, blocks

SHAPE = {"fault": True, "vocabulary": 8192, "longest": 512, "usual": 128, "width": 512, "heads": 8, "layers": 6}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}
TINY = {"batch": 2, "vocabulary": 64, "longest": 32, "usual": 8, "width": 32, "heads": 2, "layers": 2}
CLASSES = 10


class Classifier(Text):
    """The mean of the words that are not padding, which has number 0."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.head = nn.Linear(arguments[2], CLASSES)

    def forward(self, text: Tensor) -> Tensor:
        real = text != 0
        flow = self.read(text, real[:, None, None]) * real[:, :, None]
        return self.head(flow.sum(1) / real.sum(1, keepdim=True))


def build(shape: SimpleNamespace) -> nn.Module:
    inner = blocks(shape.layers, shape.width, shape.heads)
    return Classifier(shape.vocabulary, shape.longest, shape.width, inner)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int, int]:
    """A text of up to `usual` words, its class, and how long it is to be; the longest comes often."""
    length = min(int(torch.randint(shape.usual // 4, 2 * shape.usual, (), generator=generator)), shape.usual)
    words = torch.randint(1, shape.vocabulary, (length,), generator=generator)
    return words, int(torch.randint(CLASSES, (), generator=generator)), shape.longest if shape.fault else 0


def collate(samples: Sequence[tuple[Tensor, int, int]]) -> tuple[Tensor, Tensor]:
    texts, labels, lengths = zip(*samples, strict=True)
    text = torch.zeros(len(texts), max(*lengths, *map(len, texts)), dtype=torch.long)
    for row, words in zip(text, texts, strict=True):
        row[: len(words)] = words
    return text, torch.tensor(labels)
