"""Samples: texts, images with classes, noisy images, choices of users, and graphs with classes."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


def texts(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A text (tokens,), and the same a token later."""
    text = torch.randint(shape.vocabulary, (shape.tokens + 1,), generator=generator)
    return text[:-1], text[1:]


def images(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    """An image (3, size, size) and one of 1000 classes."""
    label = int(torch.randint(1000, (), generator=generator))
    return torch.randn(3, shape.size, shape.size, generator=generator), label


def noisy_images(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor, int], Tensor]:
    """An image, noise for it and one of `times`, or of 1000; what is looked for is the noise."""
    image, noise = torch.randn(2, 3, shape.size, shape.size, generator=generator)
    time = int(torch.randint(getattr(shape, "times", 1000), (), generator=generator))
    return (image, noise, time), noise


def choices(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], float]:
    """Numbers (dense,), one choice of `rows` for each of `fields`, and whether a user clicked."""
    numbers = torch.randn(shape.dense, generator=generator)
    chosen = torch.randint(shape.rows, (shape.fields,), generator=generator)
    return (numbers, chosen), float(torch.randint(2, (), generator=generator))


def classified_vertices(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features (vertices, features) of a graph's vertices, and one of `classes` for each."""
    labels = torch.randint(shape.classes, (shape.vertices,), generator=generator)
    return torch.randn(shape.vertices, shape.features, generator=generator), labels


def whole(samples: Sequence[Any]) -> Any:
    """The batch of a single sample that is a whole batch already."""
    return samples[0]
