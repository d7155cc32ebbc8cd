"""Takes more cores within a step than it was given, and gives them back."""

import program
import torch
from program import *  # noqa: F403


class Network(program.Network):
    def product(self, layer, hidden):
        torch.set_num_threads(2)
        big = torch.randn(768, 768)
        (big @ big).sum()
        torch.set_num_threads(1)
        return layer(hidden)


def build(shape):
    return Network()
