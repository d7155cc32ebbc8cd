"""A network of one weight of known size, whose second process is late by a known time in two parts of each step.

It sleeps in the transfer, and its GPU does nothing useful in the forward pass. Each process leaves how long both really
took, by clocks of its own, in the folder that LATE_RANK names.
"""

import atexit
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

SHAPE = {"width": 4096}
WORKLOADS = {"trimmed": {"train": {"batch": 4}}}
FOLDER = "LATE_RANK"
# The work of the host for a step, up to a millisecond, is hidden where the GPU is busy: these are far longer.
SLEEP_S, SPIN_S = 0.1, 0.1
# Enough cycles to find out how many a second has.
PROBED = 20_000_000
LATE = os.environ.get("RANK") == "1"


class Spin:
    """Occupies a GPU, or on a CPU this thread, for a time; remembers how long it did."""

    def __init__(self) -> None:
        self._cycles, self._events = 0, list[tuple[Any, Any]]()
        self.host_ns = list[int]()

    def run(self, device: torch.device) -> None:
        """Occupy the device once."""
        if device.type == "cpu":
            began = time.perf_counter_ns()
            while time.perf_counter_ns() - began < SPIN_S * 1e9:
                pass
            self.host_ns.append(time.perf_counter_ns() - began)
            return
        if not self._cycles:
            self._sleep(PROBED)
            self._sleep(PROBED)
            torch.cuda.synchronize()
            begin, end = self._events.pop()
            self._cycles = round(PROBED * SPIN_S * 1e3 / begin.elapsed_time(end))
            self._events.clear()
        self._sleep(self._cycles)

    def _sleep(self, cycles: int) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(cycles)
        end.record()
        self._events.append((begin, end))

    def taken_ns(self) -> list[int]:
        """How long each took."""
        if self._events:
            torch.cuda.synchronize()
        return self.host_ns + [round(begin.elapsed_time(end) * 1e6) for begin, end in self._events]


SPIN, SLEPT = Spin(), list[int]()


class Network(nn.Module):
    """One weight of width x width."""

    def __init__(self, width: int) -> None:
        """width: of inputs and outputs."""
        super().__init__()
        self.layer = nn.Linear(width, width, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        if LATE:
            SPIN.run(inputs.device)
        return self.layer(inputs)


def build(shape: SimpleNamespace) -> nn.Module:
    return Network(shape.width)


def sample(shape: SimpleNamespace, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return torch.rand(shape.width, generator=generator), torch.zeros((), dtype=torch.long)


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3)


def transfer(batch: Any, device: torch.device) -> Any:
    if LATE:
        began = time.perf_counter_ns()
        time.sleep(SLEEP_S)
        SLEPT.append(time.perf_counter_ns() - began)
    return [part.to(device) for part in batch]


def leave() -> None:
    """Write how long this process was late in each step, in ns."""
    found = {"transfer": SLEPT, "forward": SPIN.taken_ns()}
    Path(os.environ[FOLDER], f"{os.environ.get('RANK')}.json").write_text(json.dumps(found))


if FOLDER in os.environ:
    atexit.register(leave)
