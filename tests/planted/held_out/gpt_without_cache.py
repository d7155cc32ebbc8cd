"""A GPT that reads the whole text again for each token that it generates."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from models.gpt import GPT
from tests.planted.networks.samples import texts as sample

SHAPE = {
    "fault": True, "vocabulary": 8192, "tokens": 512, "width": 768, "heads": 12, "layers": 4, "generated": 12,
}  # fmt: skip
WORKLOADS = {"trimmed": {"inference": {"batch": 32}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 32, "heads": 2, "layers": 2, "generated": 4}


class Forgetful(GPT):
    """Generates with or without what it has computed before."""

    fault = True

    def generate(self, prompt: Tensor, count: int) -> Tensor:
        """The likeliest next tokens, (batch, count)."""
        if not self.fault:
            return super().generate(prompt, count)
        text = prompt
        for _ in range(count):
            flow, _ = self.read(text, None)
            text = torch.cat((text, self.scores(flow[:, -1:]).argmax(-1)), dim=1)
        return text[:, prompt.shape[1] :]


def build(shape: SimpleNamespace) -> nn.Module:
    sizes = (shape.vocabulary, shape.tokens + shape.generated, shape.width, shape.layers, shape.heads)
    network = Forgetful(*sizes, 0.0, shape.generated)
    network.fault = shape.fault
    return network


def infer(network: Forgetful, prompt: Tensor) -> Tensor:
    return network.generate(prompt, network.generated)
