"""A small vision transformer in fp32; its twin runs in bf16 as a CUDA graph."""

from types import SimpleNamespace

from torch import nn

from tests.planted.networks.samples import images as sample
from tests.planted.networks.transformer import Vision, blocks

SHAPE = {"fault": True, "size": 64, "patch": 4, "width": 384, "heads": 6, "layers": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 48}}}
TINY = {"batch": 2, "size": 16, "patch": 8, "width": 16, "heads": 2, "layers": 2}


def build(shape: SimpleNamespace) -> nn.Module:
    return Vision(shape.size, shape.patch, shape.width, blocks(shape.layers, shape.width, shape.heads))
