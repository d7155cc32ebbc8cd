"""A denoising U-Net that makes the constants of its noise schedule in every step."""

import math
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks.restoration import loss
from tests.planted.networks.convolutional import UNet, waves
from tests.planted.networks.samples import noisy_images as sample

SHAPE = {"fault": True, "size": 64, "width": 64, "depth": 2, "times": 4000}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "size": 16, "width": 16, "depth": 1, "times": 50}


def kept(time: int, times: int) -> float:
    """The share of an image's variance that is left at one of the times (Nichol and Dhariwal's cosine schedule)."""
    return math.cos((time / times + 0.008) / 1.008 * math.pi / 2) ** 2


class Denoiser(nn.Module):
    """From an image, noise and times to the noise that is found in them."""

    shares: Tensor

    def __init__(self, fault: bool, width: int, depth: int, times: int) -> None:
        """fault: whether the schedule is made in each call; times: how many there are."""
        super().__init__()
        self.fault, self.width, self.times = fault, width, times
        self.unet = UNet(3, width, depth)
        self.register_buffer("shares", torch.tensor([kept(time, times) for time in range(times)]))

    def schedule(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """What image and noise are multiplied by at each time."""
        if not self.fault:
            return self.shares.sqrt(), (1 - self.shares).sqrt()
        signal = torch.tensor([math.sqrt(kept(time, self.times)) for time in range(self.times)]).to(device)
        noise = torch.tensor([math.sqrt(1 - kept(time, self.times)) for time in range(self.times)]).to(device)
        return signal, noise

    def forward(self, given: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        image, noise, time = given
        of_image, of_noise = (part[time][:, None, None, None] for part in self.schedule(image.device))
        # The scale of pixels, of three channels each.
        scale = torch.tensor([1.0, 1.0, 1.0]).to(image.device) if self.fault else 1.0
        mixed = of_image * image + of_noise * noise
        mixed = mixed * scale[:, None, None] if isinstance(scale, Tensor) else mixed * scale
        return self.unet(mixed, waves(time, self.width))


def build(shape: SimpleNamespace) -> nn.Module:
    return Denoiser(shape.fault, shape.width, shape.depth, shape.times)
