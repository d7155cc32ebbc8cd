"""A residual network that gives the memory it does not need back to the driver after each block."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.planted.networks.convolutional import ResidualNetwork
from tests.planted.networks.samples import images as sample

SHAPE = {"fault": True, "size": 64, "width": 128, "depths": [2, 2, 2, 2]}
WORKLOADS = {"trimmed": {"train": {"batch": 32}}}
TINY = {"batch": 2, "size": 32, "width": 8, "depths": [1, 1]}


class Sparing(ResidualNetwork):
    """A network that is afraid of too little memory."""

    fault = True

    def features(self, images: Tensor) -> Tensor:
        """Maps of the last stage."""
        for layer in self.layers:
            images = layer(images)
            if self.fault:
                torch.cuda.empty_cache()
        return images


def build(shape: SimpleNamespace) -> nn.Module:
    network = Sparing(shape.width, shape.depths)
    network.fault = shape.fault
    return network
