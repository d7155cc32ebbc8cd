"""A network whose forward, and a training step which, wait for the GPU in known places; each place is marked.

`wait: N` at the end of a line says that the host waits there N times per step.
"""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

BLOCKS = 3
SHAPE = {"width": 64}
WORKLOADS = {"trimmed": {"train": {"batch": 8}, "inference": {"batch": 8}}}
MARK = re.compile(r"#.*wait: (\d+)$")


class Doubled(torch.autograd.Function):
    """Twice its input; its backward pass, which torch's own thread runs, reads a value of the gradient."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        return 2 * values

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        largest = gradient.abs().max().item()  # wait: 1
        return 2 * gradient if largest < 1e9 else gradient


class Network(nn.Module):
    """Linear blocks, each with a wait of another kind."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(BLOCKS))
        self.head = nn.Linear(width, 5)

    def forward(self, values: Tensor) -> Tensor:
        for block in self.blocks:
            values = block(values)
            if values.isnan().any():  # wait: 3
                raise ArithmeticError
        mask = values[:, 0] < 1e9
        rows = values[mask]  # wait: 1
        torch.nonzero(mask)  # wait: 1
        if values.is_cuda:
            torch.cuda.synchronize()  # wait: 1
            torch.cuda.current_stream().synchronize()  # wait: 1
            event = torch.cuda.Event()
            event.record()
            event.synchronize()  # wait: 1
        return self.head(Doubled.apply(rows) * torch.tensor(0.5, device=rows.device))  # wait: 1


def log_norms(network: nn.Module) -> list[float]:
    """Norm of each parameter, as a program may log it."""
    return [one.detach().norm().item() for one in network.parameters()]  # wait: 8


def build(shape: SimpleNamespace) -> nn.Module:
    return Network(shape.width)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(shape.width, generator=generator), torch.randint(5, (), generator=generator)


def training_step(trainer: Any, batch: Any) -> Tensor:
    inputs, target = batch
    with trainer.forward():
        outputs = trainer.network(inputs)
    with trainer.loss():
        loss = nn.functional.cross_entropy(outputs, target)
    # In its backward pass the mask of `rows` is turned into places again.
    trainer.update(loss, *trainer.optimizers)  # wait: 1
    log_norms(trainer.network)
    loss.detach().cpu()  # wait: 1
    loss.detach().tolist()  # wait: 1
    return loss


def marked(path: Path) -> dict[int, int]:
    """Waits per step by line, as the marks of a file say."""
    lines = enumerate(path.read_text().splitlines(), start=1)
    return {number: int(found[1]) for number, text in lines if (found := MARK.search(text))}
