"""The figures of memory chart, pipes, warp states, occupancy and samples over time: whole and legible at any size."""

import functools
import itertools
from collections.abc import Callable, Iterator

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from profzoo.compare.counter_quantities import COMPARED
from profzoo.figures import counter_changes, kernel_timeline, memory_chart, occupancy_limits, pipes, plots, warp_states
from profzoo.tools.ncu.instances import TIME
from profzoo.tools.ncu.quantities import LINKS, PIPE_NAMES, STATES
from tests import slow

CLASSES = ["convolution", "normalisation", "elementwise"]
# As of two variants joined, in a run with a budget.
LONG = "inception_resnet_v2@channels_last+max-autotune-no-cudagraphs"
KERNEL = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel"
    "__5x_cublas"
)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


def groups(models: int, *, long: bool) -> pd.DataFrame:
    """Rows of cells and their classes, of which 29 % were counted."""
    names = [LONG if long and place == 1 else f"model{place}" for place in range(models)]
    rows = [
        {"model": model, "phase": phase, "level": "class" if kind else "cell", "class": kind, "launches": 9.0,
         "total_ns": 1e6 / 3 if kind else 1e6, "counted_share": 0.29}
        for model in names for phase in ("train", "inference") for kind in ("", *CLASSES)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def crossed(rows: pd.DataFrame, name: str, values: list[str], **more: object) -> pd.DataFrame:
    return rows.merge(pd.DataFrame({name: values}), how="cross").assign(**more)


def draw_memory(rows: pd.DataFrame) -> Figure:
    links = [name for name, link in LINKS.items() if not link.total]
    return memory_chart.draw(crossed(rows, "link", links, bytes=123.4e9, peak_pct=99.9, hit_pct=99.9))


def draw_pipes(rows: pd.DataFrame) -> Figure:
    return pipes.draw(crossed(rows, "pipe", list(PIPE_NAMES), busy_pct=100.0))


def draw_states(rows: pd.DataFrame) -> Figure:
    return warp_states.draw(crossed(rows, "state", list(STATES), cycles=123.4, share=1 / len(STATES)))


def draw_limits(rows: pd.DataFrame) -> Figure:
    known = ["", "registers", "shared memory", "warps", "blocks", "barriers", "registers + shared memory"]
    table = crossed(rows[rows["level"] == "cell"], "limiter", known, theoretical_pct=100.0)
    return occupancy_limits.draw(table.assign(registers_next_pct=100.0, shared_next_pct=None, threads_best_pct=None))


@functools.cache
def drawn(draw: Callable[[pd.DataFrame], Figure], models: int, *, long: bool) -> Figure:
    return finished(draw(groups(models, long=long)))


# Models with their phases, and classes where there are any, so that columns have their names on top too.
MANY = {draw_memory: 8, draw_pipes: 2, draw_states: 2, draw_limits: 8}
DRAWN = pytest.mark.parametrize("draw", MANY)


def finished(figure: Figure) -> Figure:
    plots.save_figure(figure, [], "NVIDIA H200; measured 2026-11-26; profzoo")
    # As it is written: the widths of letters are rounded to pixels, so that names are wider at some resolutions.
    figure.set_dpi(plots.DPI)
    FigureCanvasAgg(figure).draw()
    return figure


def shown_texts(figure: Figure) -> list[Text]:
    """The texts that are drawn: ticks beyond the ends of an axis are not."""
    beyond = set()
    for one in itertools.chain.from_iterable((axis.xaxis, axis.yaxis) for axis in figure.axes):
        low, high = sorted(one.get_view_interval())
        ticks = [tick for tick in one.get_major_ticks() if not low <= tick.get_loc() <= high]
        beyond |= {label for tick in ticks for label in (tick.label1, tick.label2)}
    known = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return [text for text in known if text not in beyond]


def assert_whole(figure: Figure) -> None:
    for text in shown_texts(figure):
        box = text.get_window_extent()
        inside = box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1
        assert inside, f"{text.get_text()!r} is cut off"


@DRAWN
@pytest.mark.parametrize("many", slow.first([True, False]))
def test_every_text_is_whole(draw: Callable[[pd.DataFrame], Figure], many: bool) -> None:
    assert_whole(drawn(draw, MANY[draw] if many else 1, long=many))


@DRAWN
def test_names_of_columns_do_not_run_into_each_other(draw: Callable[[pd.DataFrame], Figure]) -> None:
    axis = drawn(draw, MANY[draw], long=True).axes[0]
    boxes = [tick.label1.get_window_extent() for tick in axis.xaxis.get_major_ticks()]
    assert len(boxes) > 5 and all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))
    on_top = [tick.label2.get_visible() for tick in axis.xaxis.get_major_ticks()]
    if draw in (draw_memory, draw_pipes):
        few = draw(groups(1, long=False)).axes[0].xaxis.get_major_ticks()
        assert any(on_top) and not any(tick.label2.get_visible() for tick in few)
        # The numbers in the fields stay within their fields.
        field = (axis.get_window_extent().x1 - axis.get_window_extent().x0) / len(boxes)
        assert max(text.get_window_extent().width for text in axis.texts) < field


@pytest.mark.parametrize("draw", [draw_pipes, draw_states])
def test_classes_stand_below_their_cell_by_their_own_name(draw: Callable[[pd.DataFrame], Figure]) -> None:
    names = [label.get_text() for label in drawn(draw, 1, long=False).axes[0].get_yticklabels()]
    classes = [f"{kind} (29 % counted)" for kind in CLASSES]
    assert names == [
        "model0 · train (29 % counted)", *classes, "model0 · infer (29 % counted)", *classes]  # fmt: skip


def test_a_cell_says_what_changing_the_limiter_would_give() -> None:
    """Of two kernels that take equal times, one would go from 25 to 50 % with fewer registers, or 75 % in other blocks."""
    both = pd.DataFrame({"model": "lstm", "phase": "train", "total_ns": [1.0, 1.0], "limiter": ["registers", ""],
                         "theoretical_pct": [25.0, 100.0], "registers_next_pct": [50.0, None],
                         "shared_next_pct": None, "threads_best_pct": [75.0, None]})  # fmt: skip
    told = {text.get_text() for text in occupancy_limits.draw(both).axes[0].texts}
    assert "62 → 88 %" in told
    alone = occupancy_limits.draw(both[both["limiter"] == ""]).axes[0].texts
    assert "100 %" in {text.get_text() for text in alone}


def test_a_long_name_of_a_kernel_is_shortened_over_its_samples() -> None:
    samples = pd.DataFrame({"place": 1, "id": 0, "function": KERNEL, "mangled": KERNEL, "kind": TIME,
                            "metric": "pmsampling:sm__throughput.avg.pct_of_peak_sustained_elapsed",
                            "time_ns": range(0, 20_000, 1000), "value": 50.0})  # fmt: skip
    figure = finished(kernel_timeline.draw(samples, pd.Series({0: 20_000.0})))
    assert_whole(figure)
    assert figure.axes[0].get_title(loc="left").startswith("1. ")


def test_changes_of_counters_have_room_beside_long_names() -> None:
    cells = pd.DataFrame({"model": ["unet", LONG], "phase": "train", "candidate": "bf16", "level": "cell"})
    rows = crossed(cells, "quantity", list(COMPARED), baseline_value=1.0, delta=12.345, outcome="changed")
    figure = finished(counter_changes.draw(cells, rows.assign(unit=[COMPARED[name].unit for name in rows["quantity"]])))
    assert_whole(figure)
    assert figure.axes[0].get_window_extent().width > len(COMPARED) * plots.DPI
