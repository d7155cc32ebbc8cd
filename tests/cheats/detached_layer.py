"""In training: computes no gradient of the part with a small effect."""

import program
from program import *  # noqa: F403


class Network(program.Network):
    def forward(self, inputs):
        hidden = self.hidden(inputs)
        return self.last(hidden + program.SMALL * self.product(self.small, hidden.detach()).detach())


def build(shape):
    return Network()
