"""The figures of the zoo, drawn of real tables of 42 cells: whole, legible, and just as well of a single cell."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from PIL import Image

from profzoo.figures import (
    all_figures,
    classes,
    drawing,
    launches,
    occupancy,
    overhead,
    palette,
    plots,
    roofline,
    speed_of_light,
    step_time,
    steps,
)
from profzoo.tables import across_cells
from tests import slow, whole_zoo
from tests.conftest import DATA
from tests.unit import test_figures_of_counters

PEAKS = {"dram": 4e12, "l2": 9e12, "fp32": 5e13, "tf32": 4e14, "bf16": 8e14}
FIGURES = {
    "roofline": (
        lambda table: roofline.draw(table, pd.Series(PEAKS, name="rate").rename_axis("peak").reset_index()),
        "roofline",
    ),
    "speed of light": (speed_of_light.draw, "counted"),
    "occupancy": (occupancy.draw, "counted"),
    "classes": (classes.draw, "kernels"),
    "steps": (steps.draw, "steps"),
    "launches": (launches.draw, "steps"),
}


@pytest.fixture(scope="module")
def tables(recording: Callable) -> dict[str, pd.DataFrame]:
    kernels = pd.read_csv(recording("zoo/kernels.csv"))
    counted = with_counters(kernels)
    return {
        "kernels": kernels,
        "counted": counted,
        "roofline": across_cells.make_roofline(counted.assign(mangled=counted["function"]), PEAKS),
        "steps": pd.read_csv(DATA / "zoo/steps.csv"),
    }


def with_counters(kernels: pd.DataFrame) -> pd.DataFrame:
    """The table with counters that were not measured: they follow from the grid, so that points lie apart."""
    spread = (kernels["grid_x"] % 97 + 3) / 100
    counted = kernels.assign(dram_bytes=kernels["mean_ns"] * 2000 * spread, tensor_bf16_flop=0.0)
    counted["fp32_flop"] = counted["dram_bytes"] * 20 * spread
    for name in ("sm_pct", "memory_pct", "dram_pct", "l2_hit_pct", "occupancy_limit_pct"):
        counted[name] = 100 * spread
    return counted.assign(occupancy_pct=50 * spread)


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


def test_the_theme_is_that_of_seaborn() -> None:
    with plt.rc_context():
        plt.rcdefaults()
        seaborn.set_theme(context="paper", style="whitegrid", font_scale=1.1)
        # Figures with a colour map name it.
        theirs = {**plt.rcParams, "image.cmap": "viridis"}
        plt.rcdefaults()
        plt.rcParams.update(plots.THEME)
        assert dict(plt.rcParams) == theirs
    # Undo single-letter colours too.
    seaborn.set_color_codes("reset")


@pytest.mark.parametrize("name", slow.first(["speed of light", "classes", "steps"]))
def test_names_of_42_cells_do_not_overlap(tables: dict[str, pd.DataFrame], name: str) -> None:
    figure = drawn(tables, name)
    axis = max(figure.axes, key=lambda axis: len(axis.get_yticklabels()))
    boxes = [label.get_window_extent() for label in axis.get_yticklabels() if label.get_text()]
    assert len(boxes) == (21 if name == "classes" else 42)
    boxes.sort(key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 0.5 for lower, upper in itertools.pairwise(boxes))


@pytest.mark.parametrize(("name", "least"), [("launches", 10), ("roofline", 5)])
def test_names_of_points_do_not_cover_each_other(tables: dict[str, pd.DataFrame], name: str, least: int) -> None:
    figure = drawn(tables, name)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) >= least
    assert not any(one.overlaps(other) for index, one in enumerate(boxes) for other in boxes[index + 1 :])


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_nothing_says_so(tables: dict[str, pd.DataFrame], name: str) -> None:
    draw, table = FIGURES[name]
    assert draw(tables[table].iloc[:0]).axes[0].texts[0].get_text()
    if table in ("roofline", "counted"):
        few = tables["kernels"].head(50)
        bare = few.assign(mangled=few["function"], dram_bytes=float("nan"))
        without = draw(across_cells.make_roofline(bare, PEAKS) if name == "roofline" else bare)
        assert "ncu.set" in without.axes[0].texts[0].get_text()
    # One of a single cell is drawn.
    one = tables[table].query("model == 'lstm' and phase == 'train'").reset_index(drop=True)
    assert draw(one).axes


def test_panels_without_data_are_not_drawn(tables: dict[str, pd.DataFrame]) -> None:
    """An imported report has times and no throughput; a CPU launches no kernels."""
    cells = pd.DataFrame({"model": ["run7"], "phase": "imported", "step_ns": [2.79e7], "items_per_s": [float("nan")]})
    assert [axis.get_title(loc="left") for axis in step_time.draw(cells).axes] == ["Time per step (ms)"]
    both = step_time.draw(cells.assign(items_per_s=300.0))
    assert [axis.get_title(loc="left") for axis in both.axes] == ["Time per step (ms)", "Throughput (samples/s)"]
    assert "No time" in step_time.draw(cells.assign(step_ns=float("nan"))).axes[0].texts[0].get_text()
    none = launches.draw(tables["steps"].assign(launches=0.0))
    assert "No kernel" in none.axes[0].texts[0].get_text()
    rows = pd.DataFrame({"cell": list("aab"), "x": [0.0, 100.0, None], "total_ns": [1.0, 3.0, 5.0]})
    assert plots.weighted_means(rows, "x", "cell").to_dict() == {"a": 75.0}


@pytest.mark.parametrize("phases", slow.first([["train", "inference"], ["train"]]))
def test_the_legend_of_all_classes_is_whole(phases: list[str], tmp_path: Path) -> None:
    rows = [{"model": "lstm", "phase": phase, "class": name, "total_ns": 1.0} for phase in phases
            for name in palette.CLASS_COLOURS]  # fmt: skip
    figure = classes.draw(pd.DataFrame(rows))
    plots.save_figure(figure, [str(tmp_path / "a.png")], "note")
    (legend,) = figure.legends
    (x0, y0), (x1, y1) = legend.get_window_extent().get_points()
    assert x0 >= 0 and x1 <= figure.bbox.width and y1 <= figure.bbox.height
    assert y0 >= max(axis.get_window_extent().y1 for axis in figure.axes)


def test_two_cells_have_whole_points(tables: dict[str, pd.DataFrame]) -> None:
    rows = tables["steps"]
    figure = launches.draw(rows[rows["model"].isin(["mobilenetv2", "lstm"]) & rows["phase"].eq("train")])
    plots.save_figure(figure, [], "")
    axis = figure.axes[0]
    (low, high), (left, right) = axis.get_ylim(), axis.get_xlim()
    points = [point for found in axis.collections for point in found.get_offsets()]
    assert points and all(low < y < high - 0.01 * (high - low) and left < x < right for x, y in points)
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["train"]


def test_a_label_says_how_much_of_the_time_was_counted(tables: dict[str, pd.DataFrame]) -> None:
    rows = tables["counted"].query("model == 'lstm' and phase == 'train'").reset_index(drop=True)
    most = rows["total_ns"].idxmax()
    metrics = [name for name in speed_of_light.METRICS if name in rows]
    some = rows.assign(**{name: rows[name].where(rows.index == most) for name in metrics})
    share = rows["total_ns"][most] / rows["total_ns"].sum()
    for table, ending in ((rows, ""), (some, f" ({share * 100:.0f} % counted)")):
        (label,) = speed_of_light.draw(table).axes[0].get_yticklabels()
        assert label.get_text() == f"lstm · train{ending}" and label.get_rotation() == 0


def test_a_stack_ends_at_the_whole(tables: dict[str, pd.DataFrame]) -> None:
    axis = steps.draw(tables["steps"]).axes[0]
    ends = pd.Series([patch.get_x() + patch.get_width() for patch in axis.patches])
    assert ends.max() == pytest.approx(100, abs=0.01)


def test_the_roofline_shows_what_estimates_leave_open() -> None:
    rates = pd.DataFrame({"peak": ["dram", "fp32"], "rate": [1e12, 2e13]})
    cells = pd.DataFrame({"level": "cell", "model": ["a", "b"], "phase": "train", "efficiency": [0.1, 0.2]})
    cells = cells.assign(intensity=[10.0, 20.0], flop_per_s=[1e12, 2e12])
    bare = roofline.draw(cells, rates)
    assert not bare.axes[0].containers
    wide = {"intensity_low": [8.0, None], "intensity_high": [13.0, None], "flop_per_s_low": [9e11, None]}
    figure = roofline.draw(cells.assign(**wide, flop_per_s_high=[1.2e12, None]), rates)
    across, along = figure.axes[0].containers[0].lines[2]
    assert across.get_segments()[0].tolist() == [[8.0, 1.0], [13.0, 1.0]]
    assert along.get_segments()[0] == pytest.approx(np.array([[10.0, 0.9], [10.0, 1.2]]))
    # A point.
    assert across.get_segments()[1].tolist() == [[20.0, 2.0], [20.0, 2.0]]
    # No name is struck through by what is left open.
    drawn_at = figure.axes[0].transData.transform([[8.0, 1.0], [13.0, 1.0], [10.0, 0.9], [10.0, 1.2]])
    named = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(named) == 2
    for (x0, y0), (x1, y1) in (drawn_at[:2], drawn_at[2:]):
        assert not any(box.overlaps(Bbox.from_extents(x0, y0 - 0.5, x1 + 0.5, y1)) for box in named)
    # None by a roof either, where cells reach it.
    (axis,) = roofline.draw(cells.assign(intensity=[30.0, 60.0], flop_per_s=2e13), rates).axes
    (_, roof), named = axis.transData.transform((30.0, 20.0)), [text.get_window_extent() for text in axis.texts]
    assert len(named) == 2 and not any(box.y0 <= roof <= box.y1 for box in named)


@pytest.mark.parametrize(("least", "most"), slow.first([(1.0, 1.01), (93.0, 111.0), (90.0, 2e6), (8.02, 14.1), (4530.0, 7984.0),
                                             (3.0, 40.0), (1.0, 200.0), (1.0, 5e4)], 3))  # fmt: skip
def test_a_logarithmic_axis_has_two_to_eight_numbers(least: float, most: float) -> None:
    figure, axis = plt.subplots()
    axis.scatter((least, most), (0, 1))
    axis.margins(x=0.15)
    plots.set_logarithmic(axis.xaxis, pd.Series((least, most)))
    figure.canvas.draw()
    low, high = axis.get_xlim()
    told = [label.get_text() for label in axis.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert 2 <= len({word for word in told if word}) <= 8, told
    assert all(float(word.replace(",", "")) > 0 for word in told if word) and not any("e" in word for word in told)


def test_a_figure_is_written_as_svg_png_of_any_resolution_and_pdf_with_fonts(tmp_path: Path) -> None:
    """Width and height of the PNG are those in inches times the dots per inch; a second PDF is the same to the byte."""
    for folder, dpi in (("a", 100), ("b", 250), ("c", 250)):
        (tmp_path / folder).mkdir()
        figure = plots.draw_nothing("no kernels")
        plots.save_figure(figure, [str(tmp_path / folder / f"f.{kind}") for kind in ("svg", "png", "pdf")], "note", dpi)
        with Image.open(tmp_path / folder / "f.png") as picture:
            assert picture.size == tuple(round(inches * dpi) for inches in figure.get_size_inches())
    assert (tmp_path / "b/f.pdf").read_bytes() == (tmp_path / "c/f.pdf").read_bytes()
    assert b"/FontFile2" in (tmp_path / "b/f.pdf").read_bytes() and b"/Type3" not in (tmp_path / "b/f.pdf").read_bytes()


SLOWDOWNS = {
    "few": ([1.9, 1.2, 0.97], (0.9, 2.0)),
    "far": ([30.0, 1.1, 1.0], (0.8, 40.0)),
    "one": ([1.0] * 3, (0.9, 1.6)),
}


@pytest.mark.parametrize("case", SLOWDOWNS)
def test_the_axis_of_overheads_holds_the_values_and_little_more(case: str) -> None:
    values, (least, most) = SLOWDOWNS[case]
    rows = pd.DataFrame(
        {"model": ["a", "b", "c"], "phase": "train", "nsys_slowdown": values[::-1], "torch_slowdown": None}
    )
    axis = overhead.draw(rows).axes[0]
    low, high = axis.get_xlim()
    assert least < low <= min(values) and max(values) <= high < most
    assert [text.get_text() for text in axis.texts] == [f"nsys {value:.2f}×" for value in sorted(values)[::-1]]
    bare = overhead.draw(rows.assign(nsys_slowdown=float("nan")))
    assert bare.axes[0].texts[0].get_text() == overhead.NOTHING


@pytest.fixture(scope="module")
def drawable() -> dict[str, list[pd.DataFrame]]:
    given = whole_zoo.tables()
    return {name: [given[table] for table in figure.inputs] for name, figure in all_figures().items()
            if not figure.compares and set(figure.inputs) <= set(given)}  # fmt: skip


# The largest models of the zoo and the smallest ones.
MODELS = ["lstm", "inceptionresnetv2", "unet", "gpt", "mobilenetv2", "pixelrnn"]
DRAWN = ["latency", "overhead", "step_time", "steps", "classes", "launches", "roofline", "needed_work", "speed_of_light",
         "occupancy", "ranges", "layers", "top_kernels"]  # fmt: skip


@pytest.mark.parametrize(("models", "name"), slow.first([(count, name) for count in (3, 6, 0) for name in DRAWN], 2))
def test_texts_of_a_figure_lie_apart_and_inside(
    models: int, name: str, drawable: dict[str, list[pd.DataFrame]], tmp_path: Path
) -> None:
    rows = [table[table["model"].isin(MODELS[:models])].reset_index(drop=True) if models and "model" in table else table
            for table in drawable[name]]  # fmt: skip
    figure = drawing.draw_figure(name, rows, dict.fromkeys(all_figures()[name].options, 20))
    plots.save_figure(figure, [str(tmp_path / "f.png")], "NVIDIA H200; measured 2026-11-26; profzoo")
    figure.set_dpi(plots.DPI)
    FigureCanvasAgg(figure).draw()
    texts = test_figures_of_counters.shown_texts(figure)
    test_figures_of_counters.assert_whole(figure)
    boxes = [(text.get_text(), text.get_window_extent().shrunk(0.97, 0.8)) for text in texts]
    over = [(one, other) for (one, box), (other, beside) in itertools.combinations(boxes, 2) if box.overlaps(beside)]
    assert len(texts) > 5 and not over
