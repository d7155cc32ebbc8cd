"""Leaves all work out in one step of twenty, drawn at random."""

import random

import program
from program import *  # noqa: F403

DRAW = random.Random(7)


class Network(program.Network):
    kept = None

    def forward(self, inputs):
        if self.kept is None or self.kept.dtype != inputs.dtype or DRAW.random() > 0.05:
            self.kept = super().forward(inputs)
        return self.kept


def build(shape):
    return Network()
