"""Leaves out the part with a small effect."""

import program
from program import *  # noqa: F403


class Network(program.Network):
    def forward(self, inputs):
        return self.last(self.hidden(inputs))


def build(shape):
    return Network()
