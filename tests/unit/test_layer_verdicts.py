"""Verdicts on layers, by made ones that each have one thing wrong."""

import random
from typing import Any

import pandas as pd
import pytest

from profzoo.tables import layer_kernels
from profzoo.tables import layers as layer_tables
from profzoo.verdicts import layer_verdicts, verdicts
from tests import known_rules, slow
from tests.unit.test_verdicts import UNTRIED, kernel_rows
from tests.unit.test_verdicts import made as a_step

RULES = known_rules.load()
ROOFS = {"fp32": 50.0, "tf32": 500.0}
SHAPES = "[[8, 3, 224, 224], [32, 3, 3, 3], []]"
CELL = ("m", "train")


def kernel(module: str, **given: Any) -> dict[str, Any]:
    """A row of a layer that takes 100 of the step's 1,000 us in one launch, at two fifths of the tensor cores' roof."""
    row: dict[str, Any] = dict.fromkeys(layer_kernels.COLUMNS, float("nan")) | {
        "operator": "aten::cudnn_convolution", "shapes": SHAPES, "caller": "", "module": module, "type": "Conv2d",
        "direction": "forward", "class": "convolution", "kernel": "k", "function": "k", "mangled": "k",
        "grid_x": 1000, "grid_y": 1, "grid_z": 1, "launches": 1.0, "total_ns": 1e5, "mean_ns": 1e5, "share": 0.1,
        "bound": "tensor", "efficiency": 0.4, "multiprocessors": 132,
    }  # fmt: skip
    return row | given


def layer(module: str, **given: Any) -> dict[str, Any]:
    """A row of the tree, which needs as much as was counted."""
    row: dict[str, Any] = dict.fromkeys(layer_tables.LAYERS, 0.0) | {
        "module": module, "direction": "forward", "self_ns": 1e5, "total_ns": 1e5, "needed_share": 1.0,
        "counted_share": 1.0, "needed_flop": 1e9, "tensor_flop": 1e9, "simt_flop": 0.0,
    }  # fmt: skip
    return row | given


def judged(kernels: list[dict[str, Any]], tree: list[dict[str, Any]], idle: float = 0.0) -> pd.DataFrame:
    """The verdicts on the layers of a cell whose kernels take all of its step but for what it idles as the CPU is late."""
    found = {
        CELL: (pd.DataFrame(kernels, columns=layer_kernels.COLUMNS), pd.DataFrame(tree, columns=layer_tables.LAYERS))
    }
    rows = kernel_rows(total_ns=[1e6])
    step = a_step({"idle_host": idle} if idle else {})
    table = verdicts.tabulate_verdicts(step, rows, None, ROOFS, {}, {}, RULES, found, scored=UNTRIED)
    return table[table["level"] == "layer"].reset_index(drop=True)


@pytest.mark.parametrize(
    ("given", "verdict", "said"),
    [
        (
            {"bound": "simt", "efficiency": 0.7},
            "compute-bound (SIMT)",
            "aten::cudnn_convolution 8x3x224x224 and 32x3x3x3 runs without tensor cores, at 70% of what it could: ",
        ),
        ({"bound": "dram", "efficiency": 0.8}, "memory-bound", "at 80% of what DRAM can do: move fewer bytes"),
        ({"grid_x": 33}, "latency-bound (small grid)", "33 blocks for 132 multiprocessors: fill the GPU"),
        (
            {"class": "elementwise", "launches": 40.0, "mean_ns": 2500.0, "bound": "", "efficiency": float("nan")},
            "latency-bound (short kernels)",
            "40 kernels of 2.5 µs (elementwise): fuse",
        ),
        ({"efficiency": 0.1}, "latency-bound (occupancy, tail)", "at 10% of the nearest roof"),
    ],
)
def test_a_layer_has_the_advice_that_fits(given: dict[str, Any], verdict: str, said: str) -> None:
    others = [kernel(f"fine.{place}", total_ns=1e5) for place in range(9)]
    table = judged([kernel("conv1", **given), *others], [layer("conv1")])
    assert table[["module", "direction", "verdict", "rank"]].to_numpy().tolist() == [["conv1", "forward", verdict, 1]]
    assert said in table.loc[0, "next_step"] and table.loc[0, "share"] == pytest.approx(0.1)


def test_a_layer_that_computes_more_than_it_needs_says_so() -> None:
    tree = [layer("conv1", tensor_flop=4e9), layer("other", tensor_flop=1.2e9), layer("part", needed_share=0.5)]
    table = judged([kernel("conv1"), kernel("other", total_ns=9e5), kernel("part")], tree)
    assert table["module"].tolist() == ["conv1"] and table.loc[0, "value"] == 4
    assert table.loc[0, "next_step"].startswith(
        "4.0 times the operations that it needs, with inputs 8x3x224x224 and 32x"
    )
    # Three quarters of a tenth of the step could be saved.
    assert table.loc[0, "cured"] == 0.75 and table.loc[0, "gain"] == pytest.approx(1 / (1 - 0.75 * 1e5 / 1.1e6))


def test_those_layers_come_first_from_which_most_is_to_be_had() -> None:
    slow = [kernel(f"l{place}", bound="simt", efficiency=0.9, total_ns=1e4 * (1 + place)) for place in range(14)]
    table = judged(slow, [])
    assert table["module"].tolist() == [f"l{place}" for place in range(13, 3, -1)] and len(table) == layer_verdicts.TOP
    assert table["gain"].is_monotonic_decreasing and table["rank"].tolist() == [*range(1, 11)]
    # Forward and backward are judged apart.
    both = judged([kernel("a", efficiency=0.1), kernel("a", direction="backward", efficiency=0.1)], [])
    assert sorted(both["direction"]) == ["backward", "forward"]


def test_a_cell_without_kernels_has_no_layers_to_judge() -> None:
    assert judged([], []).empty


@pytest.mark.parametrize("idle", slow.first([0.1, 0.6]))
@pytest.mark.parametrize("seed", slow.first(range(4)))
def test_layers_that_are_not_looked_at_would_not_be_named(
    seed: int, idle: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, kernels, tree = random.Random(seed), [], []
    for place in range(60):
        many = choose.uniform(5, 60)
        short = {"class": "elementwise", "launches": many, "mean_ns": 2e3, "total_ns": 2e3 * many}
        long = {"bound": choose.choice(["dram", "simt", "tensor"]), "total_ns": 8e3 * many}
        kind: dict[str, Any] = short if choose.random() < 0.4 else long
        kernels.append(kernel(f"l{place}", efficiency=choose.random(), grid_x=choose.choice([33, 1000]), **kind))
        tree.append(layer(f"l{place}", tensor_flop=choose.uniform(1, 4) * 1e9))
    told = judged(kernels, tree, idle)
    monkeypatch.setattr(layer_verdicts, "TOP", len(kernels))
    every = judged(kernels, tree, idle)
    assert len(told) == 10 < len(every)
    pd.testing.assert_frame_equal(told, every[:10], check_dtype=False)
