"""Shapes of every model small enough for two CPU cores, and what comes out of them."""

from typing import Any

import torch
from torch import nn

from models.harness import data, interface, loop, settings
from models.harness.ranges import Ranges
from workflow.scripts.lib import config

CPU = torch.device("cpu")
IMAGES = {"size": 64, "batch": 2, "classes": 10}
TEXTS = {"vocabulary": 50, "hidden": 32, "layers": 3, "tokens": 8, "batch": 2}
TINY: dict[str, dict[str, Any]] = {
    "mobilenetv2": {**IMAGES, "batch": 4},
    "inceptionv3": {**IMAGES, "size": 75, "auxiliary": False},
    "inceptionv4": {**IMAGES, "size": 75},
    "inceptionresnetv2": {**IMAGES, "size": 75},
    "resnetv2_50": IMAGES,
    "resnetv2_152": IMAGES,
    "vgg16": {**IMAGES, "size": 32},
    "vgg19": {**IMAGES, "size": 32},
    "srcnn": {"size": 32, "batch": 2},
    "srgan": {"size": 32, "batch": 2},
    "dped": {"size": 32, "batch": 2},
    "unet": {"size": 32, "batch": 1},
    "spade": {"size": 32, "batch": 2, "classes": 5, "filters": 8},
    "icnet": {"height": 64, "width": 96, "batch": 2},
    "pspnet": {"size": 64, "batch": 2},
    "deeplab": {"size": 64, "batch": 2},
    "pixelrnn": {"size": 8, "batch": 2, "hidden": 8, "layers": 2},
    "lstm": {"sequence_length": 16, "batch": 4},
    "gnmt": {**TEXTS, "beams": 3},
    "bert": {**TEXTS, "heads": 2},
    "gpt": {**TEXTS, "heads": 2, "generated": 5},
}
OUTPUTS = {
    **{name: (2, 10) for name, shape in TINY.items() if shape.get("classes") == 10},
    "mobilenetv2": (4, 10),
    "srcnn": (2, 1, 32, 32),
    "srgan": (2, 3, 32, 32),
    "dped": (2, 3, 32, 32),
    "unet": (1, 2, 32, 32),
    "spade": (2, 3, 32, 32),
    "icnet": (2, 19, 64, 96),
    "pspnet": (2, 21, 64, 64),
    "deeplab": (2, 21, 64, 64),
    "pixelrnn": (2, 256, 8, 8),
    "lstm": (4, 2),
    "gnmt": (2, 8),
    "bert": (2, 8, 50),
    "gpt": (2, 5),
}


def cell(name: str, phase: str = "train", **more: Any) -> dict[str, Any]:
    """A resolved cell of tiny shapes on the CPU; more: further settings of the model."""
    given = {**TINY[name], "warmup": 0, "window": 1, **more}
    checked = config.normalise({"settings": {name: given}, "device": "cpu"})
    return settings.resolve(name, phase, "time", checked)


def network(tiny: dict[str, Any]) -> nn.Module:
    """The cell's network."""
    return loop.network_of(tiny, interface.load(tiny["module"]), CPU, None)


def batch(tiny: dict[str, Any]) -> Any:
    """The cell's first batch."""
    return next(data.batches(tiny, interface.load(tiny["module"])))


def trainer(tiny: dict[str, Any], trained: nn.Module) -> loop.Trainer:
    """What trains the network as the cell does."""
    return loop.Trainer(tiny, interface.load(tiny["module"]), trained, CPU, Ranges())
