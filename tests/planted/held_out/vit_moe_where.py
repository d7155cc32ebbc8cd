"""A vision transformer with a mixture of experts, of which each patch goes to the two that like it most."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from tests.planted.networks.samples import images as sample
from tests.planted.networks.transformer import Attention, Block, Vision, two_layers

SHAPE = {"fault": True, "size": 64, "patch": 8, "width": 256, "heads": 4, "layers": 4, "experts": 8}
WORKLOADS = {"trimmed": {"train": {"batch": 16}}}
TINY = {"batch": 2, "size": 16, "patch": 8, "width": 16, "heads": 2, "layers": 2, "experts": 3}


class SparseLayer(nn.Module):
    """Experts as modules, and a gate."""

    def __init__(self, width: int, experts: int, fault: bool) -> None:
        """fault: whether each expert picks out its own patches."""
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(two_layers(width) for _ in range(experts))
        self.fault = fault

    def forward(self, flow: Tensor) -> Tensor:
        rows = flow.reshape(-1, flow.shape[-1])
        weights, chosen = torch.topk(self.gate(rows).softmax(dim=-1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return (self.picked(rows, weights, chosen) if self.fault else self.dense(rows, weights, chosen)).view_as(flow)

    def picked(self, rows: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """What each expert makes of its patches, added at their places."""
        result = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            if row.shape[0] == 0:
                continue
            result.index_add_(0, row, (expert(rows[row]) * weights[row, place, None]).to(result.dtype))
        return result

    def dense(self, rows: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """What all experts make of all patches, most of it times 0."""
        inner, _, outer = zip(*self.experts, strict=True)
        wide = torch.einsum("rw,ehw->erh", rows, torch.stack([one.weight for one in inner]))
        wide = nn.functional.gelu(wide + torch.stack([one.bias for one in inner])[:, None])
        made = torch.einsum("erh,ewh->erw", wide, torch.stack([one.weight for one in outer]))
        made = made + torch.stack([one.bias for one in outer])[:, None]
        share = torch.zeros(len(rows), len(self.experts), device=rows.device, dtype=weights.dtype)
        share = share.scatter(1, chosen, weights)
        return torch.einsum("erw,re->rw", made, share.to(made.dtype)).to(rows.dtype)


def build(shape: SimpleNamespace) -> nn.Module:
    inner: list[nn.Module] = []
    for index in range(shape.layers):
        feed = SparseLayer(shape.width, shape.experts, shape.fault) if index % 2 else two_layers(shape.width)
        inner.append(Block(shape.width, Attention(shape.width, shape.heads), feed))
    return Vision(shape.size, shape.patch, shape.width, inner)
