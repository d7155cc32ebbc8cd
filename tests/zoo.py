"""Shapes of every model that are small enough for two CPU cores, and the shapes of the outputs."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import nn
from torchvision.ops import box_iou

from models import stablediffusion
from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.harness import inspection, interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import batches, step_loop, training_step
from profzoo.harness.tasks import tokens
from profzoo.harness.tasks.diffusion import CLOCK

CPU = torch.device("cpu")
IMAGES = {"size": 64, "batch": 2, "classes": 10}
# Words that texts to be learnt are made of, and the first seed of what training does not see.
FIRST_WORD, WORDS, HELD_OUT = 5, 8, 1000
TEXTS = {"vocabulary": 50, "hidden": 32, "layers": 3, "tokens": 8, "batch": 2}
DECODERS = ("llama", "deepseekmoe", "deepseekv2", "qwen3next", "mamba2")
EXPERTS = {"experts": 6, "expert": 16, "chosen": 2}
DECODER = {**TEXTS, "heads": 4, "turned": 4, "generated": 5}
TINY: dict[str, dict[str, Any]] = {
    "mobilenetv2": {**IMAGES, "batch": 4},
    "inceptionv3": {**IMAGES, "size": 75, "auxiliary": False},
    **{key: {**IMAGES, "size": 75} for key in ("inceptionv4", "inceptionresnetv2")},
    **dict.fromkeys(("resnetv2_50", "resnetv2_152"), IMAGES),
    **{key: {**IMAGES, "size": 32} for key in ("vgg16", "vgg19")},
    **{key: {"size": 32, "batch": 2} for key in ("srcnn", "srgan", "dped")},
    "unet": {"size": 32, "batch": 1},
    "spade": {"size": 32, "batch": 2, "classes": 5, "filters": 8},
    "icnet": {"height": 64, "width": 96, "batch": 2},
    **{key: {"size": 64, "batch": 2} for key in ("pspnet", "deeplab")},
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
        **{"batch": 4, "history": 6, "candidates": 3, "items": 20, "users": 5, "kinds": 4, "actions": 2, "hidden": 8},
        **{"inner": 4, "layers": 2, "heads": 2, "width": 4, "places": 6, "times": 9},
    },
    "rgat": {
        **{"batch": 2, "vertices": 12, "edges": 20, "features": 8, "hidden": 16, "heads": 2, "relations": 2},
        **{"classes": 5},
    },
    "yolov8": {"batch": 2, "size": 64, "classes": 5, "width": 8, "boxes": 2, "most": 30},
    "mamba2": {**TEXTS, "targets": 4, "outer": 16, "inner": 8, "chunk": 3, "generated": 5},
}
# In how many steps a model learns what it did not see, how many times its own rate it takes for that in so few, and by
# what shapes it is quick.
LEARNING: dict[str, tuple[int, float, dict[str, Any]]] = {
    "lstm": (20, 10, {"batch": 16, "sequence_length": 4}),
    "gpt": (60, 10, {"batch": 8}),
    "bert": (60, 30, {"batch": 16}),
    "gnmt": (30, 4, {"batch": 8}),
    "pixelrnn": (60, 10, {"batch": 8, "levels": 4}),
    "srcnn": (20, 1, {"size": 16}),
    "unet": (8, 1, {"size": 16, "batch": 4}),
    "mobilenetv2": (20, 3, {"size": 32, "batch": 16, "classes": 3}),
    # Without batch norm they need the rate of their paper, which is ten times the zoo's.
    "vgg16": (20, 10, {"batch": 8, "classes": 3}),
    "vgg19": (26, 10, {"batch": 8, "classes": 3}),
    # Batch norm of maps of one pixel takes its moments from the samples alone, and six are too few.
    "inceptionv3": (12, 1, {"batch": 12, "classes": 3}),
    "inceptionv4": (16, 1, {"batch": 12, "classes": 3}),
    "inceptionresnetv2": (8, 1, {"batch": 6, "classes": 3}),
    "resnetv2_50": (8, 1, {"size": 32, "batch": 6, "classes": 3}),
    "resnetv2_152": (5, 1, {"size": 32, "batch": 6, "classes": 3}),
    "deeplab": (16, 1, {"batch": 4, "classes": 3}),
    "pspnet": (14, 1, {"batch": 4, "classes": 3}),
    "icnet": (60, 1, {"batch": 4, "classes": 3}),
    "dped": (20, 1, {}),
    "srgan": (40, 3, {"batch": 8}),
    "spade": (6, 10, {"batch": 4}),
    **dict.fromkeys(DECODERS, (60, 10, {"batch": 8})),
    **dict.fromkeys(("whisper", "smolvlm"), (40, 10, {"batch": 8})),
    **dict.fromkeys(("vit", "convnext"), (20, 10, {"size": 32, "batch": 8, "classes": 3})),
    "videoswin": (8, 1, {"batch": 6, "classes": 3}),
    "rgat": (60, 3, {"batch": 8}),
    "dlrm": (20, 10, {"batch": 8}),
    "flux": (20, 10, {"batch": 8}),
    "stablediffusion": (10, 3, {}),
    "yolov8": (80, 5, {"batch": 8, "classes": 3, "boxes": 1}),
}
# Those whose learning takes a second or two.
QUICK = ("lstm", "gpt", "bert", "gnmt", "pixelrnn", "srcnn", "llama", "vit", "dlrm", "flux", "stablediffusion")
OUTPUTS = {
    **{name: (2, 10) for name, shape in TINY.items() if shape.get("classes") == 10},
    "mobilenetv2": (4, 10),
    "srcnn": (2, 1, 32, 32),
    **dict.fromkeys(("srgan", "dped", "spade"), (2, 3, 32, 32)),
    "unet": (1, 2, 32, 32),
    "icnet": (2, 19, 64, 96),
    **dict.fromkeys(("pspnet", "deeplab"), (2, 21, 64, 64)),
    "pixelrnn": (2, 256, 8, 8),
    "lstm": (4, 2),
    "gnmt": (2, 8),
    "bert": (2, 8, 50),
    **dict.fromkeys(("gpt", "whisper", "smolvlm", *DECODERS), (2, 5)),
    **dict.fromkeys(("flux", "stablediffusion"), (2, 4, 8, 8)),
    "dlrm": (4, 3),
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


def signal(tiny: dict[str, Any], seed: int) -> Any:
    """Return a batch whose targets can be learnt of its inputs: another one of the same kind for each seed.

    Where the model's own samples have classes or words at random, they are a function of colours, vectors or words.
    """
    model, shape = interface.load_functions(tiny["module"]), SimpleNamespace(**tiny["shape"])
    generator = torch.Generator().manual_seed(seed)
    samples = [_telling(model.sample(shape, generator), shape, generator) for _ in range(tiny["batch"])]
    return (model.collate or torch.utils.data.default_collate)(samples)


def _telling(sample: Any, shape: Any, generator: torch.Generator) -> Any:
    inputs, target = sample
    word = FIRST_WORD + int(torch.randint(WORDS, (), generator=generator))
    form = tokens.find_form(sample)
    if form and form.kind == "continued":
        return torch.full_like(inputs, word), torch.full_like(target, word)
    if form and form.kind == "masked":
        told = target != tokens.IGNORED
        return torch.full_like(inputs, word).masked_fill(told, tokens.MASK), target.masked_fill(told, word)
    if form and form.kind == "translated":
        # What is already written does not tell the rest.
        return (torch.full_like(inputs[0], word), torch.ones_like(inputs[1])), torch.full_like(target, word + 1)
    if isinstance(inputs, tuple) and isinstance(target, torch.Tensor) and target.is_floating_point():
        first, time, *rest = inputs
        # The image is empty, so that all that is seen is the noise, which is looked for itself where no direction is.
        if len(rest) == 1:
            return ((1 - stablediffusion.LEFT[round(CLOCK * time.item())]) ** 0.5 * target, time, *rest), target
        noise = first + (1 - time) * target
        return (time * noise, time, *rest), noise
    if isinstance(inputs, tuple) and len(inputs) == 5:
        # Users click on each candidate that is the second item.
        inputs[1][-len(target) :] = target
        return inputs, target
    if isinstance(inputs, tuple) and inputs[0].is_floating_point() and not isinstance(target, int):
        # An image or a sound tells the words of its text, and features tell the class of all vertices.
        kind, words = int(torch.randint(3, (), generator=generator)), target.shape == inputs[1].shape
        inputs[0][kind if words else (slice(None), kind)] += 2
        given = torch.ones_like(inputs[1]) if words else inputs[1]
        return (inputs[0], given), torch.full_like(target, FIRST_WORD + kind if words else kind)
    if isinstance(target, int):
        kind = int(torch.randint(min(shape.classes, 3), (), generator=generator))
        if isinstance(inputs, tuple):
            inputs[0][:, kind] += 2
        else:
            inputs[kind] += 2
        return inputs, kind
    if inputs.dtype == torch.int64 and target.is_floating_point():
        # Classes tell all colours of an image.
        return inputs, target[:1].expand_as(target)
    if target.is_floating_point() and target.dim() == 2:
        # Boxes have the colours of their classes.
        target[:, 2:4] = (target[:, 2:4] + 10).clamp(max=shape.size)
        inputs *= 0.3
        for left, top, right, bottom, kind in target.int().tolist():
            inputs[kind, top:bottom, left:right] += 2
        return inputs, target
    if target.dim() == 2 and inputs.dim() == 3 and len(inputs) == 3:
        # Each half of an image has a colour that tells its class.
        for half, part in zip(inputs.chunk(2, dim=2), target.chunk(2, dim=1), strict=True):
            kind = int(torch.randint(3, (), generator=generator))
            half[kind] += 2
            part.fill_(kind)
    return sample


def trainer(tiny: dict[str, Any], trained: nn.Module) -> training_step.Trainer:
    """Return the trainer that trains the network as the cell does."""
    return training_step.Trainer(tiny, interface.load_functions(tiny["module"]), trained, CPU, Ranges())


class Fault(NamedTuple):
    """How a loss is broken: by what it sees of outputs and targets, and its sign. Nothing is broken by default."""

    outputs: Callable[[Any], Any] = lambda made: made
    target: Callable[[Any], Any] = lambda target: target
    sign: int = 1


RIGHT = Fault()
FAULTS = {
    "detached": Fault(outputs=lambda made: made.detach().requires_grad_()),
    "shuffled targets": Fault(target=lambda target: target.roll(1, 0)),
    "sign flipped": Fault(sign=-1),
    "wrong axis": Fault(outputs=lambda made: made.transpose(-1, -2).reshape(made.shape)),
}


def learnt(name: str, fault: Fault = RIGHT) -> float:
    """Train a model on a new batch in each step, and return what share is left of the error that a blind answer has.

    The error is of samples that training did not see. Errors are computed here and not by the model's loss, which may
    be wrong. A blind answer is the best one without a look at the input.
    """
    # Threads that wait for each other would take most of the time of networks so small.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _learnt(*LEARNING[name][:2], cell(name, **LEARNING[name][2]), fault)
    finally:
        torch.set_num_threads(threads)


def _learnt(steps: int, times: float, tiny: dict[str, Any], fault: Fault) -> float:
    trained = network(tiny)
    made, seen = trainer(tiny, trained), trained.register_forward_hook(lambda *known: fault.outputs(known[-1]))
    own, update = made.optimizers[0], made.update
    own.param_groups[0]["lr"] *= times
    # A discriminator learns by a right loss nevertheless.
    made.update = lambda loss, *several: update(fault.sign * loss if own in several else loss, *several)
    step = made.model.training_step or training_step.run_training_step
    for seed in range(1, steps + 1):
        inputs, target = signal(tiny, seed)
        step(made, (inputs, fault.target(target)))
    seen.remove()
    for module in trained.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    unseen = [signal(tiny, HELD_OUT + number) for number in range(2)]
    with torch.no_grad():
        if hasattr(trained, "detect"):
            found = [boxes for inputs, _ in unseen for boxes in trained.detect(inputs)]
            return _missed(found, torch.cat([boxes for _, boxes in unseen]))
        scores = [next(iter(inspection.find_tensors(trained(inputs)))) for inputs, _ in unseen]
    return _share(torch.cat(scores), torch.cat([target for _, target in unseen]))


def _missed(found: list[torch.Tensor], boxes: torch.Tensor) -> float:
    """Return the share of images whose likeliest box is not about that of the image, or has another class."""
    right = [
        len(one) > 0 and bool(one[0, 5] == box[4] and box_iou(one[:1, :4], box[None, :4]) > 0.5)
        for one, (box,) in zip(found, boxes, strict=True)
    ]
    return 1 - sum(right) / len(right)


def _share(scores: torch.Tensor, target: torch.Tensor) -> float:
    """Return the error of scores or images over that of mean colours, or of the frequency of each class."""
    if target.shape == scores.shape and target.dim() == 2:
        target = target.to(scores.dtype)
        blind = target.mean().expand_as(target)
        told = nn.functional.binary_cross_entropy_with_logits(scores, target)
        return (told / nn.functional.binary_cross_entropy(blind, target)).item()
    if target.is_floating_point():
        blind = target.mean((0, 2, 3), keepdim=True).expand_as(target)
        return (nn.functional.mse_loss(scores, target) / nn.functional.mse_loss(blind, target)).item()
    # Of texts, the classes are the last dimension; a mask is thinned out to the scores' resolution.
    classes = scores.movedim(-1, 1) if scores.dim() == 3 else scores
    if classes.dim() == 4:
        target = target[:, :: target.shape[1] // classes.shape[2], :: target.shape[2] // classes.shape[3]]
    told = target[target >= 0]
    counts = torch.bincount(told).float()
    chances = counts[counts > 0] / counts.sum()
    return (nn.functional.cross_entropy(classes, target) / -(chances * chances.log()).sum()).item()
