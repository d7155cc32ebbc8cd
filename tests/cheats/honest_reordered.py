"""Honest: adds up in another order."""

import program
from program import *  # noqa: F403


class Network(program.Network):
    def product(self, layer, hidden):
        half = hidden.shape[1] // 2
        one = hidden[:, half:] @ layer.weight[:, half:].T
        other = hidden[:, :half] @ layer.weight[:, :half].T
        several = [one + layer.bias + other for _ in range(program.REPEATED)]
        return sum(several[1:], several[0]) / program.REPEATED


def build(shape):
    return Network()
