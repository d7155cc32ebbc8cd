"""Work that need not be done is named in training steps that do it, and not in their twins."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from profzoo.fusion import chains, loops, patterns, row_patterns
from profzoo.op_costs.tensor_effects import GATHER
from tests import slow
from tests import wasteful_programs as programs
from tests.wasteful_programs import BATCH, PARTS, WIDTH, Step, train
from tests.written_programs import make_flow, tensor

Make = Callable[[], Step]


def batch() -> torch.Tensor:
    return torch.randn(BATCH, WIDTH)


def recurrent(how: str, layers: int = 1) -> Step:
    return train(programs.Recurrent(how, layers), lambda: torch.randn(PARTS, BATCH, WIDTH))


def in_parts(parts: int) -> Step:
    return train(programs.InParts(parts), batch)


def cast(autocast: bool) -> Step:
    layers = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)
    return train(nn.Sequential(*layers), batch, None, autocast)


# By pattern: steps that have it, and steps that do not.
STEPS: list[tuple[str, Make, Make]] = [
    (patterns.DISCARDED, lambda: programs.adversarial(detached=False), lambda: programs.adversarial(detached=True)),
    (patterns.DISCARDED, lambda: programs.adversarial(False, False), lambda: programs.adversarial(True, False)),
    # Of such long lists of parameters the trace does not tell the shapes.
    (patterns.DISCARDED, lambda: programs.adversarial(False, layers=20), lambda: programs.adversarial(True, layers=20)),
    (patterns.DISCARDED, lambda: programs.fine_tuned(frozen=False), lambda: programs.fine_tuned(frozen=True)),
    (row_patterns.ENTRY, lambda: programs.scaled(wide=True), lambda: programs.scaled(wide=False)),
    (row_patterns.DOUBLE, lambda: programs.scaled(wide=True), lambda: programs.scaled(wide=True, everything=True)),
    (loops.BATCHES, lambda: in_parts(PARTS), lambda: in_parts(1)),
    (loops.BATCHES, lambda: in_parts(PARTS), lambda: train(programs.Stack(), batch)),
    (loops.BATCHES, lambda: in_parts(PARTS), lambda: train(programs.Generating(), batch)),
    (loops.TIMES, lambda: recurrent("cell"), lambda: recurrent("whole")),
    (loops.TIMES, lambda: recurrent("written"), lambda: train(programs.Stack(), batch)),
    (loops.TIMES, lambda: recurrent("written"), lambda: in_parts(PARTS)),
    (patterns.CASTS, lambda: cast(autocast=True), lambda: cast(autocast=False)),
]


def found(step: Step, pattern: str) -> list[chains.Chain]:
    return [chain for chain in programs.trace_chains(step) if chain.pattern == pattern]


# What no other test of one of these patterns traces.
@pytest.mark.parametrize(("pattern", "planted", "twin"), slow.only(STEPS, STEPS[0], STEPS[-1]))
def test_work_is_named_where_it_is_and_not_in_its_twin(pattern: str, planted: Make, twin: Make) -> None:
    assert found(planted(), pattern)
    assert not found(twin(), pattern)


def test_the_discarded_gradients_are_those_of_the_generator_for_the_judges_loss() -> None:
    own = found(programs.adversarial(detached=False), patterns.DISCARDED)
    calls = [call for chain in own for call in chain.calls]
    assert all(call.direction == "backward" and not call.module.startswith("(others)") for call in calls)
    # Three layers: gradients of three weights and of two inputs; the input of the first is noise.
    assert sum(call.operator == "mm" for call in calls) == 5
    assert all(chain.fused_launches == 0 == chain.fused_bytes for chain in own)


def test_layers_behind_one_that_is_trained_compute_gradients_for_it() -> None:
    # Gradients of the later layers go back to the first one, although their own weights are not trained.
    assert not found(programs.tuned_inside(last=False), patterns.DISCARDED)


def test_double_precision_enters_at_the_scale_of_the_first_layer() -> None:
    (entry,) = found(programs.scaled(wide=True), row_patterns.ENTRY)
    assert entry.calls[0].operator == "mul"
    assert [one.kind for one in entry.calls[0].reads] == ["float", "double"]
    assert entry.fused_launches < entry.launches and entry.fused_bytes < entry.bytes / 2


def test_parts_of_a_batch_are_one_call_with_as_many_bytes_and_operations() -> None:
    forward, backward = found(in_parts(PARTS), loops.BATCHES)
    assert forward.fused_launches == forward.launches / PARTS
    assert forward.flop == 2 * BATCH * (WIDTH * 4 * WIDTH + 4 * WIDTH * 5)
    assert backward.calls[0].direction == "backward"


def test_a_recurrence_keeps_a_kernel_per_time_step() -> None:
    forward = found(recurrent("written"), loops.TIMES)[0]
    assert forward.fused_launches == PARTS < forward.launches


@pytest.mark.slow
def test_each_layer_of_a_recurrence_has_a_loop_of_its_own() -> None:
    one = found(recurrent("written"), loops.TIMES)
    three = found(recurrent("written", layers=3), loops.TIMES)
    forward, single = ([chain for chain in own if chain.calls[0].direction == "forward"] for own in (three, one))
    assert len(forward) == 3 and len(single) == 1 and len(three) == 3 * len(one)
    assert all(chain.fused_launches == PARTS for chain in forward)
    places = [call.place for chain in three for call in chain.calls]
    assert len(places) == len(set(places))


BACK = {"direction": "backward"}
# Scores of two heads and queries; both products of an attention.
S, Q, K = (2, 8, 8), (2, 8, 4), (2, 4, 8)
SCORING, WEIGHING = ("bmm", [Q, K], [S]), ("bmm", [S, Q], [Q])
FLAGS = tensor((8, 8), "bool")
PROJECTS, SPLITS = ("mm", [(16, 4), (4, 4)], [Q]), {"around": ("aten::matmul",)}


@pytest.mark.parametrize(
    ("calls", "places", "fused", "kept"),
    [
        ([SCORING, ("_softmax", [S], [S]), WEIGHING], [0, 1, 2], 1024, 16.0),
        # A bias of a product is read as part of it; weights may be on the right; a small result counts as it is.
        ([("baddbmm", [S, Q, K], [S]), ("_softmax", [S], [S]), WEIGHING], [0, 1, 2], 1024, 16.0),
        ([SCORING, ("_softmax", [S], [S]), ("bmm", [(2, 5, 8), S], [(2, 5, 8)])], [0, 1, 2], 512 + 2 * 320, 16.0),
        ([SCORING, ("_softmax", [S], [S]), ("bmm", [S, (2, 8, 3)], [(2, 8, 3)])], [0, 1, 2], 512 + 2 * 192, 16.0),
        # One square of flags covers half of the scores; flags per sample, of one place, and other numbers do not.
        ([SCORING, ("masked_fill_", [S, FLAGS], [S]), ("_softmax", [S], [S]), WEIGHING], [0, 1, 2, 3], 1024, 16 / 1.7),
        ([SCORING, ("where", [S, FLAGS], [S]), ("_softmax", [S], [S]), WEIGHING], [0, 1, 2, 3], 1024, 16 / 1.7),
        ([SCORING, ("mul", [S, FLAGS], [S]), ("_softmax", [S], [S]), WEIGHING], [0, 1, 2, 3], 1024, 16.0),
        ([SCORING, ("where", [S, tensor(S, "bool")], [S]), ("_softmax", [S], [S]), WEIGHING], [0, 1, 2, 3], 1024, 16.0),
        ([SCORING, ("where", [S, (8, 8)], [S]), ("_softmax", [S], [S]), WEIGHING], [0, 1, 2, 3], 1024, 16.0),
        ([SCORING, ("where", [S, tensor((1, 1), "bool")], [S]), ("_softmax", [S], [S]), WEIGHING], [0, 1, 2, 3], 1024, 16.0),
        ([SCORING, ("where", [S, tensor((8,), "bool")], [S]), ("_softmax", [S], [S]), WEIGHING], [0, 1, 2, 3], 1024, 16.0),
        # What sorts between stays; copies of inputs right before a product are its own, but not of another operator.
        ([SCORING, ("sort", [S], [(3,)]), ("_softmax", [S], [S]), WEIGHING], [0, 2, 3], 1024, 16.0),
        ([("copy_", [Q], [Q], SPLITS), ("copy_", [K], [K], {"around": ("aten::einsum",)}), SCORING, ("_softmax", [S], [S]),
          WEIGHING], [0, 1, 2, 3, 4], 1024, 16.0),
        ([("copy_", [Q], [Q]), ("copy_", [K], [K], SPLITS), SCORING, ("_softmax", [S], [S]), WEIGHING], [1, 2, 3, 4], 1024, 16.0),
        ([("mul", [K], [K], SPLITS), SCORING, ("_softmax", [S], [S]), WEIGHING], [1, 2, 3], 1024, 16.0),
        # Forty calls away is too far; torch's own function has no chain.
        ([SCORING, *[("mul", [(3,)], [(3,)])] * 38, ("_softmax", [S], [S]), WEIGHING], [*range(41)], 1024, 16.0),
        ([SCORING, *[("mul", [(3,)], [(3,)])] * 39, ("_softmax", [S], [S]), WEIGHING], [], 0, 0),
        ([SCORING, ("_softmax", [S], [S]), *[("mul", [(3,)], [(3,)])] * 38, WEIGHING], [*range(41)], 1024, 16.0),
        ([SCORING, ("_softmax", [S], [S]), *[("mul", [(3,)], [(3,)])] * 39, WEIGHING], [], 0, 0),
        ([SCORING, ("_softmax", [S], [S], {"around": ("aten::scaled_dot_product_attention",)}), WEIGHING], [], 0, 0),
        ([SCORING, ("mm", [(3, 3), (3, 3)], [(3, 3)]), ("_softmax", [S], [S]), WEIGHING], [], 0, 0),
        ([SCORING, ("_softmax", [S], [S]), ("mm", [(3, 3), (3, 3)], [(3, 3)]), WEIGHING], [], 0, 0),
        ([SCORING, ("bmm", [Q, K], [(2, 8, 7)]), ("_softmax", [S], [S]), WEIGHING], [], 0, 0),
        ([SCORING, ("_softmax", [S], [S]), ("bmm", [Q, K], [S])], [], 0, 0),
    ],
)  # fmt: skip
def test_bytes_and_products_of_attention_by_hand(
    calls: list[Any], places: list[int], fused: float, kept: float
) -> None:
    made = make_flow(*calls)
    chained = list(row_patterns.find_attention(made, frozenset()))
    assert [[call.place for call in one.calls] for one in chained] == [places] * bool(places)
    for one in chained:
        assert (one.fused_bytes, one.kept_ns) == (fused, pytest.approx(kept)) and one.fused_launches == 1
        # Backward, both products of the results' gradients are done again, and the scores: 5 / 4 of 32 ns.
        back = [("bmm", [S, Q], [Q], BACK | {"sequence": at}) for at in (places[-1], places[-1], places[0], places[0])]
        forward, behind = row_patterns.find_attention(make_flow(*calls, *back, PROJECTS), frozenset())
        assert forward.fused_bytes == fused and behind.kept_ns == pytest.approx(2 * kept * 5 / 4)
        assert behind.fused_bytes == 2 * fused + calls[-1][2][0][-1] * 2 * calls[-1][2][0][-2] * 4
        assert behind.fused_launches == 1 and len(behind.calls) == 4
        assert len(list(row_patterns.find_attention(make_flow(*calls, ("mul", [S], [S], BACK | {"sequence": places[1]})),
                                                 frozenset()))) == 1  # fmt: skip


def losing(*calls: Any, classes: int = 64) -> list[Any]:
    """Calls on scores (8, classes), of which X stands for the scores and R for a number per row; given as by make_flow."""
    shapes = {"X": (8, classes), "R": (8, 1), "O": (1,), "F": (8,)}
    return [(name, [shapes.get(one, one) for one in reads], [shapes.get(one, one) for one in writes], *more)
            for name, reads, writes, *more in calls]  # fmt: skip


PICKED = ("gather", "XR", "R", {"kind": GATHER})
SOFT, ENDS = ("_log_softmax", "X", "X"), ("mean", "R", "O")


@pytest.mark.parametrize(
    ("calls", "forward", "backward", "launches"),
    [
        # In scores of 2048 bytes: read and kept; backward, three are read or filled and one is written.
        ([SOFT, PICKED, ENDS], 2, 4, (2, 3)),
        ([("_softmax", "X", "X"), ("log", "X", "X"), PICKED, ENDS], 2, 4, (2, 3)),
        ([("logsumexp", "X", "R"), ("gather", "XR", "R", {"kind": GATHER}), ("sub", "RR", "R"), ENDS], 2, 4, (2, 3)),
        ([("exp", "X", "X"), ("sum", "X", "R"), ("log", "R", "R"), ("sub", "XR", "X"), PICKED, ENDS], 2, 4, (2, 3)),
        ([SOFT, ("eq", "F", "X"), ("mul", "XX", "X"), ("sum", "X", "O")], 2, 4, (2, 3)),
        ([SOFT, PICKED], 2, 4, (2, 3)),
        # A change of type before is as it was: two matrices more are moved, and backward one launch remains for it.
        ([("copy_", "X", "X"), SOFT, PICKED, ENDS], 4, 6, (2, 4)),
        # Smoothed targets: one matrix and launch more, and backward two matrices more; a fill with zeros smooths nothing.
        ([("fill_", [], "X", {"values": ("", "0.1")}), SOFT, ("mul", "XX", "X"), PICKED, ENDS], 3, 6, (3, 4)),
        ([("fill_", [], "X", {"values": ("", "0", "x")}), SOFT, ("mul", "XX", "X"), PICKED, ENDS], 2, 4, (2, 3)),
        ([("fill_", [], "X", {"values": ("",)}), SOFT, ("mul", "XX", "X"), PICKED, ENDS], 2, 4, (2, 3)),
        ([("zero_", [], "X", {"values": ("", "0.1")}), SOFT, ("mul", "XX", "X"), PICKED, ENDS], 2, 4, (2, 3)),
        # torch's own loss, what picks nothing or of something else, what ends in a matrix, or is not a logarithm.
        ([SOFT, PICKED, ("nll_loss_forward", "R", "O")], 0, 0, ()),
        ([("_log_softmax", "X", "X", {"around": ("aten::cross_entropy_loss",)}), PICKED, ENDS], 0, 0, ()),
        ([SOFT, ("mul", "XX", "X"), ("sum", "X", "O")], 0, 0, ()),
        ([SOFT, ("sum", "X", "R"), ("gather", "RR", "R", {"kind": GATHER})], 0, 0, ()),
        ([SOFT, ("eq", "F", "R"), ("mul", "XR", "X"), ("sum", "X", "O")], 0, 0, ()),
        ([SOFT, PICKED, ("mul", "XR", "X")], 0, 0, ()),
        ([("exp", "X", "X"), ("sum", "X", "R"), ("sub", "XR", "X"), PICKED, ENDS], 0, 0, ()),
        ([("mul", "X", "X"), PICKED, ENDS], 0, 0, ()),
    ],
)  # fmt: skip
def test_losses_by_hand(calls: list[Any], forward: int, backward: int, launches: tuple[int, ...]) -> None:
    made = losing(*calls)
    back = [("mul", [(8, 64)] * 2, [(8, 64)], BACK | {"sequence": place}) for place in (len(calls) - 1, 0)]
    chained = list(row_patterns.find_losses(make_flow(*made, *back), frozenset()))
    assert [one.fused_bytes for one in chained] == [2048 * forward, 2048 * backward][: 2 * bool(launches)]
    assert [one.fused_launches for one in chained] == list(launches)
    assert [[call.place for call in one.calls] for one in chained] == [
        [*range(len(calls))], [len(calls), len(calls) + 1]
    ][: len(launches)]  # fmt: skip
    assert {one.pattern for one in chained} <= {row_patterns.LOSS}
    # Alone it has no backward pass; with fewer classes, or rows of nothing else, it is not a loss.
    assert len(list(row_patterns.find_losses(make_flow(*made), frozenset()))) == bool(launches)
    assert not list(row_patterns.find_losses(make_flow(*losing(*calls, classes=63)), frozenset()))
    assert not list(row_patterns.find_losses(make_flow(*[(*one[:3], BACK) for one in made]), frozenset()))
    assert not list(row_patterns.find_losses(make_flow(*made, *back), frozenset(range(len(made)))))


def test_scores_in_one_row_are_of_no_loss() -> None:
    picked = ("gather", [(64,), (2,)], [(2,)], {"kind": GATHER})
    calls = make_flow(("_log_softmax", [(64,)], [(64,)]), picked, ("mean", [(2,)], [(1,)]))
    assert not list(row_patterns.find_losses(calls, frozenset()))


HALF, BRAIN, WIDE = "c10::Half", "c10::BFloat16", "double"


def casting(reads: Any, writes: Any, operator: str = "copy_", **more: Any) -> tuple[Any, ...]:
    fields = {"around": ("aten::linear", "aten::_to_copy"), "outer": ((8, 4), (6, 4))}
    return operator, [reads], [writes], fields | more


USE = ("mm", [(8, 4), tensor((4, 6), HALF)], [(8, 6)])
BARE = {"around": (), "outer": ()}


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        # The second input of a layer is its weight.
        ([casting((6, 4), tensor((6, 4), HALF))], [0]),
        ([casting((8, 4), tensor((8, 4), HALF))], []),
        ([casting((6, 4), tensor((6, 4), HALF), outer=((6, 4),))], []),
        ([casting(tensor((6, 4), WIDE), tensor((6, 4), HALF))], []),
        ([casting((6, 4), (6, 4))], []),
        ([casting((6, 4), tensor((6, 4), HALF), "cat")], []),
        ([casting((6,), tensor((6,), HALF), outer=((8, 4), (6,)))], []),
        # Elsewhere it is what a product reads last, soon behind, and what no call made.
        ([casting((6, 4), tensor((6, 4), HALF), **BARE), USE], [0]),
        ([casting((6, 4), tensor((6, 4), HALF), around=("aten::to",)), USE], [0]),
        ([casting((6, 4), tensor((6, 4), HALF), **BARE), ("mm", [tensor((6, 4), HALF), (4, 7)], [(6, 7)])], []),
        ([casting((6, 4), tensor((6, 4), HALF), **BARE), ("mul", [(8, 4), tensor((4, 6), HALF)], [(8, 6)])], []),
        ([casting((6, 4), tensor((6, 4), HALF), **BARE),
          ("convolution", [(8, 4), tensor((4, 6), HALF), (9,)], [(8, 6)], {"kind": "opaque"})], [0]),
        ([casting((6, 4), tensor((6, 4), HALF), **BARE),
          ("convolution", [tensor((4, 6), HALF), (8, 4)], [(8, 6)], {"kind": "opaque"})], []),
        ([casting((6, 4), tensor((6, 4), HALF), **BARE), ("mm", [(8, 4), tensor((1, 4, 6), HALF)], [(8, 6)])], []),
        ([("relu", [(2,)], [(6, 4)]), casting((6, 4), tensor((6, 4), HALF), **BARE), USE], []),
        ([casting((6, 4), tensor((6, 4), HALF), **BARE), *[("mul", [(3,)], [(3,)])] * 63, USE], [0]),
        ([casting((6, 4), tensor((6, 4), HALF), **BARE), *[("mul", [(3,)], [(3,)])] * 64, USE], []),
    ],
)  # fmt: skip
def test_casts_of_weights_by_hand(calls: list[Any], right: list[int]) -> None:
    """Nothing remains of them, nor of the changes of their gradients; a change of a gradient of something else stays."""
    back = [("copy_", [tensor((3, 8), HALF)], [(3, 8)], BACK | {"sequence": place}) for place in right]
    back += [("copy_", [tensor((7, 8), HALF)], [(7, 8)], BACK | {"sequence": place}) for place in right]
    back += [("mul", [(3, 8)], [(3, 8)], BACK | {"sequence": place}) for place in right]
    chained = list(row_patterns.find_weight_casts(make_flow(*calls, *back), frozenset()))
    assert [[call.place for call in one.calls] for one in chained] == [right, [len(calls)]][: 2 * bool(right)]
    assert {(one.fused_bytes, one.fused_launches, one.kept_ns) for one in chained} <= {(0.0, 0.0, 0.0)}
    assert len(list(row_patterns.find_weight_casts(make_flow(*calls), frozenset()))) == bool(right)
    assert not list(row_patterns.find_weight_casts(make_flow(*calls), frozenset(right)))
    given = [(*one[:3], {**dict(*one[3:]), **BACK}) for one in calls]
    assert not list(row_patterns.find_weight_casts(make_flow(*given), frozenset()))
    # A chain per module and call of it.
    twice = [(*one[:3], {**dict(*one[3:]), "instance": at}) for at in (1, 2) for one in calls[-1:]]
    count = 2 if right == [0] and len(calls) == 1 else 0
    assert len(list(row_patterns.find_weight_casts(make_flow(*twice), frozenset()))) == count


ONES, PUT = ("zero_", [], [(8, 6)]), ("scatter_", [(8, 6)], [(8, 6)])
TABLED = ("mm", [(8, 6), (6, 5)], [(8, 5)])
NAMED = {"around": ("aten::one_hot",)}


@pytest.mark.parametrize(
    ("calls", "places"),
    [
        ([ONES, PUT, TABLED], [0, 1, 2]),
        ([ONES, PUT, ("copy_", [(8, 6)], [(8, 6)]), TABLED], [0, 1, 2, 3]),
        ([ONES, PUT, *[("copy_", [(8, 6)], [(8, 6)])] * 5, TABLED], [*range(8)]),
        ([ONES, PUT, *[("copy_", [(8, 6)], [(8, 6)])] * 6, TABLED], []),
        ([("scatter_", [(8, 6)], [(8, 6)], NAMED), TABLED], [0, 1]),
        ([("relu", [(2,)], [(8, 6)]), PUT, TABLED], []),
        ([ONES, PUT, ("relu", [(8, 6)], [(8, 6)]), TABLED], []),
        ([ONES, PUT, ("mul", [(8, 6), (6, 5)], [(8, 5)])], []),
        # On the right, too; a bias before both is not a side.
        ([("zero_", [], [(6, 5)]), ("scatter_", [(6, 5)], [(6, 5)]), TABLED], [0, 1, 2]),
        ([("scatter_", [(8, 5)], [(8, 5)], NAMED), ("addmm", [(8, 5), (8, 6), (6, 5)], [(8, 5)])], []),
    ],
)
def test_products_of_one_hot_rows_by_hand(calls: list[Any], places: list[int]) -> None:
    """The 8 chosen rows of 5 floats are read and written; backward they are read, and a table of 6 rows is written."""
    back = [(name, [(6, 8), (8, 5)], [(6, 5)], BACK | {"sequence": len(calls) - 1}) for name in ("mm", "copy_")]
    chained = list(row_patterns.find_one_hot_products(make_flow(*calls, *back), frozenset()))
    assert [[call.place for call in one.calls] for one in chained] == [places, [len(calls)]][: 2 * bool(places)]
    table = 192 if places else 0
    assert [(one.fused_bytes, one.fused_launches) for one in chained] == [(320, 1), (160 + table, 2)][: len(chained)]
    assert len(list(row_patterns.find_one_hot_products(make_flow(*calls), frozenset()))) == bool(places)
    for taken in places:
        assert not list(row_patterns.find_one_hot_products(make_flow(*calls), frozenset({taken})))


@pytest.mark.parametrize(
    ("cast", "right"),
    [
        (casting((8, 4), tensor((8, 4), HALF)), True),
        (casting(tensor((8, 4), BRAIN), (8, 4)), True),
        (casting((8, 4), tensor((8, 4), WIDE)), False),
        (casting(tensor((8, 4), HALF), tensor((8, 4), BRAIN)), False),
        (casting((8, 4), (8, 4)), False),
        # Asked for by the program, not a change of type, or not of autocast.
        (casting((8, 4), tensor((8, 4), HALF), around=("aten::to", "aten::_to_copy")), False),
        (casting((8, 4), tensor((8, 4), HALF), around=("aten::_to_copy",)), False),
        (casting((8, 4), tensor((8, 4), HALF), around=("aten::linear",)), False),
        (casting((8, 4), tensor((8, 4), HALF), "cat"), False),
        (casting((8, 4), tensor((8, 4), HALF), kind="pointwise"), False),
        (casting((8, 4), tensor((8, 4), HALF), direction="backward"), False),
    ],
)
def test_casts_by_autocast_by_hand(cast: Any, right: bool) -> None:
    back = [(name, [(8, 4)], [(8, 4)], BACK | {"sequence": 0}) for name in ("copy_", "mul")]
    chained = list(patterns.find_autocast_casts(make_flow(cast, *back), frozenset()))
    assert [[call.place for call in one.calls] for one in chained] == [[0], [1]][: 2 * right]
    assert {(one.fused_bytes, one.fused_launches) for one in chained} <= {(0.0, 0.0)}
    assert len(list(patterns.find_autocast_casts(make_flow(cast, *back[1:]), frozenset()))) == right
    assert not list(patterns.find_autocast_casts(make_flow(cast), frozenset({0})))


def called(times: int, *operators: str, module: str = "cell", shared: bool = False, begin: int = 0) -> list[Any]:
    """Calls of a module, each of some operators on 8 rows; shared: each works on what the one before has made."""
    made = []
    for number in range(begin, begin + times):
        rows = (8, 4) if shared else (8, 4 + number)
        for operator in operators:
            reads = {"mm": [(8, 4) if shared else (7, 9), (4, 4)]}.get(operator, [rows])
            made.append((operator, reads, [rows], {"module": module, "instance": number, "outer": ((8, 4),)}))
    return made


GATES = ("mm", "sigmoid", "tanh")
LAYER = [(name, [(8, 4)] * (1 + (name == "mm")), [(8, 4)], {"module": "layer"}) for name in ("mm", "relu")]


@pytest.mark.parametrize(
    ("calls", "pattern", "places", "left"),
    [
        # Six calls that work on something older could be one; five are too few.
        (called(6, "mm", "relu"), loops.BATCHES, range(12), 2.0),
        (called(7, "mm", "relu", "mul"), loops.BATCHES, range(21), 3.0),
        (called(5, "mm", "relu"), "", [], 0),
        # A call that works on the result of the one before is a layer of a stack; with gates it is a recurrence.
        (called(6, "mm", "relu", shared=True), "", [], 0),
        (called(6, *GATES, shared=True), loops.TIMES, range(18), 6.0),
        (called(6, *GATES), loops.TIMES, range(18), 6.0),
        (called(6, "mm", "sigmoid"), loops.BATCHES, range(12), 2.0),
        (called(6, "mm", "tanh"), loops.BATCHES, range(12), 2.0),
        (called(6, "lstm_cell", "mm"), loops.TIMES, range(12), 6.0),
        # The first call may differ, no other; a product or opaque work of two inputs is needed.
        ([*called(1, "mm", "relu", "mul"), *called(6, "mm", "relu", begin=1)], loops.BATCHES, range(15), 15 / 7),
        ([*called(6, "mm", "relu"), *called(1, "mm", "relu", "mul", begin=6)], "", [], 0),
        (called(6, "relu", "mul"), "", [], 0),
        ([(*one[:3], one[3] | {"outer": ((at, 4),)}) for at, one in enumerate(called(6, "mm", "relu"))], "", [], 0),
        ([("convolution", [(7, 9), (4, 4)], [(8, 4)], {**one[3], "kind": "opaque"}) for one in called(6, "mm")], loops.BATCHES,
         range(6), 1.0),
        ([(name, [(7, 9), (4, 4)], [(8, 4)], {**one[3], "kind": "opaque"}) for one in called(6, "mm")
          for name in ("convolution", "other")], loops.BATCHES, range(12), 2.0),
        ([(name, [(7, 9)], [(8, 4)], {**one[3], "kind": "opaque"}) for one in called(6, "mm") for name in ("fft", "other")],
         "", [], 0),
        # What is chosen between generates the next input; before and behind it says nothing.
        ([*called(3, "mm", "relu"), ("argmax", [(8, 4)], [(8, 1)]), *called(3, "mm", "relu", begin=3)], "", [], 0),
        ([("argmax", [(8, 4)], [(8, 1)]), *called(6, "mm", "relu"), ("topk", [(8, 4)], [(8, 1)])], loops.BATCHES,
         range(1, 13), 2.0),
        # A module within is called by itself where it is called another number of times.
        (called(6, "mm", "relu", module="net.cell"), loops.BATCHES, range(12), 2.0),
        ([*called(1, "sum", module="net.end", begin=99), *called(6, "mm", "relu", module="net.cell")], loops.BATCHES,
         range(1, 13), 2.0),
        ([one for at in range(6) for one in (*called(1, "mm", module="net.a", begin=at), *called(1, "relu", module="net.b", begin=at))],
         loops.BATCHES, range(12), 2.0),
        # Operator by operator, in one call of the network: six time steps, without what is around; five are too few.
        ([*LAYER, *LSTM, *LAYER], loops.TIMES, range(2, 20), 6.0),
        ([*LAYER, *LSTM[:15], *LAYER], "", [], 0),
        ([(*one, {"module": "a"}) for one in LSTM] + LAYER + [(*one, {"module": "b"}) for one in LSTM], loops.TIMES,
         range(18), 6.0),
        ([(name, [(8, 4), (4, 4)][: 1 + (name == "mm")], [(8, 4)]) for name in ("mm", "relu", "tanh") * 6], "", [], 0),
    ] if (LSTM := [(name, [(8, 4), (4, 4)][: 1 + (name == "mm")], [(8, 4)]) for name in GATES * 6]) else [],
)  # fmt: skip
def test_repeated_calls_by_hand(calls: list[Any], pattern: str, places: Iterable[int], left: float) -> None:
    chained = list(loops.find_repeated_calls(make_flow(*calls), frozenset()))
    told = [(one.pattern, [call.place for call in one.calls]) for one in chained]
    # A recurrence of two layers has a loop each.
    second = [(pattern, list(range(20, 38)))] * (len(calls) == 38)
    assert told == [(pattern, list(places))] * bool(pattern) + second
    for one in chained:
        assert one.fused_launches == pytest.approx(left) and one.fused_bytes == one.bytes
        products = [call for call in one.calls if call.operator == "mm"]
        assert one.flop == sum(2 * call.writes[0].elements * call.reads[-2].shape[-1] for call in products)
        back = [("mul", [(8, 4)], [(8, 4)], BACK | {"sequence": place}) for place in list(places)[:14]]
        _, behind, *_ = loops.find_repeated_calls(make_flow(*calls, *back), frozenset())
        assert [call.place for call in behind.calls] == list(range(len(calls), len(calls) + len(back)))
        number = 7 if left in (15 / 7, 3.0) else 6
        assert behind.fused_launches == (left if pattern == loops.TIMES else len(behind.calls) / number)
    for more in (BACK, {"updates": True}, {"direction": "loss"}):
        given = [(*one[:3], {**dict(*one[3:]), **more}) for one in calls]
        assert not list(loops.find_repeated_calls(make_flow(*given), frozenset()))
    assert not list(loops.find_repeated_calls(make_flow(*calls), frozenset(range(len(calls)))))


@pytest.mark.parametrize(
    ("between", "depends"),
    [
        # What was there before the first call may be copied and gathered in between; what was computed may not.
        ([("copy_", [(9, 4)], [(8, 4)])], False),
        ([("index", [(9, 4)], [(8, 4)])], False),
        ([("index", [(9, 4)], [(16, 2)]), ("copy_", [(16, 2)], [(8, 4)])], False),
        ([("relu", [(9, 4)], [(8, 4)])], True),
        ([("relu", [(9, 4)], [(4, 4)]), ("index", [(9, 4)], [(2, 8)]), ("cat", [(4, 4), (2, 8)], [(8, 4)])], True),
        ([("relu", [(9, 4)], [(16, 2)]), ("copy_", [(16, 2)], [(8, 4)])], True),
        ([("relu", [(9, 4)], [(16, 3)]), ("copy_", [(16, 2)], [(8, 4)])], False),
    ],
)
def test_what_a_repeated_call_works_on_by_hand(between: list[Any], depends: bool) -> None:
    """Of a product that is its last but one input, of all else the first one."""
    for name, reads in (("mm", [(8, 4), (4, 4)]), ("addmm", [(3,), (8, 4), (4, 4)]), ("tanh", [(8, 4), (2,)])):
        own = name, reads, [(8, 3)]
        made = make_flow(("relu", [(9, 9)], [(8, 4)]), own, *between, own)
        assert loops._depends(made, [[made.calls[1]], [made.calls[-1]]]) is depends
        weight = make_flow(own, ("relu", [(9, 4)], [(4, 4)]), ("relu", [(9, 4)], [(2,)]), own)
        assert not loops._depends(weight, [[weight.calls[0]], [weight.calls[-1]]])


D = {size: tensor(size, WIDE) for size in ((8, 4), (8, 1), (4, 4), (1,))}


def test_double_precision_by_hand() -> None:
    """From where it enters on, by module, call and direction: half of the bytes in fp64 remain, and no change of type."""
    wide, plain = D[8, 4], (8, 4)
    calls = [
        ("relu", [plain], [plain]),
        ("mul", [plain, D[8, 1]], [wide], {"module": "a"}),
        ("copy_", [wide], [plain], {"module": "a", "launches": (1, 2)}),
        ("mm", [wide, D[4, 4]], [wide], {"module": "a", "ns": 5.0}),
        ("copy_", [wide], [wide], {"module": "a"}),
        ("relu", [plain], [plain], {"module": "a"}),
        ("mul", [plain, D[1,]], [plain], {"module": "a"}),
        ("mul", [wide], [wide], {"module": "a", "instance": 1, "launches": (1, 2)}),
        ("mul", [wide, wide], [wide], {"module": "a", **BACK}),
        ("add", [tensor(plain, "c10::complex<double>")], [plain], {"module": "b"}),
    ]  # fmt: skip
    first, second, back, other = row_patterns.find_double(make_flow(*calls), frozenset())
    assert [[call.place for call in one.calls] for one in (first, second, back, other)] == [[1, 2, 3, 4], [7], [8], [9]]
    assert [one.pattern for one in (first, second, back, other)] == [row_patterns.ENTRY, *[row_patterns.DOUBLE] * 3]
    # 32 elements: 128 bytes are single, 256 double. Of the entry 128 + 32 + 128, of the product 128 + 64 + 128, a copy 256.
    assert (first.fused_bytes, first.fused_launches, first.kept_ns) == (288 + 320 + 256, 3, 5.0)
    assert (second.fused_bytes, second.fused_launches, second.kept_ns) == (256, 2, 0.0)
    assert back.fused_bytes == 3 * 128 and other.fused_bytes == 256 + 128
    assert all(one.narrowed for one in (first, second, back, other))
    kept = row_patterns.find_double(make_flow(*calls), frozenset({1, 3, 8}))
    assert [[call.place for call in one.calls] for one in kept] == [[2, 4], [7], [9]]


@pytest.mark.parametrize(
    ("reads", "enters"),
    [
        ([(8, 4), D[8, 1]], True),
        ([tensor((8, 4), HALF), D[8, 1]], True),
        ([(8, 4), tensor((8, 1), "c10::complex<double>")], True),
        # All in fp64, whole numbers, a single number, or a cast that the program asks for.
        ([D[8, 4], D[8, 1]], False),
        ([tensor((8, 4), "long int"), D[8, 1]], False),
        ([(8, 4), D[1,]], False),
        ([(1,), D[8, 4]], False),
        ([(8, 4)], False),
    ],
)  # fmt: skip
def test_where_double_precision_enters_by_hand(reads: list[Any], enters: bool) -> None:
    made = make_flow(("mul", [(8, 4)], [D[1,]]), ("mul", reads, [D[8, 4]]), ("mul", [(8, 4), D[8, 1]], [D[8, 4]]))
    chained = list(row_patterns.find_double(made, frozenset()))
    assert [[call.place for call in one.calls] for one in chained] == [[1, 2]] * enters
    assert not list(row_patterns.find_double(make_flow(("mul", [(8, 4), D[8, 1]], [(8, 4)])), frozenset()))
