"""VGG-16: thirteen 3x3 convolutions and three wide linear layers, which hold most of the weights."""

from collections.abc import Iterable
from types import SimpleNamespace

import torch
from torch import nn
from torchvision.models import vgg16

from profzoo.harness.tasks.classification import adapt, sample

GROUPS = ("classification", "classic")
SOURCE = "Simonyan and Zisserman 2014, arXiv:1409.1556, table 1 column D; parameters as torchvision counts them"
PARAMETERS = 138_357_544
REFERENCE = {"parameters": 138_357_544, "operations": 618_810_572_800}
SHAPE = {"classes": 1000}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 224}, "inference": {"batch": 8, "size": 224}},
    "reference": {"train": {"batch": 2, "size": 224}, "inference": {"batch": 20, "size": 224}},
    "single": {"inference": {"batch": 1, "size": 224}},
}


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return vgg16(weights=None, num_classes=shape.classes)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Stochastic gradient descent as in the paper, section 3.1, at a tenth of the rate, as suits small batches."""
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=5e-4)
