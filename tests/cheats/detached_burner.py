"""Leaves a process behind, in a session of its own, that keeps cores busy while the other side works."""

import os
import time

import program
from program import *  # noqa: F403

if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for _ in range(os.cpu_count() - 1):
        if os.fork() == 0:
            break
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        pass
    os._exit(0)
else:
    os.wait()


class Network(program.Network):
    pass


def build(shape):
    return Network()
