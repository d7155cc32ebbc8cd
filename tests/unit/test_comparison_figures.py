"""The figures of a comparison of cells of the recorded zoo: legible, and each change where it belongs."""

import itertools
from collections.abc import Iterator

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from profzoo.compare import contributions
from profzoo.figures import comparison, waterfall
from tests.unit.compared import CELLS, compared

Tables = tuple[pd.DataFrame, pd.DataFrame]
CELLS_DRAWN = 14


@pytest.fixture(scope="module")
def tables() -> Tables:
    """Cells of which some are faster, slower, the same, or too noisy to say, and one computes something else."""
    table, parts = compared(CELLS[:CELLS_DRAWN])
    table.loc[table.loc[table["verdict"] == "faster", "ratio"].idxmax(), ["verdict", "numerics"]] = "different"
    assert set(table["verdict"]) == set(comparison.LOOKS)
    return table, parts


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


def laid_out(figure: Figure) -> Figure:
    figure.tight_layout()
    figure.canvas.draw()
    return figure


def apart(axis: Axes) -> bool:
    """Whether neither names of rows nor texts beside them cover each other."""
    texts = [*axis.get_yticklabels(), *axis.texts]
    boxes = [text.get_window_extent().shrunk(0.98, 0.9) for text in texts if text.get_text()]
    return not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_cells_are_sorted_by_gain_with_the_look_of_their_verdict(tables: Tables) -> None:
    table = tables[0]
    (axis,) = laid_out(comparison.draw(table)).axes
    points = [line for line in axis.lines if len(line.get_xdata()) == 1]
    found = sorted((float(line.get_ydata()[0]), float(line.get_xdata()[0]), line) for line in points)
    assert len(found) == CELLS_DRAWN and apart(axis)
    assert [x for _, x, _ in found] == sorted(1 / table["ratio"], reverse=True)
    for (_, _, line), verdict in zip(found, table.sort_values("ratio")["verdict"], strict=True):
        colour, marker = comparison.LOOKS[verdict]
        assert (to_hex(line.get_color()), line.get_marker()) == (colour, marker)


def test_one_process_has_a_point_and_no_interval(tables: Tables) -> None:
    bare = tables[0].head(3).assign(ratio_low=float("nan"), ratio_high=float("nan"), verdict="undecided")
    (axis,) = laid_out(comparison.draw(bare)).axes
    assert sum(len(line.get_xdata()) == 1 for line in axis.lines) == 3
    assert not [line for line in axis.lines if line.get_linewidth() == 2 and len(line.get_xdata()) == 2]


def test_an_interval_of_two_processes_does_not_squeeze_the_others(tables: Tables) -> None:
    wild = tables[0].copy()
    wild.loc[0, ["ratio_low", "ratio_high"]] = [1e-12, 1e14]
    (axis,) = laid_out(comparison.draw(wild)).axes
    low, high = axis.get_xlim()
    gains = 1 / wild["ratio"]
    assert gains.min() / 2.5 < low < gains.min() and gains.max() < high < 2.5 * gains.max()
    assert len(axis.get_xticklabels()) >= 4


def test_many_candidates_stand_in_rows_with_the_axis_below_each_column(tables: Tables) -> None:
    few = tables[0].head(8)
    figure = laid_out(comparison.draw(pd.concat([few.assign(candidate=name) for name in "abcde"])))
    places = [axis.get_position() for axis in figure.axes[:5]]
    assert len({round(place.x0, 3) for place in places}) == 2 and len({round(place.y0, 3) for place in places}) == 3
    labelled = [axis.get_xlabel() != "" and axis.get_xticklabels()[0].get_visible() for axis in figure.axes]
    assert [axis.get_title(loc="left") for axis in figure.axes[:2]] == ["a against plain", "b against plain"]
    assert labelled == [False, False, False, True, True, False] and all(apart(axis) for axis in figure.axes[:5])


def test_a_waterfall_leads_from_one_time_to_the_other(tables: Tables) -> None:
    table, seen = tables
    for row in table.to_dict("records")[::3]:
        mine = seen[(seen["model"] == row["model"]) & (seen["phase"] == row["phase"])]
        found = waterfall.sum_changes(mine)
        moved = mine.loc[mine["level"] == contributions.PART_LEVEL, "delta_ns"]
        assert found.sum() == pytest.approx(moved.sum(), abs=max(0.002 * moved.abs().sum(), 1))
        assert len(found) <= waterfall.MOST_STEPS + 1 and found.index.is_unique
        assert moved.sum() == pytest.approx(row["candidate_ns"] - row["baseline_ns"], rel=0.02, abs=1)


def test_slower_and_faster_cells_are_shown_and_nothing_covers_anything(tables: Tables) -> None:
    figure = laid_out(waterfall.draw(tables[0].replace({"verdict": {"different": "faster"}}), tables[1]))
    left, right = figure.axes[::2], figure.axes[1::2]
    titles = [axis.get_title(loc="left") for axis in left]
    assert len(left) == waterfall.MOST_CELLS
    assert [title.rpartition(" ")[2] for title in titles] == ["slower"] * 3 + ["faster"] * 3
    assert all(apart(axis) for axis in [*left, *right])
    # The changes of a slower cell go to the right, those of the others to the left.
    assert left[0].patches[2].get_width() > 0 > left[-1].patches[2].get_width()


def test_a_kernel_that_appeared_is_said_to(tables: Tables) -> None:
    table, seen = tables
    few = table[table["verdict"] == "faster"].head(2)
    appeared = seen["change"].where(seen["level"] != contributions.KERNEL_LEVEL, contributions.APPEARED)
    renamed = seen.assign(change=appeared)
    figure = waterfall.draw(few, renamed)
    assert len(figure.axes) == 4
    assert all(text.get_text().endswith("(appeared)") for text in figure.axes[1].texts)
    nothing = table.iloc[:0]
    undecided = waterfall.draw(table.assign(verdict="undecided"), seen)
    for figure in (comparison.draw(nothing), waterfall.draw(nothing, seen), undecided):
        assert figure.axes[0].texts[0].get_text().startswith("No cell was ")
