"""The model of known_counters with a copy of twice as many bytes: a planted change of one kernel."""

from torch import nn

from tests.gpu import known_counters
from tests.gpu.known_counters import sample as sample

WORKLOADS = {"trimmed": {"train": {"batch": 2}, "inference": {"batch": 2}}}


def build(shape: object) -> nn.Module:
    return known_counters.Known(copies=2)
