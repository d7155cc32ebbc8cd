"""What the generative adversarial models share: frozen VGG-19 features for content losses, and who learns when."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.harness.tasks import images


class Features(nn.Module):
    """VGG-19's maps after the convolutions of these names, such as conv5_4, frozen.

    Weights are random, as everywhere in the zoo: the work is the same, and nothing is downloaded. They are drawn so
    that the maps of any depth are about as large as the image, and tell images apart.
    """

    mean: Tensor
    deviation: Tensor

    # Index of each convolution in torchvision's vgg19().features, by the paper's name (block_number).
    CONVOLUTIONS: Mapping[str, int] = {
        "conv1_1": 0, "conv2_1": 5, "conv3_1": 10, "conv4_1": 19, "conv5_1": 28, "conv5_4": 34,
    }  # fmt: skip

    def __init__(self, *names: str, scale: images.Scale | None = None) -> None:
        """names: convolutions, in order of depth; scale: what images in [0, 1] are scaled by first, if by anything."""
        super().__init__()
        from torchvision.models import vgg19

        ends = [self.CONVOLUTIONS[name] + 2 for name in names]  # With the ReLU that follows.
        layers = vgg19(weights=None, init_weights=False).features
        starts = [0, *ends]
        self.parts = nn.ModuleList(layers[start:end] for start, end in zip(starts, ends, strict=False))
        images.he(self)
        self.scaled = scale is not None
        # Kept here, where they are on the device already.
        for name, part in zip(("mean", "deviation"), scale or (), strict=False):
            self.register_buffer(name, torch.tensor(part)[:, None, None])
        self.requires_grad_(False)

    def forward(self, image: Tensor) -> list[Tensor]:
        """Each map of (batch, 3, height, width)."""
        if self.scaled:
            image = (image - self.mean) / self.deviation
        maps = []
        for part in self.parts:
            image = part(image)
            maps.append(image)
        return maps


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """While it is frozen, gradients pass through a network and stay out of its weights."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)


def learning(network: nn.Module, others: Any) -> list[nn.Module]:
    """The generator, and its discriminator if there is one."""
    return [network, others["discriminator"]] if others else [network]


def train_alone(trainer: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Update a generator without a discriminator, by its squared error, as AI Benchmark does; the loss."""
    given, wanted = batch
    with trainer.forward():
        made = trainer.network(given)
    with trainer.loss():
        loss = nn.functional.mse_loss(made, wanted)
    trainer.update(loss, *trainer.optimizers)
    return loss
