"""The steps that verdicts are held against on a GPU: each runs on a CPU too, and mended it computes the same."""

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests import planted_simulated
from tests.gpu import planted, test_planted

# Channels that convolutions of a few are done as, counted on H200s.
TILE = 32


@pytest.mark.parametrize("program", list(planted.PROGRAMS))
def test_a_planted_step_computes_what_the_mended_one_does(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As much as a GPU needs to be slow would take a CPU long.
    monkeypatch.setattr(planted.Strided, "NUMBERS", 1 << 10)
    outputs = []
    for fault in (True, False):
        torch.manual_seed(0)
        network = planted.PROGRAMS[program](fault, width=16)
        result = network(torch.ones(4))
        planted.loss(result, torch.zeros(4)).backward()
        assert all(parameter.grad is not None for parameter in network.parameters() if parameter.requires_grad)
        assert network.scale.grad is not None
        assert "beside" in dict(network.named_modules())
        outputs.append(result.detach())
    assert outputs[0].shape == outputs[1].shape
    if program != "channels":
        # What is added is a thousandth, of which bf16 rounds sums of sixteen products.
        assert torch.allclose(*outputs, atol=0.02)


def test_samples_take_long_only_where_that_is_planted() -> None:
    taken = {}
    for fault in (True, False):
        shape = SimpleNamespace(program=planted.LOADER, fault=fault)
        samples = [planted.sample(shape, torch.Generator()) for _ in range(4)]
        began = time.monotonic()
        numbers, targets = planted.collate(samples)
        taken[fault] = time.monotonic() - began
        assert numbers.shape == targets.shape == (4,)
    assert taken[True] >= 4 * planted.SLEEP_S > taken[False]


def test_few_channels_keep_a_gpu_busy_for_longer_than_a_slow_cpu_takes_to_launch() -> None:
    """Else the CPU is what holds the step back, as it did on an H200 whose CPU took 2.3 ms of it under nsys."""
    channels, kernel = planted.FewChannels.FEW
    assert channels <= TILE
    many, other = planted.FewChannels.MANY
    assert channels * kernel**2 == pytest.approx(many * other**2, rel=0.02)
    flop = 2 * planted.FewChannels.IMAGES * planted.FewChannels.SIZE**2 * planted.FewChannels.OUT * TILE * kernel**2
    assert flop / planted_simulated.PEAKS["bf16"] > 2 * 2.3e-3


def test_what_verdicts_are_told_by_is_collected() -> None:
    assert {*test_planted.VERDICTS, *test_planted.OF_LAYERS} == set(planted.PROGRAMS) and len(planted.PROGRAMS) == 8
    files = test_planted.collected(Path("r"))
    assert {f"r/{name}/train.ncu.planted.csv" for name in planted.PROGRAMS} < set(files)
    assert {f"r/{name}/train.torch.modules.csv" for name in test_planted.OF_LAYERS} < set(files)
    both = [name for program in test_planted.VERDICTS for name in (program, f"{program}@mended")]
    assert {f"r/{name}/train.{of}.csv" for name in both for of in ("time", "nsys-steps")} < set(files)
    assert "r/peaks/gpu.csv" in files
