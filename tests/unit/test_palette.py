"""One palette, one meaning a colour; and what figures' SVGs are to readers: text that is found, titles, a dark page."""

import itertools
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from profzoo.figures import palette, plots, step_time, steps
from profzoo.kernels import kernel_classes
from profzoo.report import page
from tests.conftest import DATA

PLAIN = re.compile(r"#[0-9a-f]{6}")


def lightness_and_hue(colour: str) -> np.ndarray:
    """The colour in CIE Lab, in which distances are about what is seen (D65; Wyszecki and Stiles 1982)."""
    linear = np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)])
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    x, y, z = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in xyz / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_a_colour_means_one_thing() -> None:
    meanings: dict[str, set[str]] = {}
    for group in palette.GROUPS:
        for name, colour in group.items():
            meanings.setdefault(colour, set()).add(name)
    assert {colour: names for colour, names in meanings.items() if len(names) > 1} == {}
    assert set(palette.CLASS_COLOURS) == set(kernel_classes.read_rules_file()["classes"])


@pytest.mark.parametrize("group", palette.GROUPS, ids=["phase", "class", "step", "part", "bound", "memory"])
def test_colours_of_a_group_are_told_apart(group: dict[str, str]) -> None:
    seen = {name: lightness_and_hue(colour) for name, colour in group.items()}
    pairs = itertools.combinations(seen, 2)
    assert [pair for pair in pairs if np.linalg.norm(seen[pair[0]] - seen[pair[1]]) < 11] == []
    # And seen on a dark page.
    dark = lightness_and_hue("#14181c")
    assert [name for name, colour in seen.items() if np.linalg.norm(colour - dark) < 15] == []


def test_no_figure_has_a_colour_of_its_own() -> None:
    # Greys of lines and text are no meaning.
    greys = {"#444444", "#666666", "#333333", "#cccccc", "#777777", "#999999", "#555555", "#6b6b6b", "#262626"}
    greys |= {"#dddddd", "#eeeeee", "#f6f6f6"}
    for path in Path(palette.__file__).parent.glob("*.py"):
        if path.stem != "palette":
            assert set(PLAIN.findall(path.read_text())) <= greys, path.name


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("drawn")
    table = pd.read_csv(DATA / "zoo/steps.csv").query("model in ('pixelrnn', 'lstm', 'unet')").reset_index(drop=True)
    cells = table.assign(items_per_s=8e9 / table["step_ns"])
    found = {}
    for name, figure in {"steps": steps.draw(table), "step_time": step_time.draw(cells)}.items():
        plots.save_figure(figure, [str(home / f"{name}.svg")], "a GPU")
        found[name] = (home / f"{name}.svg").read_text()
    plt.close("all")
    return found


def test_text_of_a_figure_is_text_and_marks_have_titles(drawn: dict[str, str]) -> None:
    assert "pixelrnn · train</text>" in drawn["steps"]
    assert "<title>pixelrnn · train: idle: host 45" in drawn["steps"]
    assert re.search(r"<title>lstm train: [\d.,]+</title>", drawn["step_time"])
    assert "told:" not in drawn["steps"] and "DejaVu Sans', Verdana, sans-serif" in drawn["steps"]


def test_a_logarithmic_axis_carries_dots_the_longest_step_first() -> None:
    table = pd.read_csv(DATA / "zoo/steps.csv")
    figure = step_time.draw(table.assign(items_per_s=8e9 / table["step_ns"]))
    for axis in figure.axes:
        assert axis.get_xscale() == "log" and not axis.patches and len(axis.collections) == 42
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    longest = table.groupby("model")["step_ns"].max().sort_values(ascending=False)
    assert labels == longest.index.tolist()
    plt.close("all")


def test_a_figure_in_a_page_follows_its_theme(drawn: dict[str, str]) -> None:
    svg = page.inline_figure(drawn["steps"], "steps", 'where "it" goes')
    assert svg.startswith('<svg role="img" aria-label="where &quot;it&quot; goes"')
    assert "var(--ink)" in svg and "var(--paper)" in svg and "<metadata>" not in svg
    # Marks keep what their colour means.
    for colour in ("kernels", "idle: host", "idle: launch"):
        assert palette.STEP_COLOURS[colour] in svg
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert ids and all(one.startswith("steps-") for one in ids)
    for link in re.findall(r'(?:href="#|url\(#)([^")]+)', svg):
        assert link in ids
