"""U-Net: a contracting path and an expanding path, joined level by level.

Convolutions are padded, as later implementations have it, so that the mask has the size of the image.
Parameters, from figure 1 with w = 64, 128, 256, 512, 1024 channels:
  contracting  sum over levels of 9*c_in*w + w + 9*w*w + w                               = 18_842_048
  expanding    sum over w = 512, 256, 128, 64 of 4*2w*w + w + 9*2w*w + w + 9*w*w + w     = 12_188_480
  last 1x1     64*2 + 2                                                                 =        130
"""

from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks import images
from profzoo.harness.tasks.segmentation import adapt, sample

GROUPS = ("segmentation", "classic")
SOURCE = "Ronneberger et al. 2015, arXiv:1505.04597, figure 1; parameters derived from it above"
PARAMETERS = 31_030_658
SHAPE = {"channels": 1, "classes": 2}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "size": 256},
        "inference": {"batch": 2, "size": 256},
    },
    "reference": {
        "train": {"batch": 4, "size": 256},
        "inference": {"batch": 4, "size": 512},
    },
}
WIDTHS = (64, 128, 256, 512, 1024)


class DoubleConvolution(nn.Sequential):
    """Two 3x3 convolutions, each with a ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """Channels in and out."""
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """From (batch, channels, size, size) to class scores (batch, classes, size, size); size a multiple of 16."""

    def __init__(self, channels: int, classes: int) -> None:
        """Channels of the image, classes of a pixel."""
        super().__init__()
        self.down = nn.ModuleList(DoubleConvolution(low, high) for low, high in pairwise((channels, *WIDTHS)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(high, low, 2, stride=2) for low, high in pairwise(WIDTHS))
        self.merge = nn.ModuleList(DoubleConvolution(high, low) for low, high in pairwise(WIDTHS))
        self.head = nn.Conv2d(WIDTHS[0], classes, 1)
        images.he(self)  # Section 3, last paragraph.

    def forward(self, image: Tensor) -> Tensor:
        """Class scores of every pixel."""
        skips = []
        for level, block in enumerate(self.down):
            image = block(nn.functional.max_pool2d(image, 2) if level else image)
            skips.append(image)
        for level in reversed(range(len(self.up))):
            image = self.merge[level](torch.cat((skips[level], self.up[level](image)), dim=1))
        return self.head(image)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return UNet(shape.channels, shape.classes)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Stochastic gradient descent with the paper's momentum of 0.99 (section 3)."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.99)
