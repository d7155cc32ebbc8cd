"""The reference: a small network whose last part hardly matters, and which does more work than it has to."""

import torch
from torch import nn

WIDTH, LAYERS = 96, 4
WORKLOADS = {"trimmed": {"train": {"batch": 64}, "inference": {"batch": 64}}}
# Of the size of what the last part adds to results.
SMALL = 1e-5
REPEATED = 16


class Network(nn.Module):
    """Products in a row, each of which is made several times, and a part with a small effect."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.small, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 10)

    def product(self, layer, hidden):
        several = [layer(hidden) for _ in range(REPEATED)]
        return sum(several[1:], several[0]) / REPEATED

    def hidden(self, inputs):
        for layer in self.layers:
            inputs = torch.relu(self.product(layer, inputs)) + inputs
        return inputs

    def forward(self, inputs):
        hidden = self.hidden(inputs)
        return self.last(hidden + SMALL * self.product(self.small, hidden))


def build(shape):
    return Network()


def sample(shape, generator):
    return torch.randn(WIDTH, generator=generator), int(torch.randint(10, (), generator=generator))
