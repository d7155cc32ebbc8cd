"""Texts as numbers of tokens."""

import torch
from torch import Tensor


def random(vocabulary: int, length: int, generator: torch.Generator) -> Tensor:
    """Tokens (length,) of a vocabulary, all as likely."""
    return torch.randint(vocabulary, (length,), generator=generator)


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over the vocabulary of (batch, length, vocabulary); targets of -100 do not count."""
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())
