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
from torch.nn.functional import interpolate
from torchvision.models import resnet50
from torchvision.models._utils import IntermediateLayerGetter

from profzoo.harness.tasks.segmentation import adapt, sample, with_auxiliary

GROUPS = ("segmentation", "classic")
SOURCE = "Zhao et al. 2017, arXiv:1612.01105, figure 3; parameters derived in the file"
PARAMETERS = 48_957_802
SHAPE = {"classes": 21}
# AI Benchmark trains with one image, over whose single pooled pixel batch norm is not defined: here there are two.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "size": 256},
        "inference": {"batch": 2, "size": 256},
    },
    "reference": {
        "train": {"batch": 2, "size": 512},
        "inference": {"batch": 5, "size": 720},
    },
}
BINS = (1, 2, 3, 6)


def convolution(inputs: int, outputs: int, width: int) -> nn.Sequential:
    """A convolution with batch norm and ReLU."""
    layer = nn.Conv2d(inputs, outputs, width, padding=width // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class PSPNet(nn.Module):
    """From (batch, 3, size, size) to class scores (batch, classes, size, size); in training also the auxiliary ones."""

    def __init__(self, classes: int) -> None:
        """Classes of a pixel."""
        super().__init__()
        dilated = resnet50(weights=None, replace_stride_with_dilation=[False, True, True])
        self.backbone = IntermediateLayerGetter(dilated, {"layer3": "early", "layer4": "late"})
        self.pyramid = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(n), convolution(2048, 512, 1)) for n in BINS)
        self.head = nn.Sequential(convolution(4096, 512, 3), nn.Dropout2d(0.1), nn.Conv2d(512, classes, 1))
        self.auxiliary = nn.Sequential(convolution(1024, 256, 3), nn.Dropout2d(0.1), nn.Conv2d(256, classes, 1))

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Class scores of every pixel."""
        maps = self.backbone(image)
        late, extent = maps["late"], image.shape[-2:]
        regions = [self._enlarged(branch(late), late.shape[-2:]) for branch in self.pyramid]
        scores = self._enlarged(self.head(torch.cat((late, *regions), dim=1)), extent)
        return (scores, self._enlarged(self.auxiliary(maps["early"]), extent)) if self.training else scores

    @staticmethod
    def _enlarged(maps: Tensor, extent: torch.Size) -> Tensor:
        return interpolate(maps, size=extent, mode="bilinear", align_corners=False)


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return PSPNet(shape.classes)


def loss(outputs: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy of the pixels, with weight 0.4 for the auxiliary head (section 3.3)."""
    return with_auxiliary(*outputs, target, 0.4)
