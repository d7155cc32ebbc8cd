"""Work that is done again, or with zeros, is named in programs that do it, and not in their twins."""

import pytest
import torch
from torch import nn

from profzoo.fusion import attention, graph_products, losses, prefixes, recomputed
from profzoo.fusion.chains import Chain
from profzoo.fusion.costs import Rates, fused_time
from tests import fused_programs, repeated_work
from tests.repeated_work import BATCH, LAYERS, PROMPT, ROUNDS, VERTICES, WIDTH

TEXT = torch.zeros(BATCH, PROMPT, dtype=torch.long)


def chains(pattern: str, network: nn.Module, given: torch.Tensor, training: bool = True) -> list[Chain]:
    """The chains of a pattern in a step of a network."""
    return [one for one in repeated_work.trace_step(network, given, training)[1] if one.pattern == pattern]


def test_generation_without_a_cache_is_named_with_all_rounds_but_the_first() -> None:
    (chain,) = chains(prefixes.PREFIXES, repeated_work.Generator(cached=False), TEXT, training=False)
    products = [call for call in chain.calls if call.operator == "addmm"]
    assert len(products) == (ROUNDS - 1) * LAYERS * 2, "scores are of one row, and do not grow"
    assert [call.writes[0].shape[0] for call in products[:: 2 * LAYERS]] == [
        BATCH * (PROMPT + number) for number in range(1, ROUNDS)
    ]
    assert chain.fused_launches == chain.launches, "each round still runs each operator"


def test_rows_that_remain_without_a_prefix_by_hand() -> None:
    (chain,) = chains(prefixes.PREFIXES, repeated_work.Generator(cached=False), TEXT, training=False)
    (first, *_) = [call for call in chain.calls if call.operator == "addmm" and call.reads[-1].shape == (WIDTH, WIDTH)]
    before = next(one for one in repeated_work.trace_step(repeated_work.Generator(False), TEXT, False)[0].calls
                  if one.operator == "addmm" and one.reads[-1].shape == (WIDTH, WIDTH))  # fmt: skip
    # Bias and weight as a whole; input and result of one place of each sample.
    assert prefixes._left(before, first) == 4 * (WIDTH + WIDTH * WIDTH + 2 * BATCH * WIDTH)


@pytest.mark.parametrize("twin", [repeated_work.Generator(cached=True), repeated_work.Growing()])
def test_neither_a_cache_nor_growing_parts_repeat_prefixes(twin: nn.Module) -> None:
    assert not chains(prefixes.PREFIXES, twin, TEXT, training=False)


def test_a_product_with_an_adjacency_is_named_in_both_passes() -> None:
    found = chains(graph_products.GRAPH, repeated_work.Neighbours(dense=True), torch.randn(VERTICES, 8))
    assert {one.calls[0].direction for one in found} == {"forward", "backward"}
    entries = graph_products.USUAL * VERTICES
    assert found[0].fused_bytes == pytest.approx(entries * (8 + 4 + 8 * 4) + VERTICES * 8 * 4)
    time = fused_time(found[0], Rates(10 * found[0].fused_bytes / found[0].ns, 0.0, 0.0))
    assert time.fused_ns == pytest.approx(time.ns / 10)
    assert 0 < time.low < time.fused_ns < time.high <= time.ns


@pytest.mark.parametrize(
    "twin",
    [
        repeated_work.Neighbours(dense=False),
        repeated_work.Neighbours(dense=True, trained=True),
        repeated_work.Neighbours(dense=True, vertices=64),
    ],
)
def test_neither_edges_nor_weights_nor_small_matrices_are_adjacencies(twin: repeated_work.Neighbours) -> None:
    assert not chains(graph_products.GRAPH, twin, torch.randn(twin.vertices, 8))


def test_activations_that_are_computed_again_are_named_and_nothing_of_them_is_left() -> None:
    found = chains(recomputed.RECOMPUTED, repeated_work.Checkpointed(again=True), torch.randn(BATCH, WIDTH))
    names = sorted(call.operator for one in found for call in one.calls)
    assert names == sorted(["addmm", "tanh"] * LAYERS)
    assert all(one.fused_bytes == one.fused_launches == 0 for one in found)
    assert not chains(recomputed.RECOMPUTED, repeated_work.Checkpointed(again=False), torch.randn(BATCH, WIDTH))


def test_attention_whose_weights_are_on_the_right_of_the_second_product() -> None:
    """As in networks of convolutions: values (batch, channels, places) by weights (batch, places, places)."""

    def attend(x: torch.Tensor) -> torch.Tensor:
        weights = torch.bmm(x, x.transpose(1, 2)).mul(0.1).softmax(-1)
        return torch.bmm(x.transpose(1, 2), weights.transpose(1, 2)).transpose(1, 2)

    found = fused_programs.trace_chains(fused_programs.Applied(attend))
    (forward,) = [one for one in found if one.pattern == attention.ATTENTION and one.calls[0].direction == "forward"]
    # Queries, keys, values and the result are alike; the scores are not among what remains.
    assert forward.fused_bytes == 4 * 4 * fused_programs.BATCH * fused_programs.PLACES * fused_programs.WIDTH


def smoothed(y: torch.Tensor) -> torch.Tensor:
    """A loss with smoothed targets, written out."""
    wanted = torch.full_like(y, 0.1 / y.shape[-1]).scatter(1, fused_programs.targets(y)[:, None], 0.9)
    return -(wanted * y.log_softmax(-1)).sum(-1).mean()


def test_a_smoothed_loss_keeps_what_torchs_own_moves() -> None:
    def torchs(y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(y, fused_programs.targets(y), label_smoothing=0.1)

    found = fused_programs.trace_chains(fused_programs.Classifier(), smoothed)
    written = {one.calls[0].direction == "backward": one for one in found if one.pattern == losses.LOSS}
    matrix = 4 * fused_programs.BATCH * fused_programs.PLACES * fused_programs.WORDS
    calls = fused_programs.trace_calls_of(fused_programs.Classifier(), torchs)
    for backward in (False, True):
        own = [call for call in calls if call.direction in (("backward",) if backward else ("loss",))]
        tensors = [
            one
            for call in own
            for one in (*call.reads, *call.writes)
            if one.elements * 4 == matrix and call.kind != "product"
        ]
        # Forward, the loss picks from a matrix without reading it all. Backward, it fills one with zeros that is not
        # among these; the gradient of a sum is one column, and the sum for the layer's bias belongs to the layer.
        less = 2 - 1 if backward else 1
        assert written[backward].fused_bytes == matrix * (len(tensors) - less)
