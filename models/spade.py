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
With `noise` the generator begins with random numbers instead of the map of classes. AI Benchmark's has 256 of them, a
map of n = 3 channels, 5x5 convolutions within SPADE, which make it 9_728 + 6_402*c, and moments of each image:
  first layer       256*4096 + 4096                            =  1_052_672
  3 blocks 1024 -> 1024                                        = 96_021_504
  512 <- 1024, 256 <- 512, 128 <- 256, 64 <- 128               = 40_944_896
  last 3x3, as above, which makes it                             138_020_803
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, l1_loss, leaky_relu, relu
from torch.nn.utils.parametrizations import spectral_norm

from profzoo.harness.tasks import images, segmentation
from profzoo.harness.tasks.adversarial import Features, frozen, learning, train_alone

GROUPS = ("generation", "adversarial", "classic")
SOURCE = "Park et al. 2019, arXiv:1903.07291, appendix A; parameters of the generator derived in the file"
PARAMETERS = 96_492_483
REFERENCE = {
    "parameters": 138_020_803,
    "operations": 740_824_956_544,
    "difference": "inference also improves the estimates of spectral norms there",
}
SHAPE = {"adversarial": True, "classes": 151, "filters": 64, "noise": 0, "kernel": 3, "instance_norm": False}
ORIGINAL = {"adversarial": False, "classes": 3, "noise": 256, "kernel": 5, "instance_norm": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 2, "size": 128}, "inference": {"batch": 2, "size": 256}},
    "reference": {"train": {"batch": 1, "size": 128, **ORIGINAL}, "inference": {"batch": 5, "size": 128, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 128, **ORIGINAL}},
}
WIDTHS = (16, 16, 16, 16, 8, 4, 2, 1)  # Maps before, between and after the blocks, in filters.
ENLARGED_BEFORE = (1, 3, 4, 5, 6)  # Blocks that begin with twice the extent; with noise the third does as well.
MATCHING_WEIGHT = VGG_WEIGHT = 10.0  # Appendix A.
VGG_MAPS = {"conv1_1": 1 / 32, "conv2_1": 1 / 16, "conv3_1": 1 / 8, "conv4_1": 1 / 4, "conv5_1": 1.0}


class Spade(nn.Module):
    """A norm whose scale and shift are convolved from the map of classes."""

    def __init__(self, maps: int, classes: int, kernel: int, instance_norm: bool) -> None:
        """Maps of the layer, classes of the map, width of the convolutions; instance_norm: in place of batch norm."""
        super().__init__()
        self.norm = nn.InstanceNorm2d(maps) if instance_norm else nn.BatchNorm2d(maps, affine=False)
        self.shared = nn.Conv2d(classes, 128, kernel, padding=kernel // 2)
        self.scale, self.shift = (nn.Conv2d(128, maps, kernel, padding=kernel // 2) for _ in range(2))

    def forward(self, maps: Tensor, classes: Tensor) -> Tensor:
        """classes: one-hot, at the full extent."""
        near = relu(self.shared(interpolate(classes, size=maps.shape[-2:])))
        return self.norm(maps) * (1 + self.scale(near)) + self.shift(near)


class Block(nn.Module):
    """A residual block of two convolutions, each after SPADE and a leaky ReLU."""

    def __init__(self, inputs: int, outputs: int, spade: Callable[[int], nn.Module]) -> None:
        """Maps in and out; spade: makes the norm of so many maps."""
        super().__init__()
        middle = min(inputs, outputs)
        self.norms = nn.ModuleList((spade(inputs), spade(middle)))
        first, second = nn.Conv2d(inputs, middle, 3, padding=1), nn.Conv2d(middle, outputs, 3, padding=1)
        self.convolutions = nn.ModuleList(map(spectral_norm, (first, second)))
        self.learned_shortcut = inputs != outputs
        if self.learned_shortcut:
            self.shortcut_norm = spade(inputs)
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
    """From classes (batch, size, size) to an image (batch, 3, size, size) in [-1, 1]; size a multiple of 32 or 64."""

    def __init__(self, classes: int, filters: int, noise: int, kernel: int, instance_norm: bool) -> None:
        """Classes of a pixel; filters: maps before the last convolution; noise: random numbers, 0 for none."""
        super().__init__()
        self.classes, self.noise = classes, noise
        widths = [filters * width for width in WIDTHS]
        self.first = nn.Linear(noise, 4 * widths[0]) if noise else nn.Conv2d(classes, widths[0], 3, padding=1)
        spade = partial(Spade, classes=classes, kernel=kernel, instance_norm=instance_norm)
        self.blocks = nn.ModuleList(Block(inputs, outputs, spade) for inputs, outputs in pairwise(widths))
        self.last = nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, mask: Tensor) -> Tensor:
        """The image."""
        classes = one_hot(mask, self.classes, self.last.weight.dtype)
        enlarged, mode = (range(1, 7), "bilinear") if self.noise else (ENLARGED_BEFORE, "nearest")
        if self.noise:
            drawn = self.first(torch.randn(1, self.noise, dtype=classes.dtype, device=classes.device))
            extent = [side >> len(enlarged) for side in mask.shape[1:]]
            maps = interpolate(drawn.view(1, -1, 2, 2), size=extent).expand(len(mask), -1, -1, -1)
        else:
            maps = self.first(interpolate(classes, scale_factor=1 / 32))
        for index, block in enumerate(self.blocks):
            maps = block(interpolate(maps, scale_factor=2, mode=mode) if index in enlarged else maps, classes)
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
    return Generator(shape.classes, shape.filters, shape.noise, shape.kernel, shape.instance_norm)


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
    if not shape.adversarial:
        return nn.ModuleDict()
    return nn.ModuleDict({"discriminator": Discriminator(shape.classes), "features": Features(*VGG_MAPS)})


def optimizers(network: nn.Module, others: Any) -> Sequence[torch.optim.Optimizer]:
    """Adam at two rates (appendix A)."""
    parts = zip(learning(network, others), (1e-4, 4e-4), strict=False)
    return [torch.optim.Adam(part.parameters(), lr=rate, betas=(0.0, 0.999)) for part, rate in parts]


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Update the generator, then the discriminators; the generator's loss."""
    if not trainer.others:
        return train_alone(trainer, batch)
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
