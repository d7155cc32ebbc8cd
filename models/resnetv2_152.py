"""ResNet-V2-152: as ResNet-V2-50, with 3, 8, 36 and 3 blocks in its four stages."""

from types import SimpleNamespace

from timm.models.resnetv2 import resnetv2_152
from torch import nn

from models.resnetv2_50 import stride_last
from profzoo.harness.tasks.classification import adapt, sample, shrink_blocks

GROUPS = ("classification", "classic")
SOURCE = "He et al. 2016, arXiv:1603.05027; parameters as Keras Applications lists ResNet152V2 for 1000 classes"
PARAMETERS = 60_380_648
DIFFERENCE = (
    "Keras counts running means and variances of batch norm as well, and has biases in its first convolution "
    "and in those before an addition"
)
REFERENCE = {
    "parameters": 60_238_953,
    "operations": 284_897_157_120,
    "difference": "it has biases in its first convolution and in those before an addition",
}
SHAPE = {"classes": 1000, "strided_last": False}
ORIGINAL = {"classes": 1001, "strided_last": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 224}, "inference": {"batch": 8, "size": 224}},
    "reference": {"train": {"batch": 10, "size": 256, **ORIGINAL}, "inference": {"batch": 10, "size": 256, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 256, **ORIGINAL}},
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    network = shrink_blocks(resnetv2_152(pretrained=False, num_classes=shape.classes))
    return stride_last(network) if shape.strided_last else network
