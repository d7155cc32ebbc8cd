"""Vision Transformer ViT-B/16: patches of 16 pixels are the tokens of twelve blocks, as timm keeps it."""

from collections.abc import Iterable
from types import SimpleNamespace

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from profzoo.harness.interface import Stages
from profzoo.harness.tasks.classification import symmetric_adapt as adapt
from profzoo.harness.tasks.classification import symmetric_sample as sample

GROUPS = ("classification", "transformer", "modern")
SOURCE = "Dosovitskiy et al. 2020, arXiv:2010.11929, table 1; parameters as torchvision counts them for 1000 classes"
PARAMETERS = 86_567_656
SHAPE = {"classes": 1000, "patch": 16, "hidden": 768, "layers": 12, "heads": 12}
# The reference is made for a GPU of 80 GB.
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 224}, "inference": {"batch": 8, "size": 224}},
    "reference": {"train": {"batch": 128, "size": 224}, "inference": {"batch": 128, "size": 224}},
}
REFERENCE = {
    "parameters": 86_567_656, "operations": 35_128_000_000,
    "source": "both as torchvision lists them (17.564 G products)",
    "difference": "17.564 is rounded",
}  # fmt: skip


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    sizes = {"embed_dim": shape.hidden, "depth": shape.layers, "num_heads": shape.heads}
    return VisionTransformer(shape.size, shape.patch, num_classes=shape.classes, **sizes)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with weight decay, as is usual for transformers of images (Touvron et al. 2020, arXiv:2012.12877)."""
    return torch.optim.AdamW(parameters, lr=5e-4, weight_decay=0.05)


def stages(network: VisionTransformer) -> Stages:
    """Patches as tokens, blocks, and classes."""

    def first(images: Tensor) -> Tensor:
        return network.norm_pre(network.patch_drop(network._pos_embed(network.patch_embed(images))))

    return Stages(
        first=first,
        last=lambda flow: network.forward_head(network.norm(flow)),
        blocks=network.blocks,
        before=[network.patch_embed, *map(network.get_parameter, ("cls_token", "pos_embed")), network.norm_pre],
        after=[network.norm, network.fc_norm, network.head],
    )
