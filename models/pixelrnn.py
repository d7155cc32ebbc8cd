"""Pixel-RNN with Row LSTMs: predicts every pixel's grey level from those above and to the left of it.

What a row sees of itself is convolved for the whole image at once (masked, input to state); what it sees of the row
above goes through the state, so that the rows of each layer come one after the other.

Parameters, from section 3.5 and table 1 with h = 64 units, 12 layers and 256 levels:
  7x7 convolution, mask A      49*1*2h + 2h                                      =     6_400
  layer, input to state        3*2h*4h + 4h                                      =    98_560
  layer, state to state        3*h*4h                                            =    49_152
  layer, to the residual       h*2h + 2h                                         =     8_320
  12 layers                                                                      = 1_872_384
  two 1x1 convolutions         2h*2h + 2h + 2h*2h + 2h                           =    33_024
  256 levels                   2h*256 + 256                                      =    33_024
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.harness.tasks import images

GROUPS = ("generation", "recurrent", "classic")
SOURCE = "van den Oord et al. 2016, arXiv:1601.06759, sections 3.1 and 3.5, table 1; parameters derived in the file"
PARAMETERS = 1_944_832
SHAPE = {"channels": 1, "levels": 256, "hidden": 64, "layers": 12}
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 8, "size": 28},
        "inference": {"batch": 8, "size": 28},
    },
    "reference": {
        "train": {"batch": 10, "size": 64},
        "inference": {"batch": 50, "size": 64},
    },
}


class MaskedConvolution(nn.Conv2d):
    """A convolution that sees no later pixels and, with mask A, not the pixel itself either."""

    mask: Tensor

    def __init__(self, inputs: int, outputs: int, extent: tuple[int, int], sees_itself: bool) -> None:
        """Maps in and out, height and width, both odd."""
        super().__init__(inputs, outputs, extent, padding=(extent[0] // 2, extent[1] // 2))
        mask = torch.ones(extent)
        row, column = extent[0] // 2, extent[1] // 2
        mask[row, column + sees_itself :] = 0
        mask[row + 1 :] = 0
        self.register_buffer("mask", mask)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same extent."""
        return self._conv_forward(maps, self.weight * self.mask, self.bias)


class RowLSTM(nn.Module):
    """A layer over rows: each pixel's state takes in three of the states above."""

    def __init__(self, hidden: int) -> None:
        """hidden: units; 2 * hidden maps go in and come out."""
        super().__init__()
        self.input_to_state = MaskedConvolution(2 * hidden, 4 * hidden, (1, 3), sees_itself=True)
        self.state_to_state = nn.Conv1d(hidden, 4 * hidden, 3, padding=1, bias=False)
        self.to_residual = nn.Conv2d(hidden, 2 * hidden, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps (batch, 2 * hidden, height, width) with what the layer adds."""
        rows = self.input_to_state(maps).unbind(dim=2)
        batch, quadruple, width = rows[0].shape
        hidden = cell = rows[0].new_zeros(batch, quadruple // 4, width)
        states = []
        for row in rows:
            output, forget, admit, content = (row + self.state_to_state(hidden)).chunk(4, dim=1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(admit) * torch.tanh(content)
            hidden = torch.sigmoid(output) * torch.tanh(cell)
            states.append(hidden)
        return maps + self.to_residual(torch.stack(states, dim=2))


class PixelRNN(nn.Module):
    """From (batch, channels, size, size) to scores of each pixel's level, (batch, levels, size, size)."""

    def __init__(self, channels: int, levels: int, hidden: int, layers: int) -> None:
        """Channels of the image, levels of a pixel, units and number of layers."""
        super().__init__()
        self.first = MaskedConvolution(channels, 2 * hidden, (7, 7), sees_itself=False)
        self.layers = nn.Sequential(*(RowLSTM(hidden) for _ in range(layers)))
        wide = 2 * hidden
        ends = [nn.ReLU(), nn.Conv2d(wide, wide, 1), nn.ReLU(), nn.Conv2d(wide, wide, 1), nn.ReLU()]
        self.head = nn.Sequential(*ends, nn.Conv2d(wide, levels, 1))

    def forward(self, image: Tensor) -> Tensor:
        """Scores of every level at every pixel."""
        return self.head(self.layers(self.first(image)))


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return PixelRNN(shape.channels, shape.levels, shape.hidden, shape.layers)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A grey image (1, size, size) in [0, 1), and the level of each pixel (size, size)."""
    return _with_levels(images.random(shape, generator), shape)


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Make such a sample from a PIL image; the label is not used."""
    return _with_levels(images.pixels(raw[0], shape.channels, shape.size, shape.size), shape)


def _with_levels(image: Tensor, shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    return image, (image[0] * shape.levels).long().clamp(max=shape.levels - 1)
