"""A denoising U-Net trained in small batches, after each of which memory is given back to the driver."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from tests.planted.networks.convolutional import UNet, waves
from tests.planted.networks.samples import noisy_images as sample

SHAPE = {"fault": True, "size": 64, "width": 64, "depth": 2, "parts": 2}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 4, "size": 16, "width": 16, "depth": 1, "parts": 2}


def clear_memory(fault: bool) -> None:
    """What some advise against running out of memory."""
    if fault and torch.cuda.is_available():
        torch.cuda.empty_cache()


def build(shape: SimpleNamespace) -> nn.Module:
    network = UNet(3, shape.width, shape.depth)
    network.fault, network.parts, network.width = shape.fault, shape.parts, shape.width
    return network


def training_step(trainer: Any, batch: tuple[tuple[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    network = trainer.network
    found, pieces = [], list(zip(*(part.chunk(network.parts) for part in batch[0]), strict=True))
    for index, (image, noise, time) in enumerate(pieces):
        share = (time.to(image.dtype) / 1000)[:, None, None, None]
        with trainer.forward():
            guessed = network(image + share * noise, waves(time, network.width))
        with trainer.loss():
            loss = mse_loss(guessed.float(), noise) / len(pieces)
        clear_memory(network.fault)
        trainer.update(loss, *(trainer.optimizers if index + 1 == len(pieces) else ()))
        clear_memory(network.fault)
        found.append(loss.detach())
    return torch.stack(found).sum()
