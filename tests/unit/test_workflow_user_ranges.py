"""profzoo.workflow.user_ranges: which cells have a table of own ranges, and what it is made of."""

from pathlib import Path

from profzoo.workflow.user_ranges import user_range_inputs, user_range_tables
from tests.unit.workflow_runs import lacking, select, tables, wildcards

TRAIN, INFERENCE = "<results>/lstm/train.ranges.csv", "<results>/lstm/inference.ranges.csv"


def test_cells_of_tools_that_see_ranges_have_a_table() -> None:
    assert user_range_tables(select()) == user_range_tables(select(tool=["nsys"])) == [TRAIN, INFERENCE]
    assert user_range_tables(select(tool=["torch"])) == [TRAIN, INFERENCE]
    assert user_range_tables(select(tool=["ncu"])) == user_range_tables(select(tool=["sample"])) == []
    assert user_range_tables(lacking(select(), "lstm/train.ranges.csv")) == [INFERENCE]


def test_a_table_is_made_of_what_its_tools_traced() -> None:
    own = {"trace_database", "trace_database_sidecar"}, {"launches", "ranges", "sidecar"}, {"census", "sets"}
    found = user_range_inputs(tables(select()), wildcards())
    assert {*found} == own[0] | own[1] | own[2]
    assert found["ranges"] == "<results>/lstm/train.torch.ranges.csv"
    assert {*user_range_inputs(tables(select(tool=["nsys"])), wildcards())} == own[0]
    assert {*user_range_inputs(tables(select(tool=["torch"])), wildcards())} == own[1]


def test_bounds_and_efficiencies_need_the_peaks_of_the_gpu() -> None:
    """Where ncu counts what a roofline is made of; other cells do not wait for them."""
    counted = user_range_inputs(tables(select(ncu={"set": "roofline"})), wildcards())
    assert counted["peaks"] == "<results>/peaks/gpu.csv"
    assert "peaks" not in user_range_inputs(tables(select(tool=["nsys", "torch"])), wildcards())


def test_copied_results_without_traces_have_the_table_that_came_along(tmp_path: Path) -> None:
    run = select(tmp_path, collect=False)
    assert user_range_tables(run) == []
    (tmp_path / "lstm").mkdir()
    (tmp_path / "lstm" / "train.ranges.csv").touch()
    assert user_range_tables(run) == [TRAIN]
    # What would make an empty one of nothing is not what it is made of.
    assert {"trace_database", "ranges"} < {*user_range_inputs(tables(run), wildcards())}
    (tmp_path / "lstm" / "inference.torch.ranges.csv").touch()
    assert user_range_tables(run) == [TRAIN, INFERENCE]
    found = user_range_inputs(tables(run), wildcards(phase="inference"))
    assert "ranges" in found and "trace_database" not in found
