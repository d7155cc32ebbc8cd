"""ResNet-V2-50: bottleneck blocks, batch norm and ReLU before each convolution, so that the identity stays clear."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from timm.models.resnetv2 import PreActBottleneck, resnetv2_50
from torch import Tensor, nn

from profzoo.harness.tasks.classification import adapt, sample

GROUPS = ("classification", "classic")
SOURCE = "He et al. 2016, arXiv:1603.05027; parameters as Keras Applications lists ResNet50V2 for 1000 classes"
PARAMETERS = 25_613_800
DIFFERENCE = (
    "Keras counts running means and variances of batch norm as well, and has biases in its first convolution "
    "and in those before an addition"
)
REFERENCE = {
    "parameters": 25_570_409,
    "operations": 171_164_522_240,
    "difference": "it has biases in its first convolution and in those before an addition",
}
SHAPE = {"classes": 1000, "strided_last": False}
ORIGINAL = {"classes": 1001, "strided_last": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 224}, "inference": {"batch": 8, "size": 224}},
    "reference": {"train": {"batch": 10, "size": 346, **ORIGINAL}, "inference": {"batch": 10, "size": 346, **ORIGINAL}},
    "single": {"inference": {"batch": 1, "size": 346, **ORIGINAL}},
}


class Halving(nn.Module):
    """A block that also halves the extent of its maps."""

    def __init__(self, block: PreActBottleneck) -> None:
        """block: the same with a stride of 1, whose layers it takes."""
        super().__init__()
        self.block = block
        block.conv2.stride = (2, 2)

    def forward(self, maps: Tensor) -> Tensor:
        """Every second of the maps, with what the block adds."""
        block = self.block
        body = block.conv2(block.norm2(block.conv1(block.norm1(maps))))
        return maps[:, :, ::2, ::2] + block.conv3(block.norm3(body))


def stride_last(network: Any) -> nn.Module:
    """Let the last block of a stage halve the extent instead of the next stage's first, as AI Benchmark's does."""
    for stage, following in pairwise(network.stages):
        first = following.blocks[0]
        first.conv2.stride = first.downsample.conv.stride = (1, 1)
        stage.blocks[-1] = Halving(stage.blocks[-1])
    return network


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    network = resnetv2_50(pretrained=False, num_classes=shape.classes)
    return stride_last(network) if shape.strided_last else network
