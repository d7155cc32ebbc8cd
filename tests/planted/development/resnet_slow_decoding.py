"""An image classifier whose images are decompressed and flipped by Python in the training process."""

import zlib
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.planted.networks.convolutional import ResidualNetwork

SHAPE = {"fault": True, "size": 96, "images": 256, "width": 64, "depths": [2, 2, 2, 2]}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}
TINY = {"batch": 2, "size": 32, "images": 8, "width": 8, "depths": [1, 1]}


class Compressed(Dataset[tuple[Tensor, int]]):
    """Images as compressed bytes in memory, of which each is its index's."""

    def __init__(self, size: int, count: int) -> None:
        """Make them; size: of their edges."""
        chance = np.random.default_rng(0)
        small = chance.integers(0, 256, (count, 3, size // 4, size // 4), dtype=np.uint8)
        large = small.repeat(4, axis=2).repeat(4, axis=3)
        self.size, self.packed = size, [zlib.compress(image.tobytes(), 6) for image in large]

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = np.frombuffer(zlib.decompress(self.packed[index]), np.uint8).reshape(3, self.size, self.size)
        image = pixels[:, :, ::-1] if index % 2 else pixels
        scaled = image.astype(np.float64) / 255.0
        normal = (scaled - scaled.mean((1, 2), keepdims=True)) / (scaled.std((1, 2), keepdims=True) + 1e-6)
        return torch.from_numpy(normal.astype(np.float32)), index % 1000


def build(shape: SimpleNamespace) -> nn.Module:
    return ResidualNetwork(shape.width, shape.depths)


def dataset(shape: SimpleNamespace) -> Dataset[tuple[Tensor, int]]:
    return Compressed(shape.size, shape.images)
