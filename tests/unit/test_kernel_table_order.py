"""The kernel table's rows: their order, what becomes one row, and which of several sets counts, worked out by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tables import kernel_table
from profzoo.tables.ncu_coverage import KEYS
from profzoo.tools.ncu import derived_metrics
from profzoo.tools.ncu.derived_metrics import GPU_TIME

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


def counted(**values: list[float]) -> pd.DataFrame:
    """A set that profiled one launch forward and one backward of kernel a, each of which stands for itself."""
    table = launches(("a", 1, "forward"), ("a", 1, "backward"), **{GPU_TIME: [1e4, 4e4]})
    return table.assign(launch=[0, 1], multiplicity=1.0, **values)


def test_of_several_sets_the_first_that_holds_a_quantity_counts_in_each_range() -> None:
    """L2 by the first, DRAM by the second, L1 by the third, which all tell of L2 too."""
    sets = [counted(**{L2: [8.0, 32.0]}),
            counted(**{L2: [1.0, 2.0], READ: [100.0, 200.0], WRITTEN: [1.0, 1.0]}),
            counted(**{L2: [3.0, 4.0], READ: [5.0, 6.0], WRITTEN: [0.0, 0.0], L1: [70.0, 90.0]})]  # fmt: skip
    census = launches(("a", 1, "forward"), ("a", 1, "backward"), **{GPU_TIME: [1e4, 4e4]})
    traced = nsys(("a", 1, "forward", 1, 10_000), ("a", 1, "backward", 1, 40_000))
    table = kernel_table.join(traced, 1, sets, {}, census).set_index("range")
    assert table.loc["forward", ["l2_bytes", "dram_bytes", "l1_bytes"]].tolist() == [8, 101, 70]
    assert table.loc["backward", ["l2_bytes", "dram_bytes", "l1_bytes"]].tolist() == [32, 201, 90]


def test_without_a_range_of_their_own_launches_have_the_mean_of_the_configuration() -> None:
    """Of the two launches that ncu saw, none is in the range in which nsys saw others."""
    census = launches(("a", 1, "forward"), ("a", 1, "backward"), **{GPU_TIME: [1e4, 4e4]})
    traced = nsys(("a", 1, "forward", 1, 10_000), ("a", 1, "loss", 1, 30_000))
    table = kernel_table.join(traced, 1, [counted(**{L2: [8.0, 32.0]})], {}, census).set_index("range")
    assert table["l2_bytes"].to_dict() == {"loss": 20, "forward": 8}


def test_time_with_all_quantities_is_of_rows_that_have_every_one() -> None:
    table = pd.DataFrame({"share": [0.5, 0.3, 0.15, 0.05], "l2_bytes": [1, 2, np.nan, np.nan],
                          "dram_bytes": [1, np.nan, 3, np.nan]})  # fmt: skip
    assert kernel_table.time_with(table, ["l2_bytes", "dram_bytes"]) == 0.5
    assert kernel_table.time_with(table, ["l2_bytes"]) == pytest.approx(0.8)
    assert kernel_table.time_with(table.assign(dram_bytes=0.0, l2_bytes=0.0), ["dram_bytes", "l2_bytes"]) == 1


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
    # One of a version before those quantities were added is still read.
    write_csv(table.drop(columns=list(derived_metrics.LATER)), path)
    assert len(reading.read(path, kernel_table.TABLE)) == 3


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("grid_x", 1.5, "column grid_x, row 1 holds '1.5', which is no whole number"),
        ("grid_x", None, "column grid_x, row 1 holds nothing|column grid_x, row 1 holds ''"),
        ("total_ns", "fast", "column total_ns, row 1 holds 'fast', which is no number"),
        ("share", 0.5, "shares of GPU time add up to 0.75"),
        ("smem_static_bytes", 1.5, "column smem_static_bytes, row 1 holds '1.5', which is no whole number"),
    ],
)
def test_a_damaged_table_is_refused(written: tuple[pd.DataFrame, Path], column: str, value: object, why: str) -> None:
    table, path = written
    table[column] = table[column].astype("object")
    table.loc[0, column] = value
    write_csv(table, path)
    with pytest.raises(DataError, match=why):
        reading.read(path, kernel_table.TABLE)


def test_shared_memory_may_be_unknown(written: tuple[pd.DataFrame, Path]) -> None:
    table, path = written
    write_csv(table.assign(smem_static_bytes=np.nan), path)
    assert reading.read(path, kernel_table.TABLE)["smem_static_bytes"].isna().all()
