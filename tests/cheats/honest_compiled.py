"""Honest: the reference, compiled."""

import program
import torch
from program import *  # noqa: F403


class Network(program.Network):
    def __init__(self):
        super().__init__()
        self.compile()


def build(shape):
    return Network()


__all__ = ["torch"]
