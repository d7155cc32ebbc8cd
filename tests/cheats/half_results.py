"""Returns results in half precision."""

import program
from program import *  # noqa: F403


class Network(program.Network):
    def forward(self, inputs):
        return super().forward(inputs).half()


def build(shape):
    return Network()
