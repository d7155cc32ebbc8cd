"""ResNet-SRGAN: a residual generator that enlarges images four times, trained against a discriminator.

Training updates the generator on content (VGG-19 features) and adversarial loss, then the discriminator; inference
runs the generator alone.

Parameters of the generator, from figure 4 (B = 16 blocks, 64 maps, PReLU with one weight, batch norm after each
convolution within the trunk):
  first 9x9      9*9*3*64 + 64 + 1                             =    15_617
  16 blocks      16*(2*(9*64*64 + 64) + 2*2*64 + 1)            = 1_185_808
  trunk's end    9*64*64 + 64 + 2*64                           =    37_056
  2 upsamplings  2*(9*64*256 + 256 + 1)                        =   295_426
  last 9x9       9*9*64*3 + 3                                  =    15_555
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from profzoo.harness.tasks import images, restoration
from profzoo.harness.tasks.adversarial import Features, frozen, learning, train_alone

GROUPS = ("super-resolution", "adversarial", "classic")
SOURCE = "Ledig et al. 2017, arXiv:1609.04802, figure 4; parameters of the generator derived in the file"
PARAMETERS = 1_549_462
REFERENCE = {"parameters": 1_562_755, "operations": 656_387_604_480}
SHAPE = {"adversarial": True, "scale": 4}
ORIGINAL = {"adversarial": False, "scale": 1}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 96}, "inference": {"batch": 8, "size": 384}},
    "reference": {"train": {"batch": 5, "size": 512, **ORIGINAL}, "inference": {"batch": 10, "size": 512, **ORIGINAL}},
    "large": {"inference": {"batch": 1, "size": 1536, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 512, **ORIGINAL}},
}
ADVERSARIAL_WEIGHT = 1e-3  # Equation 3.
FEATURE_SCALE = 1 / 12.75  # Section 3.2: brings VGG losses to the scale of pixel losses.


class Block(nn.Module):
    """Residual block: two convolutions with batch norm, added to the input."""

    def __init__(self, bias: bool, activation: type[nn.Module]) -> None:
        """64 maps in and out; bias: of the convolutions."""
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(64, 64, 3, padding=1, bias=bias),
            nn.BatchNorm2d(64),
            activation(),
            nn.Conv2d(64, 64, 3, padding=1, bias=bias),
            nn.BatchNorm2d(64),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same size."""
        return maps + self.body(maps)


class Generator(nn.Module):
    """From (batch, 3, size, size) to (batch, 3, 4 * size, 4 * size), or to the same size."""

    def __init__(self, same_size: bool) -> None:
        """Layers as in figure 4; same_size: those of AI Benchmark, whose first layer makes the image smaller."""
        super().__init__()
        activation = nn.ReLU if same_size else nn.PReLU
        smaller = [nn.Conv2d(3, 64, 7, 4, padding=3), activation(), nn.Conv2d(64, 64, 3, padding=1)]
        self.first = nn.Sequential(*(smaller if same_size else [nn.Conv2d(3, 64, 9, padding=4)]), activation())
        end = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=not same_size), nn.BatchNorm2d(64))
        self.trunk = nn.Sequential(*(Block(not same_size, activation) for _ in range(16)), end)
        enlarge = [nn.Sequential(nn.Conv2d(64, 256, 3, padding=1), nn.PixelShuffle(2), activation()) for _ in range(2)]
        last = [nn.Conv2d(64, 3, 1), nn.Tanh()] if same_size else [nn.Conv2d(64, 3, 9, padding=4)]
        self.last = nn.Sequential(*enlarge, *last)

    def forward(self, image: Tensor) -> Tensor:
        """The enlarged image."""
        maps = self.first(image)
        return self.last(maps + self.trunk(maps))


def discriminator() -> nn.Module:
    """From (batch, 3, size, size) to a score (batch, 1); pooled to the 6x6 maps of the paper's 96-pixel images."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), nn.LeakyReLU(0.2, inplace=True)]
    maps = 64
    for wider, stride in ((64, 2), (128, 1), (128, 2), (256, 1), (256, 2), (512, 1), (512, 2)):
        layers += [nn.Conv2d(maps, wider, 3, stride, padding=1), nn.BatchNorm2d(wider), nn.LeakyReLU(0.2, inplace=True)]
        maps = wider
    head = [nn.Linear(512 * 6 * 6, 1024), nn.LeakyReLU(0.2, inplace=True), nn.Linear(1024, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(6), nn.Flatten(), *head)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the generator with random weights."""
    return Generator(same_size=shape.scale == 1)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A small image (3, size / scale, size / scale) in [0, 1], and the large one (3, size, size) in [-1, 1]."""
    return _turned(*restoration.sample(shape, generator))


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Make such a sample from a PIL image."""
    return _turned(*restoration.adapt(raw, shape))


def _turned(small: Tensor, large: Tensor) -> tuple[Tensor, Tensor]:
    # Section 3.2 gives these ranges.
    return small, images.normalised(large, images.SYMMETRIC)


def others(shape: SimpleNamespace) -> nn.Module:
    """The discriminator, and the features of the content loss."""
    if not shape.adversarial:
        return nn.ModuleDict()
    return nn.ModuleDict({"discriminator": discriminator(), "features": Features("conv5_4")})


def optimizers(network: nn.Module, others: Any) -> Sequence[torch.optim.Optimizer]:
    """Adam for generator and discriminator (section 3.2)."""
    return [torch.optim.Adam(part.parameters(), lr=1e-4) for part in learning(network, others)]


def training_step(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Update the generator, then the discriminator; the generator's loss."""
    if not trainer.others:
        return train_alone(trainer, batch)
    small, large = batch
    judge, features = trainer.others["discriminator"], trainer.others["features"]
    generator_optimizer, judge_optimizer = trainer.optimizers
    with frozen(judge):
        with trainer.forward():
            made = trainer.network(small)
            score = judge(made)
        with trainer.loss():
            content = mse_loss(FEATURE_SCALE * features(made)[0], FEATURE_SCALE * features(large)[0])
            deceived = binary_cross_entropy_with_logits(score, torch.ones_like(score))
            loss = content + mse_loss(made, large) + ADVERSARIAL_WEIGHT * deceived
        trainer.update(loss, generator_optimizer)
    with trainer.forward():
        real, fake = judge(large), judge(made.detach())
    with trainer.loss():
        judged = binary_cross_entropy_with_logits(real, torch.ones_like(real))
        judged = judged + binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))
    trainer.update(judged, judge_optimizer)
    return loss
