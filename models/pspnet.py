"""PSPNet on ResNet-50: a dilated backbone whose maps are joined by averages over 1, 4, 9 and 36 regions.

Parameters, with 21 classes:
  ResNet-50 without its classifier                                        = 23_508_032
  pyramid      4*(2048*512 + 2*512)                                       =  4_198_400
  head         9*4096*512 + 2*512 + 512*21 + 21                           = 18_886_165
  auxiliary    9*1024*256 + 2*256 + 256*21 + 21                           =  2_365_205
"""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate
from torchvision.models import ResNet, resnet50
from torchvision.models._utils import IntermediateLayerGetter

from profzoo.harness.tasks.segmentation import adapt, sample, thinned, with_auxiliary

GROUPS = ("segmentation", "classic")
SOURCE = "Zhao et al. 2017, arXiv:1612.01105, figure 3; parameters derived in the file"
PARAMETERS = 48_957_802
REFERENCE = {
    "parameters": 46_707_139,
    "operations": 3_658_878_832_640,
    "difference": "its dilated convolutions also compute padding",
}
SHAPE = {"classes": 21, "auxiliary": True, "deep_stem": False, "enlarged": True}
ORIGINAL = {"classes": 3, "auxiliary": False, "deep_stem": True, "enlarged": False}
# AI Benchmark trains with one image, over whose single pooled pixel batch norm is not defined: here there are two.
WORKLOADS = {
    "trimmed": {"train": {"batch": 2, "size": 256}, "inference": {"batch": 2, "size": 256}},
    "reference": {"train": {"batch": 2, "size": 512, **ORIGINAL}, "inference": {"batch": 5, "size": 720, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 720, **ORIGINAL}},
}
BINS = (1, 2, 3, 6)


def convolution(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Sequential:
    """A convolution with batch norm and ReLU."""
    layer = nn.Conv2d(inputs, outputs, width, stride, padding=width // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def stride_first(backbone: ResNet) -> ResNet:
    """Let the first convolution of a block halve the extent instead of its second, as in He et al. 2015."""
    block = backbone.layer2[0]
    block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
    return backbone


def deepen_stem(backbone: ResNet) -> ResNet:
    """Put three 3x3 convolutions in place of the first one of 7x7."""
    first, last = convolution(3, 64, 3, stride=2), nn.Conv2d(64, 128, 3, padding=1, bias=False)
    backbone.conv1, backbone.bn1 = nn.Sequential(first, convolution(64, 64, 3), last), nn.BatchNorm2d(128)
    block = backbone.layer1[0]
    block.conv1, block.downsample[0] = (nn.Conv2d(128, maps, 1, bias=False) for maps in (64, 256))
    return stride_first(backbone)


class PSPNet(nn.Module):
    """From (batch, 3, size, size) to class scores (batch, classes, size, size); in training also the auxiliary ones."""

    def __init__(self, classes: int, auxiliary: bool, deep_stem: bool, enlarged: bool) -> None:
        """Classes of a pixel; enlarged: scores have the size of the image instead of an eighth."""
        super().__init__()
        dilated = resnet50(weights=None, replace_stride_with_dilation=[False, True, True])
        dilated = deepen_stem(dilated) if deep_stem else dilated
        self.enlarged = enlarged
        self.backbone = IntermediateLayerGetter(dilated, {"layer3": "early", "layer4": "late"})
        self.pyramid = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(n), convolution(2048, 512, 1)) for n in BINS)
        self.head = nn.Sequential(convolution(4096, 512, 3), nn.Dropout2d(0.1), nn.Conv2d(512, classes, 1))
        if auxiliary:
            self.auxiliary = nn.Sequential(convolution(1024, 256, 3), nn.Dropout2d(0.1), nn.Conv2d(256, classes, 1))

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Class scores of every pixel."""
        maps = self.backbone(image)
        late = maps["late"]
        extent = image.shape[-2:] if self.enlarged else late.shape[-2:]
        regions = [self._resized(branch(late), late.shape[-2:]) for branch in self.pyramid]
        scores = self._resized(self.head(torch.cat((late, *regions), dim=1)), extent)
        if not self.training or not hasattr(self, "auxiliary"):
            return scores
        return scores, self._resized(self.auxiliary(maps["early"]), extent)

    @staticmethod
    def _resized(maps: Tensor, extent: torch.Size) -> Tensor:
        return maps if maps.shape[-2:] == extent else interpolate(maps, size=extent, mode="bilinear")


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return PSPNet(shape.classes, shape.auxiliary, shape.deep_stem, shape.enlarged)


def loss(outputs: Tensor | tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy of the pixels, with weight 0.4 for an auxiliary head (section 3.3)."""
    if isinstance(outputs, Tensor):
        return cross_entropy(outputs, thinned(target, outputs))
    return with_auxiliary(*outputs, target, 0.4)
