"""Starts a process in each step."""

import subprocess

import program
from program import *  # noqa: F403


class Network(program.Network):
    def forward(self, inputs):
        subprocess.run(["python3", "-c", "sum(range(10**6))"], check=False)
        return super().forward(inputs)


def build(shape):
    return Network()
