"""DeepLab-V3 on ResNet-50: dilated convolutions at several rates, and an auxiliary head."""

from collections.abc import Mapping
from types import SimpleNamespace

from torch import Tensor, nn
from torchvision.models.segmentation import deeplabv3_resnet50

from profzoo.harness.tasks.segmentation import adapt, sample, with_auxiliary

GROUPS = ("segmentation", "classic")
SOURCE = "Chen et al. 2017, arXiv:1706.05587, figure 5; parameters as torchvision lists them, auxiliary head included"
PARAMETERS = 42_004_074
SHAPE = {"classes": 21}
# AI Benchmark trains with one image, over whose single pooled pixel batch norm is not defined: here there are two.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "size": 256},
        "inference": {"batch": 2, "size": 256},
    },
    "reference": {
        "train": {"batch": 2, "size": 384},
        "inference": {"batch": 2, "size": 512},
    },
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=shape.classes, aux_loss=True)


def loss(outputs: Mapping[str, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy of the pixels, with weight 0.5 for the auxiliary head, as torchvision trains it."""
    return with_auxiliary(outputs["out"], outputs["aux"], target, 0.5)


def infer(network: nn.Module, image: Tensor) -> Tensor:
    """Class scores (batch, classes, size, size)."""
    return network(image)["out"]
