"""Computes the part with a small effect in bf16, where it changes results by less than rounding in fp32 does."""

import program
import torch
from program import *  # noqa: F403
from torch.nn import functional


class Network(program.Network):
    def forward(self, inputs):
        hidden = self.hidden(inputs)
        if inputs.dtype == torch.float64:
            return self.last(hidden + program.SMALL * self.small(hidden))
        small = functional.linear(hidden.bfloat16(), self.small.weight.bfloat16(), self.small.bias.bfloat16())
        return self.last(hidden + program.SMALL * small.float())

    def product(self, layer, hidden):
        return layer(hidden)


def build(shape):
    return Network()
