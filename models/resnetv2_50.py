"""ResNet-V2-50: bottleneck blocks, batch norm and ReLU before each convolution, so that the identity stays clear."""

from types import SimpleNamespace

from timm.models.resnetv2 import resnetv2_50
from torch import nn

from profzoo.harness.tasks.classification import adapt, sample

GROUPS = ("classification", "classic")
SOURCE = "He et al. 2016, arXiv:1603.05027; parameters as Keras Applications lists ResNet50V2 for 1000 classes"
PARAMETERS = 25_613_800
DIFFERENCE = (
    "Keras counts running means and variances of batch norm as well, and has biases in its first convolution "
    "and in those before an addition"
)
SHAPE = {"classes": 1000}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 8, "size": 224},
        "inference": {"batch": 8, "size": 224},
    },
    "reference": {
        "train": {"batch": 10, "size": 346, "classes": 1001},
        "inference": {"batch": 10, "size": 346, "classes": 1001},
    },
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return resnetv2_50(pretrained=False, num_classes=shape.classes)
