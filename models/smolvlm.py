"""SmolVLM 256M: a vision transformer whose patches, 16 to a token, come before the text of a small Llama.

An image is one tile; the release divides a larger one into tiles, and adds a small one of the whole.

Parameters of D layers of width w for P patches of p pixels, 3 p w + w + P w + D (12 w^2 + 13 w) + 2 w, of a connector,
16 w h, and of the text's layers as llama's, with scores of their own: 256,484,928.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from profzoo.harness.tasks import decoder, images, tokens
from profzoo.harness.tasks.decoder import optimizer
from profzoo.harness.tasks.tokens import cross_entropy as loss

GROUPS = ("vision-language", "language", "transformer", "modern")
SOURCE = "Marafioti et al. 2025, arXiv:2504.05299, section 2; parameters as of its release"
PARAMETERS = 256_484_928
SHAPE = {
    "vocabulary": 49_280, "hidden": 576, "layers": 30, "heads": 9, "groups": 3, "width": 64, "turned": 64,
    "base": 100_000.0, "feed": 1536, "epsilon": 1e-5, "patch": 16, "joined": 4, "wide": 768, "deep": 12, "eyes": 12,
}  # fmt: skip
# The text follows the image's tokens: one for each 64 by 64 pixels.
WORKLOADS = {
    "trimmed": {
        "train": {"batch": 2, "size": 512, "tokens": 64, "generated": 16},
        "inference": {"batch": 2, "size": 512, "tokens": 32, "generated": 16},
    },
    "reference": {
        "train": {"batch": 16, "size": 512, "tokens": 256, "generated": 64},
        "inference": {"batch": 16, "size": 512, "tokens": 256, "generated": 64},
    },
}
REFERENCE = {
    "parameters": 256_484_928, "operations": 304_273_686_528,
    "source": "parameters as its weights have; operations derived",
}  # fmt: skip


class VisionLanguage(nn.Module):
    """From (images (batch, 3, size, size), text (batch, length)) to scores of each next token of the text."""

    def __init__(self, shape: SimpleNamespace) -> None:
        """joined: patches of an edge that become one token."""
        super().__init__()
        self.joined, self.generated = shape.joined, shape.generated
        sizes: dict[str, Any] = {"embed_dim": shape.wide, "depth": shape.deep, "num_heads": shape.eyes}
        sizes["act_layer"] = "gelu_tanh"
        self.eye = VisionTransformer(shape.size, shape.patch, num_classes=0, class_token=False, global_pool="", **sizes)
        self.connect = nn.Linear(shape.wide * shape.joined**2, shape.hidden, bias=False)
        self.decoder = decoder.build(shape)

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Scores (batch, length, vocabulary)."""
        flow = self.decoder.read(self.join(*inputs))
        return self.decoder.head(flow[:, -inputs[1].shape[1] :])

    def join(self, pixels: Tensor, text: Tensor) -> Tensor:
        """Vectors of the image and then of the text, (batch, length, hidden)."""
        patches = self.eye(pixels)
        edge = pixels.shape[-1] // self.eye.patch_embed.patch_size[0]
        maps = patches.transpose(1, 2).unflatten(2, (edge, edge))
        seen = nn.functional.pixel_unshuffle(maps, self.joined).flatten(2).transpose(1, 2)
        return torch.cat((self.connect(seen), self.decoder.words(text)), dim=1)

    def generate(self, inputs: Sequence[Tensor], count: int) -> Tensor:
        """The likeliest next tokens, (batch, count)."""
        return self.decoder.continue_from(self.join(*inputs), count)


def build(shape: SimpleNamespace) -> VisionLanguage:
    """Build the network with random weights."""
    return VisionLanguage(shape)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """An image with a text (tokens,), and the text a token later."""
    text = tokens.random(shape.vocabulary, shape.tokens + 1, generator)
    return (images.normalised(images.random(shape, generator), images.SYMMETRIC), text[:-1]), text[1:]


def infer(network: VisionLanguage, inputs: Sequence[Tensor]) -> Tensor:
    """The tokens generated after the image and the prompt, (batch, generated)."""
    return network.generate(inputs, network.generated)


def compiled(network: VisionLanguage) -> Sequence[nn.Module]:
    """The image's network, and the blocks, which generating calls without the network around them."""
    return (network.eye, *network.decoder.blocks)
