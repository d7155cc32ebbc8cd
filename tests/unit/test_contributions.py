"""Where a difference lies: parts add up, planted changes are found where they were planted."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from profzoo.compare import contributions
from profzoo.compare.contributions import (
    CHANGED,
    CLASS_LEVEL,
    KERNEL_LEVEL,
    LAUNCHED,
    LAYER_LEVEL,
    PART_LEVEL,
    RANGE_LEVEL,
    RETYPED,
    TracedCell,
)
from profzoo.range_names import REST
from profzoo.tables.kernel_table import KEYS
from tests.unit.compared import CELLS, traced


@pytest.mark.parametrize("cell", CELLS[::16], ids=" ".join)
def test_every_level_adds_up_on_cells_of_the_zoo(cell: tuple[str, str]) -> None:
    """Against another cell, so that nearly all appears or vanishes."""
    one, other = traced(*cell), traced(*CELLS[CELLS.index(cell) - 1])
    found = contributions.contribution_rows(one, other)
    sums = found.groupby("level")["delta_ns"].sum()
    assert sums[PART_LEVEL] == pytest.approx(other.step["step_ns"] - one.step["step_ns"], rel=1e-6, abs=1)
    kernels = sum(other.parts()[name] - one.parts()[name] for name in ("kernels", "communication"))
    for level in (RANGE_LEVEL, CLASS_LEVEL, KERNEL_LEVEL):
        assert sums[level] == pytest.approx(kernels, rel=1e-6, abs=1)


def test_a_cell_without_kernels_as_on_a_cpu_has_parts() -> None:
    one = traced("unet", "train")
    nothing = {
        name: 0.0 for name in one.step if name in ("busy_ns", "kernel_ns", "copy_ns", "transfer_ns", "busy_share")
    }
    cpu = TracedCell(one.kernels.iloc[:0], {**one.step, **nothing})
    assert set(contributions.contribution_rows(cpu, cpu)["level"]) == {PART_LEVEL}
    for sides, change in (((cpu, one), contributions.APPEARED), ((one, cpu), contributions.VANISHED)):
        found = contributions.contribution_rows(*sides)
        assert set(found.loc[found["level"] == KERNEL_LEVEL, "change"]) == {change}


STEP = {"step_ns": 100.0, "busy_share": 0.8, "busy_ns": 160.0, "idle_ns": 40.0, "copy_ns": 40.0, "transfer_ns": 20.0,
        "communication_ns": 40.0, "overlap_ns": 0.0, "waiting_ns": 0.0, "idle_input_ns": 40.0,
        **dict.fromkeys(["idle_host_ns", "idle_synchronisation_ns", "idle_latency_ns", "idle_launch_ns"], 0.0)}  # fmt: skip


def launches(*rows: tuple[Any, str, Any, float, float, int]) -> pd.DataFrame:
    """Of range, kernel, class, launches, ns and the grid."""
    table = pd.DataFrame(rows, columns=["range", "kernel", "class", "launches", "total_ns", "grid_x"])
    return table.assign(**{key: 0 for key in KEYS if key not in table})


def test_the_parts_of_half_as_much_work_a_step() -> None:
    """A step of 100 ns that is busy for 80: of 160 traced, 80 by kernels, 40 by communication, 20 by either copy."""
    one = TracedCell(None, STEP)
    names = ("kernels", "communication", "copy", "transfer", "idle_input")
    assert [one.parts()[name] for name in names] == pytest.approx([40, 20, 10, 10, 20])
    assert [TracedCell(None, STEP, None, 4.0).parts()[name] for name in names] == pytest.approx([10, 5, 2.5, 2.5, 5])


def test_kernels_share_the_time_of_kernels_and_communication() -> None:
    """60 ns of each step: by 30 and 90 of 120 traced, 15 and 45; what was not timed has none."""
    one = TracedCell(launches(("forward", "a", "gemm", 1, 30, 1), ("forward", "b", "gemm", 1, 90, 1),
                          ("forward", "c", "gemm", 1, np.nan, 1)), STEP)  # fmt: skip
    assert one.timed()["ns"].tolist() == pytest.approx([15, 45])
    layers = pd.DataFrame({"range": "forward", "name": ["x", "y"], "type": "Conv", "launches": 1.0, "ns": [2.0, 4.0]})
    assert TracedCell(one.kernels, STEP, layers).by_layer()["ns"].tolist() == pytest.approx([20, 40])
    assert TracedCell(None, STEP, layers, 4.0).by_layer()["ns"].tolist() == pytest.approx([0.5, 1])
    assert TracedCell(one.kernels, STEP, layers.assign(ns=0.0)).by_layer()["ns"].tolist() == [0, 0]


def test_where_a_difference_lies() -> None:
    """Both take 60 ns in kernels. Of the baseline a takes 15 and b 45; of the candidate a 20 and b, twice as often, 40."""
    one = TracedCell(launches(("forward", "a", "gemm", 1, 30, 1), (None, "b", None, 1, 90, 1)), STEP)
    other = TracedCell(
        launches(("forward", "a", "gemm", 1, 60, 2), (None, "b", None, 2, 120, 2)), STEP | {"step_ns": 200.0}
    )
    found = contributions.contribution_rows(one, other).set_index(["level", "range", "name"])
    assert found.loc[("kernel", "forward", "a"), ["baseline_ns", "candidate_ns"]].tolist() == pytest.approx([15, 40])
    assert found.loc[("kernel", "", "b"), ["baseline_ns", "candidate_ns", "delta_ns", "delta_share"]].tolist() == (
        pytest.approx([45, 80, 35, 0.35])
    )
    # What has both another grid and another number is told by the former.
    assert found.loc[["kernel"], "change"].tolist() == [CHANGED, CHANGED]
    assert found.loc["range"].index.tolist() == [("", REST), ("forward", "forward")]
    assert found.loc["class"].index.tolist() == [("", ""), ("", "gemm")]
    # Largest change first, in the order of levels.
    order = list(dict.fromkeys(level for level, _, _ in found.index))
    assert order == ["part", "range", "class", "kernel"] and found.loc["part"].index[0] == ("", "kernels")
    assert found["delta_ns"].groupby("level").sum().tolist() == pytest.approx([60, 60, 100, 60])


@pytest.mark.parametrize(("more", "change"), [(0.4, ""), (0.5, LAUNCHED), (-0.5, LAUNCHED), (-0.4, "")])
def test_launches_differ_from_half_a_launch_on(more: float, change: str) -> None:
    one, other = (TracedCell(launches(("forward", "a", "gemm", 3 + off, 30, 1)), STEP) for off in (0, more))
    found = contributions.contribution_rows(one, other)
    assert found.loc[found["level"] == "kernel", "change"].tolist() == [change]


def test_layers_without_those_below_them() -> None:
    """A net launches 5, of which its two layers launch 2 and 3; one that takes no time and launches nothing is none."""
    tree = pd.DataFrame(
        [("", "net", "forward", "Net", 5.0, 0.5), ("net", "a", "forward", "Conv", 2.0, 7.0),
         ("net", "b", "forward", "ReLU", 3.0 - 1e-7, 0.0), ("", "net", "backward", "Net", 2e-6, 0.0),
         ("net", "none", "forward", "Identity", 5e-7, 0.0)],
        columns=["parent", "module", "direction", "type", "launches", "self_ns"],
    )  # fmt: skip
    found = contributions.layer_times(tree)
    assert found[["name", "range"]].to_numpy().tolist() == [
        ["net", "forward"], ["a", "forward"], ["b", "forward"], ["net", "backward"],
    ]  # fmt: skip
    assert found["launches"].tolist() == pytest.approx([0, 2, 3 - 1e-7, 2e-6], abs=1e-12)


def test_layers_are_told_by_their_type() -> None:
    layers = pd.DataFrame({"range": "forward", "name": ["x", "y"], "type": ["Conv", "Linear"], "launches": 1.0})
    one = TracedCell(None, STEP, layers.assign(ns=[10.0, 20.0]))
    other = TracedCell(None, STEP, layers.assign(ns=[10.0, 50.0], type=["Conv", "LoRA"]))
    found = contributions.contribution_rows(one, other)
    assert found[["name", "delta_ns", "change"]].to_numpy().tolist() == [["y", 30.0, RETYPED], ["x", 0.0, ""]]
    assert set(found["level"]) == {LAYER_LEVEL} and found["delta_share"].tolist() == [0.3, 0]
    assert contributions.contribution_rows(one, TracedCell(None, STEP)).empty
    renamed = TracedCell(None, STEP, layers.assign(ns=[10.0, 20.0], name=["x", "z"]))
    said = contributions.contribution_rows(one, renamed).set_index("name")["change"].to_dict()
    assert said == {"x": "", "y": contributions.VANISHED, "z": contributions.APPEARED}
    # Of 2 samples and of 8.
    sides = (TracedCell(None, STEP, one.layers, items) for items in (2.0, 8.0))
    row = contributions.contribution_rows(*sides).iloc[0]
    assert (row["name"], row["baseline_ns"], row["candidate_ns"]) == ("y", 10, 2.5)


def test_a_cell_that_no_tool_saw_has_its_time_alone() -> None:
    """4 samples of 25 ns are a step of 100."""
    found = contributions.read_side({}, 25.0, 4.0)
    assert found == TracedCell(None, {"step_ns": 100.0}, None, 4.0) and found.time_ns == 25
    assert contributions.read_side({}, 25.0) == TracedCell(None, {"step_ns": 25.0}, None, 1.0)
