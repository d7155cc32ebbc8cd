"""A recommender whose frozen tables of items stay in the host's memory: each field's rows are copied in each step."""

from itertools import pairwise
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from models.dlrm import loss
from tests.planted.networks.samples import choices as sample

SHAPE = {"fault": True, "fields": 6, "rows": 20000, "dense": 32, "width": 128, "hidden": 3072}
WORKLOADS = {"trimmed": {"train": {"batch": 4096}}}
TINY = {"batch": 4, "fields": 3, "rows": 20, "dense": 4, "width": 8, "hidden": 16}


class HostTables(nn.Module):
    """Vectors of items that were trained before."""

    def __init__(self, fault: bool, fields: int, rows: int, width: int) -> None:
        """fault: whether tables stay on the host."""
        super().__init__()
        self.fault, self.host = fault, [torch.randn(rows, width) for _ in range(fields)]
        for index, table in enumerate(() if fault else self.host):
            self.register_buffer(f"table{index}", table)

    def forward(self, chosen: Tensor) -> Tensor:
        if self.fault:
            rows = chosen.cpu()
            return torch.cat([table[rows[:, field]].to(chosen.device) for field, table in enumerate(self.host)], dim=1)
        tables = [getattr(self, f"table{field}") for field in range(len(self.host))]
        return torch.cat([table[chosen[:, field]] for field, table in enumerate(tables)], dim=1)


class Wide(nn.Module):
    """Vectors and numbers through four linear layers."""

    def __init__(self, shape: SimpleNamespace) -> None:
        super().__init__()
        self.tables = HostTables(shape.fault, shape.fields, shape.rows, shape.width)
        widths = [shape.dense + shape.fields * shape.width, shape.hidden, shape.hidden, shape.hidden]
        layers = [nn.Sequential(nn.Linear(*pair), nn.ReLU()) for pair in pairwise(widths)]
        self.above = nn.Sequential(*layers, nn.Linear(shape.hidden, 1))

    def forward(self, given: tuple[Tensor, Tensor]) -> Tensor:
        numbers, chosen = given
        return self.above(torch.cat((numbers, self.tables(chosen)), dim=1)).squeeze(1)


def build(shape: SimpleNamespace) -> nn.Module:
    return Wide(shape)
