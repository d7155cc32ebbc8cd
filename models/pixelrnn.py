"""Pixel-RNN with Row LSTMs or diagonal ones: predicts every pixel's grey level from those above and to the left of it.

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

AI Benchmark's network has 7 layers of diagonal LSTMs both ways with h = 16, adds nothing to their input, and gives one
intensity for each of three colours instead of levels:
  7x7 convolution, mask A      49*3*h + h                                        =     2_368
  7 layers, both ways          14*(h*4h + 4h + 2*h*4h + 4h)                      =    44_800
  1x1 convolutions             h*2h + 2h + 2h*2h + 2h + 2h*3 + 3                 =     1_699
Operations of 50 images: 50*2*(64*64*(49*3*h + h*2h + 2h*2h + 2h*3) + 14*127*64*(h*4h + 2*h*4h)) = 36_588_748_800.
There the layer of the other way is not moved down by a row, so that pixels see what they are to predict; here it is.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, pad

from profzoo.harness.tasks import images

GROUPS = ("generation", "recurrent", "classic")
SOURCE = "van den Oord et al. 2016, arXiv:1601.06759, sections 3.1 and 3.5, table 1; parameters derived in the file"
PARAMETERS = 1_944_832
REFERENCE = {"parameters": 48_867, "operations": 36_588_748_800}
# levels: 1 for an intensity. drawn: pixels that inference draws, each by a pass; 0 for the scores of all by one pass.
SHAPE = {"channels": 1, "levels": 256, "hidden": 64, "layers": 12, "diagonal": False, "drawn": 0}
ORIGINAL = {"channels": 3, "levels": 1, "hidden": 16, "layers": 7, "diagonal": True}
WORKLOADS = {
    "trimmed": {"train": {"batch": 8, "size": 28}, "inference": {"batch": 8, "size": 28}},
    "reference": {"train": {"batch": 10, "size": 64, **ORIGINAL}, "inference": {"batch": 50, "size": 64, **ORIGINAL}},
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


def advance(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden state and cell of an LSTM, from the sums at its four gates."""
    output, forget, admit, content = gates.chunk(4, dim=1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(admit) * torch.tanh(content)
    return torch.sigmoid(output) * torch.tanh(cell), cell


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
            hidden, cell = advance(row + self.state_to_state(hidden), cell)
            states.append(hidden)
        return maps + self.to_residual(torch.stack(states, dim=2))


class DiagonalLSTM(nn.Module):
    """Over diagonals from the top left: a pixel's state takes in those to the left and above (section 3.2)."""

    def __init__(self, hidden: int) -> None:
        """hidden: units, and maps that go in and come out."""
        super().__init__()
        self.input_to_state = nn.Conv2d(hidden, 4 * hidden, 1)
        self.state_to_state = nn.Conv1d(hidden, 4 * hidden, 2)

    def forward(self, maps: Tensor) -> Tensor:
        """States (batch, hidden, height, width)."""
        batch, units, height, width = maps.shape
        # Each row is moved to the right by one more pixel than the row above, which makes columns of diagonals.
        skewed = pad(maps, (0, height)).flatten(2)[..., :-height].unflatten(2, (height, height + width - 1))
        hidden = cell = maps.new_zeros(batch, units, height)
        states = []
        for column in self.input_to_state(skewed).unbind(dim=3):
            hidden, cell = advance(column + self.state_to_state(pad(hidden, (1, 0))), cell)
            states.append(hidden)
        flat = torch.stack(states, dim=3).flatten(2)
        return pad(flat, (0, height)).unflatten(2, (height, height + width))[..., :width]


class DiagonalBiLSTM(nn.Module):
    """Both ways, whose states are added up; those from the right are moved down a row, so as to see no later pixel."""

    def __init__(self, hidden: int) -> None:
        """hidden: units, and maps that go in and come out."""
        super().__init__()
        self.ways = nn.ModuleList(DiagonalLSTM(hidden) for _ in range(2))

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same size."""
        from_left, from_right = self.ways
        return from_left(maps) + pad(from_right(maps.flip(3)).flip(3), (0, 0, 1, 0))[:, :, :-1]


class PixelRNN(nn.Module):
    """From (batch, channels, size, size) to scores of each pixel's level, (batch, levels, size, size), or the image."""

    def __init__(self, channels: int, levels: int, hidden: int, layers: int, diagonal: bool, drawn: int) -> None:
        """Channels of the image, levels of a pixel, units and number of layers; drawn: pixels in inference."""
        super().__init__()
        self.levels, self.drawn, wide = levels, drawn, 2 * hidden
        maps, layer = (hidden, DiagonalBiLSTM) if diagonal else (wide, RowLSTM)
        self.first = MaskedConvolution(channels, maps, (7, 7), sees_itself=False)
        self.layers = nn.Sequential(*(layer(hidden) for _ in range(layers)))
        begin, end = [] if diagonal else [nn.ReLU()], [nn.Sigmoid()] if levels == 1 else []
        ends = [nn.Conv2d(maps, wide, 1), nn.ReLU(), nn.Conv2d(wide, wide, 1), nn.ReLU()]
        self.head = nn.Sequential(*begin, *ends, nn.Conv2d(wide, channels if levels == 1 else levels, 1), *end)

    def forward(self, image: Tensor) -> Tensor:
        """Scores of every level at every pixel, or its colours."""
        return self.head(self.layers(self.first(image)))

    def draw(self, image: Tensor) -> Tensor:
        """Images of the same size, drawn pixel by pixel from the top left, each by a pass over those before it."""
        image = torch.zeros_like(image)
        for index in range(self.drawn):
            row, column = divmod(index, image.shape[3])
            pixel = self(image)[..., row, column]
            if self.levels > 1:
                pixel = torch.multinomial(pixel.float().softmax(1), 1).to(image.dtype) / self.levels
            image[..., row, column] = pixel
        return image


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    sizes = (shape.channels, shape.levels, shape.hidden, shape.layers)
    return PixelRNN(*sizes, shape.diagonal, shape.drawn)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An image (channels, size, size) in [0, 1), and the level of each pixel (size, size), or the image."""
    return _with_levels(images.random(shape, generator), shape)


def adapt(raw: tuple[Any, Any], shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """Make such a sample from a PIL image; the label is not used."""
    return _with_levels(images.pixels(raw[0], shape.channels, shape.size, shape.size), shape)


def _with_levels(image: Tensor, shape: SimpleNamespace) -> tuple[Tensor, Tensor]:
    if shape.levels == 1:
        return image, image
    return image, (image[0] * shape.levels).long().clamp(max=shape.levels - 1)


def loss(outputs: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the levels, or mean squared error of the colours."""
    return (mse_loss if target.is_floating_point() else cross_entropy)(outputs, target)


def infer(network: PixelRNN, image: Tensor) -> Tensor:
    """Scores of every level at every pixel, or images that were drawn."""
    return network.draw(image) if network.drawn else network(image)
