"""Takes an activation that is nearly the same."""

import program
import torch
from program import *  # noqa: F403


class Network(program.Network):
    def hidden(self, inputs):
        for layer in self.layers:
            product = layer(inputs)
            inputs = product * torch.sigmoid(60 * product) + inputs
        return inputs

    def product(self, layer, hidden):
        return layer(hidden)


def build(shape):
    return Network()
