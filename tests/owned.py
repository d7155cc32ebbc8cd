"""A network in which the owner of every operator is known, and its traces by torch.profiler."""

import ast
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from profzoo.harness import ranges
from profzoo.io import chrome_trace
from profzoo.range_names import DOMAIN


class Scale(nn.Module):
    """Functions of no module of their own, and a submodule whose forward is called past `__call__`."""

    def __init__(self, width: int) -> None:
        """width: of the features, by which its operators are told."""
        super().__init__()
        self.past = nn.Linear(width, width, bias=False)
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, flow: Tensor) -> Tensor:
        return nn.functional.softplus(self.past.forward(flow) * self.weight)


class Known(nn.Module):
    """Layers of distinct widths, so that the shapes of an operator's inputs tell whose it is.

    23: stem; 29: shared, called twice, also as `again`; 31: functions of a block; 37: a checkpoint of the first kind;
    41: one of the second; 43: head, a convolution.
    """

    def __init__(self, checkpoints: bool = True) -> None:
        """With random weights; checkpoints: whether there are such, which no CUDA graph can capture."""
        super().__init__()
        self.checkpoints = checkpoints
        self.stem = nn.Sequential(nn.Linear(19, 23), nn.Tanh())
        self.widen = nn.Linear(23, 29)
        self.shared = nn.Linear(29, 29, bias=False)
        self.again = self.shared
        self.to_block, self.block = nn.Linear(29, 31), Scale(31)
        self.to_first, self.first = nn.Linear(31, 37), nn.Sequential(nn.Linear(37, 37), nn.Sigmoid())
        self.to_second, self.second = nn.Linear(37, 41), nn.Sequential(nn.Linear(41, 41), nn.Sigmoid())
        self.head = nn.Conv1d(1, 43, 7)

    def forward(self, flow: Tensor) -> Tensor:
        flow = self.again(self.shared(self.widen(self.stem(flow))))
        flow = self.to_first(self.block(self.to_block(flow)))
        if not self.checkpoints:
            flow = self.second(self.to_second(self.first(flow)))
        else:
            flow = self.to_second(checkpoint(self.first, flow, use_reentrant=True))
            flow = checkpoint(self.second, flow, use_reentrant=False)
        return self.head(flow.unsqueeze(1)).mean(2)


# Pairs of widths that belong to one layer each, with the layer's path; the layer's weight has both widths.
OF_PAIR = {(19, 23): "stem.0", (23, 29): "widen", (29, 29): "shared", (29, 31): "to_block", (31, 31): "block",
           (31, 37): "to_first", (37, 37): "first.0", (37, 41): "to_second", (41, 41): "second.0"}  # fmt: skip
# Layers of operators without such a weight, by the operator's name and width.
OF_NAME = {("tanh", 23): "stem.1", ("softplus", 31): "block", ("sigmoid", 37): "first.1", ("sigmoid", 41): "second.1"}
BATCH = 11


def owner(operator: str, dims: list[list[int]]) -> str | None:
    """The module that an operator with inputs of these shapes has to belong to; None where they do not tell."""
    if "convolution" in operator or operator == "aten::conv1d":
        return "head"
    if operator in ("aten::zero_", "aten::fill_"):
        # The optimizer zeroes gradients; these operators belong to no layer, although they have a weight's shape.
        return None
    # For lists of tensors, the trace has a list of shapes.
    dims = [dim for dim in dims if all(isinstance(size, int) for size in dim)]
    widths = [dim for dim in dims if len(dim) == 2 and BATCH not in dim]
    for one in widths:
        if (min(one), max(one)) in OF_PAIR:
            return OF_PAIR[min(one), max(one)]
    for (name, width), path in OF_NAME.items():
        if operator.startswith(f"aten::{name}") and dims and dims[0] == [BATCH, width]:
            return path
    pair = [dim for dim in dims if len(dim) == 2]
    if operator == "aten::mm" and len(pair) == 2:
        # The gradient of a weight is a product of (features, batch) and (batch, features).
        found = pair[0][0], pair[1][1]
        return OF_PAIR.get((min(found), max(found))) if pair[0][1] == BATCH else None
    return None


def expected(table: pd.DataFrame) -> pd.Series:
    """The modules that rows have to be of, by the shapes of what they worked on; nothing where these do not tell."""
    shapes = [ast.literal_eval(text) if text else [] for text in table["shapes"]]
    told = [owner(name, dims) for name, dims in zip(table["operator"], shapes, strict=True)]
    return pd.Series(told, index=table.index, dtype=object).where(~table["range"].isin(["optimizer", "data"]))


def passes(network: nn.Module, batch: torch.Tensor) -> None:
    """Forward, loss and backward, in the project's ranges."""
    with record_function(f"{DOMAIN}:forward"):
        output = network(batch)
    with record_function(f"{DOMAIN}:loss"):
        loss = nn.functional.mse_loss(output, torch.zeros_like(output))
    with record_function(f"{DOMAIN}:backward"):
        loss.backward()


def steps(network: nn.Module, count: int = 3, accumulate: int = 2) -> Iterator[Callable[[], None]]:
    """Training steps in the project's ranges, with gradients of several batches summed up in each."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    device = next(network.parameters()).device

    def step() -> None:
        with record_function(f"{DOMAIN}:step"):
            for _ in range(accumulate):
                with record_function(f"{DOMAIN}:data"):
                    batch = torch.randn(BATCH, 19, device=device)
                passes(network, batch)
            with record_function(f"{DOMAIN}:optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

    return iter([step] * count)


def traced(network: nn.Module, **given: Any) -> list[dict[str, Any]]:
    """The events of two steps of a network, after one of warm-up."""
    ranges.mark_modules(network, ranges.torch_range)
    return of_steps(list(steps(network, **given)))


def of_steps(several: list[Callable[[], None]]) -> list[dict[str, Any]]:
    """The events of all steps but the first, on whatever there is."""
    several[0]()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=activities, record_shapes=True, acc_events=True) as profiler:
        for step in several[1:]:
            step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return events_of(profiler)


def of_forward(network: Callable[..., Any], *inputs: Any) -> list[dict[str, Any]]:
    """The events of one call of a network, whose modules are marked."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as profiler:
        network(*inputs)
    return events_of(profiler)


def events_of(profiler: profile) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return chrome_trace.read_events(path)
