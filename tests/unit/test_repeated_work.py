"""Work that is done again, or with zeros, is named in programs that do it, and not in their twins."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from profzoo.fusion import calls, patterns
from profzoo.fusion.calls import Flow
from profzoo.fusion.chains import Chain
from tests import repeated_work, slow, zoo
from tests.repeated_work import BATCH, LAYERS, PROMPT, ROUNDS, WIDTH
from tests.written_programs import make_flow, tensor, work

TEXT = torch.zeros(BATCH, PROMPT, dtype=torch.long)


def chains(pattern: str, network: nn.Module, given: torch.Tensor, training: bool = True) -> list[Chain]:
    """The chains of a pattern in a step of a network."""
    return [one for one in repeated_work.trace_step(network, given, training)[1] if one.pattern == pattern]


def test_generation_without_a_cache_is_named_with_all_rounds_but_the_first() -> None:
    (chain,) = chains(patterns.PREFIXES, repeated_work.Generator(cached=False), TEXT, training=False)
    products = [call for call in chain.calls if call.operator == "addmm"]
    assert len(products) == (ROUNDS - 1) * LAYERS * 2, "scores are of one row, and do not grow"
    rows = [call.writes[0].shape[0] for call in products[:: 2 * LAYERS]]
    assert rows == [BATCH * (PROMPT + number) for number in range(1, ROUNDS)]
    assert chain.fused_launches == chain.launches, "each round still runs each operator"
    assert not chains(patterns.PREFIXES, repeated_work.Growing(), TEXT, training=False)


@pytest.mark.slow
def test_a_cache_repeats_no_prefixes() -> None:
    assert not chains(patterns.PREFIXES, repeated_work.Generator(cached=True), TEXT, training=False)


def test_a_cache_that_is_copied_is_named_in_each_layer_and_its_new_part_is_left() -> None:
    found = chains(patterns.COPIED, repeated_work.Generator(cached=True), TEXT, training=False)
    assert [one.calls[0].module for one in found] == [f"blocks.{layer}" for layer in range(LAYERS)]
    for one in found:
        assert [call.operator for call in one.calls] == ["cat"] * (ROUNDS - 1)
        assert one.fused_bytes == (ROUNDS - 1) * 2 * 4 * BATCH * 2 * WIDTH


@pytest.mark.parametrize("name", ["llama", "deepseekv2"])
def test_a_cache_that_is_written_in_place_is_not_named(name: str) -> None:
    """Keys are repeated for several queries, or put together from a wide part and a narrow one."""
    tiny = zoo.cell(name, "inference", layers=2)
    network, (text, _) = zoo.network(tiny), zoo.batch(tiny)
    network.forward = lambda text: network.generate(text, network.generated)
    assert not chains(patterns.COPIED, network, text, training=False)


def joined(old: int, new: int, count: int = 3, attention: str = "bmm", asks: int = 1, **more: Any) -> list[Any]:
    """Tensors that are put together, the last of which a product of the same module reads."""
    own = {"module": "m"}
    tokens = [("cat", [(2, old, 4), (2, new, 4)], [(2, old + new, 4)], own | more)] * count
    return [*tokens, (attention, [(2, asks, 4), (2, 4, old + new)], [(2, asks, old + new)], own)]


@pytest.mark.parametrize(
    ("calls", "places"),
    [
        (joined(6, 2), [0, 1, 2]),
        (joined(5, 2), []),
        (joined(6, 2, 2), []),
        (joined(6, 2, attention="mm"), []),
        (joined(6, 2, module="other"), []),
        (joined(6, 2, direction="backward"), []),
        # A token of the class comes first.
        (joined(1, 8), []),
        # A picture and its text ask as well.
        (joined(6, 2, asks=8), []),
        # What is put together was made by the same call of the module, or by the one before.
        ([("mul", [(2, 6, 4)], [(2, 6, 4)], {"module": "m.norm"}), *joined(6, 2, 1)] * 3, []),
        ([("mul", [(2, 6, 4)], [(2, 6, 4)], {"module": "m"}), *joined(6, 2, 3, instance=1)], [1, 2, 3]),
    ],
)  # fmt: skip
def test_copied_caches_by_hand(calls: list[Any], places: list[int]) -> None:
    found = list(patterns.find_copied_caches(make_flow(*calls), frozenset()))
    assert [call.place for one in found for call in one.calls] == places
    assert all(one.fused_bytes == 2 * 4 * 16 * len(places) and one.fused_launches == len(places) for one in found)
    assert not list(patterns.find_copied_caches(make_flow(*calls), frozenset({1})))


@pytest.mark.parametrize(
    ("given", "ways"),
    slow.first(
        [
            ({"dense": True}, {"forward", "backward"}),
            ({"dense": False}, set()),
            ({"dense": True, "trained": True}, set()),
            ({"dense": True, "vertices": 64}, set()),
        ]
    ),
)
def test_a_product_with_an_adjacency_is_named_in_both_passes(given: dict[str, Any], ways: set[str]) -> None:
    """Neither edges nor weights nor small matrices are adjacencies."""
    network = repeated_work.Neighbours(**given)
    found = chains(patterns.GRAPH, network, torch.randn(network.vertices, 8))
    assert {one.calls[0].direction for one in found} == ways


def test_activations_that_are_computed_again_are_named_and_nothing_of_them_is_left() -> None:
    found = chains(patterns.RECOMPUTED, repeated_work.Checkpointed(again=True), torch.randn(BATCH, WIDTH))
    assert sorted(call.operator for one in found for call in one.calls) == sorted(["addmm", "tanh"] * LAYERS)
    assert all(one.fused_bytes == one.fused_launches == 0 for one in found)
    assert not chains(patterns.RECOMPUTED, repeated_work.Checkpointed(again=False), torch.randn(BATCH, WIDTH))


def a_round(rows: int, **more: Any) -> list[Any]:
    """A round of generation whose rows are read by a layer, an activation and an attention, and then chosen from."""
    scores = {"kind": "product", "module": "m"} | more
    return [
        ("index", [(50, 4)], [(rows, 4)], {"module": "e"} | more),
        ("addmm", [(4,), (rows, 4), (4, 4)], [(rows, 4)], {"module": "m"} | more),
        ("relu", [(rows, 4)], [(rows, 4)], {"module": "m", "launches": (1, 2)} | more),
        ("bmm", [(1, rows, 4), (1, 4, rows)], [(1, rows, rows)], scores),
        ("argmax", [(1, 4)], [(1, 1)], more),
    ]


def rounds(*rows: int, **more: Any) -> list[Any]:
    return [each for count in rows for each in a_round(count, **more)]


def moved(rows: int, before: int) -> int:
    """Bytes of the new rows, in floats: whole are the bias, the weight, the embedding, and the keys."""
    new = rows - before
    index, layer = 50 * 4 + new * 4, 4 + new * 4 + 4 * 4 + new * 4
    return 4 * (index + layer + 2 * new * 4 + new * 4 + 4 * rows + rows**2 - before**2)


GROWN = rounds(6, 8, 10)


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        # A round of 8 rows has 2 new ones, which is just few enough; work behind the last choice is of no round.
        ([*GROWN, ("relu", [(10, 4)], [(10, 4)])], ([5, 6, 7, 8, 10, 11, 12, 13], moved(8, 6) + moved(10, 8))),
        (rounds(12, 15, 18, 21), ([*range(5, 9), *range(10, 14), *range(15, 19)],
                                  moved(15, 12) + moved(18, 15) + moved(21, 18))),
        # Two rounds may be a coincidence; rows that grow by more, by another number, by none, or shrink are new work.
        (rounds(6, 8), None),
        (rounds(5, 7, 9), None),
        (rounds(12, 14, 17), None),
        (rounds(8, 8, 8), None),
        (rounds(10, 8, 6), None),
        # The backward pass and updates of weights generate nothing.
        (rounds(6, 8, 10, direction="backward"), None),
        (rounds(6, 8, 10, updates=True), None),
        (rounds(6, 8, 10, direction="loss"), ([5, 6, 7, 8, 10, 11, 12, 13], moved(8, 6) + moved(10, 8))),
        # Other operators choose, too; one that chooses nothing does not.
        ([("topk", *one[1:]) if one[0] == "argmax" else one for one in GROWN],
         ([5, 6, 7, 8, 10, 11, 12, 13], moved(8, 6) + moved(10, 8))),
        ([("amax", *one[1:]) if one[0] == "argmax" else one for one in GROWN], None),
    ],
)  # fmt: skip
def test_repeated_prefixes_by_hand(calls: list[Any], right: tuple[list[int], int] | None) -> None:
    found = list(patterns.find_repeated_prefixes(make_flow(*calls), frozenset()))
    assert [([call.place for call in one.calls], one.fused_bytes) for one in found] == ([right] if right else [])
    for one in found:
        # Relu has two launches.
        assert one.pattern == patterns.PREFIXES and one.fused_launches == one.launches == len(one.calls) * 5 / 4
    # Where a round's layer is another chain's, the rounds are no longer alike as far.
    assert not list(patterns.find_repeated_prefixes(make_flow(*calls), frozenset({6, 11, 16})))


@pytest.mark.parametrize(
    ("change", "places"),
    [
        # From the choice back, rounds correspond as far as module, inputs and kind of work are alike.
        ({}, [5, 6, 7, 8, 10, 11, 12, 13]),
        ({5: {"module": "other"}}, [6, 7, 8, 11, 12, 13]),
        ({5: {"kind": "opaque"}}, [6, 7, 8, 11, 12, 13]),
        ({5: {"operator": "embedding"}}, [5, 6, 7, 8, 10, 11, 12, 13]),
        ({8: {"module": "other"}}, []),
    ],
)
def test_rounds_correspond_from_their_ends(change: dict[int, dict[str, Any]], places: list[int]) -> None:
    calls = [replace(one, **{name: value for name, value in change.get(one.place, {}).items() if name != "kind"},
                     effects=one.effects._replace(kind=change.get(one.place, {}).get("kind", one.kind)))
             for one in make_flow(*GROWN).calls]  # fmt: skip
    found = list(patterns.find_repeated_prefixes(Flow(calls), frozenset()))
    assert [call.place for one in found for call in one.calls] == places


def test_a_round_needs_most_of_its_products_to_grow() -> None:
    """One of two is too few, two of three are enough; a product of matrices alone counts, with its number of elements."""
    grown = [patterns._added([two] * count) for two, count in ((PRODUCTS[0], 2), (PRODUCTS[1], 2))]
    assert grown == [(8, 8), ()]
    assert patterns._added([*PRODUCTS, PRODUCTS[0]]) == (8, 0, 8) and patterns._added(PRODUCTS) == ()
    assert patterns._added([]) == patterns._added([(work("relu", [(6, 4)], [(6, 4)]),) * 2]) == ()
    assert patterns._added([(work("bmm", [], [(1, 6, 4)]), work("bmm", [], [(1, 8, 4)]))]) == ()


# A product that grows by two rows of eight, and one that does not.
PRODUCTS = [(work("mm", [], [(rows, 4)]), work("mm", [], [(8, 4)])) for rows in (6, 8)]


def square(kind: str = "float", size: int = 2048, right: tuple[int, ...] = (2048, 8), **more: Any) -> list[Any]:
    """A product of a square matrix with a narrow one."""
    return ["mm", [tensor((size, size), kind), right], [(size, right[-1])], more]


NUMBERS = 2048 * (8 + 4 + 8 * 4)


@pytest.mark.parametrize(
    ("calls", "places"),
    [
        ([square()], [0]),
        # Too few vertices, as wide a right side, made in the step, or trained: its gradient is as large.
        ([square(size=2047, right=(2047, 8))], []),
        ([square(right=(2048, 2048))], []),
        ([["mm", [(2048, 2048), (2048, 2048)], [(2048, 7)], {}]], []),
        ([square(right=(2048, 2047))], [0]),
        ([["bmm", [(1, 2048, 2048), (1, 2048, 8)], [(1, 2048, 8)], {}]], [0]),
        ([["relu", [(2048, 2048)], [(2048, 2048)]], square()], []),
        ([square(), ["mm", [(2048, 8), (8, 2048)], [(2048, 2048)]]], []),
        ([["mm", [(1024, 4096), (4096, 8)], [(1024, 8)], {}]], []),
        ([["mm", [(2, 2048, 2048), (2, 2048, 8)], [(2, 2048, 8)], {}]], []),
        ([["mul", [(2048, 2048), (2048, 8)], [(2048, 8)], {}]], []),
        ([["addmm", [(8,), (2048, 2048), (2048, 8)], [(2048, 8)], {}]], [0]),
        ([["mm", [(2048, 2048)], [(2048, 8)], {}], ["mm", [(2048, 2048), (2048, 8)], [], {}]], []),
        # The backward pass multiplies with it too; alone it may be a gradient.
        ([square(direction="backward")], []),
        ([square(), square(direction="backward"), square(size=4096, right=(4096, 8), direction="backward")], [0, 1]),
    ],
)
def test_products_with_an_adjacency_by_hand(calls: list[Any], places: list[int]) -> None:
    found = list(patterns.find_graph_products(make_flow(*calls), frozenset()))
    assert [[call.place for call in one.calls] for one in found] == [[place] for place in places]
    if places == [0] and calls[0][2][0][-2:] == (2048, 8):
        # Per neighbour its number and the entry, and a row of 8 floats; 2048 rows are written.
        usual, *ends = (count * NUMBERS + 2048 * 8 * 4 for count in (29.1, 13.7, 597.0))
        assert (found[0].fused_bytes, found[0].fused_launches) == (pytest.approx(usual), 1.0)
        assert found[0].bytes_between == pytest.approx(tuple(ends))
    assert not list(patterns.find_graph_products(make_flow(*calls), frozenset(range(len(calls)))))


@pytest.mark.parametrize(
    ("find", "field"),
    [(patterns.find_recomputed, {"direction": "recompute"}), (patterns.find_discarded, {"discarded": True})],
)
def test_what_need_not_be_done_is_a_chain_per_run_by_hand(find: Any, field: dict[str, Any]) -> None:
    own, other = ("relu", [(6, 4)], [(6, 4)], field), ("relu", [(6, 4)], [(6, 4)])
    made = make_flow(other, own, own, other, other, own, other, own, own)
    found = list(find(made, frozenset()))
    assert [[call.place for call in one.calls] for one in found] == [[1, 2], [5], [7, 8]]
    assert {(one.fused_bytes, one.fused_launches, one.kept_ns) for one in found} == {(0.0, 0.0, 0.0)}
    assert [[call.place for call in one.calls] for one in find(made, frozenset({2, 5, 8}))] == [[1], [7]]
    assert not list(find(make_flow(other), frozenset()))


HEAD, BODY, JUDGE = ("head", (8, 2)), ("body", (8, 8)), ("(others).judge", (8, 1))


def storing(*given: tuple[int, tuple[str, tuple[int, ...]], bool]) -> list[calls.Stored]:
    return [calls.Stored(began, *parameter, fresh) for began, parameter, fresh in given]


def updating(began: int, *shapes: tuple[int, ...]) -> calls.Update:
    return calls.Update(began, set(shapes), list(shapes))


ONE_PASS = storing((1, HEAD, True), (3, BODY, True), (5, BODY, True))
TWO_PASSES = storing((1, JUDGE, True), (2, BODY, True), (11, JUDGE, True), (12, BODY, True))


@pytest.mark.parametrize(
    ("stored", "updated", "forward", "right"),
    [
        # What is computed behind the last gradient that an optimizer uses.
        (ONE_PASS, [updating(9, (8, 2))], [0], [(1, 5)]),
        (ONE_PASS, [updating(9, (8, 8))], [0], []),
        (ONE_PASS, [updating(9, (8, 2)), updating(10, (8, 8))], [0], []),
        (ONE_PASS, [updating(9, (7, 7))], [0], []),
        (ONE_PASS, [], [0], []),
        # A forward pass between tells two backward passes apart.
        (ONE_PASS, [updating(9, (8, 2))], [0, 4], [(1, 3)]),
        # Where all of a pass would be of no use, nothing is said of it.
        (storing((1, HEAD, True), (3, BODY, True), (5, HEAD, True), (7, BODY, True)), [updating(9, (8, 2))], [0, 4], [(1, 3)]),
        # A network that is not updated behind a pass, and whose gradients are then forgotten.
        (TWO_PASSES, [updating(5, (8, 1)), updating(15, (8, 8), (8, 1))], [0, 10], [(1, 2)]),
        (TWO_PASSES, [updating(5, (8, 1), (8, 8)), updating(15, (8, 8), (8, 1))], [0, 10], []),
        (TWO_PASSES, [updating(15, (8, 8), (8, 1))], [0, 10], []),
        (TWO_PASSES, [updating(5, (8, 1)), calls.Update(6, {(8, 8)}, None)], [0, 10], []),
        (TWO_PASSES[:2], [updating(5, (8, 1)), updating(6, (8, 8))], [0], []),
        # The step behind this one begins as this one does: the last pass is followed by the first.
        (TWO_PASSES, [updating(5, (8, 1), (8, 8)), updating(15, (8, 1))], [0, 10], [(11, 12)]),
        # A gradient that was there before was added up.
        ([*TWO_PASSES[:3], *storing((12, BODY, False))], [updating(5, (8, 1)), updating(15, (8, 8), (8, 1))], [0, 10], []),
    ],
)  # fmt: skip
def test_when_gradients_are_of_no_use_by_hand(stored: Any, updated: Any, forward: Any, right: Any) -> None:
    assert calls.find_unused_times(stored, updated, forward) == right
    unknown = calls.Update(20, None, None)
    assert calls.find_unused_times(ONE_PASS, [*updated, unknown], [0]) == []


@pytest.mark.parametrize(
    ("module", "network"),
    [("(others).judge.up", "judge"), ("(others).judge", "judge"), ("Judge.up", "Judge"), ("body.up", ""), ("", ""), ("body.Up", "")],
)  # fmt: skip
def test_the_network_of_a_gradient(module: str, network: str) -> None:
    assert calls.Stored(1, module, (8, 1), True).network == network


def test_shapes_from_their_texts() -> None:
    assert calls.parse_shapes("[[4, 8], [], [[2], [3]]]") == ((4, 8), (), ()) and calls.parse_shapes("") == ()
