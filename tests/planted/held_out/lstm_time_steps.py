"""A language model of LSTM cells, which are called for one word after the other."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample

SHAPE = {"fault": True, "vocabulary": 4096, "tokens": 96, "width": 512, "layers": 2}
WORKLOADS = {"trimmed": {"train": {"batch": 64}}}
TINY = {"batch": 2, "vocabulary": 32, "tokens": 6, "width": 16}


class Recurrent(nn.Module):
    """Layers of an LSTM between words and scores."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.fault, self.words = shape.fault, nn.Embedding(shape.vocabulary, shape.width)
        self.lstm = nn.LSTM(shape.width, shape.width, shape.layers, batch_first=True)
        self.scores = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, text: Tensor) -> Tensor:
        vectors = self.words(text)
        return self.scores(self.word_by_word(vectors) if self.fault else self.lstm(vectors)[0])

    def word_by_word(self, flow: Tensor) -> Tensor:
        """What the layers say after each word."""
        for layer in range(self.lstm.num_layers):
            weights = self.lstm.all_weights[layer]
            hidden = cell = flow.new_zeros(len(flow), flow.shape[-1])
            found = []
            for word in flow.unbind(1):
                hidden, cell = torch.lstm_cell(word, (hidden, cell), *weights)
                found.append(hidden)
            flow = torch.stack(found, dim=1)
        return flow

    def prepare(self) -> None:
        """Lay the weights out as one buffer."""
        self.lstm.flatten_parameters()


def build(shape: SimpleNamespace) -> nn.Module:
    return Recurrent(shape)
