"""What it costs an LSTM to fall off cuDNN's fused path, and which kernels that path is made of, by width and length.

python -m tests.benchmarks.lstm_paths [--widths 64 128 256 512 768 1024] [--lengths 256 1024] [--paths fused ...]
                                      [--batch 10]

fused: the zoo's model. scattered: the same with weights that are no longer one buffer, as after a careless move or
load. stepwise: a Python loop of LSTMCell, one step of the sequence at a time.
Prints, for each width, length and path, the median time of a training step, its launches (on a CPU: operators), and the
ratio of times; of the fused path also the kernels of cuDNN's calls, forward and backward, each with how often it is
launched; then rows for the table of docs/measured/zoo.md.
"""

import argparse
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from models import lstm
from profzoo.harness import interface
from tests.stepwise import Stepwise

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROUNDS, WARMUP = 30, 5
FUSED_CALLS = ("aten::_cudnn_rnn", "aten::_cudnn_rnn_backward")
# Where cuDNN launches something for each step, that is at least a launch for this many of them.
STEPS_A_LAUNCH = 4


@dataclass(frozen=True)
class Measured:
    """A training step: median seconds, launches (operators), and of cuDNN's calls how often each kernel is launched."""

    seconds: float
    launches: int
    kernels: Counter[str]


def fused(shape: SimpleNamespace) -> nn.Module:
    """The zoo's network, prepared as the harness does."""
    network = lstm.build(shape).to(DEVICE)
    network.prepare()
    return network


def scattered(shape: SimpleNamespace) -> nn.Module:
    """The zoo's network with each weight in memory of its own."""
    network = lstm.build(shape).to(DEVICE)
    for parameter in network.lstm.parameters():
        parameter.data = parameter.data.clone()
    return network


def stepwise(shape: SimpleNamespace) -> nn.Module:
    """A loop over the steps."""
    return Stepwise(shape.hidden).to(DEVICE)


PATHS: dict[str, Callable[[SimpleNamespace], nn.Module]] = {
    "fused": fused, "scattered": scattered, "stepwise": stepwise
}  # fmt: skip


def step(network: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple) -> None:
    """One training step, waited for."""
    torch.nn.functional.cross_entropy(network(batch[0]), batch[1]).backward()
    optimizer.step()
    optimizer.zero_grad()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def measure(network: nn.Module, shape: SimpleNamespace) -> Measured:
    """Time a training step, and profile one more."""
    samples = [lstm.sample(shape, torch.Generator().manual_seed(index)) for index in range(shape.batch)]
    batch = lstm.transfer(lstm.collate(samples), DEVICE)
    optimizer = interface.make_adam(network.parameters())
    times = []
    for _ in range(WARMUP + ROUNDS):
        start = time.perf_counter()
        step(network, optimizer, batch)
        times.append(time.perf_counter() - start)
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (DEVICE.type == "cuda")
    with profile(activities=activities) as profiler:
        step(network, optimizer, batch)
    kinds = {"cuda": torch.autograd.DeviceType.CUDA, "cpu": torch.autograd.DeviceType.CPU}
    events = profiler.events()
    launches = sum(event.device_type == kinds[DEVICE.type] for event in events)
    calls = [event for event in events if event.name in FUSED_CALLS]
    kernels = Counter(short(kernel.name) for call in calls for kernel in call.kernels)
    return Measured(statistics.median(times[WARMUP:]), launches, kernels)


def short(kernel: str) -> str:
    """A kernel's name without result, template arguments and parameters.

    >>> short("void RNN_blockPersist_fp_LSTM<float, 2>(cudnnRNNStruct)")
    'RNN_blockPersist_fp_LSTM'
    """
    return kernel.removeprefix("void ").split("<")[0].split("(")[0]


def row(width: int, lengths: list[int], found: dict[int, Measured]) -> str:
    """A row of the table: time and launches for each length, the path, and the kernels at the longest."""
    cells = [f"{found[length].seconds * 1e3:.2f} ms | {found[length].launches:,}" for length in lengths]
    fewest, most = min(lengths), max(lengths)
    more = found[most].launches - found[fewest].launches
    each = more > (most - fewest) / STEPS_A_LAUNCH
    path = f"launches for each step, {more / (most - fewest):.2f}" if each else "as many launches for any length"
    names = ", ".join(f"`{name}` {count:,}" for name, count in found[most].kernels.most_common())
    return f"| {width} | {' | '.join(cells)} | {path if most > fewest else ''} | {names} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256, 512, 768, 1024], help="hidden units")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024], help="steps of the sequence")
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=list(PATHS))
    parser.add_argument("--batch", type=int, default=lstm.WORKLOADS["trimmed"]["train"]["batch"])
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    warnings.simplefilter("ignore")
    where = torch.cuda.get_device_name(DEVICE) if DEVICE.type == "cuda" else "CPU"
    cudnn = torch.backends.cudnn.version() if DEVICE.type == "cuda" else None
    print(f"{where}, torch {torch.__version__}, cuDNN {cudnn}, batch {options.batch}, fp32, medians of {ROUNDS}")
    rows = []
    for width in options.widths:
        of_fused = {}
        for length in options.lengths:
            shape = SimpleNamespace(**lstm.SHAPE | {"hidden": width, "sequence_length": length, "batch": options.batch})
            base = None
            for path in options.paths:
                found = measure(PATHS[path](shape), shape)
                base = base or found.seconds
                times = (
                    f"{found.seconds * 1e3:9.3f} ms a step {found.launches:7d} launches {found.seconds / base:7.2f} x"
                )
                print(f"{width:5d} units {length:5d} steps {path:<10} {times}", flush=True)
                if path == "fused":
                    of_fused[length] = found
                    for name, count in found.kernels.most_common():
                        print(f"{'':24}{count:7d} {name}")
        if of_fused:
            rows.append(row(width, options.lengths, of_fused))
    print("", *rows, sep="\n")


if __name__ == "__main__":
    main()
