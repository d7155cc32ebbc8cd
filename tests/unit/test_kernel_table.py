"""kernel_table and metrics: time and counters meet by launch configuration, and nothing is lost or made up."""

import numpy as np
import pandas as pd
import pytest

from profzoo.tables import kernel_table
from profzoo.tables.kernel_table import KEYS
from profzoo.tools.ncu import estimates


def rows(*configurations: tuple, **columns: list) -> pd.DataFrame:
    """Launch configurations (mangled, grid_x, range)."""
    table = pd.DataFrame(configurations, columns=["mangled", "grid_x", "range"])
    fixed = dict.fromkeys(KEYS[2:], 1) | {"block_x": 32, "smem_static_bytes": 0, "smem_dynamic_bytes": 0}
    return table.assign(**fixed, kernel=table["mangled"] + "()", function=table["mangled"], **columns)


NSYS = rows(
    ("a", 1, "forward"), ("a", 1, "backward"), ("b", 1, "forward"), ("c", 2, np.nan),
    launches=[4, 2, 2, 2], total_ns=[400, 200, 300, 100], share=[0.4, 0.2, 0.3, 0.1],
)  # fmt: skip
CLASSES = {"a()": "gemm", "b()": "convolution", "c()": "elementwise", "d()": "other"}


def joined(*sets: pd.DataFrame) -> pd.DataFrame:
    """The table of NSYS over two steps and these sets of ncu."""
    return kernel_table.join(NSYS, 2, sets, CLASSES)


def test_times_are_per_step_and_counters_per_launch() -> None:
    roofline = rows(
        ("a", 1, "forward"), ("b", 1, "forward"), **{"dram__bytes_read.sum": [7, 5], "dram__bytes_write.sum": [1, 2]}
    )
    table = joined(roofline).set_index(["mangled", "range"])
    assert table.loc[("a", "forward"), ["launches", "total_ns", "mean_ns", "share"]].tolist() == [2, 200, 100, 0.4]
    assert table.loc["a", "dram_bytes"].tolist() == [8, 8] and table.loc[("b", "forward"), "dram_bytes"] == 7
    assert table["source"].to_dict() == {
        ("a", "forward"): "nsys+ncu", ("a", "backward"): "nsys+ncu", ("b", "forward"): "nsys+ncu", ("c", ""): "nsys",
    }  # fmt: skip
    assert table["class"].tolist() == ["gemm", "convolution", "gemm", "elementwise"]
    assert table["share"].sum() == pytest.approx(1)
    assert table.loc[table["dram_bytes"].notna(), "share"].sum() == pytest.approx(0.9)


def test_what_ncu_alone_saw_has_a_row_of_its_own() -> None:
    table = joined(rows(("d", 1, "forward"), ("a", 9, "forward"), **{estimates.GPU_TIME: [10, 20]}))
    alone = table[table["source"] == "ncu"].set_index("mangled")
    assert set(alone.index) == {"a", "d"} and alone.loc["a", "grid_x"] == 9
    assert alone[["launches", "total_ns", "share"]].isna().all(axis=None)
    assert alone["ncu_ns"].to_dict() == {"a": 20, "d": 10}
    assert len(table) == len(NSYS) + 2 and (table["source"] != "nsys+ncu").all()


def test_several_sets_complete_one_another_and_the_first_counts() -> None:
    one = rows(("a", 1, "forward"), **{estimates.GPU_TIME: [10]})
    other = rows(("a", 1, "forward"), ("b", 1, "forward"), **{estimates.GPU_TIME: [99, 30], "lts__t_bytes.sum": [5, 6]})
    table = joined(one, other).drop_duplicates("mangled").set_index("mangled")
    assert table["ncu_ns"].dropna().to_dict() == {"a": 10, "b": 30}
    assert table["l2_bytes"].dropna().to_dict() == {"a": 5, "b": 6}


def test_launches_of_a_configuration_are_averaged_by_range() -> None:
    every = rows(("a", 1, "forward"), ("a", 1, "forward"), ("a", 1, "backward"), **{estimates.GPU_TIME: [10, 20, 90]})
    found = joined(every).set_index(["mangled", "range"])["ncu_ns"]
    assert found["a"].to_dict() == {"forward": 15, "backward": 90}
    # A range of which ncu saw nothing has what it saw of the others.
    elsewhere = every.assign(range=["forward", "forward", "loss"])
    found = joined(elsewhere).set_index(["mangled", "range"])["ncu_ns"]
    assert found["a"].to_dict() == {"forward": 15, "backward": 40}


def window() -> pd.DataFrame:
    """A census: kernel a forward and backward, where it takes four times as long, and b."""
    census = rows(*[("a", 1, "forward"), ("a", 1, "backward")] * 3, *[("b", 1, "forward")] * 2)
    return census.assign(**{estimates.GPU_TIME: [1e4, 4e4] * 3 + [2e4, 2e4]})


def counted(launches: list[int], **values: list[float]) -> pd.DataFrame:
    """Rows of these launches of the census, as they are exported."""
    table = window().iloc[launches].reset_index(drop=True)
    return table.assign(launch=launches, multiplicity=1.0, **values)


def test_each_range_has_what_stands_for_its_launches() -> None:
    own = counted([0, 1, 6], **{"lts__t_bytes.sum": [8.0, 32.0, 6.0], "lts__t_sector_hit_rate.pct": [50, 80, 60]})
    table = kernel_table.join(NSYS, 2, [own], CLASSES, window()).set_index(["mangled", "range"])
    assert table.loc[("a", "forward"), "l2_bytes"] == 8 and table.loc[("a", "backward"), "l2_bytes"] == 32
    assert table.loc[("b", "forward"), "l2_bytes"] == 6
    assert table.loc["a", "l2_hit_pct"].to_dict() == {"forward": 50, "backward": 80}
    sides = table.loc["a", ["l2_bytes_low", "l2_bytes", "l2_bytes_high"]].to_numpy()
    assert (sides[:, 0] < sides[:, 1]).all() and (sides[:, 1] < sides[:, 2]).all()
    # Rows without weights count as before and have no interval.
    old = rows(("a", 1, "forward"), ("b", 1, "forward"), **{estimates.GPU_TIME: [10, 30], "lts__t_bytes.sum": [8, 6]})
    bare = kernel_table.join(NSYS, 2, [old], CLASSES, window())
    assert bare["l2_bytes"].dropna().tolist() == [8, 6, 8] and bare["l2_bytes_low"].isna().all()
    # An interval is wide where one launch stands for unlike ones.
    first = counted([0, 6], **{"lts__t_bytes.sum": [8.0, 6.0]})
    table = kernel_table.join(NSYS, 2, [first], CLASSES, window()).set_index(["mangled", "range"])
    wide = (table["l2_bytes_high"] - table["l2_bytes_low"]) / table["l2_bytes"]
    assert wide["a"].max() > 1 and wide[("b", "forward")] < 0.1
    assert table.loc["a", "l2_bytes"].tolist() == [8, 8] and (table.loc["a", "l2_bytes_low"] >= 0).all()


def test_without_ncu_there_is_time_and_no_counter() -> None:
    table = joined()
    assert list(table.columns) == kernel_table.COLUMNS and set(table["source"]) == {"nsys"}
    assert table[list(estimates.QUANTITIES)].isna().all(axis=None) and table["total_ns"].sum() == 500
    table = kernel_table.join(NSYS[:0], 2, [], CLASSES)
    assert table.empty and list(table.columns) == kernel_table.COLUMNS
