"""A model whose memory and types are known: it holds one block, then a larger one for a moment, and multiplies twice."""

import torch
from torch import Tensor, nn

WORKLOADS = {"trimmed": {"inference": {"batch": 2}}}
MIB = 2**20
HELD, SHORT = 64 * MIB, 256 * MIB
ORDER = 2048


class Allocating(nn.Module):
    """Classifies its inputs; beside that it allocates, and multiplies in float32 and in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = nn.Linear(1, 2)
        self.register_buffer("matrix", torch.rand(ORDER, ORDER), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        held = torch.empty(HELD, dtype=torch.uint8, device=inputs.device)
        short = torch.empty(SHORT, dtype=torch.uint8, device=inputs.device)
        del short
        torch.mm(self.matrix, self.matrix)
        narrow = self.matrix.to(torch.bfloat16)
        torch.mm(narrow, narrow)
        del held
        return self.classify(inputs)


def build(shape: object) -> nn.Module:
    return Allocating()


def sample(shape: object, generator: torch.Generator) -> tuple[Tensor, int]:
    return torch.zeros(1), 0
