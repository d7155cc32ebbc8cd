"""What it costs an LSTM to fall off cuDNN's fused path: training steps of three ways to run the same network.

python tests/benchmarks/lstm_paths.py [sequence_length]

fused: the zoo's model. scattered: the same with weights that are no longer one buffer, as after a careless move or
load. stepwise: a Python loop of LSTMCell, one step of the sequence at a time.
Prints, for each, the median time of a training step, kernel launches (on a CPU: operators) a step, and the ratio.
"""

import statistics
import sys
import time
import warnings
from types import SimpleNamespace

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from models import lstm
from models.harness import interface
from tests.stepwise import Stepwise

SHAPE = SimpleNamespace(**lstm.SHAPE | lstm.WORKLOADS["trimmed"]["train"])
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROUNDS, WARMUP = 30, 5


def scattered() -> nn.Module:
    """The zoo's network with each weight in memory of its own."""
    network = lstm.build(SHAPE).to(DEVICE)
    for parameter in network.lstm.parameters():
        parameter.data = parameter.data.clone()
    return network


def fused() -> nn.Module:
    """The zoo's network, prepared as the harness does."""
    network = lstm.build(SHAPE).to(DEVICE)
    network.prepare()
    return network


def step(network: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple) -> None:
    """One training step, waited for."""
    torch.nn.functional.cross_entropy(network(batch[0]), batch[1]).backward()
    optimizer.step()
    optimizer.zero_grad()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def measure(network: nn.Module) -> tuple[float, int]:
    """Median seconds and launches (operators) of a training step."""
    samples = [lstm.sample(SHAPE, torch.Generator().manual_seed(index)) for index in range(SHAPE.batch)]
    batch = lstm.transfer(lstm.collate(samples), DEVICE)
    optimizer = interface.adam(network.parameters())
    times = []
    for _ in range(WARMUP + ROUNDS):
        start = time.perf_counter()
        step(network, optimizer, batch)
        times.append(time.perf_counter() - start)
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (DEVICE.type == "cuda")
    with profile(activities=activities) as profiler:
        step(network, optimizer, batch)
    kinds = {"cuda": torch.autograd.DeviceType.CUDA, "cpu": torch.autograd.DeviceType.CPU}
    launches = sum(event.device_type == kinds[DEVICE.type] for event in profiler.events())
    return statistics.median(times[WARMUP:]), launches


def main() -> None:
    """Measure the three and print a table."""
    if len(sys.argv) > 1:
        SHAPE.sequence_length = int(sys.argv[1])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    warnings.simplefilter("ignore")
    print(f"batch {SHAPE.batch}, {SHAPE.sequence_length} steps of {SHAPE.features}, {SHAPE.hidden} units, on {DEVICE}")
    base = None
    for name, make in (("fused", fused), ("scattered", scattered), ("stepwise", lambda: Stepwise().to(DEVICE))):
        seconds, launches = measure(make())
        base = base or seconds
        print(f"{name:<10} {seconds * 1e3:9.3f} ms a step {launches:7d} launches {seconds / base:7.2f} x")


if __name__ == "__main__":
    main()
