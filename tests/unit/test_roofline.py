"""roofline: bounds and efficiencies of work with known answers."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.kernels.counters import ESTIMATED
from profzoo.tables import across_cells, kernel_table, roofline, schemas
from profzoo.tables.kernel_table import KEYS
from profzoo.tools.ncu.estimates import interval_half_width

# A thousand bytes, or operations, a nanosecond, and so on.
PEAKS = {"dram": 1e12, "l2": 4e12, "fp64": 1e12, "fp32": 2e12, "tf32": 20e12, "bf16": 40e12, "fp16": 40e12}


def kernels(*rows: dict) -> pd.DataFrame:
    """A kernel table; each row's time is that of one launch. Operations of rows with traffic are 0 unless given."""
    none = {"fp32_flop": 0, "tensor_bf16_flop": 0}
    table = pd.DataFrame([(none if "dram_bytes" in row else {}) | row for row in rows]).reindex(
        columns=kernel_table.COLUMNS
    )
    table["launches"] = table["launches"].fillna(1)
    return table.assign(total_ns=table["mean_ns"] * table["launches"])


COPY = {"mean_ns": 20, "dram_bytes": 10_000, "l2_bytes": 10_000, "fp32_flop": 0}
PRODUCT = {"mean_ns": 100, "dram_bytes": 1000, "l2_bytes": 8000, "tensor_bf16_flop": 2_000_000, "fp32_flop": 4000}


@pytest.mark.parametrize(
    ("work", "bound", "least"),
    [
        (COPY, "dram", 10),
        (PRODUCT, "tensor", 50),
        ({**PRODUCT, "fp32_flop": 180_000}, "simt", 90),
        ({"mean_ns": 100, "dram_bytes": 10, "l2_bytes": 80_000, "fp32_flop": 1}, "l2", 20),
        ({"mean_ns": 100, "dram_bytes": 10, "fp64_flop": 30_000, "fp32_flop": 40_000, "fp16_flop": 10_000}, "simt", 55),
        ({"mean_ns": 100, "dram_bytes": 9, "tensor_tf32_flop": 1_000_000, "tensor_fp16_flop": 1_200_000}, "tensor", 80),
    ],
)
def test_the_bound_is_what_takes_longest_at_its_peak(work: dict, bound: str, least: float) -> None:
    row = roofline.bound_launches(kernels(work), PEAKS).iloc[0]
    assert row["bound"] == bound and row[f"{bound}_ns"] == pytest.approx(least)
    assert row["efficiency"] == pytest.approx(least / work["mean_ns"])


def test_what_was_not_counted_stays_empty() -> None:
    rows = roofline.bound_launches(kernels({"mean_ns": 5}, {"dram_bytes": 5}, COPY), PEAKS)
    assert rows.loc[0, "bound"] == "" and rows.loc[0, list(roofline.COLUMNS)[1:7]].isna().all()
    assert pd.isna(rows.loc[1, "efficiency"]) and rows.loc[2, "bound"] == "dram"


@pytest.mark.parametrize("kind", ["fp32_flop", "tensor_bf16_flop"])
def test_a_bound_is_only_told_where_every_kind_of_operation_was_counted(kind: str) -> None:
    table = kernels({**COPY, kind: None})
    row = roofline.bound_launches(table, PEAKS).iloc[0]
    assert row["bound"] == "" and pd.isna(row["efficiency"]) and row["dram_bytes_per_s"] == pytest.approx(5e11)
    assert roofline.bound_groups(table.assign(x=1), ["x"], PEAKS)["counted_share"].tolist() == [0.0]


def test_a_peak_that_was_not_measured_bounds_nothing() -> None:
    row = roofline.bound_launches(kernels(PRODUCT), {"dram": 1e12}).iloc[0]
    assert row["bound"] == "dram" and pd.isna(row["l2_ns"]) and row["tensor_ns"] == 0


def test_groups_add_up_and_say_what_share_was_counted() -> None:
    """Of gemm 200 of 400 ns; of what took no time, and of what was not counted, none."""
    table = kernels(
        {**COPY, "class": "copy", "launches": 3},
        {**PRODUCT, "class": "gemm", "launches": 2},
        {"mean_ns": 40, "class": "gemm", "launches": 5},
        {"mean_ns": 7, "class": "random"},
        {"mean_ns": 0, "class": None},
    )
    groups = roofline.bound_groups(table, ["class"], PEAKS).fillna({"class": ""}).set_index("class")
    assert groups["counted_share"].to_dict() == {"copy": 1.0, "gemm": 0.5, "random": 0.0, "": 0.0}
    assert groups["bound"].to_dict() == {"copy": "dram", "gemm": "tensor", "random": "", "": ""}
    assert groups.loc["copy", ["ns", "dram_bytes", "dram_ns"]].tolist() == [60, 30_000, 30]
    assert groups.loc["gemm", ["ns", "tensor_flop", "tensor_ns"]].tolist() == [200, 4_000_000, 100]
    assert groups.loc["gemm", "efficiency"] == pytest.approx(0.5)
    assert groups.loc[["random", ""], ["efficiency", "ns"]].isna().all(axis=None)


def test_the_table_has_cells_classes_ranges_and_launches() -> None:
    rows = kernels({**COPY, "class": "copy"}, {**PRODUCT, "class": "gemm"}, {"mean_ns": 30, "class": "random"})
    found = across_cells.make_roofline(rows.assign(model="m", phase="train", range="forward"), PEAKS)
    assert found["level"].tolist() == ["cell", *["class"] * 3, "range", *["launch"] * 3]
    assert found["counted_share"].tolist() == pytest.approx([120 / 150, 1, 1, 0, 120 / 150, 1, 1, 0])
    assert found["bound"].tolist() == ["tensor", "dram", "tensor", "", "tensor", "dram", "tensor", ""]


def estimated(freedom: float, off: float, *rows: dict) -> pd.DataFrame:
    """A kernel table whose counts are estimated, each to a part of it as standard error."""
    table = kernels(*rows).assign(freedom=freedom)
    wide = interval_half_width(np.array([off]), np.array([freedom]))[0]
    for name in ESTIMATED:
        table[f"{name}_low"], table[f"{name}_high"] = table[name] * (1 - wide), table[name] * (1 + wide)
    return table


def test_intervals_of_launches_are_those_of_their_counts() -> None:
    table = estimated(np.inf, 0.1, PRODUCT)
    row = roofline.bound_launches(table, PEAKS).iloc[0]
    assert (row["dram_bytes_low"], row["dram_bytes_high"]) == pytest.approx((1000 - 164.49, 1000 + 164.49))
    # Operations and bytes are each off by a tenth, their ratio by the root of two squares.
    assert row["intensity_high"] / row["intensity"] - 1 == pytest.approx(1.6449 * np.hypot(0.1, 0.1), rel=0.01)
    assert row["efficiency_high"] / row["efficiency"] - 1 == pytest.approx(0.16449)
    assert row["efficiency_low"] < 0.5 < row["efficiency_high"]


def test_what_is_off_by_itself_averages_out_in_sums() -> None:
    rows = [{**PRODUCT, "grid_x": grid} for grid in range(25)]
    group = roofline.bound_groups(estimated(4.0, 0.1, *rows).assign(x=1), ["x"], PEAKS).iloc[0]
    one = roofline.bound_launches(estimated(100.0, 0.1, PRODUCT), PEAKS).iloc[0]
    # Of 25 rows of 4 degrees of freedom each the sum has 100.
    for name in ("dram_bytes", "tensor_flop", "efficiency"):
        alone = one[f"{name}_high"] / one[name] - 1
        assert group[f"{name}_high"] / group[name] - 1 == pytest.approx(alone / 5)
        assert group[f"{name}_low"] < group[name]


def test_counts_without_intervals_have_none_in_sums() -> None:
    table = roofline.bound_groups(kernels(COPY, PRODUCT).assign(x=1), ["x"], PEAKS)
    assert table["dram_bytes"].notna().all() and table.filter(regex="_(low|high)$").isna().all(axis=None)


def test_peaks_of_another_gpu_are_refused(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{name}.csv") for name in ("kernels", "cells", "peaks", "out")]
    launch = dict.fromkeys([key for key in KEYS if key != "mangled"], 1)
    kernels(COPY).assign(model="m", phase="train", share=1.0, **launch).to_csv(paths[0], index=False)
    cell = dict.fromkeys(schemas.TABLES["cells"].columns, 1) | {"device": "NVIDIA H200"}
    pd.DataFrame([cell]).to_csv(paths[1], index=False)
    rates = {"peak": list(PEAKS), "rate": list(PEAKS.values()), "unit": "byte/s", "how": "copied"}
    pd.DataFrame(rates).to_csv(paths[2], index=False)
    (tmp_path / "peaks.csv.json").write_text(json.dumps({"device": "NVIDIA H200"}))
    across_cells.tabulate_roofline(*paths)
    assert pd.read_csv(paths[3]).loc[0, "efficiency"] == pytest.approx(0.5)
    (tmp_path / "peaks.csv.json").write_text(json.dumps({"device": "NVIDIA H100"}))
    with pytest.raises(DataError, match="was measured on NVIDIA H100, but cells ran on NVIDIA H200"):
        across_cells.tabulate_roofline(*paths)


def test_rates_of_two_launches() -> None:
    """20 ns move 10,000 bytes, 100 ns do 2,004,000 operations on 1,000 bytes: of either, and of both once each."""
    table = kernels(COPY, PRODUCT)
    copy, product = roofline.bound_launches(table, PEAKS).to_dict("records")
    assert (copy["intensity"], copy["flop_per_s"], copy["dram_bytes_per_s"]) == (0, 0, 5e11)
    assert (product["dram_ns"], product["l2_ns"], product["simt_ns"], product["tensor_ns"]) == (1, 2, 2, 50)
    (both,) = roofline.bound_groups(table.assign(x="a"), ["x"], PEAKS).to_dict("records")
    assert (both["ns"], both["dram_bytes"], both["l2_bytes"]) == (120, 11_000, 18_000)
    assert both["intensity"] == pytest.approx(2_004_000 / 11_000)
    assert both["flop_per_s"] == pytest.approx(2_004_000 / 120e-9)
    assert both["dram_bytes_per_s"] == pytest.approx(11_000 / 120e-9)
    assert (both["bound"], both["efficiency"], both["counted_share"]) == ("tensor", pytest.approx(60 / 120), 1)


def test_traffic_of_none_has_no_intensity_and_of_a_byte_it_has() -> None:
    table = kernels({**PRODUCT, "dram_bytes": 0}, {**PRODUCT, "dram_bytes": 1})
    found = roofline.bound_launches(table, PEAKS)
    assert np.isnan(found.loc[0, "intensity"]) and found.loc[1, "intensity"] == 2_004_000
    assert found["bound"].tolist() == ["tensor", "tensor"] and found.loc[0, "dram_bytes_per_s"] == 0


def test_sums_are_of_what_was_counted_whatever_else_was() -> None:
    table = kernels({"mean_ns": 5, "l2_bytes": 7, "launches": 2}, {"mean_ns": 5, "fp64_flop": 3, "fp16_flop": 4})
    (found,) = roofline.sums(table.assign(x="a"), ["x"]).to_dict("records")
    assert (found["l2_bytes"], found["simt_flop"]) == (14, 7)
    assert np.isnan(found["dram_bytes"]) and np.isnan(found["tensor_flop"])


def test_peaks_have_to_be_above_none() -> None:
    peaks = pd.DataFrame({"peak": ["dram", "l2"], "rate": [1.0, 0.0]})
    assert roofline._positive(peaks) == "the rate of l2 is not above 0"
    assert roofline._positive(peaks.assign(rate=1e-9)) is None
    assert roofline._positive(peaks.assign(rate=np.nan)) == "the rate of dram is not above 0"


def test_the_ends_of_an_interval_do_not_go_below_none() -> None:
    """Of an error of a tenth with so many degrees that it is normal, 1.645 of them are nine in ten."""
    table = pd.DataFrame({"x": [1.0, 0.1]})
    found = roofline._ends(table, {"x": pd.Series([0.1, 0.1])}, pd.Series([1e9, 1e9]))
    assert found["x_low"].tolist() == pytest.approx([1 - 0.16449, 0], abs=1e-4)
    assert found["x_high"].tolist() == pytest.approx([1.16449, 0.26449], abs=1e-4)


def test_groups_without_a_name_are_groups_and_keep_their_order() -> None:
    """Counts of b, of no name and of a, each with an error of a tenth of its 10,000 bytes by so many that it is normal."""
    table = kernels(COPY, {**COPY, "launches": 2}, {**COPY, "launches": 3}).assign(x=["b", None, "a"])
    for name in ("dram_bytes", "l2_bytes"):
        table[f"{name}_low"], table[f"{name}_high"] = table[name] * 0.9, table[name] * 1.1
    table["freedom"] = 1e9
    for found in (roofline.bound_groups(table, ["x"], PEAKS), roofline.sums(table, ["x"])):
        assert found["x"].fillna("").tolist() == ["b", "", "a"]
        assert found["dram_bytes"].tolist() == [10_000, 20_000, 30_000]
        # A row is off in all its launches alike.
        assert found["dram_bytes_low"].tolist() == pytest.approx([9_000, 18_000, 27_000])
        assert found["dram_bytes_high"].tolist() == pytest.approx([11_000, 22_000, 33_000])
    (both,) = roofline.sums(table[:2].assign(x="c"), ["x"]).to_dict("records")
    # Errors of 1,000 and 2,000 that are apart from each other: sqrt(5) of them.
    assert both["dram_bytes_high"] == pytest.approx(30_000 + 1_000 * 5**0.5)
