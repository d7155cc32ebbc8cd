"""ICNet: a deep network on a quarter of the resolution, refined by shallow ones on half and all of it.

The deep branch is PSPNet-50 at half its width (section 4.1), and goes on from the maps of the half-resolution one.
Each convolution has batch norm; c(k, i, o) = k*k*i*o + 2*o. Parameters, with 19 classes:
  stem            c(3,3,32) + c(3,32,32) + c(3,32,64)                                       =    28_768
  stage 2         c(1,64,128) + c(1,64,32) + 2*c(1,128,32) + 3*(c(3,32,32) + c(1,32,128))   =    59_776
  stage 3         c(1,128,256) + c(1,128,64) + 3*c(1,256,64) + 4*(c(3,64,64) + c(1,64,256)) =   306_688
  stage 4         c(1,256,512) + c(1,256,128) + 5*c(1,512,128) + 6*(c(3,128,128) + c(1,128,512)) = 1_779_712
  stage 5         c(1,512,1024) + c(1,512,256) + 2*c(1,1024,256) + 3*(c(3,256,256) + c(1,256,1024)) = 3_746_816
  after pooling   c(1,1024,256)                                                             =   262_656
  high branch     c(3,3,32) + c(3,32,32) + c(3,32,64)                                       =    28_768
  fusions         c(3,256,128) + c(1,256,128) + c(3,128,128) + c(1,64,128)                  =   484_352
  classifiers     (256 + 128 + 128)*19 + 3*19                                               =     9_785
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy, interpolate, relu

from profzoo.harness.tasks.segmentation import adapt, sample, thinned

GROUPS = ("segmentation", "classic")
SOURCE = "Zhao et al. 2018, arXiv:1704.08545, figures 2 and 3; parameters derived in the file"
PARAMETERS = 6_707_321
REFERENCE = {
    "parameters": 6_685_775,
    "operations": 218_426_173_440,
    "difference": "its batch norm is folded into biases, and a last convolution makes three colours of 19 classes",
}
SHAPE = {"classes": 19}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "height": 512, "width": 768},
        "inference": {"batch": 2, "height": 512, "width": 768},
    },
    "reference": {
        "train": {"batch": 10, "height": 1024, "width": 1536},
        "inference": {"batch": 5, "height": 1024, "width": 1536},
    },
    "single": {"inference": {"batch": 1, "height": 1024, "width": 1536}},
}
BINS = (1, 2, 3, 6)
LOSS_WEIGHTS = (0.16, 0.4, 1.0)  # Of the quarter, half and full resolution, section 4.4.


def convolution(width: int, inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """A convolution with batch norm."""
    padding = dilation * (width // 2)
    layer = nn.Conv2d(inputs, outputs, width, stride, padding, dilation, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    """A residual block of three convolutions."""

    def __init__(self, inputs: int, middle: int, outputs: int, stride: int = 1, dilation: int = 1) -> None:
        """Maps in, within and out."""
        super().__init__()
        self.reduce = convolution(1, inputs, middle, stride)
        self.convolve = convolution(3, middle, middle, dilation=dilation)
        self.increase = convolution(1, middle, outputs)
        self.shortcut = convolution(1, inputs, outputs, stride) if inputs != outputs else nn.Identity()

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the extent divided by the stride."""
        body = self.increase(relu(self.convolve(relu(self.reduce(maps)))))
        return relu(self.shortcut(maps) + body)


def stage(count: int, inputs: int, middle: int, outputs: int, dilation: int = 1) -> nn.Sequential:
    """Blocks one after the other."""
    rest = (Bottleneck(outputs, middle, outputs, dilation=dilation) for _ in range(count - 1))
    return nn.Sequential(Bottleneck(inputs, middle, outputs, dilation=dilation), *rest)


def narrowing() -> nn.Sequential:
    """Three convolutions of 32, 32 and 64 maps, the first of stride 2."""
    layers = (convolution(3, 3, 32, 2), convolution(3, 32, 32), convolution(3, 32, 64))
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU(inplace=True))))


class Fusion(nn.Module):
    """Cascade feature fusion: enlarges the coarser maps twice and adds the finer ones."""

    def __init__(self, coarse: int, fine: int) -> None:
        """Maps of either branch; 128 come out."""
        super().__init__()
        self.coarse, self.fine = convolution(3, coarse, 128, dilation=2), convolution(1, fine, 128)

    def forward(self, coarse: Tensor, fine: Tensor) -> tuple[Tensor, Tensor]:
        """The joined maps, and the enlarged coarse ones, from which an auxiliary classifier learns."""
        enlarged = resized(coarse, fine.shape[-2:])
        return relu(self.coarse(enlarged) + self.fine(fine)), enlarged


def resized(maps: Tensor, extent: Sequence[int]) -> Tensor:
    """Maps of that extent, interpolated."""
    return interpolate(maps, size=tuple(extent), mode="bilinear", align_corners=True)


class ICNet(nn.Module):
    """From (batch, 3, height, width), multiples of 32, to class scores of every pixel.

    In training: scores at 1/16, 1/8 and 1/4 of the resolution, for the loss of each.
    """

    def __init__(self, classes: int) -> None:
        """Classes of a pixel."""
        super().__init__()
        pool = nn.MaxPool2d(3, 2, padding=1)
        self.medium = nn.Sequential(narrowing(), pool, stage(3, 64, 32, 128), Bottleneck(128, 64, 256, stride=2))
        deep = (stage(3, 256, 64, 256), stage(6, 256, 128, 512, dilation=2), stage(3, 512, 256, 1024, dilation=4))
        self.low = nn.Sequential(*deep)
        self.pooled = convolution(1, 1024, 256)
        layers = (convolution(3, 3, 32, 2), convolution(3, 32, 32, 2), convolution(3, 32, 64, 2))
        self.high = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU(inplace=True))))
        self.fuse_medium, self.fuse_high = Fusion(256, 256), Fusion(128, 64)
        self.classifiers = nn.ModuleList(nn.Conv2d(maps, classes, 1) for maps in (256, 128, 128))

    def forward(self, image: Tensor) -> Tensor | list[Tensor]:
        """Class scores."""
        height, width = image.shape[-2:]
        medium = self.medium(resized(image, (height // 2, width // 2)))
        low = self.low(resized(medium, (height // 32, width // 32)))
        regions = [resized(adaptive_avg_pool2d(low, bins), low.shape[-2:]) for bins in BINS]
        low = relu(self.pooled(torch.stack((low, *regions)).sum(0)))
        medium, low = self.fuse_medium(low, medium)
        high, medium = self.fuse_high(medium, self.high(image))
        high = resized(high, (height // 4, width // 4))
        if self.training:
            return [layer(maps) for layer, maps in zip(self.classifiers, (low, medium, high), strict=True)]
        return resized(self.classifiers[-1](high), (height, width))


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return ICNet(shape.classes)


def loss(outputs: Sequence[Tensor], target: Tensor) -> Tensor:
    """Weighted cross-entropy at each resolution, of the mask thinned out to it."""
    total = outputs[0].new_zeros(())
    for weight, scores in zip(LOSS_WEIGHTS, outputs, strict=True):
        total = total + weight * cross_entropy(scores, thinned(target, scores))
    return total
