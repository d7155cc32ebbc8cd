"""Modules that a step calls twice on the same inputs are found, and calls that only look alike are not."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from profzoo.harness.observers.warmup_observers import RepeatedCalls, RepeatedStep
from profzoo.harness.ranges import Ranges

WIDTH = 8
FACTOR = SimpleNamespace(number=2)
Step = Callable[[nn.Module, Tensor], Any]


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests before these may have compiled something in this process, after which no step is looked at."""
    from torch._dynamo import utils

    monkeypatch.setattr(utils, "counters", defaultdict(Counter))


class Pair(nn.Module):
    """A frozen encoder and a head; `layer` has shared weights, and `drop` drops values."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.LayerNorm(WIDTH))
        self.layer, self.drop, self.norm = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), nn.BatchNorm1d(WIDTH)
        self.scale = Scale()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.encoder(x))


class Scale(nn.Module):
    """Multiplies by a number among its inputs, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor, by: Any = 1, *, counted: bool = False) -> Tensor:
        self.calls += 1
        return x * (self.calls if counted else getattr(by, "number", by))


def found(step: Step, device: str = "cpu") -> dict[str, int]:
    """Modules that were called again by the step, with the number of their calls."""
    torch.manual_seed(0)
    network, ranges = Pair().to(device), Ranges()
    ranges.mark(network)
    before = nn.Module.__call__
    calls = RepeatedCalls(ranges)
    calls.start()
    try:
        step(network, torch.randn(4, WIDTH, device=device))
    finally:
        told = calls.stop()
    assert nn.Module.__call__ is before
    return {one["module"]: one["calls"] for one in told}


def metrics(network: Any, x: Tensor) -> None:
    """A forward pass again for a metric, before the weights change."""
    network(x).sum().backward()
    with torch.no_grad():
        network(x).argmax(1)


# Modules that are found, by step. What the encoder returns is new each time, so that the layer behind it is not known to
# have equal inputs. Batch norm counts its batches, which changes no output.
WASTEFUL: dict[Step, dict[str, int]] = {
    metrics: {"(root)": 2},
    (lambda network, x: [network.layer(network.encoder(x)) for _ in range(3)]): {"encoder": 3},
    (lambda network, x: [network.scale(x[1:3], 2, counted=False) for _ in range(2)]): {"scale": 2},
    (lambda network, x: [network.norm(x) for _ in range(2)]): {"norm": 2},
}


@pytest.mark.parametrize(("step", "right"), WASTEFUL.items())
def test_equal_work_is_found_once_by_its_outermost_module(step: Step, right: dict[str, int]) -> None:
    assert found(step) == right


def gradients_of_each_sample(network: Any, x: Tensor) -> None:
    """As in differential privacy: tensors inside torch.func's transforms have no storage."""

    def lost(weights: dict[str, Tensor], one: Tensor) -> Tensor:
        return torch.func.functional_call(network, weights, one).sum()

    for _ in range(2):
        torch.func.vmap(torch.func.grad(lost), (None, 0))(dict(network.named_parameters()), x)


def shared_layers(network: Any, x: Tensor) -> None:
    """As in ALBERT: one layer, each time on what it returned before."""
    for _ in range(4):
        x = network.layer(x)


def updated_between(network: Any, x: Tensor) -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    network(x).sum().backward()
    optimizer.step()
    network(x)


def judged_for_either(network: Any, x: Tensor) -> None:
    """A GAN: the same images are judged for the gradients of the images, and for those of the weights."""
    made = network.layer(x)
    judge = network.encoder.requires_grad_(False)
    judge(made).sum().backward()
    judge.requires_grad_(True)
    judge(made.detach()).sum().backward()


def under_inference(network: Any, x: Tensor) -> None:
    """Nobody counts what writes to tensors that are made there."""
    with torch.inference_mode():
        y = x * 2
        network.layer(y)
        network.layer(y.mul_(1))


NEEDED: list[Step] = [
    *(shared_layers, updated_between, judged_for_either, under_inference, gradients_of_each_sample),
    # Two views of a batch, as in contrastive learning.
    lambda network, x: [network.drop(x), network.drop(x)],
    lambda network, x: [network.layer(x), x.add_(1), network.layer(x)],
    # New tensors at the addresses of freed ones.
    lambda network, x: [network.layer(torch.full((4, WIDTH), float(n), device=x.device)).sum() for n in range(8)],
    lambda network, x: checkpoint(network, x.requires_grad_(), use_reentrant=False).sum().backward(),
    lambda network, x: [network.scale(x, by) for by in (1, 2, True)],
    lambda network, x: [network.scale(x, counted=True) for _ in range(2)],
    lambda network, x: [network.layer(part) for part in (x[:2], x[2:], x[:2].double().float())],
    lambda network, x: [network.norm(x), network.norm.eval(), network.norm(x)],
    # What an object holds may have changed.
    lambda network, x: [network.scale(x, FACTOR) for _ in range(2)],
]


@pytest.mark.parametrize("step", NEEDED)
def test_calls_that_only_look_alike_are_not_told(step: Step) -> None:
    assert found(step) == {}


def test_lines_of_the_program_are_named_and_results_are_those_without_looking() -> None:
    torch.manual_seed(0)
    network, ranges, x = Pair(), Ranges(), torch.randn(4, WIDTH)
    ranges.mark(network)
    plain, looking = network.encoder(x), RepeatedCalls(ranges)
    looking.start()
    line = sys._getframe().f_lineno
    seen = network.encoder(x)
    dropped = functional.dropout(network.encoder(x))
    (one,) = looking.stop()
    assert torch.equal(plain, seen) and dropped.shape == seen.shape and one["type"] == "Sequential"
    assert [place.rpartition("test_repeated_calls.py:")[2] for place in one["places"]] == [f"{line + 1}", f"{line + 2}"]


def test_an_error_of_the_program_is_passed_on_and_everything_restored() -> None:
    step, before = RepeatedStep(3, Ranges()), nn.Module.__call__

    def fail() -> None:
        with step.during(2):
            assert nn.Module.__call__ is not before
            nn.Linear(2, 2)(torch.ones(3))

    with pytest.raises(RuntimeError):
        fail()
    assert nn.Module.__call__ is before and step.found == []


@pytest.mark.parametrize(
    ("warmup", "possible", "right"), [(3, True, [2]), (5, True, [4]), (2, True, []), (3, False, [])]
)
def test_the_last_step_of_the_warm_up_is_looked_at(warmup: int, possible: bool, right: list[int]) -> None:
    step, looked, before = RepeatedStep(warmup, Ranges(), None, possible), [], nn.Module.__call__
    for index in range(8):
        with step.during(index):
            if nn.Module.__call__ is not before:
                looked.append(index)
    assert looked == right and (step.found is None) is (not right)
