"""A network that doubles the size of images, whose maps are in the order of channels first; its twin's are last."""

from types import SimpleNamespace

from torch import Tensor, nn

from profzoo.harness.tasks.restoration import loss, sample
from tests.planted.networks.convolutional import Residual

SHAPE = {"fault": True, "size": 128, "scale": 2, "width": 192, "layers": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "size": 16, "width": 8, "layers": 2}


class Enlarge(nn.Module):
    """Residual blocks at the small size, and pixels of the large one from maps."""

    def __init__(self, width: int, layers: int, scale: int) -> None:
        super().__init__()
        self.enter, self.merge = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.body = nn.Sequential(*(Residual(width) for _ in range(layers)))
        self.leave = nn.Sequential(nn.Conv2d(width, 3 * scale**2, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, images: Tensor) -> Tensor:
        maps = self.enter(images)
        return self.leave(maps + self.merge(self.body(maps)))


def build(shape: SimpleNamespace) -> nn.Module:
    return Enlarge(shape.width, shape.layers, shape.scale)
