"""A denoising U-Net whose attention over pixels is written out with einsum, at the lowest size."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from profzoo.harness.tasks.restoration import loss
from tests.planted.networks.convolutional import UNet, waves
from tests.planted.networks.samples import noisy_images as sample

SHAPE = {"fault": True, "size": 64, "width": 64, "heads": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 24}}}
TINY = {"batch": 2, "size": 16, "width": 16, "heads": 2}


class OfPixels(nn.Module):
    """Attention between all places of maps."""

    def __init__(self, width: int, heads: int, fault: bool) -> None:
        super().__init__()
        self.norm, self.heads, self.fault = nn.GroupNorm(8, width), heads, fault
        self.project, self.merge = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, maps: Tensor) -> Tensor:
        parts = self.project(self.norm(maps)).flatten(2).unflatten(1, (3, self.heads, -1))
        query, key, value = parts.unbind(1)
        if self.fault:
            query = query * query.shape[2] ** -0.5
            weights = torch.einsum("bhdi,bhdj->bhij", query, key).float()
            weights = weights - weights.amax(dim=-1, keepdim=True).detach()
            weights = weights.softmax(dim=-1)
            mixed = torch.einsum("bhij,bhdj->bhdi", weights, value.float())
        else:
            turned = (part.transpose(2, 3) for part in (query, key, value))
            mixed = scaled_dot_product_attention(*turned).transpose(2, 3)
        return maps + self.merge(mixed.reshape_as(maps).to(maps.dtype))


class Denoiser(nn.Module):
    """From an image, noise and times to the noise."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.width = shape.width
        self.unet = UNet(3, shape.width, 1, lambda width: OfPixels(width, shape.heads, shape.fault))

    def forward(self, given: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        image, noise, time = given
        share = (time.to(image.dtype) / 1000)[:, None, None, None]
        return self.unet((1 - share) * image + share * noise, waves(time, self.width))


def build(shape: SimpleNamespace) -> nn.Module:
    return Denoiser(shape)
