"""Traits and causes of launches, each number worked out by hand: shares, conditions, what is saved."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.verdicts.rules import launch_traits
from tests import known_rules
from tests.unit.test_verdicts import ROOFS, held, kernel_rows

RULES = known_rules.load()


def caused(causes_of: dict[str, Any], **columns: Any) -> pd.DataFrame:
    rows = pd.DataFrame({"total_ns": 100.0, "launches": 1, "class": "gemm", **columns}, index=range(1))
    return launch_traits.mark_causes(rows, {"x": causes_of})


@pytest.mark.parametrize(
    ("name", "columns", "share"),
    [
        # 1.2 waves take two rounds, 3 waves three; what fits in one has no last wave beside others.
        ("tail", {"waves": 1.2}, 0.4),
        ("tail", {"waves": 3.0}, 0.0),
        ("tail", {"waves": 1.0}, np.nan),
        ("tail", {"waves": 0.5}, np.nan),
        ("conflicts", {"bank_conflicts": 3.0, "shared_wavefronts": 12.0}, 0.25),
        ("conflicts", {"bank_conflicts": 3.0, "shared_wavefronts": 0.0}, np.nan),
        ("conflicts", {"bank_conflicts": 3.0}, np.nan),
        # Sectors are 32 bytes.
        ("spilled", {"local_sectors": 2.0, "l1_bytes": 256.0}, 0.25),
        ("stalled_math", {"stall_math_cycles": 2.0, "warp_cycles": 8.0}, 0.25),
        ("stalled_barrier", {"stall_barrier_cycles": 2.0, "stall_math_cycles": 9.0, "warp_cycles": 8.0}, 0.25),
        # Of 8 sectors 2 were asked for, by one request; of 4 written 1, by two requests: 6 and 2 of 12.
        ("unused_sectors", {"load_sectors": 8.0, "load_requests": 1.0, "load_needed_sectors": 2.0, "store_sectors": 4.0,
                            "store_requests": 2.0, "store_needed_sectors": 1.0}, 8 / 12),
        # L2 saw 16 of them; one way alone is known.
        ("unused_sectors", {"load_sectors": 8.0, "load_requests": 1.0, "load_needed_sectors": 2.0, "l2_sectors": 16.0},
         6 / 16),
        ("unused_sectors", {"load_sectors": 0.0, "load_requests": 0.0, "load_needed_sectors": 0.0}, np.nan),
        ("unused_sectors", {"l2_sectors": 16.0}, np.nan),
        ("off_tensor_cores", {"fp32_flop": 5.0, "tensor_tf32_flop": 0.0}, 1.0),
        ("off_tensor_cores", {"fp32_flop": 0.0, "fp16_flop": 5.0, "tensor_tf32_flop": 0.0}, 1.0),
        ("off_tensor_cores", {"fp32_flop": 0.0, "tensor_tf32_flop": 0.0}, 0.0),
        ("off_tensor_cores", {"fp32_flop": 5.0, "tensor_tf32_flop": 0.0, "tensor_bf16_flop": 1.0}, 0.0),
        ("off_tensor_cores", {"fp32_flop": 5.0}, np.nan),
        ("off_tensor_cores", {"fp32_flop": np.nan, "tensor_tf32_flop": 0.0}, np.nan),
        ("off_tensor_cores", {"fp32_flop": 5.0, "tensor_tf32_flop": np.nan}, np.nan),
    ],
)  # fmt: skip
def test_shares_of_a_launch(name: str, columns: dict[str, float], share: float) -> None:
    found = launch_traits.SHARE_FORMULAS[name](pd.DataFrame(columns, index=[0]))
    assert found.tolist() == pytest.approx([share], nan_ok=True)


def test_conditions_of_a_cause() -> None:
    """At a bound one holds that asks for as much, and does not that asks for less; what is not known does not hold."""
    columns = {"waves": 1.2, "l2_hit_pct": 20.0, "kernel": "a_f64_b"}
    for when, holds in (({"tail": {"at_least": 0.4}}, True), ({"tail": {"at_least": 0.41}}, False),
                        ({"l2_hit_pct": {"below": 20}}, False), ({"l2_hit_pct": {"below": 20.1}}, True),
                        ({"l2_hit_pct": {"at_least": 20}}, True), ({"dram_pct": {"below": 50}}, False),
                        ({"tail": {"at_least": 0.4}, "l2_hit_pct": {"below": 20}}, False)):  # fmt: skip
        found = caused({"when": when}, **columns).iloc[0]
        assert [found[f"x{of}_ns"] for of in ("", "_least", "_most")] == [100 * holds] * 3
        assert found["x_launches"] == holds
        assert found.get("x_saved_ns") == (pytest.approx(40 * holds) if next(iter(when)) == "tail" else None)
    # Only the first condition says what is saved.
    assert "x_saved_ns" not in caused({"when": {"waves": {"below": 2}, "tail": {"at_least": 0}}}, **columns)
    assert caused({"match": "_f64_"}, **columns)["x_ns"].tolist() == [100]
    assert caused({"match": "_f64_", "classes": ["copy"]}, **columns)["x_ns"].tolist() == [0]
    for own in ({}, {"function": "f"}):
        assert caused({"match": "_f64_"}, **own)["x_ns"].tolist() == [0]
    assert caused({"match": "b"}, function="b")["x_ns"].tolist() == [100]
    assert caused({"classes": ["gemm"]}, total_ns=np.nan)["x_ns"].tolist() == [0]


TRAITS: list[tuple[dict[str, Any], str]] = [
    # 5 us is no longer short, half of a roof is near it, three tenths are no longer far, one block each is enough.
    ({"class": "copy", "mean_ns": 4999.0}, "short"),
    ({"class": "copy", "mean_ns": 5000.0}, ""),
    ({"mean_ns": 4999.0}, ""),
    ({"efficiency": 0.5}, "memory"),
    ({"efficiency": 0.5, "bound": "l2"}, "memory"),
    ({"efficiency": 0.5, "bound": "simt"}, "simt"),
    ({"efficiency": 0.5, "bound": "tensor"}, "tensor"),
    ({"efficiency": 0.499}, ""),
    ({"efficiency": 0.3}, ""),
    ({"efficiency": 0.299}, "underused"),
    ({"grid_x": 10}, ""),
    ({"grid_x": 3, "grid_y": 3}, "small_grid"),
    ({"grid_x": 3, "grid_y": 2, "grid_z": 2}, ""),
    ({"grid_x": 9, "efficiency": 0.1}, "small_grid"),
    ({"grid_x": 9, "efficiency": 0.5}, "memory"),
    ({"class": "copy", "mean_ns": 4999.0, "grid_x": 9, "efficiency": 0.9}, "short"),
    ({"class": "copy", "mean_ns": 4999.0, "efficiency": 0.1}, "short"),
]


def test_a_launch_has_one_trait() -> None:
    sizes = {"mean_ns": 1e5, "grid_x": 1000, "grid_y": 1, "grid_z": 1, "class": "gemm"}
    rows = kernel_rows(**{name: [row.get(name, value) for row, _ in TRAITS] for name, value in sizes.items()})
    roofs = {
        name: [row.get(name, value) for row, _ in TRAITS] for name, value in (("efficiency", 0.4), ("bound", "dram"))
    }
    found = launch_traits.mark_traits(rows, held(**roofs), RULES["traits"], ROOFS)
    names = ("short", "small_grid", "memory", "simt", "tensor", "underused")
    for ends in ("_ns", "_most_ns"):
        told = [[name for name in names if row[f"{name}{ends}"]] for _, row in found.iterrows()]
        assert told == [[trait] if trait else [] for _, trait in TRAITS]
    assert (found["counted_ns"] == 100).all() and "small_grid_saved_ns" in found


def test_what_of_a_trait_is_saved() -> None:
    """9 of 10 blocks: a tenth. A fifth of a roof at half of which others are: three fifths. Tensor cores, ten times as fast."""
    rows = kernel_rows(grid_x=[9, 1000, 1000], total_ns=[100.0] * 3)
    counted = held([0.4, 0.2, 0.8], ["dram", "dram", "simt"])
    found = launch_traits.mark_traits(rows, counted, RULES["traits"], ROOFS)
    assert found["small_grid_saved_ns"].tolist() == pytest.approx([10, 0, 0])
    assert found["underused_saved_ns"].tolist() == pytest.approx([0, 60, 0])
    assert found["simt_saved_ns"].tolist() == pytest.approx([0, 0, 90])
    slower = launch_traits.mark_traits(rows, counted, RULES["traits"], {"fp32": 2.0, "tf32": 1.0})
    assert slower["simt_saved_ns"].tolist() == [0, 0, 0]
    assert "simt_saved_ns" not in launch_traits.mark_traits(rows, counted, RULES["traits"], {"fp32": 2.0})


def test_what_a_tuner_tries_has_no_trait() -> None:
    """A quarter of a kernel's time, of a kind each: short, few blocks, near a roof, by a cause; all of it is counted."""
    rows = kernel_rows(
        **{"class": ["copy", "gemm", "gemm"]},
        mean_ns=[1e3, 1e5, 1e5],
        grid_x=[1000, 4, 1000],
        total_ns=[100.0] * 3,
        launches=[8.0] * 3,
    )
    rows = rows.assign(kernel="ampere_sgemm_128x64_tn")
    given = held([0.4, 0.4, 0.8], ["dram"] * 3), RULES["traits"], ROOFS
    whole, part = launch_traits.mark_traits(rows, *given), launch_traits.mark_traits(rows.assign(tried=0.25), *given)
    names = [
        f"{name}{of}"
        for name in ("short", "small_grid", "memory", "full_precision")
        for of in ("_ns", "_least_ns", "_most_ns", "_launches")
    ]
    assert (whole[names].sum() > 0).all()
    for name in [*names, "small_grid_saved_ns"]:
        assert part[name].tolist() == pytest.approx((whole[name] * 0.75).tolist())
    assert part["counted_ns"].tolist() == part["total_ns"].tolist() == [100.0] * 3
