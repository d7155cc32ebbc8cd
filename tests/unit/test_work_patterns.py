"""Work that need not be done is named in training steps that do it, and not in their twins."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from profzoo.fusion import autocast_casts, chains, costs, discarded, gradients, repeated_calls, wide_types
from profzoo.fusion.gradients import Stored, Update
from profzoo.op_costs.tensor_effects import SCATTER
from tests import slow
from tests import wasteful_programs as programs
from tests.wasteful_programs import BATCH, PARTS, WIDTH, Step, train

Make = Callable[[], Step]


def batch() -> torch.Tensor:
    return torch.randn(BATCH, WIDTH)


def recurrent(how: str, layers: int = 1) -> Step:
    return train(programs.Recurrent(how, layers), lambda: torch.randn(PARTS, BATCH, WIDTH))


def in_parts(parts: int) -> Step:
    return train(programs.InParts(parts), batch)


def cast(autocast: bool) -> Step:
    return train(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)), batch, None, autocast
    )


# By pattern: steps that have it, and steps that do not.
STEPS: list[tuple[str, Make, Make]] = [
    (discarded.DISCARDED, lambda: programs.adversarial(detached=False), lambda: programs.adversarial(detached=True)),
    (
        discarded.DISCARDED,
        lambda: programs.adversarial(False, foreach=False),
        lambda: programs.adversarial(True, False),
    ),
    # Of such long lists of parameters the trace does not tell the shapes.
    (
        discarded.DISCARDED,
        lambda: programs.adversarial(False, layers=20),
        lambda: programs.adversarial(True, layers=20),
    ),
    (discarded.DISCARDED, lambda: programs.fine_tuned(frozen=False), lambda: programs.fine_tuned(frozen=True)),
    (wide_types.ENTRY, lambda: programs.scaled(wide=True), lambda: programs.scaled(wide=False)),
    (wide_types.DOUBLE, lambda: programs.scaled(wide=True), lambda: programs.scaled(wide=True, everything=True)),
    (repeated_calls.BATCHES, lambda: in_parts(PARTS), lambda: in_parts(1)),
    (repeated_calls.BATCHES, lambda: in_parts(PARTS), lambda: train(programs.Stack(), batch)),
    (repeated_calls.BATCHES, lambda: in_parts(PARTS), lambda: train(programs.Generating(), batch)),
    (repeated_calls.TIMES, lambda: recurrent("cell"), lambda: recurrent("whole")),
    (repeated_calls.TIMES, lambda: recurrent("written"), lambda: train(programs.Stack(), batch)),
    (repeated_calls.TIMES, lambda: recurrent("written"), lambda: in_parts(PARTS)),
    (autocast_casts.CASTS, lambda: cast(autocast=True), lambda: cast(autocast=False)),
]


def found(step: Step, pattern: str) -> list[chains.Chain]:
    return [chain for chain in programs.trace_chains(step) if chain.pattern == pattern]


# The first step of each pattern, which runs each time.
FIRST = {step[0]: step for step in reversed(STEPS)}.values()


@pytest.mark.parametrize(("pattern", "planted", "twin"), slow.only(STEPS, *FIRST))
def test_work_is_named_where_it_is_and_not_in_its_twin(pattern: str, planted: Make, twin: Make) -> None:
    assert found(planted(), pattern)
    assert not found(twin(), pattern)


def test_the_discarded_gradients_are_those_of_the_generator_for_the_judges_loss() -> None:
    own = found(programs.adversarial(detached=False), discarded.DISCARDED)
    calls = [call for chain in own for call in chain.calls]
    assert all(call.direction == "backward" and not call.module.startswith("(others)") for call in calls)
    # Three layers: gradients of three weights and of two inputs; the input of the first is noise.
    assert sum(call.operator == "mm" for call in calls) == 5
    assert all(chain.fused_launches == 0 == chain.fused_bytes for chain in own)


def test_layers_behind_one_that_is_trained_compute_gradients_for_it() -> None:
    # Gradients of the later layers go back to the first one, although their own weights are not trained.
    assert not found(programs.tuned_inside(last=False), discarded.DISCARDED)
    assert not found(programs.tuned_inside(last=True), discarded.DISCARDED)


def test_gradients_that_are_added_up_are_used() -> None:
    first = [Stored(1, "(others).judge", (8, 1), True), Stored(2, "", (8, 8), True)]
    added = [Stored(11, "(others).judge", (8, 1), True), Stored(12, "", (8, 8), False)]
    updates = [Update(5, {(8, 1)}, [(8, 1)]), Update(15, {(8, 8)}, [(8, 8)])]
    assert gradients.find_unused_times([*first, *added], updates, [0, 10]) == []
    forgotten = [*added[:1], Stored(12, "", (8, 8), True)]
    assert gradients.find_unused_times([*first, *forgotten], updates, [0, 10]) == [(1, 2)]
    assert gradients.find_unused_times(first, [], [0]) == []


def test_nothing_is_said_where_it_is_not_known_what_is_updated() -> None:
    stored = [Stored(1, "head", (8, 1), True), Stored(2, "body", (8, 8), True)]
    assert gradients.find_unused_times(stored, [Update(5, {(8, 1)}, [(8, 1)])], [0]) == [(1, 2)]
    assert gradients.find_unused_times(stored, [Update(5, None, None)], [0]) == []
    assert gradients.find_unused_times(stored, [Update(5, {(8, 1)}, [(8, 1)]), Update(6, None, None)], [0]) == []


def test_double_precision_enters_at_the_scale_of_the_first_layer() -> None:
    (entry,) = found(programs.scaled(wide=True), wide_types.ENTRY)
    assert entry.calls[0].operator == "mul"
    assert [one.kind for one in entry.calls[0].reads] == ["float", "double"]
    assert entry.fused_launches < entry.launches and entry.fused_bytes < entry.bytes / 2


def test_single_precision_takes_as_long_as_bytes_and_peaks_say() -> None:
    (entry,) = found(programs.scaled(wide=True), wide_types.ENTRY)
    peaks = {"dram": 2e12, "fp64": 6e13, "fp32": 6e13, "tf32": 4.2e14}
    rates, plain = (replace(costs.measure_rates(entry.calls, peaks, tf32), shortest_ns=0.0) for tf32 in (True, False))
    pointwise, share = replace(entry, kept_ns=0.0), entry.fused_bytes / entry.bytes
    assert costs.fused_time(pointwise, rates).fused_ns == pytest.approx(entry.ns * share)
    kinds = [replace(call, effects=call.effects._replace(kind=SCATTER)) for call in entry.calls]
    atomic = costs.fused_time(replace(pointwise, calls=tuple(kinds)), rates)
    assert atomic.fused_ns == pytest.approx(entry.ns * share**0.5) and atomic.high == pytest.approx(entry.ns)
    products = replace(entry, kept_ns=entry.ns)
    assert costs.fused_time(products, rates).fused_ns == pytest.approx(entry.ns / 7)
    assert costs.fused_time(products, plain).fused_ns == pytest.approx(entry.ns)
    assert costs.fused_time(products, plain).low == pytest.approx(entry.ns / 7)


def test_parts_of_a_batch_are_one_call_with_as_many_bytes_and_operations() -> None:
    forward, backward = found(in_parts(PARTS), repeated_calls.BATCHES)
    assert forward.fused_launches == forward.launches / PARTS
    assert forward.flop == 2 * BATCH * (WIDTH * 4 * WIDTH + 4 * WIDTH * 5)
    assert backward.calls[0].direction == "backward"


def test_a_recurrence_keeps_a_kernel_per_time_step() -> None:
    forward = found(recurrent("written"), repeated_calls.TIMES)[0]
    assert forward.fused_launches == PARTS < forward.launches


def test_each_layer_of_a_recurrence_has_a_loop_of_its_own() -> None:
    one = found(recurrent("written"), repeated_calls.TIMES)
    three = found(recurrent("written", layers=3), repeated_calls.TIMES)
    forward, single = ([chain for chain in own if chain.calls[0].direction == "forward"] for own in (three, one))
    assert len(forward) == 3 and len(single) == 1 and len(three) == 3 * len(one)
    assert all(chain.fused_launches == PARTS for chain in forward)
    places = [call.place for chain in three for call in chain.calls]
    assert len(places) == len(set(places))
