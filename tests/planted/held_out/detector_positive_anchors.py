"""A detector whose losses are taken of anchors that boolean masks select, in each image and for each kind of error."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from tests.planted.networks.convolutional import Residual, convolve

SHAPE = {"fault": True, "size": 96, "width": 64, "levels": 4}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "size": 32, "width": 8, "levels": 2}
# Boxes have four numbers and one score.
NUMBERS = 5


class Detector(nn.Module):
    """Maps of several sizes, and on each a score and a box for each place."""

    def __init__(self, width: int, levels: int, fault: bool) -> None:
        """levels: sizes of maps."""
        super().__init__()
        self.fault = fault
        self.enter = nn.Sequential(convolve(3, width, 2), convolve(width, width, 2))
        self.levels = nn.ModuleList(
            nn.Sequential(Residual(width), Residual(width), convolve(width, width, 2) if level else nn.Identity())
            for level in range(levels)
        )
        self.tell = nn.ModuleList(nn.Conv2d(width, NUMBERS, 1) for _ in range(levels))

    def forward(self, images: Tensor) -> tuple[Tensor, bool]:
        maps, found = self.enter(images), []
        for level, tell in zip(self.levels, self.tell, strict=True):
            maps = level(maps)
            found.append(tell(maps).flatten(2).transpose(1, 2))
        return torch.cat(found, dim=1), self.fault


def build(shape: SimpleNamespace) -> nn.Module:
    return Detector(shape.width, shape.levels, shape.fault)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An image, and for each place of each level a box and whether there is one: 1, 0, or -1 for not to be counted."""
    targets, edge = [], shape.size // 4
    for _ in range(shape.levels):
        there = torch.randint(-1, 2, (edge * edge, 1), generator=generator).float()
        targets.append(torch.cat((there, torch.randn(edge * edge, NUMBERS - 1, generator=generator)), dim=1))
        edge = (edge + 1) // 2
    return torch.randn(3, shape.size, shape.size, generator=generator), torch.cat(targets)


def masked_loss(found: Tensor, target: Tensor) -> Tensor:
    """Loss of one image, of rows that masks select."""
    counted, positive = target[..., 0] >= 0, target[..., 0] > 0
    scores = binary_cross_entropy_with_logits(found[counted][:, 0], target[counted][:, 0], reduction="sum")
    boxes = smooth_l1_loss(found[positive][:, 1:], target[positive][:, 1:], reduction="sum")
    return scores / counted.sum() + boxes / positive.sum()


def weighted_loss(found: Tensor, target: Tensor) -> Tensor:
    """The same losses of all images and rows, weighted by 0 or 1."""
    counted, positive = (target[..., 0] >= 0).to(found.dtype), (target[..., 0] > 0).to(found.dtype)
    right = target[..., 0].clamp(min=0)
    scores = binary_cross_entropy_with_logits(found[..., 0], right, counted, reduction="none").sum(1)
    boxes = smooth_l1_loss(found[..., 1:], target[..., 1:], reduction="none").sum(-1)
    return scores / counted.sum(1) + (boxes * positive).sum(1) / positive.sum(1)


def loss(outputs: tuple[Tensor, bool], target: Tensor) -> Tensor:
    found, fault = outputs
    if not fault:
        return weighted_loss(found.float(), target).mean()
    return torch.stack([masked_loss(one.float(), two) for one, two in zip(found, target, strict=True)]).mean()
