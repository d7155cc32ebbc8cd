"""In training: computes no gradients of half of the layers."""

import program
from program import *  # noqa: F403


class Network(program.Network):
    def __init__(self):
        super().__init__()
        for layer in self.layers[:2]:
            layer.requires_grad_(False)


def build(shape):
    return Network()
