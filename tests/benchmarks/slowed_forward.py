"""The chain of slowed, run forward alone: as many products, and no optimizer, whose pace memory sets."""

from tests.benchmarks.slowed import build as build
from tests.benchmarks.slowed import sample as sample

SHAPE = {"width": 1024, "layers": 33, "products": 1, "at": 5}
WORKLOADS = {"trimmed": {"inference": {"batch": 4}}}
