"""Where a difference lies: parts add up, planted changes are found where they were planted."""

from pathlib import Path

import pandas as pd
import pytest

from profzoo.compare import contributions
from profzoo.compare.contributions import CLASS_LEVEL, KERNEL_LEVEL, LAYER_LEVEL, PART_LEVEL, RANGE_LEVEL, TracedCell
from profzoo.io import csv_tables as reading
from tests.unit.compared import CELLS, scaled, traced


def slowed(given: TracedCell, index: int, factor: float) -> TracedCell:
    """One kernel of a cell takes so many times as long; the step is longer by that."""
    return scaled(given, pd.Series(1.0, given.kernels.index).where(given.kernels.index != index, factor))


@pytest.mark.parametrize("cell", CELLS[::4], ids=" ".join)
def test_every_level_adds_up_on_cells_of_the_zoo(cell: tuple[str, str]) -> None:
    """Against another cell, so that nearly all appears or vanishes."""
    one, other = traced(*cell), traced(*CELLS[CELLS.index(cell) - 1])
    found = contributions.contribution_rows(one, other)
    sums = found.groupby("level")["delta_ns"].sum()
    assert sums[PART_LEVEL] == pytest.approx(other.step["step_ns"] - one.step["step_ns"], rel=1e-6, abs=1)
    kernels = sum(other.parts()[name] - one.parts()[name] for name in ("kernels", "communication"))
    for level in (RANGE_LEVEL, CLASS_LEVEL, KERNEL_LEVEL):
        assert sums[level] == pytest.approx(kernels, rel=1e-6, abs=1)


def test_a_kernel_that_takes_longer_is_where_the_difference_lies() -> None:
    one = traced("unet", "train")
    row = one.kernels.loc[3]
    found = contributions.contribution_rows(one, slowed(one, 3, 1.5))
    (most,) = found[found["level"] == KERNEL_LEVEL].head(1).to_dict("records")
    assert (most["name"], most["range"], most["change"]) == (row["kernel"], row["range"], "")
    delta = found.loc[found["level"] == PART_LEVEL, "delta_ns"].sum()
    assert most["delta_ns"] == pytest.approx(delta, rel=0.02)
    for level, name in ((RANGE_LEVEL, row["range"]), (CLASS_LEVEL, row["class"]), (PART_LEVEL, "kernels")):
        first = found[found["level"] == level].iloc[0]
        assert first["name"] == name and first["delta_ns"] == pytest.approx(delta, rel=0.02)
    others = found[(found["level"] == KERNEL_LEVEL) & (found["name"] != row["kernel"])]
    assert others["delta_ns"].abs().max() < 0.02 * delta


def test_kernels_that_appear_vanish_and_change_are_named() -> None:
    one = traced("unet", "train")
    kernels = one.kernels.copy()
    unique = ~kernels.duplicated(["range", "kernel"], keep=False)
    gone, changed, renamed, oftener = kernels.index[unique][:4]
    kernels.loc[oftener, "launches"] += 1
    kernels.loc[changed, "grid_x"] += 1
    kernels.loc[renamed, "kernel"] = "another_kernel"
    found = contributions.contribution_rows(one, TracedCell(kernels.drop(gone), one.step))
    said = found[found["level"] == KERNEL_LEVEL].set_index("name")["change"]
    names = one.kernels["kernel"]
    assert said[names[gone]] == said[names[renamed]] == contributions.VANISHED
    assert said[names[changed]] == contributions.CHANGED and said["another_kernel"] == contributions.APPEARED
    assert said[names[oftener]] == contributions.LAUNCHED and (said != "").sum() == 5


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


def layered(given: TracedCell) -> TracedCell:
    """The cell with a tree of layers: six blocks below the network, each with some of its kernels."""
    rows = given.kernels.assign(module=[f"blocks.{index % 6}" for index in range(len(given.kernels))], type="Block")
    own = rows.groupby(["module", "range", "type"], as_index=False)[["total_ns", "launches"]].sum()
    own = own.rename(columns={"range": "direction", "total_ns": "self_ns"}).assign(parent="(root)")
    above = own.groupby("direction", as_index=False)[["self_ns", "launches"]].sum()
    above = above.assign(module="(root)", type="Net", parent="", self_ns=0)
    return TracedCell(given.kernels, given.step, contributions.layer_times(pd.concat([own, above], ignore_index=True)))


def test_a_slowdown_of_an_operator_is_put_down_to_its_range_layer_and_kernel() -> None:
    one = traced("unet", "train")
    index = one.kernels.index[one.kernels["range"] == "backward"][1]
    # 3 % of the step.
    scale = one.timed()["ns"].sum() / one.kernels["total_ns"].sum()
    factor = 1 + 0.03 * one.step["step_ns"] / (one.kernels.loc[index, "total_ns"] * scale)
    found = contributions.contribution_rows(layered(one), layered(slowed(one, index, factor)))
    delta = 0.03 * one.step["step_ns"]
    for level, name, direction in (
        (LAYER_LEVEL, f"blocks.{index % 6}", "backward"), (RANGE_LEVEL, "backward", "backward"),
        (KERNEL_LEVEL, one.kernels.loc[index, "kernel"], "backward"),
    ):  # fmt: skip
        mine = found[found["level"] == level]
        assert (mine["name"].iloc[0], mine["range"].iloc[0]) == (name, direction)
        assert mine["delta_ns"].iloc[0] == pytest.approx(delta, rel=0.02) == mine["delta_ns"].sum()
        assert mine["delta_ns"].iloc[1:].abs().max() < 0.02 * delta


def test_layers_of_a_cell_add_up_and_say_what_changed() -> None:
    one = layered(traced("unet", "train"))
    assert one.layers is not None
    # What a module launches itself, without what is below it.
    assert one.layers["launches"].sum() == pytest.approx(one.kernels["launches"].sum())
    others = one.layers.replace({"name": {"blocks.1": "blocks.new"}})
    others.loc[others["name"] == "blocks.2", "type"] = "Fused"
    found = contributions.contribution_rows(one, TracedCell(one.kernels, one.step, others))
    layer = found[found["level"] == LAYER_LEVEL]
    assert layer["delta_ns"].sum() == pytest.approx(0, abs=1)
    said = layer.groupby("name")["change"].first()
    assert said[["blocks.0", "blocks.1", "blocks.new", "blocks.2"]].tolist() == [
        "", contributions.VANISHED, contributions.APPEARED, contributions.RETYPED,
    ]  # fmt: skip


def test_layers_alone_are_as_torch_saw_them() -> None:
    one, step = layered(traced("lstm", "inference")).layers, {"step_ns": 2e6}
    assert one is not None
    slower = one.assign(ns=one["ns"].where(one.index != 0, one["ns"] * 2))
    found = contributions.contribution_rows(TracedCell(None, step, one), TracedCell(None, step, slower))
    assert set(found["level"]) == {LAYER_LEVEL}
    assert found["delta_ns"].iloc[0] == found["delta_ns"].sum() == pytest.approx(one["ns"][0])
    assert found["delta_share"].iloc[0] == pytest.approx(one["ns"][0] / 2e6)
    assert contributions.contribution_rows(TracedCell(None, step, one), TracedCell(None, step)).empty


def test_the_table_is_what_is_declared(tmp_path: Path) -> None:
    one = traced("lstm", "inference")
    found = contributions.contribution_rows(one, slowed(one, 0, 2)).assign(
        model="lstm", phase="inference", baseline="a", candidate="b"
    )
    found.to_csv(tmp_path / "parts.csv", index=False)
    assert len(reading.read(tmp_path / "parts.csv", contributions.PARTS_TABLE)) == len(found)


def test_parts_of_sides_with_other_batches_are_of_a_sample() -> None:
    """The same cell, a step of which has 2 samples on one side and 8 on the other: all of it is a quarter of the time."""
    one = traced("unet", "train")
    layers = pd.DataFrame({"name": ["a"], "range": ["forward"], "type": ["Linear"], "launches": [1.0], "ns": [800.0]})
    of_two, of_eight = (TracedCell(one.kernels, one.step, None, items) for items in (2.0, 8.0))
    found = contributions.contribution_rows(of_two, of_eight)
    assert found["candidate_ns"].to_list() == pytest.approx((found["baseline_ns"] / 4).to_list())
    whole = found.loc[found["level"] == PART_LEVEL, ["baseline_ns", "delta_ns", "delta_share"]].sum()
    assert whole["baseline_ns"] == pytest.approx(one.step["step_ns"] / 2)
    assert whole["delta_ns"] == pytest.approx(one.step["step_ns"] * (1 / 8 - 1 / 2))
    assert whole["delta_share"] == pytest.approx(-0.75)
    # Without kernels, as on a CPU, layers are as torch saw them: 800 ns in 2 samples, and in 8.
    (row,) = contributions.contribution_rows(
        *(TracedCell(None, one.step, layers, items) for items in (2.0, 8.0))
    ).to_dict("records")
    assert (row["level"], row["baseline_ns"], row["candidate_ns"]) == (LAYER_LEVEL, 400, 100)
