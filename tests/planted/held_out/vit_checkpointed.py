"""A vision transformer that computes each block again in the backward pass, although there is memory enough."""

from types import SimpleNamespace

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.planted.networks.samples import images as sample
from tests.planted.networks.transformer import Vision, blocks

SHAPE = {"fault": True, "size": 64, "patch": 4, "width": 1024, "heads": 16, "layers": 6}
WORKLOADS = {"trimmed": {"train": {"batch": 64}}}
TINY = {"batch": 2, "size": 16, "patch": 8, "width": 16, "heads": 2, "layers": 2}


class Spare(nn.Module):
    """A block that keeps nothing for the backward pass."""

    def __init__(self, block: nn.Module) -> None:
        """block: from (batch, length, width) to the same."""
        super().__init__()
        self.block = block

    def forward(self, flow: Tensor) -> Tensor:
        return checkpoint(self.block, flow, use_reentrant=False, preserve_rng_state=False)


def build(shape: SimpleNamespace) -> nn.Module:
    inner = blocks(shape.layers, shape.width, shape.heads)
    return Vision(shape.size, shape.patch, shape.width, [Spare(one) for one in inner] if shape.fault else inner)
