"""Convolutional networks: residual ones for images, and a U-Net that is told a time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, silu


def convolve(inward: int, outward: int, stride: int = 1) -> nn.Sequential:
    """A convolution of 3 by 3, batch norm and ReLU."""
    convolution = nn.Conv2d(inward, outward, 3, stride, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outward), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """Two convolutions, added to what went in."""

    def __init__(self, width: int) -> None:
        """width: maps in and out."""
        super().__init__()
        self.body = nn.Sequential(convolve(width, width), convolve(width, width))

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.body(maps)


class ResidualNetwork(nn.Module):
    """Stages of residual blocks, each with twice the maps and half the size, and class scores of the mean."""

    def __init__(self, width: int, depths: Sequence[int], classes: int = 1000) -> None:
        """width: maps of the first stage; depths: blocks of each."""
        super().__init__()
        layers: list[nn.Module] = [convolve(3, width, 2)]
        for index, depth in enumerate(depths):
            if index:
                layers.append(convolve(width, 2 * width, 2))
                width *= 2
            layers += [Residual(width) for _ in range(depth)]
        self.layers = nn.ModuleList(layers)
        self.width, self.head = width, nn.Linear(width, classes)

    def features(self, images: Tensor) -> Tensor:
        """Maps of the last stage."""
        for layer in self.layers:
            images = layer(images)
        return images

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images).mean((2, 3)))


class Timed(nn.Module):
    """Two convolutions with group norms, to whose maps a vector of the time is added between them."""

    def __init__(self, inward: int, outward: int, told: int) -> None:
        """told: width of the time's vector."""
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for width in (inward, outward))
        self.first, self.second = (nn.Conv2d(width, outward, 3, padding=1) for width in (inward, outward))
        self.tell = nn.Linear(told, outward)
        self.around = nn.Conv2d(inward, outward, 1)

    def forward(self, maps: Tensor, time: Tensor) -> Tensor:
        inner = self.first(silu(self.norms[0](maps))) + self.tell(time)[:, :, None, None]
        return self.around(maps) + self.second(silu(self.norms[1](inner)))


class UNet(nn.Module):
    """Down and up again, with what was on the way down beside what is on the way up."""

    def __init__(
        self, channels: int, width: int, depth: int, middle: Callable[[int], nn.Module] = lambda _: nn.Identity()
    ) -> None:
        """depth: how often the size is halved and the width doubled; middle: makes what is at the lowest size."""
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.told = 4 * width
        self.time = nn.Sequential(nn.Linear(width, self.told), nn.SiLU(), nn.Linear(self.told, self.told))
        self.enter = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.ModuleList(Timed(widths[level], widths[level + 1], self.told) for level in range(depth))
        self.middle = middle(widths[-1])
        self.up = nn.ModuleList(
            Timed(widths[level + 1] + widths[level + 1], widths[level], self.told) for level in reversed(range(depth))
        )
        self.leave = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, images: Tensor, time: Tensor) -> Tensor:
        told, maps, passed = self.time(time), self.enter(images), []
        for block in self.down:
            maps = block(maps, told)
            passed.append(maps)
            maps = nn.functional.avg_pool2d(maps, 2)
        maps = self.middle(maps)
        for block in self.up:
            maps = block(torch.cat((interpolate(maps, scale_factor=2.0), passed.pop()), dim=1), told)
        return self.leave(maps)


def waves(time: Tensor, width: int) -> Tensor:
    """Sines and cosines of times (batch,), as (batch, width)."""
    rates = torch.exp(-torch.arange(width // 2, device=time.device) * (9.2 / (width // 2)))
    angles = time[:, None].float() * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)
