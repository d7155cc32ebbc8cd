"""Has another process work for it."""

import subprocess

import program
from program import *  # noqa: F403


class Network(program.Network):
    def __init__(self):
        super().__init__()
        self.other = subprocess.Popen(["sleep", "60"])


def build(shape):
    return Network()
