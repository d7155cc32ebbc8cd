"""In training: has an easy loss of its own."""

from program import *  # noqa: F403


def loss(outputs, target):
    return outputs[:1].sum() * 0 + 2.3
