"""The figures of the zoo, drawn of real tables of 42 cells: whole, legible, and just as well of a single cell."""

import itertools
from collections.abc import Callable, Iterator

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.conftest import DATA
from workflow.scripts import figure_classes, figure_launches, figure_similarity, figure_steps
from workflow.scripts.lib import kernel_classes, plots

FIGURES = {
    "classes": (figure_classes.draw, "kernels"),
    "similarity": (figure_similarity.draw, "kernels"),
    "steps": (figure_steps.draw, "steps"),
    "launches": (figure_launches.draw, "steps"),
}


@pytest.fixture(scope="module")
def tables(recording: Callable) -> dict[str, pd.DataFrame]:
    return {"kernels": pd.read_csv(recording("zoo/kernels.csv")), "steps": pd.read_csv(DATA / "zoo/steps.csv")}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


def drawn(tables: dict[str, pd.DataFrame], name: str) -> Figure:
    draw, table = FIGURES[name]
    figure = draw(tables[table])
    figure.tight_layout()
    figure.canvas.draw()
    return figure


@pytest.mark.parametrize("name", ["classes", "similarity", "steps"])
def test_names_of_42_cells_do_not_overlap(tables: dict[str, pd.DataFrame], name: str) -> None:
    figure = drawn(tables, name)
    axis = max(figure.axes, key=lambda axis: len(axis.get_yticklabels()))
    boxes = [label.get_window_extent() for label in axis.get_yticklabels() if label.get_text()]
    assert len(boxes) == (21 if name == "classes" else 42)
    boxes.sort(key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 0.5 for lower, upper in itertools.pairwise(boxes))


def test_names_of_points_cover_neither_each_other_nor_points(tables: dict[str, pd.DataFrame]) -> None:
    figure = drawn(tables, "launches")
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) >= 10
    assert not any(one.overlaps(other) for index, one in enumerate(boxes) for other in boxes[index + 1 :])


@pytest.mark.parametrize("name", FIGURES)
def test_a_single_cell_is_drawn_too(tables: dict[str, pd.DataFrame], name: str) -> None:
    cell = {key: table[(table["model"] == "lstm") & (table["phase"] == "train")] for key, table in tables.items()}
    assert drawn({key: table.reset_index(drop=True) for key, table in cell.items()}, name).axes


def test_a_stack_ends_at_the_whole(tables: dict[str, pd.DataFrame]) -> None:
    axis = drawn(tables, "steps").axes[0]
    ends = pd.Series([patch.get_x() + patch.get_width() for patch in axis.patches])
    assert ends.max() == pytest.approx(100, abs=0.01)


def test_every_class_has_a_colour_of_its_own() -> None:
    classes = kernel_classes.content()["classes"]
    assert set(plots.CLASS_COLOURS) == set(classes)
    assert len(set(plots.CLASS_COLOURS.values())) == len(classes)
