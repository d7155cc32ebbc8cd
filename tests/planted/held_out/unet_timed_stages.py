"""A segmentation network trained in small batches, whose stages are timed and whose hits and losses are read."""

import time
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate, max_pool2d

from tests.planted.networks.convolutional import convolve
from tests.planted.networks.training import parts

SHAPE = {"fault": True, "size": 96, "width": 224, "classes": 8, "parts": 3}
WORKLOADS = {"trimmed": {"train": {"batch": 24}}}
TINY = {"batch": 4, "size": 16, "width": 4, "parts": 2}


class Stopwatch:
    """Seconds of each stage."""

    def __init__(self, fault: bool) -> None:
        """fault: whether it waits for the GPU before it looks at the clock."""
        self.fault, self.began = fault, 0.0
        self.seconds: dict[str, float] = {}

    def stage(self, name: str) -> None:
        if self.fault and torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[name], self.began = now - self.began, now


class Segmenter(nn.Module):
    """Two sizes down and up again."""

    def __init__(self, width: int, classes: int, fault: bool, count: int) -> None:
        """count: of the small batches in a step."""
        super().__init__()
        self.first, self.second = (
            convolve(3, width),
            nn.Sequential(convolve(width, 2 * width), convolve(2 * width, 2 * width)),
        )
        self.third = nn.Sequential(convolve(2 * width, 4 * width), convolve(4 * width, 4 * width))
        self.fourth, self.fifth = convolve(6 * width, 2 * width), convolve(3 * width, width)
        self.leave = nn.Conv2d(width, classes, 1)
        self.watch, self.count, self.classes = Stopwatch(fault), count, classes
        self.told: list[Any] = []

    def forward(self, images: Tensor) -> Tensor:
        first = self.first(images)
        self.watch.stage("first")
        second = self.second(max_pool2d(first, 2))
        self.watch.stage("second")
        third = self.third(max_pool2d(second, 2))
        self.watch.stage("third")
        up = self.fourth(torch.cat((interpolate(third, scale_factor=2.0), second), dim=1))
        self.watch.stage("fourth")
        up = self.fifth(torch.cat((interpolate(up, scale_factor=2.0), first), dim=1))
        self.watch.stage("fifth")
        return self.leave(up)


def build(shape: SimpleNamespace) -> nn.Module:
    return Segmenter(shape.width, shape.classes, shape.fault, shape.parts)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.randint(shape.classes, (shape.size, shape.size), generator=generator)
    return torch.randn(3, shape.size, shape.size, generator=generator), labels


def count_hits(scores: Tensor, labels: Tensor, classes: int) -> list[Tensor]:
    """How many pixels of each class are found, and how many are of it or taken for it."""
    found, counts = scores.argmax(dim=1), []
    for number in range(classes):
        is_found, is_there = found == number, labels == number
        counts += [(is_found & is_there).sum(), (is_found | is_there).sum()]
    return counts


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    network, found = trainer.network, []
    chunks = list(parts(*batch, network.count))
    for index, (images, labels) in enumerate(chunks):
        with trainer.forward():
            scores = network(images)
        with trainer.loss():
            loss = cross_entropy(scores, labels) / len(chunks)
        trainer.update(loss, *(trainer.optimizers if index == len(chunks) - 1 else ()))
        found.append(loss.detach())
        network.watch.stage("backward")
        told = [loss.detach(), *count_hits(scores.detach(), labels, network.classes)]
        network.told = [one.item() for one in told] if network.watch.fault else told
    return torch.stack(found).sum()
