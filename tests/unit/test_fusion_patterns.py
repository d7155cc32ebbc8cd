"""Patterns of work that is written out are named in programs that have them, and not in their fused twins."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from profzoo.fusion import attention, loops, losses, row_patterns, updates, weights
from profzoo.fusion.chains import OTHER
from tests import fused_programs as programs

Make = Callable[[], nn.Module]
# By pattern: programs that have it, and programs that do not.
NETWORKS: list[tuple[str, Make, Make]] = [
    (attention.ATTENTION, programs.Attention, lambda: programs.Attention(fused=True)),
    (attention.ATTENTION, lambda: programs.Attention(einsum=True), lambda: programs.Experts(looped=False)),
    (attention.ATTENTION, lambda: programs.Attention(careful=True), programs.LSTMCell),
    (row_patterns.LAYER_NORM, programs.LayerNorm, lambda: nn.LayerNorm(programs.WIDTH)),
    (row_patterns.LAYER_NORM, lambda: programs.LayerNorm(variance=True), programs.RMSNorm),
    (row_patterns.RMS_NORM, programs.RMSNorm, lambda: nn.RMSNorm(programs.WIDTH)),
    (row_patterns.RMS_NORM, programs.RMSNorm, programs.LayerNorm),
    (row_patterns.GELU, lambda: programs.Applied(programs.gelu_tanh), lambda: programs.Applied(nn.GELU("tanh"))),
    (row_patterns.GELU, lambda: programs.Applied(programs.gelu_erf), programs.LSTMCell),
    (row_patterns.SILU, lambda: programs.Applied(programs.silu), lambda: programs.Applied(nn.SiLU())),
    (row_patterns.SILU, lambda: programs.Applied(programs.silu), programs.LSTMCell),
    (row_patterns.SOFTMAX, lambda: programs.Applied(programs.softmax), lambda: programs.Applied(nn.Softmax(-1))),
    (row_patterns.ROTARY, lambda: programs.Applied(programs.rotated), lambda: programs.Applied(torch.neg)),
    (loops.EXPERTS, lambda: programs.Experts(looped=True), lambda: programs.Experts(looped=False)),
    (
        loops.EXPERTS,
        lambda: programs.Experts(looped=True),
        lambda: nn.Sequential(*(programs.Applied(torch.relu) for _ in range(6))),
    ),
    (loops.HEADS, programs.LoopedHeads, programs.Attention),
    (loops.HEADS, programs.LoopedHeads, programs.LSTMCell),
    (loops.EXPERTS, lambda: programs.OwnExperts(looped=False), programs.LSTMCell),
    (loops.HEADS, programs.HeadModules, lambda: programs.HeadModules(stacked=True)),
    (weights.ONE_HOT, programs.EinsumOneHot, lambda: programs.EinsumOneHot(picked=True)),
    (weights.CASTS, programs.CastWeights, lambda: programs.CastWeights(kept=True)),
    (weights.ONE_HOT, programs.OneHot, lambda: programs.OneHot(picked=True)),
]


def patterns(*given: Any, **named: Any) -> set[tuple[str, bool]]:
    """Of a program the patterns of its chains, with whether they are of the backward pass."""
    found = programs.trace_chains(*given, **named)
    return {(chain.pattern, chain.calls[0].direction == "backward") for chain in found}


@pytest.mark.parametrize(("pattern", "planted", "twin"), NETWORKS)
def test_a_pattern_is_named_where_it_is_and_not_in_its_twin(pattern: str, planted: Make, twin: Make) -> None:
    found = patterns(planted())
    assert (pattern, False) in found
    assert (pattern, True) in found, "the backward pass has its part"
    assert pattern not in {name for name, _ in patterns(twin())}


@pytest.mark.parametrize("loss", [programs.gathered, programs.summed, programs.one_hot])
def test_a_loss_that_is_written_out(loss: Any) -> None:
    assert {(losses.LOSS, False), (losses.LOSS, True)} <= patterns(programs.Classifier(), loss)


@pytest.mark.parametrize("loss", [programs.torchs_loss, programs.soft_targets, programs.mean_square])
def test_a_loss_of_torch_is_not_named(loss: Any) -> None:
    assert losses.LOSS not in {name for name, _ in patterns(programs.Classifier(), loss)}


@pytest.mark.parametrize(
    ("given", "pattern"),
    [({"foreach": False}, updates.LOOPED), ({"foreach": True}, updates.FOREACH), ({"fused": True}, None)],
)
def test_an_optimizer_goes_by_its_implementation(given: dict[str, bool], pattern: str | None) -> None:
    network = nn.Sequential(*(nn.Linear(programs.WIDTH, programs.WIDTH) for _ in range(4)))
    found = {name for name, _ in patterns(network, optimize=programs.adam(**given))}
    assert found & {updates.LOOPED, updates.FOREACH} == ({pattern} if pattern else set())


@pytest.mark.parametrize("foreach", [False, True])
def test_a_weight_average_of_one_tensor_at_a_time(foreach: bool) -> None:
    network = nn.Sequential(*(nn.Linear(programs.WIDTH, programs.WIDTH) for _ in range(8)))
    found = {name for name, _ in patterns(network, optimize=programs.averaged(foreach))}
    assert (updates.AVERAGE in found) != foreach


def test_weights_that_autocast_changes_are_named_and_inputs_are_not() -> None:
    chains = programs.trace_chains(programs.Applied(torch.relu), autocast=True)
    cast = [call for chain in chains if chain.pattern == weights.CASTS for call in chain.calls]
    assert [call.direction for call in cast].count("forward") == [call.direction for call in cast].count("backward")
    assert [call.writes[0].shape for call in cast] == [(programs.WIDTH, programs.WIDTH)] * 4


def test_what_has_no_name_is_a_chain_of_elementwise_work() -> None:
    network = programs.Applied(lambda x: torch.relu(x * 2 + 1).sqrt() - x)
    assert (OTHER, False) in patterns(network)
    assert patterns(nn.Linear(programs.WIDTH, programs.WIDTH), lambda y: y.sum()) == set()
