"""LSTM sentiment classifier over word vectors, kept on cuDNN's fused path.

The fused path needs all weights of the LSTM in one contiguous buffer. Moving, casting or loading a module may
leave them scattered, after which every call copies them together again; `prepare` is called after each of these.
docs/measured/zoo.md says what else falls off the path and what it costs.

Parameters with 4 gates, input 300, h units and 2 classes: 4*h*(300 + h) + 2*4*h + h*2 + 2, which makes 93_826 for 64
units and 5_433_346 for the 1024 of AI Benchmark, which counts 5_429_250: TensorFlow has one bias a gate, cuDNN two.
Operations of its 100 texts: 100*2*(1024*(300 + 1024)*4*1024 + 1024*2) = 1_110_652_108_800.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

GROUPS = ("recurrent", "classic")
SOURCE = (
    "Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000); word vectors of 300, and 64 units, as the "
    "sentiment classifier that AI Benchmark's workload goes back to, or that one's 1024; parameters derived in the file"
)
PARAMETERS = 93_826
REFERENCE = {
    "parameters": 5_429_250,
    "operations": 1_110_652_108_800,
    "difference": "it has one bias per gate, cuDNN two",
}
SHAPE = {"features": 300, "hidden": 64, "layers": 1, "classes": 2, "packed": False, "stateful": False}
ORIGINAL = {"hidden": 1024}
WORKLOADS = {
    "trimmed": {"train": {"batch": 10, "sequence_length": 256}, "inference": {"batch": 10, "sequence_length": 256}},
    "reference": {
        "train": {"batch": 10, "sequence_length": 1024, **ORIGINAL},
        "inference": {"batch": 100, "sequence_length": 1024, **ORIGINAL},
    },
}


class SentimentLSTM(nn.Module):
    """From (word vectors (batch, steps, features), lengths (batch,) on the CPU) to class scores (batch, classes).

    stateful: carry the hidden state from batch to batch, as over consecutive windows of long texts; it is
    detached in between, so that the graph of a window ends with the window.
    """

    def __init__(self, features: int, hidden: int, layers: int, classes: int, packed: bool, stateful: bool) -> None:
        """Sizes; packed: skip the padding of shorter texts."""
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, classes)
        self.packed, self.stateful = packed, stateful
        self.state: tuple[Tensor, Tensor] | None = None

    def forward(self, text: tuple[Tensor, Tensor]) -> Tensor:
        """Class scores from the hidden state after each text's last word."""
        words, lengths = text
        sequence = (
            pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False) if self.packed else words
        )
        _, (hidden, cell) = self.lstm(sequence, self.state)
        if self.stateful:
            self.state = (hidden.detach(), cell.detach())
        return self.head(hidden[-1])

    def prepare(self) -> None:
        """Lay the LSTM's weights out as one buffer again; call after every move, cast or load."""
        self.lstm.flatten_parameters()


def build(shape: SimpleNamespace) -> nn.Module:
    """Build the network with random weights."""
    return SentimentLSTM(shape.features, shape.hidden, shape.layers, shape.classes, shape.packed, shape.stateful)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, int], int]:
    """Word vectors (sequence_length, features) with their count, the rest zero where packed, and a class."""
    words = torch.randn(shape.sequence_length, shape.features, generator=generator)
    length = shape.sequence_length
    if shape.packed:
        length = int(torch.randint(1, length + 1, (), generator=generator))
        words[length:] = 0
    return (words, length), int(torch.randint(shape.classes, (), generator=generator))


def collate(samples: Sequence[tuple[tuple[Tensor, int], int]]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A batch: (words (batch, steps, features), lengths (batch,)), classes (batch,)."""
    texts, classes = zip(*samples, strict=True)
    words, lengths = zip(*texts, strict=True)
    return (torch.stack(words), torch.tensor(lengths)), torch.tensor(classes)


def transfer(batch: tuple[tuple[Tensor, Tensor], Tensor], device: torch.device) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """The batch on the device; lengths stay on the CPU, where packing reads them without a synchronisation."""
    (words, lengths), classes = batch
    return (words.to(device, non_blocking=True), lengths), classes.to(device, non_blocking=True)
