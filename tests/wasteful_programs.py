"""Training steps that do work which need not be done, each with a twin that does not."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from profzoo.fusion.calls import Flow, read_step
from profzoo.fusion.chains import Chain, find_chains
from profzoo.fusion.patterns import FINDERS
from profzoo.harness import ranges
from profzoo.range_names import DOMAIN, OTHERS
from profzoo.tools.torch.trace import make_trace
from tests import owned

BATCH, WIDTH, PARTS = 8, 16, 8
Step = Callable[[], None]


def part(name: str) -> Any:
    """Return the range of a part of the step."""
    return record_function(f"{DOMAIN}:{name}")


def mark(network: nn.Module, path: str = "") -> None:
    """Have a network's modules mark their ranges in the trace."""
    ranges.mark_modules(network, ranges.torch_range, *([path] if path else []))


def perceptron(width: int = WIDTH, layers: int = 3) -> nn.Sequential:
    """Return a network of equal layers."""
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())))


def train(network: nn.Module, inputs: Callable[[], Tensor], weights: Any = None, autocast: bool = False) -> Step:
    """Return a step that trains a network, by default all of its weights."""
    mark(network)
    optimizer = torch.optim.Adam(list(weights or network.parameters()), foreach=True)

    def step() -> None:
        with part("forward"), torch.autocast("cpu", enabled=autocast):
            outputs = network(inputs())
        with part("loss"):
            loss = outputs.float().square().mean()
        with part("backward"):
            loss.backward()
        with part("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    return step


def adversarial(detached: bool, foreach: bool = True, layers: int = 3) -> Step:
    """Return a step of a generator and a judge; detached: whether the judge's loss stops at the generated values."""
    generator, judge = perceptron(layers=layers), nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    mark(generator)
    mark(nn.ModuleDict({"judge": judge}), OTHERS)
    of_generator, of_judge = (torch.optim.Adam(one.parameters(), foreach=foreach) for one in (generator, judge))

    def update(loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
        with part("backward"):
            loss.backward()
        with part("optimizer"):
            optimizer.step()
            of_generator.zero_grad()
            of_judge.zero_grad()

    def step() -> None:
        with part("forward"):
            made = generator(torch.randn(BATCH, WIDTH))
            fake, true = judge(made.detach() if detached else made), judge(torch.randn(BATCH, WIDTH))
        update((fake - true).mean(), of_judge)
        with part("forward"):
            fooled = judge(generator(torch.randn(BATCH, WIDTH)))
        update(-fooled.mean(), of_generator)

    return step


def fine_tuned(frozen: bool) -> Step:
    """Return a step that trains the last layer alone; frozen: whether the layers before compute no gradients."""
    body, head = perceptron(), nn.Linear(WIDTH, 3)
    body.requires_grad_(not frozen)
    return train(nn.Sequential(body, head), lambda: torch.randn(BATCH, WIDTH), head.parameters())


def tuned_inside(last: bool) -> Step:
    """Return a step that trains the first layer of a stack, and the last one too if that is asked for."""
    network = perceptron()
    chosen = [*network[0].parameters(), *(network[4].parameters() if last else [])]
    return train(network, lambda: torch.randn(BATCH, WIDTH), chosen)


class Scaled(nn.Module):
    """Layers whose result is scaled by numbers that are fp64 as NumPy makes them, or fp32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.register_buffer("scale", torch.rand(WIDTH).to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = nn.functional.linear(x, layer.weight.to(x.dtype)) * self.scale
        return x


def scaled(wide: bool, everything: bool = False) -> Step:
    """Return a step of Scaled; everything: whether weights and inputs are fp64 as well."""
    network = Scaled(torch.float64 if wide or everything else torch.float32)
    dtype = torch.float64 if everything else torch.float32
    return train(network.to(dtype) if everything else network, lambda: torch.randn(BATCH, WIDTH, dtype=dtype))


class InParts(nn.Module):
    """A network that is called on parts of a batch, one after the other, or on all of it."""

    def __init__(self, parts: int) -> None:
        """parts: how many."""
        super().__init__()
        self.parts, self.network = parts, nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, 5))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.network(one) for one in x.chunk(self.parts)])


class Recurrent(nn.Module):
    """A recurrence over time steps: torch's, torch's cell in a loop, or a cell that is written out."""

    def __init__(self, how: str, layers: int = 1) -> None:
        """how: whole, cell or written; layers: how often the loop goes over all time steps, each time on its results."""
        super().__init__()
        self.how, self.layers = how, layers
        made = {"whole": nn.LSTM, "cell": nn.LSTMCell}.get(how)
        self.inner = made(WIDTH, WIDTH) if made else nn.Linear(2 * WIDTH, 4 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "whole":
            return self.inner(x)[0]
        for _ in range(self.layers):
            x = self.step_by_step(x)
        return x

    def step_by_step(self, x: Tensor) -> Tensor:
        """One loop over time steps."""
        state = torch.zeros(2, x.shape[1], WIDTH).unbind()
        outputs = []
        for one in x:
            state = self.inner(one, state) if self.how == "cell" else self.advance(one, *state)
            outputs.append(state[0])
        return torch.stack(outputs)

    def advance(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        keep, write, read, new = self.inner(torch.cat((x, hidden), 1)).chunk(4, 1)
        cell = keep.sigmoid() * cell + write.sigmoid() * new.tanh()
        return read.sigmoid() * cell.tanh(), cell


class Stack(nn.Module):
    """One block that is applied several times, each time to its own result."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(PARTS):
            x = x + self.block(x)
        return x


class Generating(nn.Module):
    """A network that chooses each next word by its last result."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.network = nn.Embedding(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.network(x)
        for _ in range(PARTS):
            scores = self.network(self.words(scores.argmax(-1)))
        return scores


def trace_chains(step: Step) -> list[Chain]:
    def whole() -> None:
        with part("step"):
            step()

    return find_chains(Flow(read_step(make_trace(owned.of_steps([whole] * 3))).calls), FINDERS)
