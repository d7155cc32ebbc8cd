"""A small vision transformer (ViT-S/16) as a model of one's own, on which trials are timed (trial_speed.py)."""

from types import SimpleNamespace

from torch import nn
from torchvision.models.vision_transformer import VisionTransformer

from profzoo.harness.tasks.classification import adapt, sample

__all__ = ["SHAPE", "WORKLOADS", "adapt", "build", "sample"]

SHAPE = {"classes": 1000, "size": 224, "patch": 16, "layers": 12, "heads": 6, "width": 384}
WORKLOADS = {"trimmed": {"train": {"batch": 32}, "inference": {"batch": 32}}}


def build(shape: SimpleNamespace) -> nn.Module:
    return VisionTransformer(
        image_size=shape.size,
        patch_size=shape.patch,
        num_layers=shape.layers,
        num_heads=shape.heads,
        hidden_dim=shape.width,
        mlp_dim=4 * shape.width,
        num_classes=shape.classes,
    )
