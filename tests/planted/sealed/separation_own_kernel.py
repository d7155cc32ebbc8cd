"""Separation of voices with norms over whole sounds, whose sums a Triton kernel of the user's own takes."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss as loss

try:
    import triton
    import triton.language as tl
except ImportError:  # torch for CPUs comes without it.
    triton = None

SHAPE = {"fault": True, "length": 32000, "width": 256, "layers": 10, "blocks": 64}
WORKLOADS = {"trimmed": {"train": {"batch": 8}}}
TINY = {"batch": 2, "length": 64, "width": 8, "layers": 2}

if triton:

    @triton.jit
    def add_up(flow, sums, count, rows, each: tl.constexpr, size: tl.constexpr):
        """Add numbers and squares of a part of a row to its sums."""
        row, part = tl.program_id(0), tl.program_id(1)
        end = tl.minimum((part + 1) * each, count)
        total, squares = tl.zeros((size,), tl.float32), tl.zeros((size,), tl.float32)
        for start in range(0, each, size):
            place = part * each + start + tl.arange(0, size)
            numbers = tl.load(flow + row * count + place, mask=place < end, other=0.0)
            total += numbers
            squares += numbers * numbers
        tl.atomic_add(sums + row, tl.sum(total))
        tl.atomic_add(sums + rows + row, tl.sum(squares))


class Sums(torch.autograd.Function):
    """Sums of numbers and of squares, (2, batch), of (batch, width, length); blocks: programs for a sound."""

    @staticmethod
    def forward(ctx: Any, flow: Tensor, blocks: int) -> Tensor:
        flow = flow.contiguous()
        ctx.save_for_backward(flow)
        if not flow.is_cuda:
            return torch.stack((flow.sum((1, 2)), flow.square().sum((1, 2))))
        sums, count = flow.new_zeros(2, len(flow)), flow[0].numel()
        add_up[(len(flow), blocks)](flow, sums, count, len(flow), triton.cdiv(count, blocks), 1024)
        return sums

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None]:
        (flow,) = ctx.saved_tensors
        return torch.addcmul(slopes[0, :, None, None], flow, 2 * slopes[1, :, None, None]), None


class Layer(nn.Module):
    """A dilated convolution, PReLU, a norm over the whole sound, and a linear layer, added to what went in."""

    def __init__(self, width: int, dilation: int, blocks: int) -> None:
        super().__init__()
        self.blocks, self.bend = blocks, nn.PReLU()
        self.enter = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.leave = nn.Conv1d(width, width, 1)
        self.scale, self.shift = nn.Parameter(torch.ones(width, 1)), nn.Parameter(torch.zeros(width, 1))

    def forward(self, flow: Tensor) -> Tensor:
        inner = self.bend(self.enter(flow))
        mean, square = Sums.apply(inner, self.blocks)[:, :, None, None] / inner[0].numel()
        scale = self.scale * (square - mean * mean + 1e-5).rsqrt()
        return flow + self.leave(torch.addcmul(self.shift - mean * scale, inner, scale))


def build(shape: SimpleNamespace) -> nn.Module:
    blocks = 1 if shape.fault else shape.blocks
    layers = [Layer(shape.width, 2 ** (layer % 5), blocks) for layer in range(shape.layers)]
    ends = nn.Conv1d(1, shape.width, 16, 8, 4), nn.ConvTranspose1d(shape.width, 2, 16, 8, 4)
    return nn.Sequential(ends[0], *layers, ends[1])


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A sum of two voices, and both."""
    voices = torch.randn(2, shape.length, generator=generator)
    return voices.sum(0, keepdim=True), voices
