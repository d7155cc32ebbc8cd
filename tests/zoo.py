"""Shapes of every model that are small enough for two CPU cores, and the shapes of the outputs."""

from typing import Any

import torch
from torch import nn

from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.harness import inspection, interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import batches, step_loop, training_step

CPU = torch.device("cpu")
IMAGES = {"size": 64, "batch": 2, "classes": 10}
TEXTS = {"vocabulary": 50, "hidden": 32, "layers": 3, "tokens": 8, "batch": 2}
DECODERS = ("llama", "deepseekmoe", "deepseekv2", "qwen3next", "mamba2")
EXPERTS = {"experts": 6, "expert": 16, "chosen": 2}
DECODER = {**TEXTS, "heads": 4, "turned": 4, "generated": 5}
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
    "llama": {**DECODER, "groups": 2, "width": 8, "feed": 64},
    "deepseekmoe": {**DECODER, **EXPERTS, "groups": 4, "width": 8, "feed": 64},
    "deepseekv2": {**DECODER, **EXPERTS, "plain": 8, "width": 8, "rank": 16, "feed": 64},
    "qwen3next": {
        **{**DECODER, **EXPERTS, "layers": 4, "groups": 2, "width": 8},
        **{"sources": 2, "targets": 4, "inner": 8, "outer": 8},
    },
    "whisper": {**TEXTS, "heads": 2, "bands": 4, "frames": 12, "generated": 5},
    "smolvlm": {
        **{**DECODER, "groups": 2, "width": 8, "feed": 64, "size": 64, "joined": 2},
        **{"wide": 16, "deep": 1, "eyes": 2},
    },
    "vit": {**IMAGES, "hidden": 32, "layers": 2, "heads": 2},
    "convnext": {**IMAGES, "depths": [1, 1, 1, 1], "widths": [8, 16, 24, 32]},
    "videoswin": {"frames": 2, "size": 32, "batch": 2, "classes": 10},
    "flux": {
        **{"size": 64, "batch": 2, "channels": 4, "tokens": 3, "text": 8, "vector": 6, "steps": 2},
        **{"hidden": 32, "heads": 2, "double": 1, "single": 1, "axes": [4, 6, 6]},
    },
    "stablediffusion": {
        **{"size": 64, "batch": 2, "width": 32, "widths": [1, 2], "heads": 2, "text": 8, "tokens": 3},
        **{"steps": 2},
    },
    "dlrm": {
        **{"batch": 4, "features": 8, "bottom": [8], "top": [8], "rank": 4, "rows": [9, 5, 3], "chosen": [2, 1, 3]},
        **{"most": 6},
    },
    "rgat": {
        **{"batch": 2, "vertices": 12, "edges": 20, "features": 8, "hidden": 16, "heads": 2, "relations": 2},
        **{"classes": 5},
    },
    "yolov8": {"batch": 2, "size": 64, "classes": 5, "width": 8, "boxes": 2, "most": 30},
    "mamba2": {**TEXTS, "targets": 4, "outer": 16, "inner": 8, "chunk": 3, "generated": 5},
}
# Of every task the models that learn a batch within seconds: in how many steps, and how many times their own rate they
# take for that in so few. Of adversarial ones dped, whose discriminator trains beside it.
LEARNING: dict[str, tuple[int, float]] = {
    **dict.fromkeys(("mobilenetv2", "srcnn", "dped", "unet", "lstm"), (20, 1)),
    "gnmt": (30, 4),
    "pixelrnn": (60, 10),
    "bert": (40, 30),
    **dict.fromkeys(("gpt", *DECODERS), (40, 10)),
    "whisper": (40, 10),
    "smolvlm": (40, 10),
    "vit": (20, 10),
    "convnext": (20, 10),
    "videoswin": (10, 4),
    "rgat": (40, 10),
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
    **dict.fromkeys(("gpt", "whisper", "smolvlm", *DECODERS), (2, 5)),
    "flux": (2, 4, 8, 8),
    "stablediffusion": (2, 4, 8, 8),
    "dlrm": (4, 1),
    "rgat": (2, 12, 5),
    "yolov8": (2, 30, 6),
}


def cell(name: str, phase: str = "train", **more: Any) -> dict[str, Any]:
    """Return a resolved cell with tiny shapes on the CPU; more: further settings of the model."""
    given = {**TINY[name], "warmup": 0, "window": 1, **more}
    checked = config.normalise_config({"settings": {name: given}, "device": "cpu"})
    return settings.resolve_cell(name, phase, "time", checked)


def network(tiny: dict[str, Any]) -> nn.Module:
    """Return the cell's network."""
    return step_loop.make_network(tiny, interface.load_functions(tiny["module"]), CPU, None)


def batch(tiny: dict[str, Any]) -> Any:
    """Return the cell's first batch."""
    return next(batches.iterate_batches(tiny, interface.load_functions(tiny["module"])))


def telling_batch(tiny: dict[str, Any]) -> Any:
    """Return the first batch, with a different class for each image or text if they have one class each."""
    inputs, target = batch(tiny)
    return inputs, torch.arange(len(target)) % tiny["shape"]["classes"] if target.dim() == 1 else target


def trainer(tiny: dict[str, Any], trained: nn.Module) -> training_step.Trainer:
    """Return the trainer that trains the network as the cell does."""
    return training_step.Trainer(tiny, interface.load_functions(tiny["module"]), trained, CPU, Ranges())


def error(trainer: training_step.Trainer, batch: Any) -> float:
    """Return the error of the network's outputs: mean squared error of images, or the model's own loss of classes."""
    inputs, target = batch
    dropping = [module for module in trainer.network.modules() if isinstance(module, nn.Dropout)]
    for module in dropping:
        module.eval()
    with torch.no_grad():
        found = _loss(trainer, trainer.network(inputs), target).item()
    for module in dropping:
        module.train()
    return found


def blind_error(trainer: training_step.Trainer, batch: Any) -> float:
    """Return the error of the best constant output: mean colours, or the frequency of each class."""
    inputs, target = batch
    with torch.no_grad():
        outputs = trainer.network(inputs)
        if target.is_floating_point():
            return _loss(trainer, target.mean((0, 2, 3), keepdim=True).expand_as(outputs), target).item()
        constant = inspection.map_leaves(lambda scores: _frequencies(scores, target), outputs)
        return _loss(trainer, constant, target).item()


def _loss(trainer: training_step.Trainer, outputs: Any, target: torch.Tensor) -> torch.Tensor:
    if target.is_floating_point():
        return nn.functional.mse_loss(outputs, target)
    return trainer.model.loss(outputs, target)


def _frequencies(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return scores from the frequency of each class; for texts, the classes are the last dimension."""
    classes = scores.movedim(-1, 1) if scores.dim() == 3 else scores
    counts = torch.bincount(target[target >= 0].flatten(), minlength=classes.shape[1])
    constant = (counts + 1e-9).log()[None, :, *[None] * (classes.dim() - 2)].expand_as(classes)
    return constant.movedim(1, -1) if scores.dim() == 3 else constant
