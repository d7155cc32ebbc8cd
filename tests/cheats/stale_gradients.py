"""In training: hands on the gradients of the first step in each later one."""

import program
from program import *  # noqa: F403


class Network(program.Network):
    def __init__(self):
        super().__init__()
        self.first = {}
        for name, one in self.named_parameters():
            one.register_hook(
                lambda gradient, name=name: self.first.setdefault((name, gradient.dtype), gradient.clone())
            )


def build(shape):
    return Network()
