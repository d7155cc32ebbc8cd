"""What fusing saves: bytes by hand, times by rates; and calls of a traced step."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from profzoo.fusion import calls, gains, patterns, row_patterns, table
from profzoo.fusion.calls import read_step
from profzoo.fusion.chains import OTHER, Chain
from profzoo.fusion.gains import Rates, fused_time, measure_rates
from profzoo.op_costs.tensor_effects import LISTS, NORM, PRODUCT, REDUCTION, SCATTER, Effects, Tensor
from profzoo.tools.torch.trace import make_trace
from tests import fused_programs as programs
from tests import slow
from tests.written_programs import make_flow, tensor, work

# Bytes of a tensor (batch, places, width) of floats, and of the scores of all heads.
TENSOR = 4 * programs.BATCH * programs.PLACES * programs.WIDTH
SCORES = 4 * programs.BATCH * programs.HEADS * programs.PLACES**2
# Rate of the kernels of traces made here, in bytes per ns: so low that the host is done long before, however busy.
RATE = 2e-4


@functools.cache
def traced(make: Callable[..., nn.Module], *given: Any) -> list[Chain]:
    return programs.trace_chains(make(), *given)


def chains_of(pattern: str, *given: Any, backward: bool = False) -> list[Chain]:
    """The chains of a pattern in a program, of one pass."""
    found = traced(*given)
    ways = ("backward",) if backward else ("forward", "optimizer") if pattern != row_patterns.LOSS else ("loss",)
    return [one for one in found if one.pattern == pattern and one.calls[0].direction in ways]


def test_bytes_of_elementwise_work_by_hand() -> None:
    (chain,) = chains_of(OTHER, lambda: programs.Applied(lambda x: torch.relu(x * 2 + 1)))
    assert [call.operator for call in chain.calls] == ["mul", "add", "relu"]
    assert (chain.bytes, chain.fused_bytes, chain.launches, chain.fused_launches) == (6 * TENSOR, 2 * TENSOR, 3, 1)


def test_bytes_of_attention_by_hand() -> None:
    (chain,) = chains_of(row_patterns.ATTENTION, programs.Attention)
    (behind,) = chains_of(row_patterns.ATTENTION, programs.Attention, backward=True)
    mask = programs.PLACES**2
    names = [call.operator for call in chain.calls]
    assert names[-1] == "bmm" and names.count("bmm") == 2 and "_softmax" in names
    of_scores = [call for call in chain.calls if call.writes and call.writes[0].bytes == SCORES]
    # Queries and keys to scores; quotient; copy; mask; softmax. A product copies what it cannot read as it is.
    assert sum(call.effects.bytes for call in of_scores) == 2 * TENSOR + 9 * SCORES + mask
    # Queries, keys and values are read, and the result is written; then also its gradient, and three are written.
    assert chain.fused_bytes == 4 * TENSOR and behind.fused_bytes == 9 * TENSOR
    assert chain.fused_launches == behind.fused_launches == 1


NETWORKS = [
    programs.Attention, programs.LayerNorm, programs.RMSNorm, programs.LSTMCell, programs.LoopedHeads, programs.OneHot,
    programs.CastWeights, lambda: programs.Experts(looped=True), lambda: programs.Applied(programs.gelu_tanh),
    lambda: programs.Applied(programs.rotated), lambda: nn.TransformerEncoderLayer(programs.WIDTH, 4, batch_first=True),
]  # fmt: skip


@pytest.mark.parametrize("make", slow.first(NETWORKS))
def test_nothing_is_counted_twice_and_nothing_takes_longer_fused(make: Any) -> None:
    events = programs.with_kernels(programs.traced_steps(make()), RATE)
    step = read_step(make_trace(events))
    rates = measure_rates(step.calls, {"dram": RATE * 1e9})
    found, numbered = table.make_chains(step, {"dram": RATE * 1e9})
    used = [launch for _, chain in numbered for call in chain.calls for launch in call.launches]
    assert len(used) == len(set(used)) == found["launches"].sum() and found["launches"].sum() <= len(step.launches)
    assert found["ns"].sum() <= step.launches["ns"].sum()
    assert (found["fused_ns"] <= found["ns"]).all() and (found["fused_bytes"] <= found["bytes"]).all()
    assert (found["fused_ns_low"] <= found["fused_ns"]).all() and (found["fused_ns"] <= found["fused_ns_high"]).all()
    # Every kernel moves bytes at one rate, and so a chain takes as long as its bytes; an index alone takes one.
    for _, chain in numbered:
        assert chain.ns == pytest.approx(chain.bytes / RATE, rel=1e-2)
        assert fused_time(chain, rates).fused_ns <= chain.ns


def two_calls(kind: str, **changed: Any) -> Chain:
    """Two calls of 1000 floats read and 1000 written, of 8 ns each; fused, 4000 bytes are read and 4000 written."""
    call = work("x", [(1000,)], [(1000,)], kind=kind)
    return Chain(OTHER, (call, replace(call, place=1)), 8000.0, **changed)


@pytest.mark.parametrize(
    ("chain", "rates", "right"),
    [
        # At 2000 bytes per ns 4 ns, at the chain's own 16000 / 16 ns 8 ns; the lower end is expected.
        (two_calls("pointwise"), Rates(2000.0, 1.0, 0.0), (4.0, 4.0, 8.0)),
        # Sums and normalisations lie between: the root of 4 * 8.
        (two_calls(NORM), Rates(2000.0, 1.0, 0.0), (32**0.5, 4.0, 8.0)),
        (two_calls(REDUCTION), Rates(2000.0, 1.0, 0.0), (32**0.5, 4.0, 8.0)),
        # One launch takes 5 ns, and three of them longer than 8 ns.
        (two_calls("pointwise"), Rates(2000.0, 5.0, 0.0), (5.0, 5.0, 8.0)),
        (two_calls("pointwise", fused_launches=3.0), Rates(2000.0, 3.0, 0.0), (9.0, 9.0, 9.0)),
        # No longer than now, and with nothing known of memory as fast as now.
        (two_calls("pointwise", fused_launches=9.0), Rates(2000.0, 3.0, 0.0), (16.0, 16.0, 16.0)),
        (two_calls("pointwise"), Rates(0.0, 1.0, 0.0), (8.0, 8.0, 8.0)),
        # 24 operations at 2 per ns.
        (two_calls("pointwise", flop=24.0), Rates(2000.0, 1.0, 2.0), (12.0, 12.0, 12.0)),
        # A product keeps its 6 ns; what moves beside it takes up to 8000 * 16 / 16000 ns more.
        (two_calls(NORM, kept_ns=6.0), Rates(2000.0, 1.0, 0.0), (6.0, 4.0, 14.0)),
        # Of bytes that the trace does not show: 8000 are expected, 2000 to 20000 are possible.
        (two_calls("pointwise", bytes_between=(2000.0, 20000.0)), Rates(2000.0, 0.5, 0.0), (4.0, 1.0, 10.0)),
        (two_calls("pointwise", bytes_between=(2000.0, 90000.0)), Rates(2000.0, 3.0, 0.0), (4.0, 3.0, 16.0)),
        # In single precision half of the bytes take half of the time, but no less than at the bandwidth.
        (two_calls("pointwise", narrowed=True), Rates(2000.0, 1.0, 0.0), (8.0, 4.0, 8.0)),
        (two_calls("pointwise", narrowed=True), Rates(500.0, 1.0, 0.0), (8.0, 8.0, 8.0)),
        (two_calls("pointwise", narrowed=True), Rates(2000.0, 10.0, 0.0), (10.0, 10.0, 10.0)),
        # 10 of 16 ns are products, twice to five times as fast, four times expected: 2.5 + 3, 2 + 3, 5 + 3.
        (two_calls("pointwise", narrowed=True, kept_ns=10.0), Rates(0.0, 1.0, 0.0, (4.0, 2.0, 5.0)), (5.5, 5.0, 8.0)),
        # Calls whose tensors are not known keep their time, but for what memory could do at best.
        (replace(two_calls("pointwise", narrowed=True), calls=(replace(two_calls("pointwise").calls[0], ns=16.0,
         effects=Effects("pointwise", (), ())),)), Rates(2000.0, 1.0, 0.0), (16.0, 4.0, 16.0)),
        # As many atomic sums as before: between half and all of their time.
        (two_calls(SCATTER, narrowed=True), Rates(2000.0, 1.0, 0.0), (16 * 0.5**0.5, 4.0, 16.0)),
    ],
)  # fmt: skip
def test_times_of_a_fused_chain_by_hand(chain: Chain, rates: Rates, right: tuple[float, float, float]) -> None:
    found = fused_time(chain, rates)
    assert found.ns == 16.0 and (found.fused_ns, found.low, found.high) == pytest.approx(right)


def test_rates_by_hand() -> None:
    """The bandwidth is that of the nine in ten of large calls, the shortest launch the first of ten."""
    large = 1 << 28
    call = replace(work("x", [(large // 4,)]), ns=1.0)
    calls = [replace(call, ns=float(large / rate)) for rate in range(1, 12)]
    found = measure_rates(calls, {})
    assert found.bytes_per_ns == pytest.approx(10) and found.shortest_ns == pytest.approx(large / 10)
    assert found.flop_per_ns == 0 and measure_rates(calls, {"dram": 3e12}).bytes_per_ns == 3000
    # A byte less fits into a cache, and one of two launches takes half of the call.
    small = replace(call, effects=Effects("pointwise", (Tensor((1,), 4, "float", large // 4 - 1),), ()))
    assert measure_rates([small], {}).bytes_per_ns == 0
    assert measure_rates([replace(call, launches=(1, 2), ns=8.0)], {}).shortest_ns == 4
    # Products of 2 * 1000 * 1000 * 500 operations are the smallest that keep a GPU busy.
    left, right, out = (tensor(shape) for shape in ((1000, 500), (500, 1000), (1000, 1000)))
    product = replace(call, effects=Effects(PRODUCT, (left, right), (out,)), ns=1e6)
    assert measure_rates([product, replace(product, ns=5e5)], {}).flop_per_ns == 2000
    narrow = tensor((1000, 499))
    assert measure_rates([replace(product, effects=Effects(PRODUCT, (narrow, right), (out,)))], {}).flop_per_ns == 0


def test_ratios_by_configuration_are_of_the_launches_that_stay() -> None:
    """Of three launches of a configuration two stay, at 0.5 and 1.5 of their time; of another one none does."""
    keys = dict.fromkeys(gains.KEYS, 1)
    rows = pd.DataFrame([
        {**keys, "ratio": 0.5, gains.STAYS: 1.0, "ns": 30.0}, {**keys, "ratio": 1.5, gains.STAYS: 1.0, "ns": 60.0},
        {**keys, "ratio": 9.0, gains.STAYS: 0.0, "ns": 90.0},
        {**keys, gains.KEYS[0]: 2, "ratio": 7.0, gains.STAYS: 0.0, "ns": 5.0},
    ])  # fmt: skip
    found = gains._by_configuration(rows)
    assert found["launches"].tolist() == [3, 1] and found[gains.STAYS].tolist() == [2, 0]
    assert found["ns"].tolist() == [60, 5] and found["ratio"].tolist() == [1.0, 1.0]
    uneven = gains._by_configuration(rows.assign(ratio=[0.5, 0.7, 9.0, 7.0]))
    assert uneven["ratio"].tolist() == pytest.approx([0.6, 1.0])


def test_a_chain_of_products_alone_keeps_their_time() -> None:
    one = work("mm", [(10, 5), (5, 10)], [(10, 10)])
    found = fused_time(Chain(OTHER, (one, one), 800.0, kept_ns=12.0), Rates(2000.0, 1.0, 0.0))
    assert (found.ns, found.fused_ns, found.high) == (16.0, 12.0, 12.0)


def test_nothing_is_expected_of_single_precision_without_a_peak_of_double() -> None:
    peaks = {"fp32": 5e13, "tf32": 4e14}
    assert measure_rates([], peaks, tf32=True).narrowing == measure_rates([], peaks).narrowing == (1.0, 1.0, 1.0)
    assert measure_rates([], {"fp64": 1e13, **peaks}, tf32=True).narrowing == (40.0, 20.0, 40.0)


Events = list[dict[str, Any]]


def event(category: str, name: str, at: float, us: float, args: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": us, "args": args} | more


def operating(
    name: str, at: float, us: float, shapes: Sequence[Any] = (), values: Sequence[str] = (), **more: Any
) -> Events:
    """An operator on floats of these shapes, in us."""
    given = {"External id": int(at), "Input Dims": list(shapes), "Input type": ["float"] * len(shapes),
             "Concrete Inputs": list(values)}  # fmt: skip
    return [event("cpu_op", name, at, us, given | more, tid=1)]


def launching(at: float, of: float, us: float = 2.0, name: str = "k") -> Events:
    """A launch by the operator that began at a time, and its kernel of so many us."""
    linked = {"correlation": int(at) + 50_000, "External id": int(of)}
    placed = linked | {"device": 0, "context": 1, "stream": 7}
    kind = "gpu_memcpy" if " " in name else "kernel"
    return [event("cuda_runtime", "cudaLaunchKernel", at, 1.0, linked, tid=1), event(kind, name, at + 5, us, placed)]


def traced_step(at: float, copies: int = 1) -> Events:
    """A softmax of two launches, one of them by an operator within it; one of no operator; a reading; and copies."""
    ranged = {"ph": "X", "cat": "user_annotation", "name": "profzoo:step", "tid": 1, "ts": at, "dur": 900.0}
    return [
        ranged,
        *operating("aten::softmax", at + 10, 80, [[4, 6]]),
        *operating("aten::_softmax", at + 20, 60, [[4, 6]], ["", "1", "False"], **{"Sequence number": 3}),
        *operating("aten::mul", at + 25, 10, [[4, 6], [6]]),
        *launching(at + 30, at + 25), *launching(at + 50, at + 20, 3.0), *launching(at + 100, 0, 4.0),
        *operating("aten::item", at + 120, 50, [[1]]), *operating("aten::_local_scalar_dense", at + 125, 30, [[1]]),
        *launching(at + 130, at + 125, 1.0, "Memcpy DtoH (Device -> Pageable)"),
        *[event for number in range(copies) for event in (
            *operating("aten::copy_", at + 200 + 50 * number, 30, [[4, 6], [4, 6]]),
            *launching(at + 210 + 50 * number, at + 200 + 50 * number, 1.0 + number, "Memcpy HtoD" if number else "Memcpy DtoD"))],
    ]  # fmt: skip


def test_calls_of_a_traced_step_by_hand() -> None:
    """Of the first of the steps that have the most frequent number of launches."""
    events = [*traced_step(0, copies=0), *traced_step(1000, copies=2), *traced_step(2000, copies=2)]
    step = read_step(make_trace(events))
    assert step.gpu and len(step.launches) == 6
    told = [(one.place, one.operator, one.ns, one.launches, one.began, one.sequence) for one in step.calls]
    assert told == [
        (0, "_softmax", 5000, (0, 1), 1_020_000, 3), (1, "", 4000, (2,), 0, -1),
        (2, "_local_scalar_dense", 1000, (3,), 1_125_000, -1), (3, "copy_", 1000, (4,), 1_200_000, -1),
        (4, "copy_", 2000, (5,), 1_250_000, -1),
    ]  # fmt: skip
    softmax, unknown, reading, within, crossing = step.calls
    assert softmax.around == ("aten::softmax",) and softmax.outer == ((4, 6),) and softmax.values == ("", "1", "False")
    assert softmax.effects.bytes == 2 * 96 and softmax.kind == "softmax" and softmax.count == 2 and softmax.fusible
    assert reading.around == ("aten::item",) and reading.kind == unknown.kind == "opaque" and not unknown.fusible
    # A copy within the GPU can be fused, one between the host and the GPU is not work of a kernel.
    assert within.effects.bytes == 2 * 96 and within.kind == "copy" and within.outer == ((4, 6), (4, 6))
    assert crossing.effects == calls.NOTHING and within.around == ()
    assert not any(one.updates or one.discarded for one in step.calls)
    # On a CPU, operators have their own time, and a call counts as one launch.
    told = read_step(make_trace([event for event in events if event["cat"] in ("cpu_op", "user_annotation")]))
    assert not told.gpu and told.launches.empty
    # Of 60 us 10 are the operator's within.
    assert [(one.operator, one.ns, one.began, one.count) for one in told.calls] == [
        ("_softmax", 50_000, 1_020_000, 1), ("copy_", 30_000, 1_200_000, 1), ("copy_", 30_000, 1_250_000, 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "right"),
    [
        # The first step of the most frequent size; of sizes alike frequent the largest; without steps all.
        ([0, 1, 1, 2, 2], [1, 2]), ([0, 0, 0, 1, 1, 2], [0, 1, 2]), ([None, 4, 4, None, 5, 5], [1, 2]), ([None, None], [0, 1]), ([], []),
    ],
)  # fmt: skip
def test_the_typical_step_by_hand(steps: list[int | None], right: list[int]) -> None:
    assert np.flatnonzero(calls._typical(pd.Series(steps, dtype="Int64"))).tolist() == right


def test_launches_belong_to_the_outermost_operator_that_works() -> None:
    parents, works = np.array([-1, 0, 1, 2, -1, 4, -1]), np.array([False, True, False, True, False, False, True])
    outermost = calls._outermost(works, parents)
    assert outermost.tolist() == [-1, 1, 1, 1, -1, -1, 6]
    groups = calls._groups(np.array([3, 6, 5, -1, 2, 5, -1, 0]), outermost, pd.DataFrame())
    assert groups == {1: [0, 4], 6: [1], 5: [2, 5], -5: [3], -8: [6], 0: [7]}
    outermost = calls._outermost(np.array([True, False]), np.array([-1, 0]))
    assert calls._groups(np.array([1, 0, 1]), outermost, pd.DataFrame()) == {0: [0, 1, 2]}


STEPPING = {"direction": "optimizer", "updates": True}
AFTER = {"direction": "step"}


def lists(operator: str, *sizes: int, **more: Any) -> tuple[Any, ...]:
    """A call on lists of tensors of these sizes, in place."""
    return operator, [(size,) for size in sizes], [(size,) for size in sizes], {"kind": LISTS, **STEPPING, **more}


def singly(operator: str, count: int, fields: dict[str, Any], size: int = 100) -> list[Any]:
    return [(operator, [(size,), (size,)], [(size,)], fields)] * count


@pytest.mark.parametrize(
    ("made", "right"),
    [
        # Pattern, calls, and bytes and launches that remain. Of 400 bytes each: weight and gradient read, weight written.
        (singly("add_", 16, STEPPING), []),
        (singly("add_", 16, STEPPING) + singly("mul", 16, STEPPING), [(patterns.LOOPED, range(32), 3 * 16 * 400, 1)]),
        (singly("add_", 7, STEPPING) + singly("mul", 8, STEPPING), []),
        (singly("add_", 8, STEPPING) + singly("mul", 8, STEPPING), [(patterns.LOOPED, range(16), 3 * 8 * 400, 1)]),
        # Adam reads and writes weight, gradient and two means; with momentum one mean.
        (singly("mul_", 8, STEPPING) * 2 + singly("lerp_", 8, STEPPING) + singly("addcdiv_", 8, STEPPING),
         [(patterns.LOOPED, range(32), 7 * 8 * 400, 1)]),
        (singly("mul_", 8, STEPPING) * 2 + singly("add_", 8, STEPPING), [(patterns.LOOPED, range(24), 5 * 8 * 400, 1)]),
        # Without an optimizer of torch, that of the program is what runs in its part of the step.
        (singly("add_", 16, {"direction": "optimizer"}) + singly("mul", 16, {"direction": "optimizer"}),
         [(patterns.LOOPED, range(32), 3 * 16 * 400, 1)]),
        (singly("add_", 16, AFTER) + singly("mul", 16, AFTER), []),
        (singly("mul", 16, STEPPING | {"direction": "backward"}) * 2, []),
        # All tensors at once: two operations are enough, one is not, nor one that is fused already.
        ([lists("_foreach_mul_", 100, 50), lists("_foreach_add_", 100, 50)], []),
        ([lists("_foreach_div_", 100, 50), lists("_foreach_add_", 100, 50)], [(patterns.FOREACH, [0, 1], 3 * 600, 1)]),
        ([lists("_foreach_mul_", 100, 50)] * 2 + [lists("_foreach_add_", 100, 50)], [(patterns.FOREACH, [0, 1, 2], 5 * 600, 1)]),
        ([lists("_foreach_lerp_", 100)] * 3 + [lists("_foreach_addcdiv_", 100)], [(patterns.FOREACH, range(4), 7 * 400, 1)]),
        ([lists("_foreach_add_", 100, launches=(1, 2))], []),
        ([lists("_fused_adam_", 100)] * 4, []),
        # Averages of weights and norms of gradients behind an optimizer of torch, sixteen at least.
        ([lists("_fused_adam_", 100), *singly("lerp_", 16, AFTER)], [(patterns.AVERAGE, range(1, 17), 3 * 16 * 400, 1)]),
        ([lists("_fused_adam_", 100), *singly("mul", 15, AFTER), *singly("lerp_", 1, {"direction": "optimizer"})],
         [(patterns.AVERAGE, range(1, 17), 3 * 400, 1)]),
        ([lists("_fused_adam_", 100), *singly("lerp_", 15, AFTER)], []),
        ([lists("_fused_adam_", 100), *singly("lerp_", 16, AFTER, size=1)], []),
        ([lists("_fused_adam_", 100), *singly("lerp_", 16, AFTER, size=2)], [(patterns.AVERAGE, range(1, 17), 3 * 16 * 8, 1)]),
        ([lists("_fused_adam_", 100), *singly("tanh", 16, AFTER)], []),
        ([lists("_fused_adam_", 100), *singly("lerp_", 16, {"direction": "forward"})], []),
        (singly("lerp_", 16, AFTER), []),
        ([lists("_fused_adam_", 100), *[("norm", [(100,)], [(1,)], AFTER)] * 16], [(patterns.NORMS, range(1, 17), 16 * 400, 1)]),
        ([lists("_fused_adam_", 100), *[("linalg_vector_norm", [(100,)], [(1,)], AFTER)] * 37],
         [(patterns.NORMS, range(1, 38), 37 * 400, 2)]),
        ([lists("_fused_adam_", 100), *[("norm", [(100,)], [(1,)], AFTER)] * 15], []),
        ([lists("_fused_adam_", 100), *[("sum", [(100,)], [(1,)], AFTER)] * 16], []),
    ],
)  # fmt: skip
def test_updates_of_weights_by_hand(made: list[Any], right: list[Any]) -> None:
    found = list(patterns.find_updates(make_flow(*made), frozenset()))
    told = [(one.pattern, [each.place for each in one.calls], one.fused_bytes, one.fused_launches) for one in found]
    assert told == [(name, list(places), *more) for name, places, *more in right]
    assert not list(patterns.find_updates(make_flow(*made), frozenset(range(1, len(made)))))
