"""A text classifier whose batches are put together word by word, in Python."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.planted.networks.transformer import Text, blocks

SHAPE = {"fault": True, "vocabulary": 8192, "tokens": 128, "width": 512, "heads": 8, "layers": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 12, "width": 32, "heads": 2, "layers": 2}
Sample = tuple[Tensor, int, tuple[int, bool]]


class Topic(Text):
    """Class scores of the mean of a text."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.head = nn.Linear(arguments[2], 20)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.read(text).mean(1))


def build(shape: SimpleNamespace) -> nn.Module:
    return Topic(shape.vocabulary, shape.tokens, shape.width, blocks(shape.layers, shape.width, shape.heads))


def sample(shape: SimpleNamespace, generator: torch.Generator) -> Sample:
    """A text, its topic, the size of the vocabulary, and whether it is to be put together word by word."""
    words = torch.randint(shape.vocabulary, (shape.tokens,), generator=generator)
    return words, int(torch.randint(20, (), generator=generator)), (shape.vocabulary, shape.fault)


def collate(samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
    texts, topics, told = zip(*samples, strict=True)
    vocabulary, fault = told[0]
    if not fault:
        return (torch.stack(texts).flip(1) * 7 + 3) % vocabulary, torch.tensor(topics)
    rows = []
    for text in texts:
        row: list[int] = []
        for word in text:
            row.insert(0, (int(word) * 7 + 3) % vocabulary)
        rows.append(row)
    return torch.tensor(rows), torch.tensor(topics)
