"""owned: what torch alone saw of a step's launches, added up by hand."""

import pandas as pd
import pytest

from profzoo.launches import joined_step

SIZES = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), 1)
OWNER = {"operator": "aten::mm", "shapes": "", "caller": "", "module": "head", "type": "Linear", "direction": "forward"}


def launches(*rows: tuple[str, str, float]) -> pd.DataFrame:
    """Launches by kind, name and ns."""
    table = pd.DataFrame(rows, columns=["kind", "name", "ns"])
    return table.assign(**OWNER, **SIZES)


def test_launches_and_times_of_torch_are_per_step() -> None:
    """Of two steps, four launches of 100, 200, 300 and 400 ns: two per step, 500 ns together, 250 each."""
    rows = [("kernel", "void a::f<1>(int)", ns) for ns in (100.0, 200.0, 300.0, 400.0)]
    (row,) = joined_step.sum_torch_launches(launches(*rows, ("memcpy", "Memcpy", 50.0)), 2).to_dict("records")
    assert (row["launches"], row["total_ns"], row["mean_ns"]) == (2, 500, 250)
    assert row["function"] == "f" and row["module"] == "head"


def test_copies_are_what_is_no_kernel() -> None:
    table = launches(("kernel", "f", 1.0), ("memcpy", "c", 2.0), ("memset", "s", 3.0))
    assert joined_step.select_copies(table)["name"].tolist() == ["c", "s"]
    assert joined_step.sum_torch_launches(table, 1)["kernel"].tolist() == ["f"]


@pytest.mark.parametrize("steps", [1, 3])
def test_the_mean_does_not_depend_on_the_steps(steps: int) -> None:
    rows = [("kernel", "f", 30.0)] * 3
    (row,) = joined_step.sum_torch_launches(launches(*rows), steps).to_dict("records")
    assert row["mean_ns"] == 30 and row["total_ns"] == 90 / steps and row["launches"] == 3 / steps
