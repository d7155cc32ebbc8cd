"""The figures of layers: boxes that add up, names that fit, and layers whose work is known."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from profzoo.figures import layers, needed_work
from profzoo.tables import layers as layer_tables


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """Layers of 12 cells: two stages of three blocks, each a convolution and what follows it."""
    frames = []
    for cell in range(12):
        called = pd.DataFrame(
            [
                {"operator": "aten::conv", "shapes": "", "caller": "", "type": "", "module": f"stage{stage}.{block}.{name}",
                 "direction": direction, "launches": 2.0, "total_ns": size * (1 + stage) * (1 + cell),
                 "needed_flop": 1e9, "needed_bytes": 1e6, "needed_ns": size * (1 + stage) * (1 + cell)}
                for direction in ("forward", "backward") for stage in range(2) for block in range(3)
                for name, size in (("conv", 3e5), ("bn", 1e5), ("act", 4e2))
            ]
        )  # fmt: skip
        other = called.iloc[[0]].assign(module="(optimizer)", direction="optimizer", needed_flop=np.nan)
        modules = pd.DataFrame({"module": called["module"].unique(), "type": "", "inputs": "", "calls": 1})
        types = {"conv": "Conv2d", "bn": "BatchNorm2d", "act": ""}
        modules["type"] = modules["module"].str.rpartition(".")[2].map(types)
        every = pd.concat([called, other], ignore_index=True)
        tree = layer_tables.layers(every, modules, 1, layer_tables.Joined(pd.DataFrame(), 1), {})
        leaf = tree["type"] == "Conv2d"
        counts = {"bound": np.where(leaf, "tensor", "dram"), "counted_share": 1.0, "simt_flop": 0.0, "tensor_flop": 2e9}
        frames.append(tree.assign(model=f"model{cell}", phase="train", **counts))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture(autouse=True)
def closed() -> None:
    plt.close("all")


def boxes(axis: Axes) -> pd.DataFrame:
    """Place, width and row of each box."""
    found = [patch for patch in axis.patches if isinstance(patch, Rectangle)]
    return pd.DataFrame([{"x": one.get_x(), "width": one.get_width(), "row": one.get_y()} for one in found])


def test_layers_are_as_wide_as_their_time(table: pd.DataFrame) -> None:
    figure = layers.draw(table)
    assert len(figure.axes) == layers.CELLS
    # Those that take longest, in the order of the zoo.
    assert [axis.get_title(loc="left").split(" ")[0] for axis in figure.axes] == [f"model{n}" for n in range(2, 12)]
    for axis in figure.axes:
        found = boxes(axis)
        widths = found.groupby("row")["width"].sum()
        # The optimizer is a part of the step that holds nothing.
        assert widths[0.0] == pytest.approx(1) and 0.8 < widths[1.0] < 1
        assert widths[1.0] == pytest.approx(widths[2.0]) == pytest.approx(widths[3.0])
        for _, row in found.groupby("row"):
            ends = (row["x"] + row["width"]).to_numpy()
            assert (row["x"].to_numpy()[1:] >= ends[:-1] - 1e-9).all()


def test_names_are_within_their_boxes(table: pd.DataFrame) -> None:
    figure = layers.draw(table[table["model"] == "model3"])
    figure.tight_layout()
    figure.canvas.draw()
    (axis,) = figure.axes
    names = [text for text in axis.texts if text.get_text()]
    said = {text.get_text() for text in names}
    # A layer with a number is named with the word before it.
    assert said >= {"forward", "backward", "stage0", "conv", "stage1.2"} and not any(name.isdecimal() for name in said)
    drawn = [patch.get_window_extent() for patch in axis.patches if isinstance(patch, Rectangle)]
    for text in names:
        extent = text.get_window_extent()
        assert any(box.x0 - 1 <= extent.x0 and extent.x1 <= box.x1 + 1 for box in drawn), text.get_text()


def test_without_counters_colours_are_types_of_layers(table: pd.DataFrame) -> None:
    """Both types with time of their own have a colour each, which the legend names; what contains them is pale."""
    figure = layers.draw(table[table["model"] == "model3"].assign(bound=""))
    (legend,) = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["Conv2d", "BatchNorm2d", layers.OTHER_TYPES, layers.OF_LAYERS]
    meant = {name: patch.get_facecolor() for name, patch in zip(named, legend.get_patches(), strict=True)}
    assert len(set(meant.values())) == 4
    patches = figure.axes[0].patches
    shown = {one.get_gid().removeprefix("told:").partition(":")[0]: one.get_facecolor() for one in patches}
    assert shown["stage0.1.conv Conv2d"] == meant["Conv2d"] and shown["stage0.1.bn BatchNorm2d"] == meant["BatchNorm2d"]
    assert shown["stage0"] == meant[layers.OF_LAYERS] and shown["stage0.1.act"] == meant[layers.OTHER_TYPES]
    # Without known types no legend says what colours mean.
    assert layers.draw(table[table["model"] == "model3"].assign(bound="", type="")).legends == []
    assert "collect with tool torch" in layers.draw(table[:0]).axes[0].texts[0].get_text()


def test_work_is_drawn_where_it_is_counted_and_known(table: pd.DataFrame) -> None:
    axis = needed_work.draw(table).axes[0]
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["Conv2d", "BatchNorm2d"]
    points = np.concatenate([collection.get_offsets() for collection in axis.collections])
    assert len(points) == 12 * 2 * 6 * 2 and np.allclose(points[:, 0], 2)
    unknown = table.assign(needed_share=0.5)
    assert "set ncu.set to roofline" in needed_work.draw(unknown).axes[0].texts[0].get_text()
