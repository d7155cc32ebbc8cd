"""ConvNeXt-T: depthwise convolutions of 7 by 7, layer norms and linear layers in four stages, as timm keeps it."""

from types import SimpleNamespace

from timm.models.convnext import ConvNeXt
from torch import nn

from models.vit import optimizer
from profzoo.harness.tasks.classification import adapt, sample

GROUPS = ("classification", "modern")
SOURCE = "Liu et al. 2022, arXiv:2201.03545, section 2; parameters as torchvision counts them for 1000 classes"
PARAMETERS = 28_589_128
SHAPE = {"classes": 1000, "depths": [3, 3, 9, 3], "widths": [96, 192, 384, 768]}
# As of vit.
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 224}, "inference": {"batch": 8, "size": 224}},
    "reference": {"train": {"batch": 128, "size": 224}, "inference": {"batch": 128, "size": 224}},
}
REFERENCE = {
    "parameters": 28_589_128, "operations": 8_912_000_000,
    "source": "both as torchvision lists them (4.456 G products)",
    "difference": "4.456 is rounded",
}  # fmt: skip


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights; training passes by a tenth of the last block's calls, of others less."""
    return ConvNeXt(num_classes=shape.classes, depths=tuple(shape.depths), dims=tuple(shape.widths), drop_path_rate=0.1)
