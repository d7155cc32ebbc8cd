"""A GPT in fp32, of a small batch; its twin runs in bf16 as a CUDA graph."""

from types import SimpleNamespace

from torch import nn

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample
from tests.planted.networks.transformer import Text, blocks

SHAPE = {"fault": True, "vocabulary": 16384, "tokens": 256, "width": 640, "heads": 10, "layers": 10}
WORKLOADS = {"trimmed": {"train": {"batch": 8}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 32, "heads": 2, "layers": 2}


def build(shape: SimpleNamespace) -> nn.Module:
    return Text(
        shape.vocabulary, shape.tokens, shape.width, blocks(shape.layers, shape.width, shape.heads, causal=True)
    )
