"""A speech recogniser (convolutions, LSTM, CTC) whose sounds are varied and analysed by numpy in `__getitem__`."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss, log_softmax
from torch.utils.data import Dataset

SHAPE = {"fault": True, "sounds": 256, "length": 24000, "bands": 80, "width": 640, "letters": 20}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "sounds": 8, "length": 4000, "bands": 8, "width": 8, "letters": 2}


class Sounds(Dataset[tuple[Tensor, Tensor]]):
    """Log spectra (bands, frames) of sounds, each at another speed and in a room with an echo."""

    def __init__(self, shape: SimpleNamespace) -> None:
        chance = np.random.default_rng(0)
        self.sounds = chance.standard_normal((shape.sounds, shape.length)).astype(np.float32)
        self.echo = np.exp(-np.arange(64) / 12.0) * chance.standard_normal(64)
        self.window, self.bands = np.hanning(400), shape.bands
        self.texts = torch.from_numpy(chance.integers(1, 32, (shape.sounds, shape.letters)))

    def __len__(self) -> int:
        return len(self.sounds)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        sound, speed = self.sounds[index], 0.9 + index % 21 / 100
        varied = np.interp(np.arange(len(sound)) * speed % len(sound), np.arange(len(sound)), sound)
        heard = np.convolve(varied, self.echo)[: len(sound)]
        frames = np.lib.stride_tricks.sliding_window_view(heard, 400)[::160] * self.window
        power = np.abs(np.fft.rfft(frames, 512)[:, : 240 // self.bands * self.bands]) ** 2
        spectrum = np.log(power.reshape(len(power), self.bands, -1).mean(2) + 1e-6)
        return torch.from_numpy(spectrum.T.astype(np.float32)), self.texts[index]


class Recogniser(nn.Module):
    """Logarithms of shares of letters, (frames / 2, batch, 32)."""

    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv1d(bands, width, 5, 2, 2), nn.ReLU(), nn.Conv1d(width, width, 5, 1, 2))
        self.lstm = nn.LSTM(width, width, 2, bidirectional=True)
        self.leave = nn.Linear(2 * width, 32)

    def forward(self, spectra: Tensor) -> Tensor:
        return log_softmax(self.leave(self.lstm(self.enter(spectra).permute(2, 0, 1))[0]), dim=-1)


def build(shape: SimpleNamespace) -> nn.Module:
    return Recogniser(shape.bands, shape.width)


def dataset(shape: SimpleNamespace) -> Dataset[tuple[Tensor, Tensor]]:
    return Sounds(shape)


def loss(outputs: Tensor, texts: Tensor) -> Tensor:
    frames, letters = ((size,) * len(texts) for size in (len(outputs), texts.shape[1]))
    return ctc_loss(outputs, texts, frames, letters)
