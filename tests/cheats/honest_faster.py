"""Honest: makes each product once."""

import program
from program import *  # noqa: F403


class Network(program.Network):
    def product(self, layer, hidden):
        return layer(hidden)


def build(shape):
    return Network()
