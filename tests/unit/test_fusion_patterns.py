"""Patterns of work that is written out are named in programs that have them, and not in their fused twins."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from profzoo.fusion import calls, chains, loops, row_patterns
from profzoo.fusion.calls import NONE, Call, Flow, external_bytes
from profzoo.fusion.chains import OTHER
from profzoo.fusion.patterns import AVERAGE, FOREACH, LOOPED, _launches
from profzoo.op_costs.tensor_effects import NORM, Tensor
from tests import fused_programs as programs
from tests import slow
from tests.written_programs import make_flow, tensor, work

Make = Callable[[], nn.Module]
# By pattern: programs that have it, and programs that do not.
NETWORKS: list[tuple[str, Make, Make]] = [
    (row_patterns.ATTENTION, programs.Attention, lambda: programs.Attention(fused=True)),
    (row_patterns.ATTENTION, lambda: programs.Attention(einsum=True), lambda: programs.Experts(looped=False)),
    (row_patterns.ATTENTION, lambda: programs.Attention(careful=True), programs.LSTMCell),
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
        lambda: nn.Sequential(*map(programs.Applied, [torch.relu] * 6)),
    ),
    (loops.HEADS, programs.LoopedHeads, programs.Attention),
    (loops.HEADS, programs.LoopedHeads, programs.LSTMCell),
    (loops.EXPERTS, lambda: programs.OwnExperts(looped=False), programs.LSTMCell),
    (loops.HEADS, programs.HeadModules, lambda: programs.HeadModules(stacked=True)),
    (row_patterns.ONE_HOT, programs.EinsumOneHot, lambda: programs.EinsumOneHot(picked=True)),
    (row_patterns.CASTS, programs.CastWeights, lambda: programs.CastWeights(kept=True)),
    (row_patterns.ONE_HOT, programs.OneHot, lambda: programs.OneHot(picked=True)),
]


def patterns(*given: Any, **named: Any) -> set[tuple[str, bool]]:
    """Of a program the patterns of its chains, with whether they are of the backward pass."""
    found = programs.trace_chains(*given, **named)
    return {(chain.pattern, chain.calls[0].direction == "backward") for chain in found}


@pytest.mark.parametrize(("pattern", "planted", "twin"), slow.only(NETWORKS, NETWORKS[1], NETWORKS[13], NETWORKS[19]))
def test_a_pattern_is_named_where_it_is_and_not_in_its_twin(pattern: str, planted: Make, twin: Make) -> None:
    found = patterns(planted())
    assert (pattern, False) in found
    assert (pattern, True) in found, "the backward pass has its part"
    assert pattern not in {name for name, _ in patterns(twin())}


@pytest.mark.parametrize(
    ("loss", "named"),
    slow.first(
        [
            (programs.summed, True),
            (programs.torchs_loss, False),
            (programs.gathered, True),
            (programs.one_hot, True),
            (programs.soft_targets, False),
            (programs.mean_square, False),
        ],
        2,
    ),
)
def test_a_loss_that_is_written_out_is_named_and_one_of_torch_is_not(loss: Any, named: bool) -> None:
    found = patterns(programs.Classifier(), loss)
    assert {way for name, way in found if name == row_patterns.LOSS} == ({False, True} if named else set())


@pytest.mark.parametrize(
    ("optimize", "right"),
    slow.first(
        [
            (programs.adam(foreach=False), {LOOPED}),
            (programs.adam(foreach=True), {FOREACH}),
            (programs.adam(fused=True), set()),
            (programs.averaged(foreach=False), {AVERAGE}),
            (programs.averaged(foreach=True), set()),
        ],
        2,
    ),
)
def test_an_optimizer_goes_by_its_implementation(optimize: Any, right: set[str]) -> None:
    network = nn.Sequential(*(nn.Linear(programs.WIDTH, programs.WIDTH) for _ in range(8)))
    found = {name for name, _ in patterns(network, optimize=optimize)}
    assert right <= found and bool(right) == bool(found & {LOOPED, FOREACH, AVERAGE})


def test_what_has_no_name_is_a_chain_of_elementwise_work() -> None:
    network = programs.Applied(lambda x: torch.relu(x * 2 + 1).sqrt() - x)
    assert (OTHER, False) in patterns(network)
    assert patterns(nn.Linear(programs.WIDTH, programs.WIDTH), lambda y: y.sum()) == set()


@pytest.mark.parametrize(
    ("members", "right"),
    [
        # Two of four members run the same operators, a product among those of the first.
        ([["mm", "relu"], ["mm", "relu"], ["mm"], ["relu"]], True),
        ([["mm", "relu"], ["mm", "relu"], ["mm"], ["relu"], ["mul"]], False),
        ([["mm", "relu"]] * 4, True),
        ([["relu", "mul"]] * 4, False),
        ([["relu"], ["mm"], ["mm"]], False),
    ],
)
def test_members_of_a_list_are_alike_if_most_compute_the_same_product(members: list[list[str]], right: bool) -> None:
    assert loops._alike([[work(one) for one in member] for member in members]) is right


def updated(operator: str, *sizes: int, bytes_of_item: int = 4) -> Call:
    """A call that reads and writes tensors of these sizes in place, as one that takes lists does."""
    tensors = tuple(Tensor((size,), bytes_of_item, "float", size) for size in sizes)
    return work(operator, tensors, tensors, updates=True)


@pytest.mark.parametrize(
    ("calls", "launches"),
    [
        # Weights are what the last operation writes: 36 tensors are one launch of a fused kernel, 37 are two.
        ([updated("mul_", *[9] * 80), updated("add_", *[1] * 36)], 1),
        ([updated("add_", *[1] * 36), updated("add_", 1), updated("mul_", 1)], 2),
        ([updated("mul_", *[9] * 80), updated("add_", *[1] * 37)], 2),
        # 320 blocks of 65,536 elements are one launch.
        ([updated("add_", 320 * 65_536)], 1),
        ([updated("add_", 320 * 65_536, 1)], 2),
        ([updated("add_", 320 * 65_536 * 3)], 3),
    ],
)
def test_launches_of_a_fused_update_by_hand(calls: list[Call], launches: int) -> None:
    assert _launches(calls, "add_") == launches


def test_an_operator_updates_if_it_began_while_an_optimizer_stepped() -> None:
    """From its first ns on, and no more at its last; a range of another name says nothing."""
    texts = ["Optimizer.step#SGD.step", "aten::add_"]
    ranges = {"name": np.array([0, 0, 1]), "start": np.array([30, 10, 0]), "ns": np.array([5, 10, 100])}
    starts = np.array([0, 9, 10, 15, 19, 20, 29, 30, 34, 35, 90])
    trace: Any = SimpleNamespace(texts=texts, ranges=ranges, operators={"start": starts})
    found = calls._updating(trace, np.arange(len(starts)))
    assert starts[found].tolist() == [10, 15, 19, 30, 34]
    none: Any = SimpleNamespace(texts=texts[1:], ranges={"name": np.array([0]), **{one: ranges[one][2:] for one in ("start", "ns")}},
                                operators={"start": starts})  # fmt: skip
    assert not calls._updating(none, np.arange(len(starts))).any()


Shapes = list[tuple[int, ...]]
# Rows of 32 floats, a number per row, a number per column.
X, R, W = (64, 32), (64, 1), (32,)
MAKES, READS = ("mm", [(64, 16), (16, 32)], [X]), ("mm", [X, (32, 8)], [(64, 8)])


def of_x(*operators: str) -> list[tuple[str, Shapes, Shapes]]:
    """Calls from rows to rows."""
    return [(operator, [X], [X]) for operator in operators]


SUMMED, ROOT = ("mean", [X], [R]), [("add", [R], [R]), ("rsqrt", [R], [R])]
SCALED = ("mul", [X, R], [X])


@pytest.mark.parametrize(
    ("times", "recurrent", "right"),
    [
        # Eight products of 2 * 64 * 32 * 16 operations: repeated four times they are two batched ones.
        (4, False, (loops.BATCHES, 2.0)),
        (8, False, (loops.BATCHES, 1.0)),
        # A recurrence keeps a launch per time step; where nothing is saved there is no chain.
        (4, True, (loops.TIMES, 4.0)),
        (8, True, None),
        (1, False, None),
    ],
)
def test_repeated_products_by_hand(times: int, recurrent: bool, right: tuple[str, float] | None) -> None:
    flow = make_flow(*[MAKES] * 8)
    found = list(loops._chains(flow, flow.calls, times, recurrent, frozenset()))
    assert [(one.pattern, one.fused_launches) for one in found] == ([right] if right else [])
    for one in found:
        assert one.flop == 8 * 2 * 64 * 32 * 16
        assert one.fused_bytes == one.bytes == 8 * 4 * (64 * 16 + 16 * 32 + 64 * 32)


# What makes 2048 floats and can be fused or not, what reads them, and a view of them with other rows.
FUSED, READ, V, Y = ("relu", [(2,)], [X]), ("sum", [X], [R]), (32, 64), (48, 32)
LINEAR = {"around": ("aten::linear",)}
BACK = {"direction": "backward"}


@pytest.mark.parametrize(
    ("calls", "makers"),
    [
        # Among unread values the last one first, then the last one again, as fused work read it.
        ([MAKES, MAKES, READ, READ, READ], [(1,), (0,), (1,)]),
        # What a product read is taken last; what was read by fused work goes before, though it is older.
        ([MAKES, MAKES, ("mm", [X, (32, 8)], [(64, 8)]), READ, READ, READ], [(0,), (0,), (0,)]),
        ([MAKES, ("mm", [X, (32, 8)], [(64, 8)]), READ, READ], [(0,), (0,)]),
        # Rows as long go first, be they unread or not; then what is unread, then what was read by fused work.
        ([MAKES, ("mm", [(32, 9), (9, 64)], [V]), READ, READ, READ], [(0,), (0,), (0,)]),
        ([MAKES, ("mm", [(32, 9), (9, 64)], [V]), ("sum", [V], [R]), ("sum", [V], [R])], [(1,), (1,)]),
        ([MAKES, ("mm", [(32, 9), (9, 64)], [V]), ("sum", [(2, 32, 32)], [R])], [(0,)]),
        ([("mm", [(32, 9), (9, 64)], [V]), READ, READ], [(0,), (0,)]),
        ([("mm", [(32, 9), (9, 64)], [V]), ("mm", [(32, 9), (9, 64)], [V]), READ, READ], [(1,), (0,)]),
        # Neither another type, nor a part of a tensor, nor another number of elements, nor a single number.
        ([MAKES, ("sum", [tensor(X, "c10::Half")], [R])], [(NONE,)]),
        ([MAKES, ("sum", [tensor(X, part=True)], [R])], [(NONE,)]),
        ([MAKES, ("sum", [(64, 31)], [R])], [(NONE,)]),
        ([("sum", [X], [(1,)]), ("mul", [(1,)], [(1,)])], [(NONE,)]),
        ([("sum", [X], [(2,)]), ("mul", [(2,)], [(2,)])], [(0,)]),
        # One call reads a value once; of a call that makes two, each is handed on.
        ([MAKES, ("mul", [X, X], [X])], [(0, NONE)]),
        ([MAKES, MAKES, ("mul", [X, X], [X])], [(1, 0)]),
        ([("native_dropout", [(2,)], [X, tensor(X, "bool")]), ("mul", [X, tensor(X, "bool")], [X])], [(0, NONE)]),
        ([("sort", [(2,)], [X, tensor(X, "bool")]), ("sum", [tensor(X, "bool")], [R]), READ], [(0,), (0,)]),
        # Forward and backward pass have values of their own.
        ([MAKES, (*READ, BACK), (*FUSED, BACK), READ, (*READ, BACK)], [(NONE,), (NONE,), (0,), (2,)]),
        # A layer's weight comes from a change of its type alone, turned; another product's comes from anywhere.
        ([("copy_", [(8, 32)], [(8, 32)]), ("mm", [X, (32, 8)], [(64, 8)], LINEAR)], [(NONE, 0)]),
        ([("copy_", [(8, 32)], [(32, 8)]), ("mm", [X, (32, 8)], [(64, 8)], LINEAR)], [(NONE, NONE)]),
        ([("mul", [(8, 32)], [(8, 32)]), ("mm", [X, (32, 8)], [(64, 8)], LINEAR)], [(NONE, NONE)]),
        ([("mul", [(8, 32)], [(8, 32)]), ("mm", [X, (32, 8)], [(64, 8)])], [(NONE, 0)]),
        ([("mul", [(8, 32)], [(8, 32)]), ("mul", [X, (8, 32)], [X], LINEAR)], [(NONE, 0)]),
        # A sum adds neither what its first input was computed from, up to a product, nor that input itself.
        ([MAKES, *of_x("relu", "tanh"), ("add_", [X, X], [X])], [(0,), (1,), (2, NONE)]),
        ([MAKES, *of_x("relu"), ("mm", [X, (32, 32)], [X]), ("add", [X, X], [X])], [(0,), (1, NONE), (2, 0)]),
        ([MAKES, *of_x("relu", "tanh"), ("sub", [X, X], [X])], [(0,), (1,), (2, 1)]),
        ([MAKES, ("native_layer_norm", [X], [X, R], {"kind": NORM}), ("add", [X, X], [X])], [(0,), (1, NONE)]),
        # One that was scaled by rows depends on all of them; of a smaller input nothing is followed.
        ([MAKES, ("sum", [X], [R]), ("mul", [X, R], [X]), ("add", [X, R], [X])], [(0,), (0, 1), (2, 1)]),
        # Twelve calls back are looked at, and sixteen values remembered.
        ([MAKES, *of_x(*["relu"] * 12), ("add", [X, X], [X])], [*((at,) for at in range(12)), (12, NONE)]),
        ([MAKES, *of_x(*["relu"] * 13), ("add", [X, X], [X])], [*((at,) for at in range(13)), (13, 0)]),
        ([*[FUSED] * 17, *[READ] * 17], [*[(NONE,)] * 16, *((at,) for at in range(16, 0, -1)), (16,)]),
        # A value is old after 400 calls.
        ([FUSED, *[("mul", [(3,)], [(5,)])] * 399, READ], [*[(NONE,)] * 399, (0,)]),
        ([FUSED, *[("mul", [(3,)], [(5,)])] * 400, READ], [*[(NONE,)] * 400, (NONE,)]),
    ],
)  # fmt: skip
def test_makers_by_hand(calls: list[Any], makers: list[tuple[int, ...]]) -> None:
    """Of the last calls; readers are the other way round."""
    made = make_flow(*calls)
    assert made.makers[-len(makers) :] == makers
    reading = {(maker, place) for place, own in enumerate(made.makers) for maker in own if maker != NONE}
    assert {(maker, place) for maker, own in enumerate(made.readers) for place in own} == reading
    assert sum(map(len, made.readers)) == len(reading)


@pytest.mark.parametrize(
    ("calls", "places", "right"),
    [
        # A tensor of unknown origin is read once, two of one shape in one call are two, and other types are others.
        ([("mul", [X, W], [X]), ("mul", [X, W], [X])], [0, 1], (8192 + 128, 8192)),
        ([("mul", [X, W], [Y]), ("mul", [X, W], [Y])], [0, 1], (8192 + 128, 12288)),
        ([("mul", [X, X], [Y]), ("mul", [X, X], [R])], [0, 1], (16384, 6144 + 256)),
        ([("mul", [X, tensor(X, "c10::Half")], [Y]), ("mul", [tensor(X, "c10::Half")], [R])], [0, 1], (8192 + 4096, 6144 + 256)),
        # Where it is expanded less of it is stored: what is read most counts.
        ([("mul", [tensor(X, stored=32)], [Y]), ("mul", [X], [R])], [0, 1], (8192, 6144 + 256)),
        ([("mul", [X], [Y]), ("mul", [tensor(X, stored=32)], [R])], [0, 1], (8192, 6144 + 256)),
        # What a call outside made is read once, though two calls inside read it.
        ([MAKES, *of_x("relu"), *[READ] * 2], [1, 2, 3], (8192, 256 + 256)),
        ([MAKES, READ, READ], [1, 2], (8192, 512)),
        # What a call outside reads is written, though one inside reads it too.
        ([*of_x("relu"), READ, READ], [0, 1], (8192, 8192 + 256)),
        ([*of_x("relu"), READ, READ], [0, 1, 2], (8192, 512)),
        # Of two results the first counts; a call may write nothing.
        ([("sort", [X], [X, tensor(X, "bool")])], [0], (8192, 8192)),
        ([("nonzero", [X], [])], [0], (8192, 0)),
    ],
)  # fmt: skip
def test_bytes_from_and_to_outside_by_hand(calls: list[Any], places: list[int], right: tuple[int, int]) -> None:
    assert external_bytes(make_flow(*calls), places) == right


BATCH_NORM = ("native_batch_norm", [X], [X], {"kind": NORM, "values": (*[""] * 5, "True", "0.1")})
EVALUATED = ("native_batch_norm", [X], [X], {"kind": NORM, "values": (*[""] * 5, "False")})
NORM_BACK = ("native_layer_norm_backward", [X, X], [X], {"kind": NORM})


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        # Places, bytes now and fused, and launches now and fused, of each chain.
        ([MAKES, *of_x("relu", "mul"), READS], [([1, 2], 4, 2, 2, 1)]),
        ([*of_x("relu", "mul", "tanh")], [([0, 1, 2], 6, 2, 3, 1)]),
        # Two launches of one call, or what hands on nothing to each other, are none.
        ([("native_dropout", [X], [X, tensor(X, "bool")], {"launches": (1, 2)})], []),
        ([("relu", [X], [V]), ("mul", [(64, 31)], [R])], []),
        # Two that take turns; and a call of two launches.
        ([FUSED, ("relu", [(3,)], [(63, 32)]), *of_x("mul"), ("mul", [(63, 32)], [(63, 32)], {"launches": (1, 2)})],
         [([0, 2], 3 + 8 / 8192, 1 + 8 / 8192, 2, 1), ([1, 3], 3 * 63 / 64 + 12 / 8192, 63 / 64 + 12 / 8192, 3, 1)]),
        # A product, another range and another pass end a run; another direction of the forward pass does not.
        ([*of_x("relu"), ("mm", [X, (32, 32)], [X]), *of_x("mul")], []),
        ([("relu", [X], [X], {"range": "a"}), ("relu", [X], [X], {"range": "b"})], []),
        ([("relu", [X], [X]), ("relu", [X], [X], BACK)], []),
        ([("relu", [X], [X], BACK), ("relu", [X], [X], BACK)], [([0, 1], 4, 2, 2, 1)]),
        ([("relu", [X], [X]), ("relu", [X], [X], {"direction": "loss"})], [([0, 1], 4, 2, 2, 1)]),
        # What fills is part of what reads it, but nothing by itself.
        ([("zero_", [], [X]), *of_x("relu")], [([0, 1], 3, 1, 2, 1)]),
        ([("zero_", [], [X]), ("fill_", [X], [X])], []),
        # In training a batch norm reads its input twice, and so do gradients of normalisations.
        ([BATCH_NORM, *of_x("relu", "mul")], [([0, 1, 2], 6, 3, 3, 2)]),
        ([EVALUATED, *of_x("relu", "mul")], [([0, 1, 2], 6, 2, 3, 1)]),
        ([(*EVALUATED[:3], {"kind": NORM, "values": ()}), *of_x("relu")], [([0, 1], 4, 2, 2, 1)]),
        ([("mul", [X], [X], {"values": (*[""] * 5, "True")}), *of_x("relu")], [([0, 1], 4, 2, 2, 1)]),
        ([("layer_norm", [X], [X], {"kind": NORM, "values": (*[""] * 5, "True")}), *of_x("relu")], [([0, 1], 4, 2, 2, 1)]),
        ([NORM_BACK, *of_x("relu")], [([0, 1], 5, 4, 2, 2)]),
        ([("threshold_backward", [X], [X]), *of_x("relu")], [([0, 1], 4, 2, 2, 1)]),
        # Where three launches would remain of two, or where as much is moved, nothing is fused.
        ([NORM_BACK, NORM_BACK], []),
        ([BATCH_NORM, ("mul", [X], [R]), ("mm", [X, (32, 8)], [(64, 8)])], []),
    ],
)  # fmt: skip
def test_elementwise_chains_by_hand(calls: list[Any], right: list[Any]) -> None:
    """In tensors of 64 x 32 floats, each call 8 ns; nothing is left of those that are taken."""
    found = list(chains.find_others(make_flow(*calls), frozenset()))
    given = [(one.bytes / 8192, one.fused_bytes / 8192, one.launches, one.fused_launches) for one in found]
    assert [[call.place for call in one.calls] for one in found] == [places for places, *_ in right]
    assert given == [pytest.approx(tuple(numbers)) for _, *numbers in right]
    for one in found:
        assert (one.pattern, one.ns, one.kept_ns, one.flop) == (OTHER, 8.0 * len(one.calls), 0.0, 0.0)
        assert not one.narrowed and one.bytes_between is None
    taken = frozenset(place for places, *_ in right for place in places[1:])
    assert not right or not list(chains.find_others(make_flow(*calls), taken))


def test_a_call_is_of_the_first_chain_that_takes_it() -> None:
    """Chains are in the order of their first calls; one that lacks a taken call is left out as a whole."""
    made = make_flow(*[MAKES] * 8)
    own = [chains.Chain("a", tuple(made.calls[place] for place in places), 0.0) for places in ([4, 5], [5, 6], [0, 7])]
    seen: list[frozenset[int]] = []

    def third(_: Flow, taken: frozenset[int]) -> list[chains.Chain]:
        seen.append(taken)
        return [chains.Chain("b", made.calls[1:3], 0.0), chains.Chain("b", made.calls[2:4], 0.0)]

    found = chains.find_chains(made, [lambda *_: own, third])
    assert [(one.pattern, [call.place for call in one.calls]) for one in found] == [
        ("a", [0, 7]), ("b", [1, 2]), ("a", [4, 5])
    ]  # fmt: skip
    assert seen == [{0, 4, 5, 7}]


def test_the_backward_pass_of_calls_by_hand() -> None:
    """By autograd's numbers, with sums of gradients as large between them."""
    made = make_flow(
        ("mul", [X], [X], {"sequence": 0}), ("mul", [X], [X], {"sequence": 3}), ("mul", [X], [X], {"sequence": -1}),
        ("add", [X, X], [X], BACK | {"sequence": -1}),
        ("mul", [X], [X], BACK | {"sequence": 3}),
        ("add", [X, X], [X], BACK | {"sequence": -1}), ("add_", [X, X], [X], BACK | {"sequence": -1}),
        ("mul", [X, X], [X], BACK | {"sequence": -1}), ("add", [R, R], [R], BACK | {"sequence": -1}),
        ("add", [X, X], [X], BACK | {"sequence": 0}), ("add", [X, X], [X], BACK | {"sequence": 2}),
        ("add", [X, X], [], BACK | {"sequence": -1}),
        ("mul", [X], [X], BACK | {"sequence": 3}), ("add", [X, X], [X], BACK | {"sequence": -1}),
    )  # fmt: skip

    def behind(forward: slice, taken: frozenset[int] = frozenset()) -> list[int]:
        return [call.place for call in chains.backward_calls(made, made.calls[forward], taken)]

    assert behind(slice(1, 3)) == [4, 5, 6, 12] and behind(slice(0, 2)) == [4, 5, 6, 9, 12]
    assert behind(slice(0, 2), frozenset({5, 12})) == [4, 6, 9] and behind(slice(2, 3)) == []


HALF = (64, 16)
# Half of the argument of a GELU, which a later product takes, and work on something else.
HALVED, TIMES, ASIDE = ("mul", [X], [V]), ("mul", [X, V], [X]), ("mul", [(3,)], [(3,)])
CENTRED = [SUMMED, ("sub", [X, R], [X]), *of_x("pow"), SUMMED, *ROOT, SCALED]
TURNED = [("neg", [HALF], [HALF]), ("cat", [HALF, HALF], [X]), *of_x("mul"), ("mul", [X, X], [X]), ("add", [X, X], [X])]


@pytest.mark.parametrize(
    ("calls", "pattern", "places"),
    [
        # One tensor of 64 x 32 floats is read, and one is written, whatever runs in between.
        ([*of_x("pow"), SUMMED, ROOT[0], ("sqrt", [R], [R]), ("div", [X, R], [X])], "RMS norm", range(1, 6)),
        ([*of_x("pow"), SUMMED, *ROOT, ("add", [X, R], [X])], "", []),
        ([*of_x("pow"), *ROOT, SCALED], "", []),
        # A root in place, one of a sum, and no number that is added; weight, bias, change of type and no more behind.
        ([*of_x("mul"), ("sum", [X], [R]), ("sqrt_", [R], [R]), ("div_", [X, R], [X])], "RMS norm", [1, 2, 3, 4]),
        ([*of_x("pow"), SUMMED, ("rsqrt_", [R], [R]), ("mul_", [X, R], [X])], "RMS norm", [1, 2, 3, 4]),
        ([*of_x("square"), SUMMED, *ROOT, ("relu", [R], [R]), SCALED], "RMS norm", [1, 2, 3, 4, 5, 6]),
        ([*of_x("abs", "pow"), SUMMED, *ROOT, SCALED], "RMS norm", [2, 3, 4, 5, 6]),
        ([*of_x("copy_", "pow"), SUMMED, *ROOT, SCALED], "RMS norm", [1, 2, 3, 4, 5, 6]),
        ([*of_x("relu", "pow"), SUMMED, *ROOT, SCALED], "RMS norm", [2, 3, 4, 5, 6]),
        ([*of_x("pow"), SUMMED, *ROOT, SCALED, *[("mul", [X, W], [X])] * 5], "RMS norm", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ([*of_x("pow"), SUMMED, *ROOT, SCALED, ("mul_", [X, W], [X]), ("add_", [X, W], [X]), *of_x("copy_")], "RMS norm",
         range(1, 9)),
        ([*of_x("pow"), SUMMED, *ROOT, SCALED, ("sub", [X, W], [X])], "RMS norm", range(1, 6)),
        ([*of_x("pow"), SUMMED, *ROOT, SCALED, *of_x("mul")], "RMS norm", range(1, 6)),
        ([*of_x("pow"), SUMMED, *ROOT, SCALED, ("mul", [X, W, R], [X])], "RMS norm", range(1, 6)),
        # Two that read what is scaled: what is behind stays by itself.
        ([*of_x("pow"), SUMMED, *ROOT, SCALED, ("mul", [X, W], [X]), *of_x("tanh")], "RMS norm", range(1, 7)),
        # By differences from the mean, by a variance, and by a standard deviation; the mean is a part.
        ([*CENTRED, ("mul", [X, W], [X]), ("add", [X, W], [X])], "layer norm", range(1, 10)),
        ([SUMMED, ("sub", [X, R], [X]), *of_x("pow"), ("sum", [X], [R]), *ROOT, SCALED], "layer norm", range(1, 8)),
        ([("var", [X], [R]), *ROOT, SCALED], "layer norm", [1, 2, 3, 4]),
        ([("std", [X], [R]), ("add", [R], [R]), ("div", [X, R], [X])], "layer norm", [1, 2, 3]),
        # A root of single numbers, of all rows, of two sizes, or whose result nothing as large reads, is none.
        ([*of_x("pow"), ("mean", [X], [(1,)]), ("rsqrt", [(1,)], [(1,)]), SCALED], "", []),
        ([*of_x("pow"), SUMMED, *ROOT, ("mul", [(64, 31), R], [(64, 31)])], "", []),
        ([*of_x("pow"), SUMMED, *ROOT, ("mul", [R], [R]), ("sub", [X, R], [X])], "", []),
        ([("relu", [R], [R]), *ROOT, SCALED], "", []),
        # The maximum of rows, or the sum alone; a number may be added to the sum.
        ([("amax", [X], [R]), ("sub", [X, R], [X]), *of_x("exp"), ("sum", [X], [R]), ("div", [X, R], [X])], "softmax",
         range(1, 6)),
        ([*of_x("exp"), ("sum", [X], [R]), SCALED], "", []),
        ([*of_x("exp"), ("sum", [X], [(1,)]), ("div", [X, (1,)], [X])], "", []),
        ([("max", [X], [R]), ("sub", [X, R], [X]), *of_x("exp_"), ("sum", [X], [R]), ("div_", [X, R], [X])], "softmax",
         range(1, 6)),
        ([*of_x("exp"), ("sum", [X], [R]), ("add", [R], [R]), ("div", [X, R], [X])], "softmax", [1, 2, 4]),
        ([("mean", [X], [R]), ("sub", [X, R], [X]), *of_x("exp"), ("sum", [X], [R]), ("div", [X, R], [X])], "softmax",
         [3, 4, 5]),
        ([("amax", [X], [R]), ("add", [X, R], [X]), *of_x("exp"), ("sum", [X], [R]), ("div", [X, R], [X])], "softmax",
         [3, 4, 5]),
        ([*of_x("exp"), ("mean", [X], [R]), ("div", [X, R], [X])], "", []),
        ([*of_x("exp"), ("sum", [X], [R]), ("div", [X, W], [X])], "", []),
        ([*of_x("exp"), ("sum", [X], [X]), ("div", [X, X], [X])], "", []),
        # GELU by tanh and by erf, with the half before, between or behind.
        ([*of_x("mul", "pow", "mul"), ("add", [X, X], [X]), *of_x("mul", "tanh", "add"), ("mul", [X, X], [X])], "GELU",
         range(1, 9)),
        ([*of_x("div", "erf", "add", "mul", "mul")], "GELU", range(1, 6)),
        ([*of_x("mul", "erf", "add_", "mul_")], "GELU", range(1, 5)),
        ([*of_x("div", "erf", "add"), ("mul", [X, W], [X])], "GELU", range(1, 5)),
        ([HALVED, *of_x("div", "erf", "add"), TIMES], "GELU", range(1, 6)),
        ([HALVED, *[ASIDE] * 2, *of_x("div", "erf", "add"), TIMES], "GELU", [1, 4, 5, 6, 7]),
        ([HALVED, *[ASIDE] * 3, *of_x("div", "erf", "add"), TIMES], "GELU", [5, 6, 7, 8]),
        ([("relu", [X], [V]), *of_x("div", "erf", "add"), TIMES], "GELU", range(2, 6)),
        ([*of_x("div", "erf", "add", "mul", "mul", "mul")], "GELU", range(1, 6)),
        ([*of_x("mul", "mul", "pow", "tanh", "add", "mul")], "GELU", range(1, 7)),
        ([*of_x("mul", "pow", "tanh", "add", "mul")], "", []),
        ([*of_x("relu", "erf", "add", "mul")], "", []),
        ([*of_x("div", "erf", "add")], "", []),
        ([*of_x("div", "erf", "add", "relu", "mul")], "", []),
        ([*of_x("div", "erf"), ("add", [(2,), X], [(2, *X)]), *of_x("mul")], "", []),
        ([*of_x("div", "relu", "div", "erf"), ("add", [X, X], [X]), *of_x("mul")], "", []),
        # SiLU is a product with what the sigmoid is of, in place or not.
        ([*of_x("sigmoid"), ("mul_", [X, X], [X])], "SiLU", [1, 2]),
        ([*of_x("sigmoid"), ("mul", [X, R], [X])], "", []),
        ([*of_x("sigmoid"), ("add", [X, X], [X])], "", []),
        ([*of_x("sigmoid"), MAKES, ("mul", [X, X], [X])], "", []),
        # A rotation: both products before the sum of the module; a third product is something else.
        (TURNED, "rotary embedding", [1, 2, 3, 4, 5]),
        ([*of_x("mul"), *TURNED], "rotary embedding", [2, 3, 4, 5, 6]),
        ([TURNED[0], TURNED[1], *of_x("mul", "mul", "mul"), ("add_", [X, X], [X])], "rotary embedding", [1, 2, 4, 5, 6]),
        ([*of_x("mul"), TURNED[0], TURNED[1], *of_x("mul"), ("add", [X, X], [X])], "rotary embedding", [1, 2, 3, 4, 5]),
        ([TURNED[0], TURNED[1], *of_x(*["relu"] * 4), *TURNED[2:]], "rotary embedding", [1, 2, 7, 8, 9]),
        ([TURNED[0], TURNED[1], *of_x(*["relu"] * 5), *TURNED[2:]], "", []),
        ([TURNED[0], TURNED[1], *of_x("mul"), ("add", [X, X], [X])], "", []),
        ([TURNED[0], ("stack", [HALF, HALF], [X]), *TURNED[2:]], "", []),
        ([*TURNED[:2], ("mul", [X], [X], {"module": "other"}), *TURNED[3:]], "", []),
        ([*TURNED[:4], ("sub", [X, X], [X])], "", []),
    ],
)  # fmt: skip
def test_functions_of_rows_by_hand(calls: list[Any], pattern: str, places: Iterable[int]) -> None:
    found = list(row_patterns.find_row_patterns(make_flow(MAKES, *calls, READS), frozenset()))
    told = [(one.pattern, [each.place for each in one.calls]) for one in found]
    assert told == [(pattern, list(places))] * bool(pattern)
    assert {(one.fused_bytes, one.fused_launches) for one in found} <= {(2 * 8192, 1)}
    # What belongs to another chain already is not a part of this one.
    assert not list(row_patterns.find_row_patterns(make_flow(MAKES, *calls, READS), frozenset(places)))
    # The backward pass and updates of weights have no part in them.
    for more in (BACK, {"updates": True, "sequence": -1}):
        given = make_flow(*[(*one[:3], {**dict(*one[3:]), **more}) for one in (MAKES, *calls, READS)])
        assert {one.pattern for one in row_patterns.find_row_patterns(given, frozenset())} <= {"softmax"}


@pytest.mark.parametrize(
    ("calls", "launches"),
    [([*of_x("sigmoid"), ("mul", [X, X], [X])], 1.0), (CENTRED, 2.0), ([*of_x("pow"), SUMMED, *ROOT, SCALED], 2.0)],
)
def test_both_passes_of_functions_of_rows_by_hand(calls: list[Any], launches: float) -> None:
    """Backward, input and gradient are read, and one is written; a normalisation adds up gradients of its weights too."""
    back = [("mul", [X, X], [X], BACK | {"sequence": place}) for place in range(len(calls), 0, -1)]
    forward, behind = row_patterns.find_row_patterns(make_flow(MAKES, *calls, READS, *back), frozenset())
    assert (forward.fused_bytes, forward.fused_launches) == (2 * 8192, 1.0)
    assert (behind.fused_bytes, behind.fused_launches) == (3 * 8192, launches) and behind.pattern == forward.pattern
    assert [call.place for call in behind.calls] == list(range(len(calls) + 2, 2 * len(calls) + 2))
    # Narrow rows: 4096 bytes are read, and as many written.
    half = [(name, *([tensor(X, "c10::Half") if one == X else one for one in some] for some in both))
            for name, *both in (MAKES, *calls, READS)]  # fmt: skip
    (narrow,) = row_patterns.find_row_patterns(make_flow(*half), frozenset())
    assert narrow.fused_bytes == 2 * 4096


def test_a_softmax_of_torch_is_a_group_but_no_chain() -> None:
    made = make_flow(
        MAKES, ("_softmax", [X], [X]), ("_softmax", [X], [X], BACK), *of_x("exp"), READ, ("div", [X, R], [X])
    )
    assert row_patterns.find_softmax_groups(made, frozenset()) == [[1], [3, 4, 5]]
    assert row_patterns.find_softmax_groups(made, frozenset({1})) == [[3, 4, 5]]
    assert row_patterns.find_softmax_groups(made, frozenset({4})) == [[1]]
    assert [one.pattern for one in row_patterns.find_row_patterns(made, frozenset())] == ["softmax"]
