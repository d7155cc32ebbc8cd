"""Images as tensors, random ones and those on disk, in the ranges that networks take them in, and initial weights."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from profzoo.errors import ConfigError

# Means and deviations of red, green and blue.
Scale = tuple[tuple[float, ...], tuple[float, ...]]
# Those of ImageNet, by which torchvision scales what its networks are trained on.
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
# From [0, 1] to [-1, 1].
SYMMETRIC = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# Pixels from one free choice of colour to the next in a random image.
GRAIN = 8


def extent(shape: SimpleNamespace) -> tuple[int, int]:
    """Height and width in pixels: `height` and `width`, else the square `size`."""
    return (shape.height, shape.width) if hasattr(shape, "height") else (shape.size, shape.size)


def channels(shape: SimpleNamespace) -> int:
    """Channels of the image: 3 unless the shape says otherwise."""
    return getattr(shape, "channels", 3)


def random(shape: SimpleNamespace, generator: torch.Generator) -> Tensor:
    """An image (channels, height, width) of random colours in [0, 1) that flow into each other.

    Neighbouring pixels are alike, as in a photograph: noise could not be restored from a smaller image, and a loss that
    smooths would leave nothing of it.
    """
    height, width = extent(shape)
    coarse = torch.rand(1, channels(shape), height // GRAIN + 2, width // GRAIN + 2, generator=generator)
    return interpolate(coarse, size=(height, width), mode="bilinear", align_corners=False)[0]


def pixels(image: Any, colours: int, height: int, width: int) -> Tensor:
    """A PIL image as (colours, height, width) in [0, 1], resized; colours: 1 or 3."""
    from torchvision.transforms import v2

    mode = v2.InterpolationMode.BILINEAR
    tensor = v2.functional.to_image(image.convert("L" if colours == 1 else "RGB"))
    tensor = v2.functional.resize(tensor, [height, width], interpolation=mode, antialias=True)
    return v2.functional.to_dtype(tensor, torch.float32, scale=True)


def normalised(image: Tensor, scale: Scale) -> Tensor:
    """An image (colours, height, width) of [0, 1], less the scale's mean, in its deviations; grey by those of all."""
    mean, deviation = (torch.tensor(part, dtype=image.dtype, device=image.device)[:, None, None] for part in scale)
    if image.shape[-3] != len(mean):
        mean, deviation = mean.mean(0, keepdim=True), deviation.mean(0, keepdim=True)
    return (image - mean) / deviation


class Bounded(nn.Module):
    """The end of a network that makes images: they exceed [0, 1] by a little at most."""

    def forward(self, image: Tensor) -> Tensor:
        """Of the same shape."""
        return 0.58 * torch.tanh(image) + 0.5


# Initial weights with which a signal keeps its size through layers of ReLU.

CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


def he(network: nn.Module) -> None:
    """Draw the convolutions' weights with a deviation of sqrt(2 / N), N being the inputs of a unit; biases are 0.

    He et al. 2015, arXiv:1502.01852, section 2.2.
    """
    for layer in network.modules():
        if isinstance(layer, CONVOLUTIONS):
            height, width = layer.kernel_size
            # A transposed convolution reaches each output once for every stride that its width spans.
            share = layer.stride[0] * layer.stride[1] if isinstance(layer, nn.ConvTranspose2d) else 1
            inputs = layer.in_channels // layer.groups * height * width / share
            nn.init.normal_(layer.weight, std=(2 / inputs) ** 0.5)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


# Samples on disk: the parts for training and test, and folders of images.


def find_files(folder: Path) -> list[Path]:
    """Files below a folder, or below what it links to, in the order of their names; none that is or lies hidden."""
    found = []
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [one for one in folders if not one.startswith(".")]
        found += [Path(place, one) for one in files if not one.startswith(".")]
    return sorted(found)


# Samples that stay together as a test part is taken from between them, at most.
NEIGHBOURS = 64


def find_parts(root: str) -> tuple[Path, Path] | None:
    """Folders `train` and `test`, or else `val`, within a folder; None if it does not have both."""
    train, *others = (Path(root) / name for name in ("train", "test", "val"))
    test = next((part for part in others if part.is_dir()), None)
    return (train, test) if test and train.is_dir() else None


def of_phase(count: int, share: float, phase: str) -> list[int]:
    """Those of so many samples that are the phase's: all if the share of the test is 0.

    Tests are spread evenly, in blocks, so that each class has some and neighbouring lines of a text stay together.

    >>> of_phase(8, 0.25, "inference"), of_phase(8, 0.25, "train")
    ([3, 7], [0, 1, 2, 4, 5, 6])
    """
    block = min(max(count // 100, 1), NEIGHBOURS)
    tests = [int((at // block + 1) * share) > int(at // block * share) for at in range(count)]
    return [at for at, test in enumerate(tests) if not share or test == (phase != "train")]


class Pair(NamedTuple):
    """An image, and the image that a network is to make of it, or its mask."""

    input: Any
    target: Any


class ImageFiles:
    """Images that are read when needed: pairs, or images and the numbers of their classes."""

    def __init__(self, paths: list[tuple[Path, ...]], labels: list[int] | None = None) -> None:
        """paths: one, or those of a pair, for each sample. labels: None if there are no classes."""
        self._paths, self._labels = paths, labels

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """(PIL image, its class or None), or a Pair of two."""
        from PIL import Image

        read = []
        for path in self._paths[index]:
            with Image.open(path) as image:
                read.append(image.copy())
        return Pair(*read) if len(read) > 1 else (read[0], self._labels[index] if self._labels else None)


def open_folder(root: str, parts: Sequence[Path] = ()) -> ImageFiles:
    """Data set of a folder: pairs below `input` and `target`, else a folder for each class, else images without one.

    parts: folders whose classes are numbered together, in the order of their names; if there are none, the root.

    Raises:
        ConfigError: there are no images, or an image has no target of its name.
    """
    from torchvision import datasets

    place = Path(root)
    endings = datasets.folder.IMG_EXTENSIONS

    def images_below(folder: Path) -> list[Path]:
        return [one for one in find_files(folder) if one.suffix.lower() in endings]

    labels: list[int] | None = None
    folders = {one.name for part in parts or [place] for one in part.iterdir() if one.is_dir()}
    classes = {one: number for number, one in enumerate(sorted(one for one in folders if not one.startswith(".")))}
    if (place / "input").is_dir() and (place / "target").is_dir():
        targets = {one.relative_to(place / "target").with_suffix(""): one for one in images_below(place / "target")}
        inputs = {one.relative_to(place / "input").with_suffix(""): one for one in images_below(place / "input")}
        if missing := sorted(inputs.keys() ^ targets.keys()):
            raise ConfigError(
                f"data.root = {root!r}: {missing[0]} is not in both of input and target: add it, or remove the other"
            )
        paths: list[tuple[Path, ...]] = [(one, targets[name]) for name, one in inputs.items()]
    elif classes:
        paths = [(one,) for one in images_below(place) if one.parent != place]
        labels = [classes[one.relative_to(place).parts[0]] for (one,) in paths]
    else:
        paths = [(one,) for one in images_below(place)]
    if not paths:
        raise ConfigError(f"data.root = {root!r} holds no image: name a folder with files such as {endings[1]}")
    return ImageFiles(paths, labels)
