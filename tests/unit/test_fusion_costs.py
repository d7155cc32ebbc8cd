"""What fusing saves: bytes by hand, times by rates, and gains by simulating steps whose kernels have known times."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from profzoo.foreign_reports import nsys_of_torch
from profzoo.fusion import attention, gains, joining, losses, row_patterns, table, updates
from profzoo.fusion.calls import read_step
from profzoo.fusion.chains import OTHER
from profzoo.fusion.costs import Rates, fused_time, measure_rates
from profzoo.io import csv_tables
from profzoo.tools.torch import host_calls
from profzoo.tools.torch.trace import make_trace, read_trace
from profzoo.what_if import blocking_calls, storage
from profzoo.what_if import tables as what_if_tables
from profzoo.what_if.kernel_matching import Operations
from profzoo.what_if.program import replace_tables
from tests import fused_programs as programs

# Bytes of a tensor (batch, places, width) of floats, and of the scores of all heads.
TENSOR = 4 * programs.BATCH * programs.PLACES * programs.WIDTH
SCORES = 4 * programs.BATCH * programs.HEADS * programs.PLACES**2
# Rate of the kernels of traces made here, in bytes per ns: so low that the host is done long before, however busy.
RATE = 2e-4


def chains_of(pattern: str, *given: Any, backward: bool = False, **named: Any) -> list[Any]:
    """The chains of a pattern in a program, of one pass."""
    found = programs.trace_chains(*given, **named)
    ways = ("backward",) if backward else ("forward", "optimizer") if pattern != losses.LOSS else ("loss",)
    return [one for one in found if one.pattern == pattern and one.calls[0].direction in ways]


def test_bytes_of_elementwise_work_by_hand() -> None:
    (chain,) = chains_of(OTHER, programs.Applied(lambda x: torch.relu(x * 2 + 1)))
    assert [call.operator for call in chain.calls] == ["mul", "add", "relu"]
    assert (chain.bytes, chain.fused_bytes, chain.launches, chain.fused_launches) == (6 * TENSOR, 2 * TENSOR, 3, 1)


def test_what_is_read_again_later_is_still_written() -> None:
    """x + y is the input of the normalisation and of the next sum."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start, self.one, self.two = (nn.Linear(programs.WIDTH, programs.WIDTH) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.start(x)
            h = x + self.one(x).sigmoid()
            return h + self.two(h.tanh())

    first, *_ = chains_of(OTHER, Residual(), lambda y: y.sum())
    assert [call.operator for call in first.calls] == ["sigmoid", "add", "tanh"]
    # Now: 2 + 3 + 2. Fused: product and x are read, h and tanh written.
    assert (first.bytes, first.fused_bytes) == (7 * TENSOR, 4 * TENSOR)


def test_bytes_of_attention_by_hand() -> None:
    (chain,) = chains_of(attention.ATTENTION, programs.Attention())
    (behind,) = chains_of(attention.ATTENTION, programs.Attention(), backward=True)
    mask = programs.PLACES**2
    names = [call.operator for call in chain.calls]
    assert names[-1] == "bmm" and names.count("bmm") == 2 and "_softmax" in names
    of_scores = [call for call in chain.calls if call.writes and call.writes[0].bytes == SCORES]
    # Queries and keys to scores; quotient; copy; mask; softmax. A product copies what it cannot read as it is.
    assert sum(call.effects.bytes for call in of_scores) == 2 * TENSOR + 9 * SCORES + mask
    # Queries, keys and values are read, and the result is written; then also its gradient, and three are written.
    assert chain.fused_bytes == 4 * TENSOR and behind.fused_bytes == 9 * TENSOR
    assert chain.fused_launches == behind.fused_launches == 1


@pytest.mark.parametrize("careful", [False, True])
def test_products_of_causal_attention_need_not_be_done_where_the_mask_covers_them(careful: bool) -> None:
    """By `masked_fill` or `where`; a mask of padding is another one for each sample, and spares nothing."""
    for backward, again in ((False, 1.0), (True, attention.AGAIN)):
        (chain,) = chains_of(attention.ATTENTION, programs.Attention(careful=careful), backward=backward)
        products = sum(call.ns for call in chain.calls if call.operator == "bmm")
        assert chain.kept_ns == pytest.approx(again * products / attention.CAUSAL)
    forward = chains_of(attention.ATTENTION, programs.Attention(careful=careful))[0].calls
    (masking,) = [call for call in forward if attention.masks_square(call)]
    padded = [one._replace(shape=(programs.BATCH, 1, 1, programs.PLACES)) if one.kind == attention.BOOL else one
              for one in masking.reads]  # fmt: skip
    assert not attention.masks_square(replace(masking, effects=masking.effects._replace(reads=tuple(padded))))


def test_bytes_of_a_normalisation_and_an_activation_by_hand() -> None:
    for pattern, network in ((row_patterns.LAYER_NORM, programs.LayerNorm()), (row_patterns.GELU, programs.gelu_tanh)):
        made = network if isinstance(network, nn.Module) else programs.Applied(network)
        ((chain,), (behind,)) = (chains_of(pattern, made, backward=way) for way in (False, True))
        assert chain.fused_bytes == 2 * TENSOR and behind.fused_bytes == 3 * TENSOR
    assert [call.operator for call in chain.calls] == ["mul", "pow", "mul", "add", "mul", "tanh", "add", "mul"]
    # Each reads and writes a tensor; the sum and the product of two read one more.
    assert chain.bytes == 18 * TENSOR


def test_bytes_of_a_loss_by_hand() -> None:
    ((chain,), (behind,)) = (
        chains_of(losses.LOSS, programs.Classifier(), programs.summed, backward=way) for way in (False, True)
    )
    rows, scores = programs.BATCH * programs.PLACES, 4 * programs.BATCH * programs.PLACES * programs.WORDS
    # torch's function keeps a log-softmax; its backward pass fills, reads two and writes one.
    assert chain.fused_bytes == 2 * scores and behind.fused_bytes == 4 * scores
    # Maximum, difference, exponential, sum, and small work on rows.
    assert 6 * scores < chain.bytes < 6 * scores + 40 * 8 * rows


def test_bytes_of_adam_by_hand() -> None:
    network = nn.Sequential(*(nn.Linear(programs.WIDTH, programs.WIDTH) for _ in range(4)))
    size = 4 * sum(weight.numel() for weight in network.parameters())
    for given, pattern in (({"foreach": False}, updates.LOOPED), ({"foreach": True}, updates.FOREACH)):
        (chain,) = chains_of(pattern, network, optimize=programs.adam(**given))
        # Weight, gradient and two means are read, all but the gradient written.
        assert chain.fused_bytes == 7 * size and chain.fused_launches == 1
        assert 11 * size < chain.bytes < 20 * size


NETWORKS = [
    programs.Attention, programs.LayerNorm, programs.RMSNorm, programs.LSTMCell, programs.LoopedHeads, programs.OneHot,
    programs.CastWeights, lambda: programs.Experts(looped=True), lambda: programs.Applied(programs.gelu_tanh),
    lambda: programs.Applied(programs.rotated), lambda: nn.TransformerEncoderLayer(programs.WIDTH, 4, batch_first=True),
]  # fmt: skip


@pytest.mark.parametrize("make", NETWORKS)
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


def test_rates_are_measured_peaks_or_those_of_large_kernels() -> None:
    step = read_step(make_trace(programs.with_kernels(programs.traced_steps(programs.LayerNorm()), RATE)))
    assert measure_rates(step.calls, {"dram": 3e12}).bytes_per_ns == 3000
    # Nothing here is too large for a cache.
    assert measure_rates(step.calls, {}).bytes_per_ns == 0
    from dataclasses import replace

    large = [
        replace(
            call,
            effects=call.effects._replace(reads=tuple(one._replace(stored=one.stored << 18) for one in call.reads)),
        )
        for call in step.calls
    ]
    assert measure_rates(large, {}).bytes_per_ns > RATE * 1000


def test_the_expected_time_and_its_interval_by_hand() -> None:
    (chain,) = chains_of(OTHER, programs.Applied(lambda x: torch.relu(x * 2 + 1)))
    timed = [call.__class__(**{**vars(call), "ns": 12_000.0}) for call in chain.calls]
    slow = chain.__class__(**{**vars(chain), "calls": tuple(timed)})
    # Two tensors at 4 bytes/ns; at the chain's own rate, of six tensors in 36 us, they take a third of it.
    found = fused_time(slow, Rates(4.0, 1000.0, 0.0))
    assert (found.ns, found.fused_ns, found.low, found.high) == (36_000, TENSOR / 2, TENSOR / 2, 12_000)
    assert fused_time(slow, Rates(4.0, 5000.0, 0.0)).fused_ns == 5000
    # Nothing is known of memory, or it is slower than the chain, whose tensors are in the cache.
    assert fused_time(slow, Rates(0.0, 0.0, 0.0)).fused_ns == fused_time(slow, Rates(0.1, 0.0, 0.0)).fused_ns == 12_000


@pytest.fixture(scope="module")
def attention_cell(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame, Path]:
    """Tables of a cell with written-out attention, whose trace stands for that of nsys too."""
    folder = tmp_path_factory.mktemp("cell")
    network = nn.Sequential(programs.Attention(), programs.Attention())
    events = programs.with_kernels(programs.traced_steps(network, count=3), RATE)
    trace = folder / "trace.json.gz"
    trace.write_bytes(
        gzip.compress(json.dumps({"traceEvents": events, "profzoo_sources": {"Attention": ["a.py:1-9"]}}).encode())
    )
    sidecar = folder / "trace.json"
    sidecar.write_text(json.dumps({"device_type": "cuda", "imported": {}, "cell": {"window": 3}}))
    nsys_of_torch.main(str(trace), str(sidecar), str(folder / "n.sqlite"), str(folder / "n.json"))
    starts, _, _ = host_calls.range_spans(read_trace(trace), ("step",))
    _, _, programs_of = what_if_tables.make_tables(str(folder / "n.sqlite"), float(np.median(np.diff(starts))))
    storage.write(programs_of, folder / "p.npz")
    (folder / "peaks.csv").write_text(f"peak,rate,unit,how\ndram,{RATE * 1e9},byte/s,by hand\n")
    outputs = {"chains": str(folder / "fusion.csv"), "kernels": str(folder / "fusion-kernels.csv")}
    nsys = str(folder / "n.sqlite"), str(folder / "n.json")
    table.main(str(trace), nsys, str(folder / "peaks.csv"), str(folder / "p.npz"), outputs)
    return csv_tables.read(outputs["chains"], table.CHAINS), csv_tables.read(outputs["kernels"], table.KERNELS), folder


def test_a_cell_has_a_row_for_layers_alike_with_the_lines_of_their_class(attention_cell: Any) -> None:
    chains, kernels, _ = attention_cell
    own = chains[chains["pattern"] == attention.ATTENTION]
    assert own["direction"].tolist() == ["forward", "backward"] and own["chains"].tolist() == [2, 2]
    assert set(own["type"]) == {"Attention"} and set(own["source"]) == {"a.py:1-9"}
    # The launches of a chain were found again, those that stay among them.
    by_chain = kernels.groupby(joining.NUMBER)
    assert by_chain.size()[own["chain"]].tolist() == own["launches"].tolist()
    assert by_chain[joining.STAYS].sum()[own["chain"]].tolist() == own["fused_launches"].tolist()
    assert by_chain["ns"].sum()[own["chain"]].to_numpy() == pytest.approx(own["ns"].to_numpy(), rel=0.01)


def test_the_simulated_gain_is_that_of_a_step_without_the_saved_time(attention_cell: Any) -> None:
    """Kernels take much longer than their launches here, so that the step is the sum of its kernels."""
    chains, _, folder = attention_cell
    (program,) = storage.read(folder / "p.npz").values()
    whole = program.gpu["ns"].sum() / program.steps
    gained = chains[chains["gain"].notna()]
    assert len(gained) >= 2
    expected = whole / (whole - gained["ns"] + gained["fused_ns"])
    assert gained["gain"].to_numpy() == pytest.approx(expected.to_numpy(), rel=0.05)
    assert ((gained["gain_low"] <= gained["gain"]) & (gained["gain"] <= gained["gain_high"])).all()


def test_waits_within_a_loop_over_experts_disappear_and_others_stay(attention_cell: Any) -> None:
    chains, kernels, folder = attention_cell
    (program,) = storage.read(folder / "p.npz").values()
    waiting = replace_tables(program, host={"wait": np.full(len(program.host), blocking_calls.ALL)})
    own = kernels[kernels[joining.NUMBER] == 0]
    # The launch that stays is the first one, so that all others lie behind it.
    own = own.assign(stays=(own["place"] == own["place"].min()).astype(int))
    fused = chains.set_index("chain")["fused_ns"]
    stays = gains.fuse_chains(Operations(waiting), own, fused)
    gone = gains.fuse_chains(Operations(waiting), own.assign(waits=1), fused)
    assert stays and gone
    of_chain = np.zeros(len(program.host), dtype=bool)
    launched = program.gpu["host"].to_numpy().reshape(program.steps, -1)[:, own["place"].to_numpy()]
    of_chain[launched.ravel()] = True
    still = (gone.host["wait"] == blocking_calls.ALL).to_numpy()
    # Calls of the chain wait no longer, but for each layer's last one; what lies outside of it does as before.
    assert (of_chain & still).sum() <= 2 * program.steps
    assert still[~of_chain].all() and (stays.host["wait"] == blocking_calls.ALL).to_numpy()[~of_chain].all()
