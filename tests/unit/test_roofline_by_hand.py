"""Rooflines, repeats and coverage, each number worked out by hand: sums, intervals, what is not known."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.io import column_types
from profzoo.statistics import process_repeats
from profzoo.tables import ncu_coverage, roofline
from profzoo.tools.nsys import tables as nsys_tables
from tests.unit.test_ncu_coverage import NSYS, rows
from tests.unit.test_roofline import COPY, PEAKS, PRODUCT, kernels


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


def test_groups_have_the_share_of_their_time_that_is_counted() -> None:
    """Of 3 launches of 20 ns and one of 40 that was not counted 60 %; of what took no time none."""
    table = kernels({**COPY, "launches": 3}, {"mean_ns": 40}, {"mean_ns": 0}).assign(x=["a", "a", None])
    found = roofline.bound_groups(table, ["x"], PEAKS)
    assert found["counted_share"].tolist() == pytest.approx([0.6, 0]) and found.loc[0, "dram_bytes"] == 30_000
    assert found["bound"].tolist() == ["dram", ""] and found.loc[0, "efficiency"] == 0.5
    assert np.isnan(found.loc[1, "efficiency"]) and np.isnan(found.loc[1, "ns"])


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


def test_one_process_of_two_whose_steps_spread_is_told() -> None:
    level, wide = np.full(12, 100.0), np.array([90.0, 110.0, 110.0, 90.0] * 3)
    for given in ([level, wide], [wide, level]):
        assert process_repeats.summarise_processes(given).unsteady == "the middle half of the steps spreads by 20%"
    # A mean a third above the median in one of two.
    tail = np.array([*[100.0] * 9, 500.0, *[100.0] * 2])
    for given in ([level, tail], [tail, level]):
        assert (
            process_repeats.summarise_processes(given).unsteady
            == "some steps take much longer, so that the mean is 33% above the median"
        )


def test_what_others_took_is_said_beside_what_is_wrong() -> None:
    found = process_repeats.summarise_processes([np.full(9, 100.0), np.full(9, 120.0)], 0.25)
    assert (
        found.unsteady
        == "the slowest process takes 20% longer than the fastest; other programs used the CPU up to 25% of the time"
    )
    assert (
        process_repeats.cpu_taken_shares({"processes": [{"cpu_taken_share": None}, {"cpu_taken_share": 0.2}, {}]})
        == 0.2
    )
    assert process_repeats.cpu_taken_shares({"cpu_taken_share": 0.0}) == 0 and np.isnan(
        process_repeats.cpu_taken_shares({"processes": []})
    )


def test_the_interval_of_one_process_is_of_five_parts() -> None:
    """Means of 1 to 5 for parts of two steps: variance 2.5, an error of sqrt(0.5), t of 4 degrees 2.7764.

    Of the ten steps the mean is 3, and the shortest 0.9. Of three steps each is a part: 10, 20 and 60.
    """
    steps = np.array([1.1, 0.9, 2.1, 1.9, 3.1, 2.9, 4.1, 3.9, 5.1, 4.9])
    assert process_repeats.mean_interval([steps]) == pytest.approx((3 - 1.9632, 3 + 1.9632), abs=1e-4)
    # Squares of 20, 10 and 30 are 1,400, of two degrees, in three parts: 15.2753 times 4.3027.
    assert process_repeats.mean_interval([np.array([10.0, 20, 60])]) == pytest.approx((10, 30 + 65.725), abs=1e-2)
    # The mean is of steps, not of parts: of 2 1 1 1 1 steps 1 3 2 2 2 2.
    six = process_repeats.mean_interval([np.array([1.0, 3, 2, 2, 2, 8])])
    assert sum(six) / 2 != pytest.approx(16 / 5) and six[1] == pytest.approx(3 + 2.7764 * 1.2, abs=1e-3)


def covered(**columns: Any) -> pd.DataFrame:
    known = {"status": ["covered", "covered", "missing", "extra"], "share": [0.5, 0.25, 0.25, np.nan],
             "time_spread": [1.5, 1.51, 9.0, 9.0], "other_launches": [0, 1, 0, 5], "cause": ["", "", "a", "b"],
             "function": ["f", "g", "h", "i"]}  # fmt: skip
    return pd.DataFrame(known | columns)


def test_a_summary_of_four_configurations() -> None:
    said = ncu_coverage.summary(covered())
    assert (said["configurations"], said["covered"], said["extra"], said["missing"]) == (3, 2, 1, "h")
    assert (said["coverage"], said["time_coverage"]) == pytest.approx((2 / 3, 0.75))
    # 1.5 times as long is alike, more is not.
    assert (said["uneven_time"], said["other_launches"], said["other_choice"]) == (0.25, 0.25, False)
    assert ncu_coverage.summary(covered(cause=["", "", "a", ncu_coverage.OTHER_KERNEL]))["other_choice"]
    none = ncu_coverage.summary(covered(status="extra"))
    assert none["configurations"] == 0 and np.isnan([none["coverage"], none["time_coverage"]]).all()


@pytest.mark.parametrize(("off", "wrong"), [(0.9, False), (-0.9, False), (1.1, True), (-1.1, True)])
def test_shares_that_do_not_add_up(off: float, wrong: bool) -> None:
    table = pd.DataFrame({"share": [0.5, 0.5 + off * nsys_tables.ROUNDING, np.nan]})
    assert (ncu_coverage.shares_whole(table) is not None) == wrong
    assert ncu_coverage.shares_whole(table[2:]) is None


def test_columns_of_coverage_hold_what_they_are_called() -> None:
    columns = ncu_coverage.TABLE.columns
    assert all(columns[name] is column_types.TEXT for name in ("status", "cause", "kernel", "function", "mangled"))
    assert columns["grid_x"] is column_types.COUNT and columns["block_z"] is column_types.COUNT
    assert columns["total_ns"] == column_types.or_missing(column_types.AMOUNT) and columns[
        "launches"
    ] == column_types.or_missing(column_types.COUNT)


def test_rows_of_coverage_are_in_order() -> None:
    """Missing ones first, then extra ones, then what is covered, each the longest first, then by name."""
    found = ncu_coverage.compare(NSYS, rows(("b", 1), ("z", 1), ("y", 1), ("a", 1)))
    assert found[["status", "function", "grid_x"]].to_numpy().tolist() == [
        ["missing", "a", 2], ["missing", "c", 1], ["extra", "y", 1], ["extra", "z", 1],
        ["covered", "a", 1], ["covered", "b", 1],
    ]  # fmt: skip
    assert found["total_ns"].tolist() == pytest.approx([20, 5, np.nan, np.nan, 60, 15], nan_ok=True)
    assert found["share"].tolist() == pytest.approx([0.2, 0.05, np.nan, np.nan, 0.6, 0.15], nan_ok=True)
    assert str(found["launches"].dtype) == "Int64" and found["launches"].tolist()[4:] == [20, 4]
    assert list(found.columns) == ncu_coverage.COLUMNS and found.index.tolist() == list(range(6))


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
