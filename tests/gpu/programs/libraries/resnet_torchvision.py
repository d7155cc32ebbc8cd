"""ResNet-50 of torchvision."""

from types import SimpleNamespace

from torch import nn
from torchvision.models import resnet50

from profzoo.harness.tasks.classification import adapt, sample

__all__ = ["SHAPE", "WORKLOADS", "adapt", "build", "sample"]

SHAPE = {"size": 224, "classes": 1000}
WORKLOADS = {"trimmed": {"train": {"batch": 64}}}


def build(shape: SimpleNamespace) -> nn.Module:
    return resnet50(num_classes=shape.classes)
