"""coverage: nothing that ncu missed goes unnamed."""

from collections.abc import Callable

import pandas as pd
import pytest

from profzoo.tables import ncu_coverage
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.nsys import tables as nsys_tables


def rows(*launches: tuple, **columns: list) -> pd.DataFrame:
    """Configurations (mangled, grid_x) of 32 threads."""
    table = pd.DataFrame(launches, columns=["mangled", "grid_x"])
    fixed = dict.fromkeys(ncu_coverage.KEYS[2:], 1) | {"block_x": 32, "smem_static_bytes": 0, "smem_dynamic_bytes": 0}
    return table.assign(**fixed, kernel=table["mangled"] + "()", function=table["mangled"], **columns)


NSYS = rows(
    ("a", 1), ("a", 1), ("a", 2), ("b", 1), ("c", 1),
    range=["forward", "backward", None, None, None], launches=[10, 10, 5, 4, 1], total_ns=[40, 20, 20, 15, 5], share=[0.4, 0.2, 0.2, 0.15, 0.05],
)  # fmt: skip


def test_everything_is_covered() -> None:
    found = ncu_coverage.compare(NSYS, rows(("c", 1), ("a", 2), ("a", 1), ("b", 1)))
    assert set(found["status"]) == {"covered"} and found["launches"].tolist() == [20, 5, 4, 1]
    said = ncu_coverage.summary(found)
    assert (said["configurations"], said["covered"], said["coverage"], said["extra"]) == (4, 4, 1, 0)
    assert said["time_coverage"] == pytest.approx(1) and not said["other_choice"] and said["missing"] == ""


def test_launches_outside_the_steps_of_a_whole_run_are_not_missing() -> None:
    start_up = rows(("d", 1), range=["outside"], launches=[7], total_ns=[900], share=[float("nan")])
    pd.testing.assert_frame_equal(
        ncu_coverage.compare(pd.concat([NSYS, start_up]), rows(("a", 1))), ncu_coverage.compare(NSYS, rows(("a", 1)))
    )


def test_what_is_missing_is_named_with_its_share_and_cause() -> None:
    found = ncu_coverage.compare(NSYS, rows(("a", 1), ("a", 3), ("d", 1)))
    assert found[["status", "function", "grid_x"]].to_numpy().tolist() == [
        ["missing", "a", 2], ["missing", "b", 1], ["missing", "c", 1],
        ["extra", "a", 3], ["extra", "d", 1], ["covered", "a", 1],
    ]  # fmt: skip
    assert found["cause"].tolist()[:5] == [
        ncu_coverage.OTHER_LAUNCH, ncu_coverage.OTHER_KERNEL, ncu_coverage.OTHER_KERNEL,
        ncu_coverage.OTHER_LAUNCH, ncu_coverage.OTHER_KERNEL,
    ]  # fmt: skip
    assert found.loc[found["status"] == "extra", "launches"].isna().all()
    said = ncu_coverage.summary(found)
    assert (said["configurations"], said["covered"], said["extra"]) == (4, 1, 2)
    assert said["time_coverage"] == pytest.approx(0.6) and said["other_choice"] and said["missing"] == "a; b; c"


def test_launch_parameters_alone_are_no_other_choice() -> None:
    said = ncu_coverage.summary(ncu_coverage.compare(NSYS[:3], rows(("a", 1), ("a", 3))))
    assert said["missing"] == "a" and not said["other_choice"]


def test_what_was_there_and_not_chosen_says_so() -> None:
    found = ncu_coverage.compare(NSYS, rows(("a", 1)), rows(("a", 1), ("a", 2), ("b", 1)))
    causes = dict(zip(found["function"] + found["grid_x"].astype(str), found["cause"], strict=True))
    assert causes == {
        "a1": "",
        "a2": ncu_coverage.NOT_CHOSEN,
        "b1": ncu_coverage.NOT_CHOSEN,
        "c1": ncu_coverage.OTHER_KERNEL,
    }


def test_launches_that_were_not_profiled_as_planned_are_counted_by_configuration() -> None:
    """Of a with grid 1 one of two, of b one of one; and without a plan there is no such launch."""
    ncu = rows(("a", 1), ("a", 1), ("a", 2), ("b", 1), ("c", 1))
    planned = ncu.assign(as_planned=[True, False, True, False, True])
    found = ncu_coverage.compare(NSYS, planned).set_index(["mangled", "grid_x"])
    assert found["other_launches"].to_dict() == {("a", 1): 1, ("a", 2): 0, ("b", 1): 1, ("c", 1): 0}
    assert ncu_coverage.summary(found.reset_index())["other_launches"] == pytest.approx(0.6 + 0.15)
    without = ncu_coverage.compare(NSYS, ncu)
    assert (without["other_launches"] == 0).all() and ncu_coverage.summary(without)["other_launches"] == 0


def test_uneven_time_is_that_of_configurations_of_which_one_launch_stands_for_unlike_ones() -> None:
    """The longest of a, grid 2, takes 1.51 times the shortest, of b 1.5 times, of which the larger spread counts."""
    ncu = rows(("a", 1), ("a", 2), ("b", 1), ("b", 1), ("c", 1)).assign(time_spread=[1.0, 1.51, 1.2, 1.5, float("nan")])
    found = ncu_coverage.compare(NSYS, ncu)
    assert found.set_index(["mangled", "grid_x"])["time_spread"].dropna().to_dict() == {
        ("a", 1): 1.0, ("a", 2): 1.51, ("b", 1): 1.5
    }  # fmt: skip
    assert ncu_coverage.summary(found)["uneven_time"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("rest", "wrong"), [(0.05, None), (0.06, "shares of GPU time add up to 1.010000: rows are missing")]
)
def test_a_table_that_lacks_rows_is_noticed(rest: float, wrong: str | None) -> None:
    assert ncu_coverage.shares_whole(pd.DataFrame({"share": [0.95, rest, None]})) == wrong
    assert ncu_coverage.shares_whole(pd.DataFrame({"share": [None]}, dtype="float64")) is None


def test_a_cell_without_launches_has_no_coverage() -> None:
    said = ncu_coverage.summary(ncu_coverage.compare(NSYS[:0], rows()))
    assert said["configurations"] == 0 and pd.isna(said["coverage"]) and pd.isna(said["time_coverage"])


def test_recordings_of_two_precisions(recording: Callable) -> None:
    """nsys's is of TensorFloat-32, ncu's is not: cuDNN and cuBLAS choose other kernels for a quarter of the time."""
    raw, units = ncu_tables.read_raw(recording("ncu/launch.raw.mangled.csv"))
    names, _ = ncu_tables.read_raw(recording("ncu/launch.raw.demangled.csv"))
    ncu, _ = ncu_tables.tidy_launches(raw, units, names, None)
    found = ncu_coverage.compare(nsys_tables.summarise(recording("nsys/train.sqlite")), ncu)
    said = ncu_coverage.summary(found)
    assert (said["configurations"], said["covered"], said["extra"], said["other_choice"]) == (189, 113, 73, True)
    assert said["time_coverage"] == pytest.approx(0.7303, abs=1e-4) and found["share"].sum() == pytest.approx(1)
    assert found.loc[0, "function"].startswith("sm80_xmma_wgrad_implicit_gemm_indexed_wo_smem_tf32f32")
