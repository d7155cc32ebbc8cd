"""A sampler that draws two small images by many calls of a U-Net, launch by launch; its twin is a CUDA graph."""

import math
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.planted.networks.convolutional import UNet, waves
from tests.planted.networks.samples import images as sample

SHAPE = {"fault": True, "size": 32, "width": 64, "depth": 2, "calls": 16}
WORKLOADS = {"trimmed": {"inference": {"batch": 2}}}
TINY = {"batch": 2, "size": 8, "width": 16, "depth": 1, "calls": 3}


class Sampler(nn.Module):
    """From noise to images by the deterministic steps of DDIM."""

    def __init__(self, width: int, depth: int, calls: int) -> None:
        super().__init__()
        self.unet, self.width = UNet(3, width, depth), width
        # Angles from nearly all noise to none; cosines are what is left of the image.
        self.angles = [math.pi / 2 * (0.98 - 0.98 * call / calls) for call in range(calls + 1)]
        self.register_buffer("times", 1000 * torch.tensor(self.angles) / (math.pi / 2))

    def draw(self, image: Tensor) -> Tensor:
        for call in range(len(self.angles) - 1):
            now, then = self.angles[call : call + 2]
            noise = self.unet(image, waves(self.times[call].expand(len(image)), self.width))
            clean = ((image - math.sin(now) * noise) / math.cos(now)).clamp(-1, 1)
            image = math.cos(then) * clean + math.sin(then) * noise
        return image


def build(shape: SimpleNamespace) -> nn.Module:
    return Sampler(shape.width, shape.depth, shape.calls)


def infer(network: Sampler, noise: Tensor) -> Tensor:
    return network.draw(noise)
