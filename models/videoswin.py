"""Video Swin-T: attention within windows of frames and pixels, as torchvision keeps it."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torchvision.models.video import swin3d_t

from models.vit import optimizer
from profzoo.harness.tasks import images

GROUPS = ("video", "transformer", "modern")
SOURCE = "Liu et al. 2021, arXiv:2106.13230, section 3.3; parameters as torchvision counts them for 400 classes"
PARAMETERS = 28_158_070
SHAPE = {"classes": 400}
# The reference has the frames and pixels of the paper.
WORKLOADS = {
    "trimmed": {"train": {"batch": 2, "frames": 8, "size": 112}, "inference": {"batch": 2, "frames": 8, "size": 112}},
    "reference": {
        "train": {"batch": 8, "frames": 32, "size": 224},
        "inference": {"batch": 16, "frames": 32, "size": 224},
    },
}
REFERENCE = {
    "parameters": 28_158_070, "operations": 175_800_000_000,
    "source": "parameters as torchvision lists them, operations as the paper's code does (87.9 G products)",
    "difference": "87.9 is rounded",
}  # fmt: skip


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return swin3d_t(weights=None, num_classes=shape.classes)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, int]:
    """A video (3, frames, size, size) of an image that brightens, and its class."""
    image, light = images.random(shape, generator), torch.linspace(0.5, 1, shape.frames)
    video = torch.stack([images.normalised(image * one, images.IMAGENET) for one in light], dim=1)
    return video, int(torch.randint(shape.classes, (), generator=generator))
