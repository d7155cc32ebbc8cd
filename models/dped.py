"""ResNet-DPED: a residual generator that turns a phone's photograph into a camera's, trained against a discriminator.

Training updates the generator on content, texture, colour and total-variation loss, then the discriminator, which
judges textures in grey; inference runs the generator alone, and AI Benchmark trains it alone.

Parameters of the generator, from figure 4 (four residual blocks of two convolutions with batch norm, 64 maps):
  first 9x9      9*9*3*64 + 64                     =  15_616
  4 blocks       4*(2*(9*64*64 + 64) + 2*2*64)     = 296_448
  two 3x3        2*(9*64*64 + 64)                  =  73_856
  last 9x9       9*9*64*3 + 3                      =  15_555
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from profzoo.harness.tasks import images, restoration
from profzoo.harness.tasks.adversarial import Features, frozen, learning, train_alone

GROUPS = ("enhancement", "adversarial", "classic")
SOURCE = "Ignatov et al. 2017, arXiv:1704.02470, figure 4; parameters of the generator derived in the file"
PARAMETERS = 401_475
REFERENCE = {"parameters": 401_475, "operations": 523_952_455_680}
SHAPE = {"adversarial": True, "scale": 1, "instance_norm": False}
ORIGINAL = {"adversarial": False, "instance_norm": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 96}, "inference": {"batch": 8, "size": 256}},
    "reference": {"train": {"batch": 15, "size": 128, **ORIGINAL}, "inference": {"batch": 10, "size": 256, **ORIGINAL}},
    "large": {"inference": {"batch": 1, "size": 1024, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 256, **ORIGINAL}},
}
# Section 3.1.5, and the blur of equation 2.
TEXTURE_WEIGHT, COLOUR_WEIGHT, VARIATION_WEIGHT = 0.4, 0.1, 400.0
BLUR_WIDTH, BLUR_AMPLITUDE, BLUR_SIGMA = 21, 0.053, 3.0


class Block(nn.Module):
    """Residual block: two convolutions, each with a norm and ReLU, added to the input."""

    def __init__(self, instance_norm: bool) -> None:
        """64 maps in and out; instance_norm: by the moments of each image instead of the batch's."""
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            norm = nn.InstanceNorm2d(64, eps=1e-3, affine=True) if instance_norm else nn.BatchNorm2d(64)
            layers += [nn.Conv2d(64, 64, 3, padding=1), norm, nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same size."""
        return maps + self.body(maps)


class Generator(nn.Sequential):
    """From (batch, 3, size, size) to the same, a little beyond [0, 1] at most."""

    def __init__(self, instance_norm: bool) -> None:
        """Layers as in figure 4."""
        super().__init__(
            nn.Conv2d(3, 64, 9, padding=4),
            nn.ReLU(inplace=True),
            *(Block(instance_norm) for _ in range(4)),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 3, 9, padding=4),
            images.Bounded(),
        )


def discriminator() -> nn.Module:
    """From (batch, 1, size, size) to a score (batch, 1); pooled to the 7x7 maps of the paper's 100-pixel patches."""
    layers: list[nn.Module] = [nn.Conv2d(1, 48, 11, 4, padding=5), nn.LeakyReLU(0.2, inplace=True)]
    maps = 48
    for wider, width, stride in ((128, 5, 2), (192, 3, 1), (192, 3, 1), (128, 3, 2)):
        layers += [nn.Conv2d(maps, wider, width, stride, padding=width // 2), nn.LeakyReLU(0.2, inplace=True)]
        layers += [nn.BatchNorm2d(wider)]
        maps = wider
    head = [nn.Linear(128 * 7 * 7, 1024), nn.LeakyReLU(0.2, inplace=True), nn.Linear(1024, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), *head)


class Blur(nn.Module):
    """The Gaussian blur under which colours are compared."""

    kernel: Tensor

    def __init__(self) -> None:
        """A kernel for each of three channels."""
        super().__init__()
        steps = torch.arange(BLUR_WIDTH) - BLUR_WIDTH // 2
        bell = torch.exp(-steps.square() / (2 * BLUR_SIGMA))
        self.register_buffer("kernel", (BLUR_AMPLITUDE * torch.outer(bell, bell)).expand(3, 1, -1, -1).clone())

    def forward(self, image: Tensor) -> Tensor:
        """The blurred image, of the same size."""
        return nn.functional.conv2d(image, self.kernel, padding=BLUR_WIDTH // 2, groups=3)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the generator with random weights."""
    return Generator(shape.instance_norm)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An image of low contrast, and the image, both (3, size, size)."""
    return _dull(*restoration.sample(shape, generator))


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Make such a sample from a PIL image, or take a pair."""
    dull, better = restoration.adapt(raw, shape)
    return (dull, better) if isinstance(raw, images.Pair) else _dull(dull, better)


def _dull(_: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
    return 0.25 + 0.5 * image, image


def others(shape: SimpleNamespace) -> nn.Module:
    """The discriminator, the features of the content loss, and the blur of the colour loss."""
    if not shape.adversarial:
        return nn.ModuleDict()
    features = Features("conv5_4", scale=images.IMAGENET)
    return nn.ModuleDict({"discriminator": discriminator(), "features": features, "blur": Blur()})


def optimizers(network: nn.Module, others: Any) -> Sequence[torch.optim.Optimizer]:
    """Adam for generator and discriminator (section 3.3)."""
    return [torch.optim.Adam(part.parameters(), lr=5e-4) for part in learning(network, others)]


def colour(made: Tensor, better: Tensor) -> Tensor:
    """Squared distance of two blurred images (equation 1): a sum over pixels, which outweighs the total variation."""
    return (made - better).square().sum() / len(made)


def variation(image: Tensor) -> Tensor:
    """Mean squared difference of neighbouring pixels."""
    down, right = image.diff(dim=2), image.diff(dim=3)
    return down.square().mean() + right.square().mean()


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Update the generator, then the discriminator; the generator's loss."""
    if not trainer.others:
        return train_alone(trainer, batch)
    dull, better = batch
    judge, features, blur = (trainer.others[name] for name in ("discriminator", "features", "blur"))
    generator_optimizer, judge_optimizer = trainer.optimizers
    with frozen(judge):
        with trainer.forward():
            made = trainer.network(dull)
            score = judge(made.mean(1, keepdim=True))
        with trainer.loss():
            loss = mse_loss(features(made)[0], features(better)[0])
            loss = loss + TEXTURE_WEIGHT * binary_cross_entropy_with_logits(score, torch.ones_like(score))
            loss = loss + COLOUR_WEIGHT * colour(blur(made), blur(better))
            loss = loss + VARIATION_WEIGHT * variation(made)
        trainer.update(loss, generator_optimizer)
    with trainer.forward():
        real, fake = (judge(image.mean(1, keepdim=True)) for image in (better, made.detach()))
    with trainer.loss():
        judged = binary_cross_entropy_with_logits(real, torch.ones_like(real))
        judged = judged + binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))
    trainer.update(judged, judge_optimizer)
    return loss
