"""ViT-S/16 of timm."""

from types import SimpleNamespace

import timm
from torch import nn

from profzoo.harness.tasks.classification import adapt, sample

__all__ = ["SHAPE", "WORKLOADS", "adapt", "build", "sample"]

SHAPE = {"size": 224, "classes": 1000}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}


def build(shape: SimpleNamespace) -> nn.Module:
    return timm.create_model("vit_small_patch16_224", img_size=shape.size, num_classes=shape.classes)
