"""DeepLab: dilated convolutions at several rates; V3 on ResNet-50 with an auxiliary head, or V2 on ResNet-101."""

from collections.abc import Mapping
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchvision.models import resnet101
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.segmentation import deeplabv3_resnet50

from models.pspnet import stride_first
from profzoo.harness.tasks.classification import shrink_blocks
from profzoo.harness.tasks.segmentation import adapt, sample, thinned, with_auxiliary

GROUPS = ("segmentation", "classic")
SOURCE = "Chen et al. 2017, arXiv:1706.05587, figure 5; parameters as torchvision lists them, auxiliary head included"
PARAMETERS = 42_004_074
REFERENCE = {
    "parameters": 42_721_356,
    "operations": 711_781_089_280,
    "difference": "its dilated convolutions also compute padding",
}
SHAPE = {"classes": 21, "version": 3}
ORIGINAL = {"classes": 3, "version": 2}
# V3 cannot train with one image: batch norm is not defined over its single pooled pixel.
WORKLOADS = {
    "trimmed": {"train": {"batch": 2, "size": 256}, "inference": {"batch": 2, "size": 256}},
    "reference": {"train": {"batch": 1, "size": 384, **ORIGINAL}, "inference": {"batch": 2, "size": 512, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 512, **ORIGINAL}},
}


class DeepLabV2(nn.Module):
    """From (batch, 3, size, size) to class scores of an eighth of the extent (Chen et al. 2016, arXiv:1606.00915)."""

    def __init__(self, classes: int) -> None:
        """Classes of a pixel."""
        super().__init__()
        backbone = shrink_blocks(resnet101(weights=None, replace_stride_with_dilation=[False, True, True]))
        self.backbone = IntermediateLayerGetter(stride_first(backbone), {"layer4": "late"})
        rates = (6, 12, 18, 24)
        self.heads = nn.ModuleList(nn.Conv2d(2048, classes, 3, padding=rate, dilation=rate) for rate in rates)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """The sum of the scores at all rates."""
        late = self.backbone(image)["late"]
        return {"out": torch.stack([head(late) for head in self.heads]).sum(0)}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    if shape.version == 2:
        return DeepLabV2(shape.classes)
    return deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=shape.classes, aux_loss=True)


def loss(outputs: Mapping[str, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy of the pixels, with weight 0.5 for an auxiliary head, as torchvision trains it."""
    if "aux" not in outputs:
        return cross_entropy(outputs["out"], thinned(target, outputs["out"]))
    return with_auxiliary(outputs["out"], outputs["aux"], target, 0.5)


def infer(network: nn.Module, image: Tensor) -> Tensor:
    """Class scores (batch, classes, size, size), of V2 an eighth as high and wide."""
    return network(image)["out"]
