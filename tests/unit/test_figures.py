"""The figures of the zoo, drawn of real tables of 42 cells: whole, legible, and just as well of a single cell."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from profzoo.figures import (
    classes,
    launches,
    occupancy,
    palette,
    plots,
    roofline,
    speed_of_light,
    step_time,
    steps,
    theme,
)
from profzoo.kernels import kernel_classes
from profzoo.tables import tabulate_roofline
from tests.conftest import DATA

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
        "roofline": tabulate_roofline.make_roofline(counted.assign(mangled=counted["function"]), PEAKS),
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
        plt.rcParams.update(theme.THEME)
        assert dict(plt.rcParams) == theirs
    # Undo single-letter colours too.
    seaborn.set_color_codes("reset")


@pytest.mark.parametrize("name", ["classes", "steps", "speed of light"])
def test_names_of_42_cells_do_not_overlap(tables: dict[str, pd.DataFrame], name: str) -> None:
    figure = drawn(tables, name)
    axis = max(figure.axes, key=lambda axis: len(axis.get_yticklabels()))
    boxes = [label.get_window_extent() for label in axis.get_yticklabels() if label.get_text()]
    assert len(boxes) == (21 if name == "classes" else 42)
    boxes.sort(key=lambda box: box.y0)
    assert all(lower.y1 <= upper.y0 + 0.5 for lower, upper in itertools.pairwise(boxes))


@pytest.mark.parametrize("name", ["steps", "speed of light"])
def test_a_long_name_of_a_cell_leaves_room_for_the_rest(tables: dict[str, pd.DataFrame], name: str) -> None:
    draw, table = FIGURES[name]
    rows = tables[table]
    long = "inception_resnet_v2@channels_last+max-autotune-no-cudagraphs"
    figure = draw(rows.assign(model=rows["model"].where(rows["model"] != "lstm", long)))
    figure.tight_layout()
    figure.canvas.draw()
    for axis in figure.axes:
        for text in (axis.xaxis.label, axis.yaxis.label, *axis.get_yticklabels()):
            box = text.get_window_extent()
            assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, f"{text.get_text()} is cut off"


@pytest.mark.parametrize(("name", "least"), [("launches", 10), ("roofline", 5)])
def test_names_of_points_do_not_cover_each_other(tables: dict[str, pd.DataFrame], name: str, least: int) -> None:
    figure = drawn(tables, name)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) >= least
    assert not any(one.overlaps(other) for index, one in enumerate(boxes) for other in boxes[index + 1 :])


@pytest.mark.parametrize("name", FIGURES)
def test_a_single_cell_is_drawn_too(tables: dict[str, pd.DataFrame], name: str) -> None:
    cell = {key: table[(table["model"] == "lstm") & (table["phase"] == "train")] for key, table in tables.items()}
    assert drawn({key: table.reset_index(drop=True) for key, table in cell.items()}, name).axes


@pytest.mark.parametrize("name", ["roofline", "speed of light", "occupancy"])
def test_a_figure_without_counters_says_what_to_collect(tables: dict[str, pd.DataFrame], name: str) -> None:
    draw, _ = FIGURES[name]
    bare = tables["kernels"].assign(mangled=tables["kernels"]["function"], dram_bytes=float("nan"))
    figure = draw(tabulate_roofline.make_roofline(bare, PEAKS) if name == "roofline" else bare)
    assert "ncu.set" in figure.axes[0].texts[0].get_text()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_nothing_says_so(tables: dict[str, pd.DataFrame], name: str) -> None:
    draw, table = FIGURES[name]
    assert draw(tables[table].iloc[:0]).axes[0].texts[0].get_text()


@pytest.mark.parametrize("phases", [["train"], ["train", "inference"]], ids=len)
def test_the_legend_of_all_classes_is_whole(phases: list[str], tmp_path: Path) -> None:
    rows = [{"model": "lstm", "phase": phase, "class": name, "total_ns": 1.0} for phase in phases
            for name in palette.CLASS_COLOURS]  # fmt: skip
    figure = classes.draw(pd.DataFrame(rows))
    plots.save_figure(figure, [str(tmp_path / "a.png")], "note")
    (legend,) = figure.legends
    (x0, y0), (x1, y1) = legend.get_window_extent().get_points()
    assert x0 >= 0 and x1 <= figure.bbox.width and y1 <= figure.bbox.height
    assert y0 >= max(axis.get_window_extent().y1 for axis in figure.axes)


def test_a_cpu_launches_no_kernels(tables: dict[str, pd.DataFrame]) -> None:
    figure = launches.draw(tables["steps"].assign(launches=0.0))
    assert "No kernel" in figure.axes[0].texts[0].get_text()


@pytest.mark.parametrize("longest", [3.0, 18.7, 90.0, 4000.0])
def test_numbers_of_the_axes_of_step_times_do_not_overlap(longest: float) -> None:
    cells = pd.DataFrame({"model": ["unet", "lstm"], "phase": "train", "step_ns": [longest * 1e6, 3.05e6],
                          "items_per_s": [8e3 / longest, 3274.0]})  # fmt: skip
    figure = step_time.draw(cells)
    figure.tight_layout()
    figure.canvas.draw()
    for axis in figure.axes:
        shown = [one for one in axis.get_xticklabels(which="both") if one.get_text() and one.get_visible()]
        low, high = axis.get_window_extent().x0, axis.get_window_extent().x1
        boxes = [one.get_window_extent() for one in shown]
        inside = [box for box in boxes if low <= (box.x0 + box.x1) / 2 <= high]
        assert len(inside) >= 1
        assert not any(one.overlaps(other) for one, other in itertools.combinations(inside, 2))


@pytest.mark.parametrize("name", ["launches", "speed of light"])
def test_two_cells_have_whole_points_and_upright_names(tables: dict[str, pd.DataFrame], name: str) -> None:
    draw, table = FIGURES[name]
    rows = tables[table]
    figure = draw(rows[rows["model"].isin(["mobilenetv2", "lstm"]) & rows["phase"].eq("train")])
    plots.save_figure(figure, [], "")
    axis = figure.axes[0]
    assert {label.get_rotation() for label in axis.get_yticklabels()} == {0.0}
    for points in axis.collections if name == "launches" else []:
        for x, y in points.get_offsets():
            (low, high), (left, right) = axis.get_ylim(), axis.get_xlim()
            assert low < y < high - 0.01 * (high - low) and left < x < right
    assert name != "launches" or [text.get_text() for text in axis.get_legend().get_texts()] == ["train"]


def test_a_label_says_how_much_of_the_time_was_counted(tables: dict[str, pd.DataFrame]) -> None:
    rows = tables["counted"].query("model == 'lstm' and phase == 'train'").reset_index(drop=True)
    most = rows["total_ns"].idxmax()
    metrics = [name for name in speed_of_light.METRICS if name in rows]
    some = rows.assign(**{name: rows[name].where(rows.index == most) for name in metrics})
    share = rows["total_ns"][most] / rows["total_ns"].sum()
    for table, ending in ((rows, ""), (some, f" ({share * 100:.0f} % counted)")):
        (label,) = speed_of_light.draw(table).axes[0].get_yticklabels()
        assert label.get_text() == f"lstm · train{ending}"


def test_a_wide_legend_is_whole_beside_long_names() -> None:
    parts = dict.fromkeys([f"part with a name {number}" for number in range(9)], "#aaaaaa")
    figure, axis = plt.subplots(figsize=(10, 3))
    rows = pd.DataFrame(100 / 9, index=["mobilenetv2 · train · normalisation (24 % counted)"], columns=list(parts))
    plots.draw_stacked_bars(axis, rows, parts, [""])
    plots.save_figure(figure, [], "")
    box = axis.get_legend().get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1


def test_weighted_means_weigh_by_time() -> None:
    table = pd.DataFrame({"cell": list("aab"), "x": [0.0, 100.0, None], "total_ns": [1.0, 3.0, 5.0]})
    assert plots.weighted_means(table, "x", "cell").to_dict() == {"a": 75.0}


def test_a_stack_ends_at_the_whole(tables: dict[str, pd.DataFrame]) -> None:
    axis = drawn(tables, "steps").axes[0]
    ends = pd.Series([patch.get_x() + patch.get_width() for patch in axis.patches])
    assert ends.max() == pytest.approx(100, abs=0.01)


def test_every_class_has_a_colour_of_its_own() -> None:
    classes = kernel_classes.read_rules_file()["classes"]
    assert set(palette.CLASS_COLOURS) == set(classes)
    assert len(set(palette.CLASS_COLOURS.values())) == len(classes)


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


@pytest.mark.parametrize("ends", [(8.02, 14.1), (93.0, 111.0), (1.0, 1.01), (4530.0, 7984.0), (3.0, 40.0), (1.0, 5e4)])
def test_a_logarithmic_axis_has_two_to_eight_numbers(ends: tuple[float, float]) -> None:
    figure, axis = plt.subplots()
    axis.scatter(ends, (0, 1))
    axis.margins(x=0.15)
    plots.set_logarithmic_x(axis, pd.Series(ends))
    figure.canvas.draw()
    low, high = axis.get_xlim()
    told = [label.get_text() for label in axis.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert 2 <= len({word for word in told if word}) <= 8, told
    plt.close(figure)
