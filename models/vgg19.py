"""VGG-19: sixteen 3x3 convolutions and three wide linear layers.

AI Benchmark runs a network like it for super-resolution; the reference workload has that one's batches and sizes.
"""

from types import SimpleNamespace

from torch import nn
from torchvision.models import vgg19

from models.vgg16 import optimizer
from profzoo.harness.tasks.classification import adapt, sample

GROUPS = ("classification", "classic")
SOURCE = "Simonyan and Zisserman 2014, arXiv:1409.1556, table 1 column E; parameters as torchvision counts them"
PARAMETERS = 143_667_240
SHAPE = {"classes": 1000}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 8, "size": 224},
        "inference": {"batch": 8, "size": 224},
    },
    "reference": {
        "train": {"batch": 10, "size": 224},
        "inference": {"batch": 10, "size": 256},
    },
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return vgg19(weights=None, num_classes=shape.classes)
