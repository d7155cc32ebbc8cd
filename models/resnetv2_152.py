"""ResNet-V2-152: as ResNet-V2-50, with 3, 8, 36 and 3 blocks in its four stages."""

from types import SimpleNamespace

import torch
from timm.models.resnetv2 import resnetv2_152
from torch import nn

from profzoo.harness.tasks.classification import adapt, sample

GROUPS = ("classification", "classic")
SOURCE = "He et al. 2016, arXiv:1603.05027; parameters as Keras Applications lists ResNet152V2 for 1000 classes"
PARAMETERS = 60_380_648
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
        "train": {"batch": 10, "size": 256, "classes": 1001},
        "inference": {"batch": 10, "size": 256, "classes": 1001},
    },
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights.

    Each of its blocks adds to what it is given. Until batch norm has seen data, sums over all blocks would exceed the
    range of fp16, unless each block adds less the more of them there are.
    """
    network = resnetv2_152(pretrained=False, num_classes=shape.classes)
    last = [module.conv3 for module in network.modules() if hasattr(module, "conv3")]
    with torch.no_grad():
        for convolution in last:
            convolution.weight *= len(last) ** -0.5
    return network
