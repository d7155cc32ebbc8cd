"""Numbers of first steps, samples of outputs, and what double precision and a stop of dropout change in functions."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from profzoo.harness.observers import first_steps
from profzoo.harness.observers.first_steps import FirstSteps
from profzoo.harness.step import double_precision
from profzoo.harness.step.double_precision import Changes, change_functions

CELL: Any = {"warmup": 3, "phase": "train", "graph": False}


def test_norms_are_of_all_tensors_together() -> None:
    twice = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([1.0, 3.0]), (3,))
    # 3 and 4, and 1 + 3 at one index; whole numbers and weights without a shape count for nothing.
    tensors = [torch.tensor([3.0]), torch.tensor([[4.0]]), twice, torch.arange(9), nn.LazyLinear(2).weight]
    assert float(first_steps.combine_norms(tensors)) == pytest.approx(math.sqrt(9 + 16 + 16))
    assert float(first_steps.combine_norms([])) == 0.0
    each = first_steps.measure_norms([torch.tensor([3.0, 4.0]), torch.tensor([2.0])])
    assert [float(one) for one in each] == pytest.approx([5, 2])


def test_gradients_are_noted_without_their_scale_in_two_steps() -> None:
    network = nn.Linear(2, 1, bias=False)
    idle = nn.Parameter(torch.ones(7))
    optimizer = torch.optim.SGD([*network.parameters(), idle], lr=0.1)
    first = FirstSteps(CELL, network)
    for step in range(4):
        network.weight.grad, idle.grad = torch.tensor([[3.0, 4.0]]) * (step + 1), torch.zeros(7)
        if first.is_noting():
            first.note_gradients([optimizer], torch.tensor(2.0))
        first.note([torch.ones(2, 2)], torch.tensor(1.0))
    found = first.read([1.0, math.nan, None, 2.0], None)
    assert found["gradient_norms"] == [[2.5], [5.0]] and found["data_sums"] == [4.0, 4.0]
    # The gradient of seven parameters is zero.
    assert found["used_parameters"] == 2 and found["losses"] == [1.0, None, 2.0]


def test_an_optimizer_that_only_steps_is_taken_to_step_all_parameters() -> None:
    """Training steps of models wrap optimizers in objects that have what their steps call, and no more."""
    network, wrapped = nn.Linear(2, 1, bias=False), SimpleNamespace(step=lambda: None)
    network.weight.grad = torch.tensor([[3.0, 4.0]])
    first = FirstSteps(CELL, network)
    first.note_gradients([wrapped], torch.tensor(1.0))  # type: ignore[list-item]
    assert first.read([], None)["gradient_norms"] == [[5.0]]


@pytest.mark.parametrize(
    ("more", "steps"), [({}, 2), ({"warmup": 1}, 1), ({"warmup": 0}, 0), ({"warmup": 2, "graph": True}, 1)]
)
def test_only_uncaptured_steps_of_the_warm_up_are_looked_into(more: dict[str, Any], steps: int) -> None:
    first = FirstSteps({**CELL, **more}, nn.Linear(1, 1))
    for _ in range(3):
        first.note([torch.ones(1)], None)
    assert len(first.read([], None)["data_sums"]) == steps


def test_buffers_and_outputs_are_noted() -> None:
    network = nn.BatchNorm1d(2, affine=False)
    first = FirstSteps({**CELL, "phase": "inference"}, network)
    assert isinstance(network.running_mean, Tensor)
    for step in range(2):
        network.running_mean.fill_(3.0 * step)
        first.note([torch.ones(1)], {"scores": torch.tensor([3.0, 4.0]), "words": torch.tensor([7, 8])})
    found = first.read([], torch.tensor([5.0]))
    # Variances of 1, and means of 0 or 3.
    assert found["buffer_norms"] == pytest.approx([math.sqrt(2), math.sqrt(20), math.sqrt(20)])
    (scores, words) = found["outputs"][0]
    assert scores["values"] == [3.0, 4.0] and scores["rms"] == pytest.approx(math.sqrt(12.5))
    assert words == {"values": [7.0, 8.0], "rms": None} and found["last_outputs"][0]["values"] == [5.0]


def test_samples_of_no_number_are_zero() -> None:
    (sample,) = first_steps.sample_on_device(torch.tensor([math.nan, 2.0]))
    assert sample.read() == {"values": [0.0, 2.0], "rms": None}


def test_functions_compute_in_double_precision() -> None:
    numbers = torch.ones(2, dtype=torch.float64)
    with change_functions(Changes(double=True, drops=True)):
        made = (numbers.float(), numbers.half(), numbers.to(torch.bfloat16), numbers.softmax(0, dtype=torch.float32),
                torch.zeros(2), torch.zeros(2, dtype=torch.float16), numbers.long())  # fmt: skip
    assert [one.dtype for one in made] == [torch.float64] * 6 + [torch.int64]
    assert torch.zeros(1).dtype == torch.float32 and numbers.float().dtype == torch.float32


def test_dropout_is_stopped_and_its_shares_are_noted() -> None:
    changes = Changes(double=False, drops=False)
    ones = torch.ones(1, 1, 4, 4)
    with change_functions(changes):
        assert torch.equal(nn.Dropout(0.25)(ones), ones) and torch.equal(functional.dropout2d(ones), ones)
        functional.scaled_dot_product_attention(ones, ones, ones, dropout_p=0.125)
        functional.scaled_dot_product_attention(ones, ones, ones, None, 0.0625)
        assert torch.equal(functional.dropout(ones, 0.75, training=False), ones)
    assert changes.dropouts == [0.25, 0.5, 0.125, 0.0625]
    network = nn.ModuleList([nn.LSTM(2, 2, 2, dropout=0.3), nn.MultiheadAttention(2, 1, dropout=0.2), nn.GRU(2, 2)])
    assert double_precision.stop_dropout(network) == [0.3, 0.2] and not network[0].dropout


def test_a_sample_of_outputs_is_64_numbers_shared_by_tensors() -> None:
    sample = first_steps.sample_outputs
    assert sample(torch.arange(128.0)) == [2 * n for n in range(64)] and sample(torch.arange(5.0)) == [*range(5)]
    # 32 each of 64 and of 33; 33 * n // 32 is n up to the last but none beyond.
    assert sample([torch.arange(64.0), torch.arange(33.0)]) == [*range(0, 64, 2), *(33 * n // 32 for n in range(32))]
    assert sample([torch.full((3,), float(n)) for n in range(70)]) == list(range(64))
    given = [torch.ones(2, dtype=torch.complex64), torch.ones(0), torch.ones(2, dtype=torch.int64), torch.tensor(7.0)]
    assert sample(given) == [7] and sample(torch.arange(3)) == sample(None) == []
    assert sample(torch.tensor([1.001]).bfloat16()) == [1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.complex64, torch.float8_e5m2])
def test_one_number_that_is_not_finite_is_found(dtype: torch.dtype) -> None:
    fine, bad = torch.ones(4).to(dtype), torch.tensor([1.0, math.inf, 1.0]).to(dtype)
    assert first_steps.is_finite([fine, torch.ones(0), torch.ones(2, dtype=torch.int64)])
    assert first_steps.is_finite([torch.tensor([1e300], dtype=torch.float64)])
    for wrong in ([bad, fine], [fine, torch.tensor([math.nan, 1.0]).to(dtype)], {"a": fine, "b": bad}):
        assert not first_steps.is_finite(wrong)


def test_parts_of_gradients_movements_of_weights_and_draws_are_noted() -> None:
    """Two tensors of weights move by 3 and 4, and 17 gradients are joined to 16 parts."""
    network = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(17))
    first = FirstSteps(CELL, network)
    found = []
    for step in range(3):
        for one in network:
            one.grad = torch.full((1,), 2.0)
        if first.is_noting():
            first.note_gradients([torch.optim.SGD(network.parameters(), lr=0.1)], torch.tensor(2.0))
        with torch.no_grad():
            network[0] += 3.0
            network[1] -= 4.0 * step
        torch.manual_seed(7)
        found.append(first_steps._describe_draws(network))
        torch.rand(step)
        first.note([torch.ones(1)], torch.tensor(1.0))
    seen = first.read([1.0], None)
    assert seen["movements"] == pytest.approx([3.0, 5.0])
    assert [len(step) for step in seen["gradient_parts"]] == [16, 16]
    assert seen["gradient_parts"][0] == pytest.approx([1.0] * 15 + [math.sqrt(2)])
    # Nothing was drawn after the seed in the first step, and one number in the second one.
    assert seen["draws"][0] == found[0] == found[1] != seen["draws"][1] and len(seen["draws"]) == 2
    assert all(0 <= draw < 2**48 for draw in seen["draws"])


def test_where_processes_hold_parts_of_weights_their_movements_are_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_steps.distributed, "is_split", lambda weight: True)
    first = FirstSteps(CELL, nn.Linear(1, 1))
    first.note([torch.ones(1)], torch.tensor(1.0))
    assert first.read([1.0], None)["movements"] == []


def test_numbers_are_rounded_up_or_down_by_chance() -> None:
    """A quarter of the way from 1 to the next number in bf16, one in four is rounded up."""
    generator = torch.Generator().manual_seed(0)
    between = torch.full((40_000,), 1.0 + 2.0**-7 / 4)
    found = double_precision.round_at_random(between, "bf16", generator)
    assert torch.equal(found, found.bfloat16().float()) and set(found.tolist()) == {1.0, 1.0 + 2.0**-7}
    # The standard deviation of this mean is 2**-7 * 0.0022.
    assert float(found.double().mean()) == pytest.approx(float(between[0]), abs=5 * 2.0**-7 * 0.0022)
    exact = torch.tensor([-1.5, 0.0, 3.0])
    assert torch.equal(double_precision.round_at_random(exact, "bf16", generator), exact)
    # In fp32, to a neighbour or not at all; zeros stay.
    ulps = (double_precision.round_at_random(torch.ones(3000), "fp32", generator) - 1) * 2**24
    assert set(ulps.tolist()) == {-1.0, 0.0, 2.0}
    low = double_precision.round_at_random(torch.tensor([0.0, 1.0]).bfloat16(), "bf16", generator)
    assert low.dtype == torch.bfloat16 and low[0] == 0 and abs(float(low[1]) - 1) <= 2.0**-7
