"""SPADE (GauGAN): makes an image of a map of classes, which scales and shifts every normalised layer.

Training updates the generator on adversarial, feature-matching and VGG-19 loss, then the discriminators of two
scales; inference runs the generator alone.

Parameters of the generator, from the appendix's figure, n = 151 classes (ADE20K's 150 and one for none), 64 filters:
  SPADE(c)          9*n*128 + 128 + 2*(9*128*c + c)            = 174_080 + 2_306*c
  block(i -> o)     m = min(i, o): SPADE(i) + SPADE(m) + 9*i*m + m + 9*m*o + o, and SPADE(i) + i*o where i != o
  first 3x3         9*n*1024 + 1024                            =  1_392_640
  3 blocks 1024 -> 1024                                        = 71_841_792
  512 <- 1024, 256 <- 512, 128 <- 256, 64 <- 128               = 23_256_320
  last 3x3          9*64*3 + 3                                 =      1_731
"""

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, l1_loss, leaky_relu, relu
from torch.nn.utils.parametrizations import spectral_norm

from profzoo.harness.tasks import images, segmentation
from profzoo.harness.tasks.adversarial import Features, frozen

GROUPS = ("generation", "adversarial", "classic")
SOURCE = "Park et al. 2019, arXiv:1903.07291, appendix A; parameters of the generator derived in the file"
PARAMETERS = 96_492_483
SHAPE = {"classes": 151, "filters": 64}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "size": 128},
        "inference": {"batch": 2, "size": 256},
    },
    "reference": {
        "train": {"batch": 1, "size": 128},
        "inference": {"batch": 5, "size": 128},
    },
}
WIDTHS = (16, 16, 16, 16, 8, 4, 2, 1)  # Maps before, between and after the blocks, in filters.
ENLARGED_BEFORE = (1, 3, 4, 5, 6)  # Blocks that begin with twice the extent.
MATCHING_WEIGHT = VGG_WEIGHT = 10.0  # Appendix A.
VGG_MAPS = {"conv1_1": 1 / 32, "conv2_1": 1 / 16, "conv3_1": 1 / 8, "conv4_1": 1 / 4, "conv5_1": 1.0}


class Spade(nn.Module):
    """Batch norm whose scale and shift are convolved from the map of classes."""

    def __init__(self, maps: int, classes: int) -> None:
        """Maps of the layer, classes of the map."""
        super().__init__()
        self.norm = nn.BatchNorm2d(maps, affine=False)
        self.shared = nn.Conv2d(classes, 128, 3, padding=1)
        self.scale, self.shift = (nn.Conv2d(128, maps, 3, padding=1) for _ in range(2))

    def forward(self, maps: Tensor, classes: Tensor) -> Tensor:
        """classes: one-hot, at the full extent."""
        near = relu(self.shared(interpolate(classes, size=maps.shape[-2:])))
        return self.norm(maps) * (1 + self.scale(near)) + self.shift(near)


class Block(nn.Module):
    """A residual block of two convolutions, each after SPADE and a leaky ReLU."""

    def __init__(self, inputs: int, outputs: int, classes: int) -> None:
        """Maps in and out, classes of the map."""
        super().__init__()
        middle = min(inputs, outputs)
        self.norms = nn.ModuleList((Spade(inputs, classes), Spade(middle, classes)))
        first, second = nn.Conv2d(inputs, middle, 3, padding=1), nn.Conv2d(middle, outputs, 3, padding=1)
        self.convolutions = nn.ModuleList(map(spectral_norm, (first, second)))
        self.learned_shortcut = inputs != outputs
        if self.learned_shortcut:
            self.shortcut_norm = Spade(inputs, classes)
            self.shortcut = spectral_norm(nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, maps: Tensor, classes: Tensor) -> Tensor:
        """Maps of the same extent."""
        body = maps
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            body = convolution(leaky_relu(norm(body, classes), 0.2))
        if self.learned_shortcut:
            maps = self.shortcut(self.shortcut_norm(maps, classes))
        return maps + body


class Generator(nn.Module):
    """From classes (batch, size, size) to an image (batch, 3, size, size) in [-1, 1]; size a multiple of 32."""

    def __init__(self, classes: int, filters: int) -> None:
        """Classes of a pixel; filters: maps before the last convolution."""
        super().__init__()
        self.classes = classes
        widths = [filters * width for width in WIDTHS]
        self.first = nn.Conv2d(classes, widths[0], 3, padding=1)
        self.blocks = nn.ModuleList(Block(inputs, outputs, classes) for inputs, outputs in pairwise(widths))
        self.last = nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, mask: Tensor) -> Tensor:
        """The image."""
        classes = one_hot(mask, self.classes, self.last.weight.dtype)
        maps = self.first(interpolate(classes, scale_factor=1 / 32))
        for index, block in enumerate(self.blocks):
            maps = block(interpolate(maps, scale_factor=2) if index in ENLARGED_BEFORE else maps, classes)
        return torch.tanh(self.last(leaky_relu(maps, 0.2)))


class Discriminator(nn.Module):
    """Scores patches of (batch, classes + 3, size, size) at two scales, from the maps of every layer."""

    def __init__(self, classes: int) -> None:
        """Classes of a pixel."""
        super().__init__()
        self.scales = nn.ModuleList(self._patches(classes + 3) for _ in range(2))

    @staticmethod
    def _patches(channels: int) -> nn.ModuleList:
        layers = [nn.Sequential(nn.Conv2d(channels, 64, 4, 2, padding=2), nn.LeakyReLU(0.2))]
        for narrow, wide, stride in ((64, 128, 2), (128, 256, 2), (256, 512, 1)):
            convolution = spectral_norm(nn.Conv2d(narrow, wide, 4, stride, padding=2, bias=False))
            layers.append(nn.Sequential(convolution, nn.InstanceNorm2d(wide), nn.LeakyReLU(0.2)))
        return nn.ModuleList([*layers, nn.Conv2d(512, 1, 4, padding=2)])

    def forward(self, pair: Tensor) -> list[list[Tensor]]:
        """For each scale the maps of each layer, the last of them the score."""
        found = []
        for layers in self.scales.children():
            maps, all_maps = pair, []
            for layer in layers.children():
                maps = layer(maps)
                all_maps.append(maps)
            found.append(all_maps)
            pair = nn.functional.avg_pool2d(pair, 3, 2, padding=1, count_include_pad=False)
        return found


def one_hot(mask: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Classes (batch, height, width) as (batch, classes, height, width)."""
    batch, height, width = mask.shape
    return torch.zeros(batch, classes, height, width, dtype=dtype, device=mask.device).scatter_(1, mask[:, None], 1)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the generator with random weights."""
    return Generator(shape.classes, shape.filters)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Classes (size, size), and the image (3, size, size) in [-1, 1]."""
    return _turned(*segmentation.drawn(shape, generator), shape)


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Make such a sample from a PIL image and its mask; pixels without a class get the last class."""
    return _turned(*segmentation.read(raw, shape), shape)


def _turned(image: Tensor, mask: Tensor, shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    # The class for none is part of what the network takes, beside those of the data set.
    mask = mask.masked_fill(mask == segmentation.IGNORED, shape.classes - 1)
    return mask, images.normalised(image, images.SYMMETRIC)


def others(shape: SimpleNamespace) -> nn.Module:
    """The discriminators, and the features of the VGG loss."""
    return nn.ModuleDict({"discriminator": Discriminator(shape.classes), "features": Features(*VGG_MAPS)})


def optimizers(network: nn.Module, others: Any) -> Sequence[torch.optim.Optimizer]:
    """Adam at two rates (appendix A)."""
    rates = ((network, 1e-4), (others["discriminator"], 4e-4))
    return [torch.optim.Adam(part.parameters(), lr=rate, betas=(0.0, 0.999)) for part, rate in rates]


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Update the generator, then the discriminators; the generator's loss."""
    mask, image = batch
    judge, features = trainer.others["discriminator"], trainer.others["features"]
    generator_optimizer, judge_optimizer = trainer.optimizers
    classes = one_hot(mask, trainer.network.classes, image.dtype)
    with frozen(judge):
        with trainer.forward():
            made = trainer.network(mask)
            fake, real = (judge(torch.cat((classes, one), dim=1)) for one in (made, image))
        with trainer.loss():
            loss = -torch.stack([maps[-1].mean() for maps in fake]).mean()
            for fake_maps, real_maps in zip(fake, real, strict=True):
                matched = [
                    l1_loss(one, other.detach()) for one, other in zip(fake_maps[:-1], real_maps[:-1], strict=True)
                ]
                loss = loss + MATCHING_WEIGHT / len(fake) * torch.stack(matched).sum()
            for weight, one, other in zip(VGG_MAPS.values(), features(made), features(image), strict=True):
                loss = loss + VGG_WEIGHT * weight * l1_loss(one, other)
        trainer.update(loss, generator_optimizer)
    with trainer.forward():
        fake, real = (judge(torch.cat((classes, one), dim=1)) for one in (made.detach(), image))
    with trainer.loss():
        hinges = [relu(1 + one[-1]).mean() + relu(1 - other[-1]).mean() for one, other in zip(fake, real, strict=True)]
        judged = torch.stack(hinges).mean()
    trainer.update(judged, judge_optimizer)
    return loss
