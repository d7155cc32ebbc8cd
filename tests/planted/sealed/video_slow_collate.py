"""A transformer for videos whose frames are cropped and scaled one after the other when a batch is put together."""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.planted.networks.transformer import Vision, blocks

SHAPE = {"fault": True, "clips": 64, "frames": 8, "size": 112, "margin": 16, "width": 768, "heads": 12, "layers": 6}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "clips": 8, "frames": 4, "size": 16, "margin": 8, "width": 16, "heads": 2, "layers": 1}
MEANS, DEVIATIONS = (0.45, 0.45, 0.42), (0.23, 0.22, 0.24)
Clip = tuple[Tensor, int, tuple[int, bool]]


class Clips(Dataset[Clip]):
    """Clips (frames, 3, height, width) of bytes, their classes, the size to crop to, and whether that is done slowly."""

    def __init__(self, shape: SimpleNamespace) -> None:
        size, chance = (3, *[shape.size + shape.margin] * 2), torch.Generator().manual_seed(0)
        drawn = (shape.clips, shape.frames, *size)
        self.clips = torch.randint(256, drawn, generator=chance, dtype=torch.uint8)
        self.told = shape.size, shape.fault

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, index: int) -> Clip:
        return self.clips[index], index % 400, self.told


def collate(samples: Sequence[Clip]) -> tuple[Tensor, Tensor]:
    clips, labels, ((size, fault), *_) = zip(*samples, strict=True)
    cut = [clip[..., 8 : 8 + size, 4 : 4 + size] for clip in clips]
    if fault:
        cut = [torch.stack([scale(frame) for frame in clip]) for clip in cut]
    return torch.stack(cut), torch.tensor(labels)


def scale(frame: Tensor) -> Tensor:
    """A frame of numbers from bytes, with mean and deviation of each channel as networks expect them."""
    told = zip(frame, MEANS, DEVIATIONS, strict=True)
    return torch.stack([((channel.double() / 255 - mean) / deviation).float() for channel, mean, deviation in told])


class Video(Vision):
    """Patches of pairs of frames as tokens; bytes are scaled here."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__(shape.size, 16, shape.width, blocks(shape.layers, shape.width, shape.heads), 400)
        self.patches = nn.Conv2d(6, shape.width, 16, 16)
        self.register_buffer("means", torch.tensor(MEANS)[:, None, None])
        self.register_buffer("deviations", torch.tensor(DEVIATIONS)[:, None, None])

    def tokens(self, clips: Tensor) -> Tensor:
        if clips.dtype == torch.uint8:
            clips = (clips / 255 - self.means) / self.deviations
        pairs = super().tokens(clips.unflatten(1, (-1, 2)).flatten(2, 3).flatten(0, 1))
        return pairs.unflatten(0, (len(clips), -1)).flatten(1, 2)


def build(shape: SimpleNamespace) -> nn.Module:
    return Video(shape)


def dataset(shape: SimpleNamespace) -> Dataset[Clip]:
    return Clips(shape)
