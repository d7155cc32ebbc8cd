"""Replaces products by those of two thin matrices, which hold most of the weights."""

import program
import torch
from program import *  # noqa: F403


class Network(program.Network):
    thin = None

    def product(self, layer, hidden):
        if self.thin is None:
            self.thin = {}
        key = (id(layer), hidden.dtype)
        if key not in self.thin:
            left, scale, right = torch.linalg.svd(layer.weight.detach())
            rank = 90
            self.thin[key] = (right[:rank].T * scale[:rank]) @ left[:, :rank].T
        return torch.addmm(layer.bias, hidden, self.thin[key])


def build(shape):
    return Network()
