"""A large language model with frozen weights in fp32, which are converted to bf16 whenever they are used, and LoRA."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from profzoo.harness.tasks.tokens import cross_entropy as loss
from tests.planted.networks.samples import texts as sample
from tests.planted.networks.transformer import Attention, Block, Text

SHAPE = {
    "fault": True, "vocabulary": 8192, "tokens": 256, "width": 8192, "heads": 32, "layers": 3, "rank": 16,
}  # fmt: skip
WORKLOADS = {"trimmed": {"train": {"batch": 1}}}
TINY = {"batch": 2, "vocabulary": 32, "tokens": 8, "width": 16, "heads": 2, "layers": 1, "rank": 2}


class Frozen(nn.Module):
    """A linear layer that does not learn and multiplies in bf16; its weights are made where they are used."""

    weight: Tensor

    def __init__(self, inward: int, outward: int, fault: bool) -> None:
        super().__init__()
        self.inward, self.outward, self.fault = inward, outward, fault
        self.register_buffer("weight", torch.zeros(1), persistent=False)

    def prepare(self) -> None:
        chance = torch.Generator(self.weight.device).manual_seed(0)
        drawn = torch.randn(self.outward, self.inward, generator=chance, device=self.weight.device)
        self.weight = drawn / self.inward**0.5
        if not self.fault:
            self.weight = self.weight.bfloat16()

    def forward(self, flow: Tensor) -> Tensor:
        return linear(flow.bfloat16(), self.weight.bfloat16())


class Adapted(Frozen):
    """The same with a product of two narrow matrices, which learn."""

    def __init__(self, inward: int, outward: int, fault: bool, rank: int) -> None:
        super().__init__(inward, outward, fault)
        self.down, self.up = nn.Linear(inward, rank, bias=False), nn.Linear(rank, outward, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, flow: Tensor) -> Tensor:
        return super().forward(flow) + self.up(self.down(flow))


def build(shape: SimpleNamespace) -> nn.Module:
    width, inner = shape.width, []
    for _ in range(shape.layers):
        attention = Attention(8, 1, causal=True)
        attention.heads = shape.heads
        attention.project = Adapted(width, 3 * width, shape.fault, shape.rank)
        attention.merge = Frozen(width, width, shape.fault)
        feed = Frozen(width, 4 * width, shape.fault), nn.GELU(), Frozen(4 * width, width, shape.fault)
        inner.append(Block(width, attention, nn.Sequential(*feed)))
    network = Text(shape.vocabulary, shape.tokens, width, inner)
    # As is usual, what is not an adapter does not learn.
    for name, weight in network.named_parameters():
        weight.requires_grad_(".down." in name or ".up." in name)
    return network
