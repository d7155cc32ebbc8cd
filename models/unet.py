"""U-Net: a contracting path and an expanding path, joined level by level.

Convolutions are padded, as later implementations have it, so that the mask has the size of the image.
Parameters, from figure 1 with w = 64, 128, 256, 512, 1024 channels:
  contracting  sum over levels of 9*c_in*w + w + 9*w*w + w                               = 18_842_048
  expanding    sum over w = 512, 256, 128, 64 of 4*2w*w + w + 9*2w*w + w + 9*w*w + w     = 12_188_480
  last 1x1     64*2 + 2                                                                 =        130
"""

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks import images
from profzoo.harness.tasks.segmentation import adapt, sample

GROUPS = ("segmentation", "classic")
SOURCE = "Ronneberger et al. 2015, arXiv:1505.04597, figure 1; parameters derived from it above"
PARAMETERS = 31_030_658
REFERENCE = {"parameters": 31_043_651, "operations": 1_541_624_823_808}
SHAPE = {"channels": 1, "classes": 2, "instance_norm": False, "bounded": False}
ORIGINAL = {"channels": 3, "classes": 3, "instance_norm": True, "bounded": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 2, "size": 256}, "inference": {"batch": 2, "size": 256}},
    "reference": {"train": {"batch": 4, "size": 256, **ORIGINAL}, "inference": {"batch": 4, "size": 512, **ORIGINAL}},
    "large": {"inference": {"batch": 1, "size": 1024, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 512, **ORIGINAL}},
}
WIDTHS = (64, 128, 256, 512, 1024)


class DoubleConvolution(nn.Sequential):
    """Two 3x3 convolutions, each with a ReLU."""

    def __init__(self, inputs: int, outputs: int, instance_norm: bool) -> None:
        """Channels in and out; instance_norm: before each ReLU."""
        layers: list[nn.Module] = []
        for channels in (inputs, outputs):
            layers.append(nn.Conv2d(channels, outputs, 3, padding=1))
            layers += [nn.InstanceNorm2d(outputs, eps=1e-3, affine=True)] if instance_norm else []
            layers.append(nn.ReLU(inplace=True))
        super().__init__(*layers)


class UNet(nn.Module):
    """From (batch, channels, size, size) to class scores (batch, classes, size, size); size a multiple of 16."""

    def __init__(self, channels: int, classes: int, instance_norm: bool, bounded: bool) -> None:
        """Channels of the image, classes of a pixel; bounded: scores as if they were colours."""
        super().__init__()
        double = partial(DoubleConvolution, instance_norm=instance_norm)
        self.down = nn.ModuleList(double(low, high) for low, high in pairwise((channels, *WIDTHS)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(high, low, 2, stride=2) for low, high in pairwise(WIDTHS))
        self.merge = nn.ModuleList(double(high, low) for low, high in pairwise(WIDTHS))
        head = nn.Conv2d(WIDTHS[0], classes, 1)
        self.head = nn.Sequential(head, images.Bounded()) if bounded else head
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
    return UNet(shape.channels, shape.classes, shape.instance_norm, shape.bounded)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Stochastic gradient descent with the paper's momentum of 0.99 (section 3)."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.99)
