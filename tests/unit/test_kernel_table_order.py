"""The kernel table's rows: their order, what becomes one row, which of several sets counts, and what ncu covered, by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tables import kernel_table
from profzoo.tables.kernel_table import KEYS
from profzoo.tools.ncu import estimates
from profzoo.tools.ncu.estimates import GPU_TIME
from profzoo.tools.nsys import tables as nsys_tables

L2, READ, WRITTEN, L1 = "lts__t_bytes.sum", "dram__bytes_read.sum", "dram__bytes_write.sum", "l1tex__t_bytes.sum"


def launches(*rows: tuple, **columns: object) -> pd.DataFrame:
    """Rows (mangled, grid_x, range), all else of the configuration the same."""
    table = pd.DataFrame(rows, columns=["mangled", "grid_x", "range"])
    fixed = dict.fromkeys(KEYS[2:], 1) | {"smem_static_bytes": 0, "smem_dynamic_bytes": 0}
    return table.assign(**fixed, kernel=table["mangled"] + "()", function=table["mangled"], **columns)


def nsys(*rows: tuple) -> pd.DataFrame:
    """Rows (mangled, grid_x, range, launches, total_ns), with their share of all time."""
    table = launches(*(row[:3] for row in rows))
    table = table.assign(launches=[row[3] for row in rows], total_ns=[row[4] for row in rows])
    return table.assign(share=table["total_ns"] / table["total_ns"].sum())


def names(table: pd.DataFrame) -> list[tuple]:
    return list(table[["mangled", "grid_x", "range"]].itertuples(index=False, name=None))


def test_the_longest_come_first_and_those_as_long_by_name_and_range() -> None:
    traced = nsys(("b", 1, "forward", 1, 10), ("a", 3, "forward", 1, 10), ("a", 1, "forward", 1, 10),
                  ("a", 1, "backward", 1, 10), ("z", 1, "loss", 1, 60))  # fmt: skip
    table = kernel_table.join(traced, 1, [], {})
    # Two of one name, range and time stay as the trace has them.
    assert names(table) == [("z", 1, "loss"), ("a", 1, "backward"), ("a", 3, "forward"), ("a", 1, "forward"),
                            ("b", 1, "forward")]  # fmt: skip
    assert table.index.tolist() == [0, 1, 2, 3, 4]
    assert table["share"].tolist() == pytest.approx([0.6, 0.1, 0.1, 0.1, 0.1])


def test_what_nsys_timed_comes_before_what_it_did_not_see() -> None:
    """A launch of 1 ns over two steps is half a nanosecond per step, and more than nothing."""
    seen = launches(("d", 2, "loss"), ("d", 1, "loss"), ("c", 1, ""), ("d", 2, "backward"), **{GPU_TIME: [7, 8, 9, 5]})
    table = kernel_table.join(nsys(("z", 1, "forward", 2, 1)), 2, [seen], {})
    # The range of a configuration that ncu alone saw is that of its first launch.
    assert names(table) == [("z", 1, "forward"), ("c", 1, ""), ("d", 2, "loss"), ("d", 1, "loss")]
    assert table["total_ns"].tolist()[:1] == [0.5] and table["launches"].tolist()[:1] == [1]
    assert table["ncu_ns"].tolist()[1:] == [9, 6, 8] and table["source"].tolist() == ["nsys", "ncu", "ncu", "ncu"]


def test_launches_outside_every_range_are_one_row() -> None:
    """An empty range is read as a missing one by some, and is the same."""
    table = kernel_table.join(nsys(("a", 1, None, 3, 30), ("a", 1, "", 1, 50), ("a", 1, "loss", 2, 20)), 2, [], {})
    assert names(table) == [("a", 1, ""), ("a", 1, "loss")]
    assert table[["launches", "total_ns", "mean_ns", "share"]].to_numpy().tolist() == [
        [2, 40, 20, 0.8],
        [1, 10, 10, 0.2],
    ]


@pytest.fixture
def written(tmp_path: Path) -> tuple[pd.DataFrame, Path]:
    """A table with a row of each source, of which ncu's alone has no time, and none has all counters."""
    seen = launches(("null", 1, "forward"), ("7", 2, ""), **{GPU_TIME: [7, 8], L2: [16, 32]})
    traced = nsys(("null", 1, "forward", 2, 6), ("b", 3, "", 1, 2))
    table = kernel_table.join(traced, 1, [seen], {"null()": "gemm", "b()": "copy", "7()": "other"})
    write_csv(table, tmp_path / "kernels.csv")
    return table, tmp_path / "kernels.csv"


def test_the_table_is_read_as_it_was_written(written: tuple[pd.DataFrame, Path]) -> None:
    """Names are text whatever they look like, sizes whole numbers, and what a tool did not see is empty."""
    table, path = written
    read = reading.read(path, kernel_table.TABLE)
    assert list(read.columns) == kernel_table.COLUMNS
    assert read[["mangled", "class", "source", "range"]].to_numpy().tolist() == [
        ["null", "gemm", "nsys+ncu", "forward"], ["b", "copy", "nsys", ""], ["7", "other", "ncu", ""],
    ]  # fmt: skip
    assert read["grid_x"].tolist() == [1, 3, 2] and read["grid_x"].dtype == "int64"
    assert read["total_ns"].fillna(-1).tolist() == [6, 2, -1] and read["l2_bytes"].fillna(-1).tolist() == [16, -1, 32]
    # One of a version before those quantities were added is still read, and shared memory may be unknown.
    write_csv(table.drop(columns=list(estimates.LATER)).assign(smem_static_bytes=np.nan), path)
    assert reading.read(path, kernel_table.TABLE)["smem_static_bytes"].isna().tolist() == [True] * 3


def test_a_damaged_table_is_refused(written: tuple[pd.DataFrame, Path]) -> None:
    table, path = written
    damaged = [("grid_x", 1.5, "column grid_x, row 1 holds '1.5', which is not a whole number"),
               ("total_ns", "fast", "column total_ns, row 1 holds 'fast', which is not a number"),
               ("share", 0.5, "shares of GPU time add up to 0.75")]  # fmt: skip
    for column, value, why in damaged:
        wrong = table.astype({column: "object"})
        wrong.loc[0, column] = value
        write_csv(wrong, path)
        with pytest.raises(DataError, match=why):
            reading.read(path, kernel_table.TABLE)


def covered(**columns: Any) -> pd.DataFrame:
    known = {"status": ["covered", "covered", "missing", "extra"], "share": [0.5, 0.25, 0.25, np.nan],
             "time_spread": [1.5, 1.51, 9.0, 9.0], "other_launches": [0, 1, 0, 5], "cause": ["", "", "a", "b"],
             "function": ["f", "g", "h", "i"]}  # fmt: skip
    return pd.DataFrame(known | columns)


def test_a_summary_of_four_configurations() -> None:
    said = kernel_table.summarise_coverage(covered())
    assert (said["configurations"], said["covered"], said["extra"], said["missing"]) == (3, 2, 1, "h")
    assert (said["coverage"], said["time_coverage"]) == pytest.approx((2 / 3, 0.75))
    # 1.5 times as long is alike, more is not.
    assert (said["uneven_time"], said["other_launches"], said["other_choice"]) == (0.25, 0.25, False)
    assert kernel_table.summarise_coverage(covered(cause=["", "", "a", kernel_table.OTHER_KERNEL]))["other_choice"]
    none = kernel_table.summarise_coverage(covered(status="extra"))
    assert none["configurations"] == 0 and np.isnan([none["coverage"], none["time_coverage"]]).all()


@pytest.mark.parametrize(("off", "wrong"), [(0.9, False), (-0.9, False), (1.1, True), (-1.1, True)])
def test_shares_that_do_not_add_up(off: float, wrong: bool) -> None:
    table = pd.DataFrame({"share": [0.5, 0.5 + off * nsys_tables.ROUNDING, np.nan]})
    assert (kernel_table.shares_whole(table) is not None) == wrong
    assert kernel_table.shares_whole(table[2:]) is None


def test_rows_of_coverage_are_in_order() -> None:
    """Missing ones first, then extra ones, then what is covered, each the longest first, then by name."""
    traced = nsys(("a", 1, "forward", 10, 40), ("a", 1, "backward", 10, 20), ("a", 2, None, 5, 20), ("b", 1, None, 4, 15),
                  ("c", 1, None, 1, 5))  # fmt: skip
    found = kernel_table.compare_coverage(traced, launches(("b", 1, ""), ("z", 1, ""), ("y", 1, ""), ("a", 1, "")))
    assert found[["status", "function", "grid_x"]].to_numpy().tolist() == [
        ["missing", "a", 2], ["missing", "c", 1], ["extra", "y", 1], ["extra", "z", 1],
        ["covered", "a", 1], ["covered", "b", 1],
    ]  # fmt: skip
    assert found["total_ns"].tolist() == pytest.approx([20, 5, np.nan, np.nan, 60, 15], nan_ok=True)
    assert found["share"].tolist() == pytest.approx([0.2, 0.05, np.nan, np.nan, 0.6, 0.15], nan_ok=True)
    assert str(found["launches"].dtype) == "Int64" and found["launches"].tolist()[4:] == [20, 4]
    assert list(found.columns) == kernel_table.COVERAGE_COLUMNS and found.index.tolist() == list(range(6))
