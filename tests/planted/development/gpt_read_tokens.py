"""A GPT that generates with cached keys and values, and reads each token to see whether the text has ended."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from models.gpt import GPT
from tests.planted.networks.samples import texts as sample

SHAPE = {
    "fault": True, "vocabulary": 16384, "tokens": 128, "width": 1024, "heads": 16, "layers": 4, "generated": 24,
}  # fmt: skip
WORKLOADS = {"trimmed": {"inference": {"batch": 32}}}
TINY = {"batch": 2, "vocabulary": 64, "tokens": 8, "width": 32, "heads": 2, "layers": 2, "generated": 4}
# No word has this number, so that all texts are as long.
END = -1


class Reader(GPT):
    """Generates, with or without a look at what it has generated."""

    fault = True

    def generate(self, prompt: Tensor, count: int) -> Tensor:
        """The likeliest next tokens, (batch, count)."""
        if not self.fault:
            return super().generate(prompt, count)
        flow, caches = self.read(prompt, None)
        found: list[list[int]] = [[] for _ in prompt]
        while True:
            token = self.scores(flow[:, -1:]).argmax(-1)
            for text, one in zip(found, token, strict=True):
                text.append(one.item())
            if len(found[0]) == count or all(text[-1] == END for text in found):
                return torch.tensor(found, device=prompt.device)
            flow, caches = self.read(token, caches)


def build(shape: SimpleNamespace) -> nn.Module:
    longest = shape.tokens + shape.generated
    network = Reader(shape.vocabulary, longest, shape.width, shape.layers, shape.heads, 0.0, shape.generated)
    network.fault = shape.fault
    return network


def infer(network: Reader, prompt: Tensor) -> Tensor:
    return network.generate(prompt, network.generated)
