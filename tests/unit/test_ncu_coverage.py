"""coverage: nothing that ncu missed goes unnamed."""

import pandas as pd
import pytest

from profzoo.tables import kernel_table


def rows(*launches: tuple, **columns: list) -> pd.DataFrame:
    """Configurations (mangled, grid_x) of 32 threads."""
    table = pd.DataFrame(launches, columns=["mangled", "grid_x"])
    fixed = dict.fromkeys(kernel_table.KEYS[2:], 1) | {"block_x": 32, "smem_static_bytes": 0, "smem_dynamic_bytes": 0}
    return table.assign(**fixed, kernel=table["mangled"] + "()", function=table["mangled"], **columns)


NSYS = rows(
    ("a", 1), ("a", 1), ("a", 2), ("b", 1), ("c", 1),
    range=["forward", "backward", None, None, None], launches=[10, 10, 5, 4, 1], total_ns=[40, 20, 20, 15, 5], share=[0.4, 0.2, 0.2, 0.15, 0.05],
)  # fmt: skip


def test_everything_is_covered() -> None:
    found = kernel_table.compare_coverage(NSYS, rows(("c", 1), ("a", 2), ("a", 1), ("b", 1)))
    assert set(found["status"]) == {"covered"} and found["launches"].tolist() == [20, 5, 4, 1]
    said = kernel_table.summarise_coverage(found)
    assert (said["configurations"], said["covered"], said["coverage"], said["extra"]) == (4, 4, 1, 0)
    assert said["time_coverage"] == pytest.approx(1) and not said["other_choice"] and said["missing"] == ""
    none = kernel_table.summarise_coverage(kernel_table.compare_coverage(NSYS[:0], rows()))
    assert none["configurations"] == 0 and pd.isna(none["coverage"]) and pd.isna(none["time_coverage"])


def test_what_is_missing_is_named_with_its_share_and_cause() -> None:
    found = kernel_table.compare_coverage(NSYS, rows(("a", 1), ("a", 3), ("d", 1)))
    assert found[["status", "function", "grid_x"]].to_numpy().tolist() == [
        ["missing", "a", 2], ["missing", "b", 1], ["missing", "c", 1],
        ["extra", "a", 3], ["extra", "d", 1], ["covered", "a", 1],
    ]  # fmt: skip
    assert found["cause"].tolist()[:5] == [
        kernel_table.OTHER_LAUNCH, kernel_table.OTHER_KERNEL, kernel_table.OTHER_KERNEL,
        kernel_table.OTHER_LAUNCH, kernel_table.OTHER_KERNEL,
    ]  # fmt: skip
    assert found.loc[found["status"] == "extra", "launches"].isna().all()
    said = kernel_table.summarise_coverage(found)
    assert (said["configurations"], said["covered"], said["extra"]) == (4, 1, 2)
    assert said["time_coverage"] == pytest.approx(0.6) and said["other_choice"] and said["missing"] == "a; b; c"
    # Launches outside the steps of a whole run are not missing.
    start_up = rows(("d", 1), range=["outside"], launches=[7], total_ns=[900], share=[float("nan")])
    pd.testing.assert_frame_equal(
        kernel_table.compare_coverage(pd.concat([NSYS, start_up]), rows(("a", 1))),
        kernel_table.compare_coverage(NSYS, rows(("a", 1))),
    )
    # Launch parameters alone are no other choice.
    said = kernel_table.summarise_coverage(kernel_table.compare_coverage(NSYS[:3], rows(("a", 1), ("a", 3))))
    assert said["missing"] == "a" and not said["other_choice"]


def test_what_was_there_and_not_chosen_says_so() -> None:
    found = kernel_table.compare_coverage(NSYS, rows(("a", 1)), rows(("a", 1), ("a", 2), ("b", 1)))
    causes = dict(zip(found["function"] + found["grid_x"].astype(str), found["cause"], strict=True))
    not_chosen = dict.fromkeys(["a2", "b1"], kernel_table.NOT_CHOSEN)
    assert causes == {"a1": "", **not_chosen, "c1": kernel_table.OTHER_KERNEL}


def test_launches_that_were_not_profiled_as_planned_are_counted_by_configuration() -> None:
    """Of a with grid 1 one of two, of b one of one; and without a plan there is no such launch."""
    ncu = rows(("a", 1), ("a", 1), ("a", 2), ("b", 1), ("c", 1))
    planned = ncu.assign(as_planned=[True, False, True, False, True])
    found = kernel_table.compare_coverage(NSYS, planned).set_index(["mangled", "grid_x"])
    assert found["other_launches"].to_dict() == {("a", 1): 1, ("a", 2): 0, ("b", 1): 1, ("c", 1): 0}
    assert kernel_table.summarise_coverage(found.reset_index())["other_launches"] == pytest.approx(0.6 + 0.15)
    without = kernel_table.compare_coverage(NSYS, ncu)
    assert (without["other_launches"] == 0).all() and kernel_table.summarise_coverage(without)["other_launches"] == 0


def test_uneven_time_is_that_of_configurations_of_which_one_launch_stands_for_unlike_ones() -> None:
    """The longest of a, grid 2, takes 1.51 times the shortest, of b 1.5 times, of which the larger spread counts."""
    ncu = rows(("a", 1), ("a", 2), ("b", 1), ("b", 1), ("c", 1)).assign(time_spread=[1.0, 1.51, 1.2, 1.5, float("nan")])
    found = kernel_table.compare_coverage(NSYS, ncu)
    assert found.set_index(["mangled", "grid_x"])["time_spread"].dropna().to_dict() == {
        ("a", 1): 1.0, ("a", 2): 1.51, ("b", 1): 1.5
    }  # fmt: skip
    assert kernel_table.summarise_coverage(found)["uneven_time"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("rest", "wrong"), [(0.05, None), (0.06, "shares of GPU time add up to 1.010000: rows are missing")]
)
def test_a_table_that_lacks_rows_is_noticed(rest: float, wrong: str | None) -> None:
    assert kernel_table.shares_whole(pd.DataFrame({"share": [0.95, rest, None]})) == wrong
    assert kernel_table.shares_whole(pd.DataFrame({"share": [None]}, dtype="float64")) is None
