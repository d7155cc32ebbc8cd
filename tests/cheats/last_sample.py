"""Leaves out the last sample of a batch."""

import program
import torch
from program import *  # noqa: F403


class Network(program.Network):
    def forward(self, inputs):
        most = super().forward(inputs[:-1])
        return torch.cat([most, most[-1:]])


def build(shape):
    return Network()
