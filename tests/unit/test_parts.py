"""Where a difference lies: parts add up, planted changes are found where they were planted."""

from pathlib import Path

import pandas as pd
import pytest

from profzoo.compare import parts
from profzoo.compare.parts import CLASS, KERNEL, PART, RANGE, Traced
from profzoo.reading import tables as reading
from tests.unit.compared import CELLS, scaled, traced


def slowed(given: Traced, index: int, factor: float) -> Traced:
    """One kernel of a cell takes so many times as long; the step is longer by that."""
    return scaled(given, pd.Series(1.0, given.kernels.index).where(given.kernels.index != index, factor))


@pytest.mark.parametrize("cell", CELLS[::4], ids=" ".join)
def test_every_level_adds_up_on_cells_of_the_zoo(cell: tuple[str, str]) -> None:
    """Against another cell, so that nearly all appears or vanishes."""
    one, other = traced(*cell), traced(*CELLS[CELLS.index(cell) - 1])
    found = parts.table(one, other)
    sums = found.groupby("level")["delta_ns"].sum()
    assert sums[PART] == pytest.approx(other.step["step_ns"] - one.step["step_ns"], rel=1e-6, abs=1)
    kernels = sum(other.parts()[name] - one.parts()[name] for name in ("kernels", "communication"))
    for level in (RANGE, CLASS, KERNEL):
        assert sums[level] == pytest.approx(kernels, rel=1e-6, abs=1)


def test_a_kernel_that_takes_longer_is_where_the_difference_lies() -> None:
    one = traced("unet", "train")
    row = one.kernels.loc[3]
    found = parts.table(one, slowed(one, 3, 1.5))
    (most,) = found[found["level"] == KERNEL].head(1).to_dict("records")
    assert (most["name"], most["range"], most["change"]) == (row["kernel"], row["range"], "")
    delta = found.loc[found["level"] == PART, "delta_ns"].sum()
    assert most["delta_ns"] == pytest.approx(delta, rel=0.02)
    for level, name in ((RANGE, row["range"]), (CLASS, row["class"]), (PART, "kernels")):
        first = found[found["level"] == level].iloc[0]
        assert first["name"] == name and first["delta_ns"] == pytest.approx(delta, rel=0.02)
    others = found[(found["level"] == KERNEL) & (found["name"] != row["kernel"])]
    assert others["delta_ns"].abs().max() < 0.02 * delta


def test_kernels_that_appear_vanish_and_change_are_named() -> None:
    one = traced("unet", "train")
    kernels = one.kernels.copy()
    unique = ~kernels.duplicated(["range", "kernel"], keep=False)
    gone, changed, renamed = kernels.index[unique][:3]
    kernels.loc[changed, "grid_x"] += 1
    kernels.loc[renamed, "kernel"] = "another_kernel"
    found = parts.table(one, Traced(kernels.drop(gone), one.step))
    said = found[found["level"] == KERNEL].set_index("name")["change"]
    names = one.kernels["kernel"]
    assert said[names[gone]] == said[names[renamed]] == parts.VANISHED
    assert said[names[changed]] == parts.CHANGED and said["another_kernel"] == parts.APPEARED
    assert (said != "").sum() == 4


def test_the_table_is_what_is_declared(tmp_path: Path) -> None:
    one = traced("lstm", "inference")
    found = parts.table(one, slowed(one, 0, 2)).assign(model="lstm", phase="inference", baseline="a", candidate="b")
    found.to_csv(tmp_path / "parts.csv", index=False)
    assert len(reading.read(tmp_path / "parts.csv", parts.TABLE)) == len(found)
