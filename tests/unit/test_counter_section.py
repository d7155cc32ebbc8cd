"""counter_section, memory_drawing and the figures of counters: what a page shows of a cell's counters, and what not."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from profzoo.figures import memory_chart, occupancy_limits, pipes, warp_states
from profzoo.report import counter_section, packed_blocks
from profzoo.tables import cell_counters
from profzoo.tools.ncu.quantities import CHARTS, LINKS, STATES
from tests import browser, devtools
from tests.unit.test_cell_counters import DRAM, FMA, FROM_L2, ISSUED, LATENCY, PEAK, STALLED, census, counted
from tests.unit.test_occupancy import launches
from tests.unit.test_page import rendered

CELL = ("unet", "train")
READ = DRAM.format("read")
FIGURES = {
    "memory_chart": memory_chart, "pipes": pipes, "warp_states": warp_states, "occupancy": occupancy_limits
}  # fmt: skip


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    """All tables of a cell: reads of 40 % of the peak, FMA busy at 50 %, and every warp state as long as the others."""
    metrics = {READ: (1e9, 2e9), FROM_L2: (3e9, 1e9), FMA.format("pipe", "_cycles_active"): (50, 50)}
    metrics |= {f"{READ}{PEAK}": (40, 40), LATENCY: (float(len(STATES)), float(len(STATES))), ISSUED: (1, 1)}
    metrics |= {"lts__t_sector_hit_rate.pct": (61, 61), **{STALLED.format(name): (1, 1) for name in STATES}}
    found, _ = cell_counters.make_tables([counted(**metrics)], census(), 2)
    classes = {"gemm": "gemm", "copy": "copy"}
    found["occupancy"] = cell_counters.make_occupancy([launches()], None, classes, 1)
    return {name: table.assign(model=CELL[0], phase=CELL[1]) for name, table in found.items()}


@pytest.fixture(autouse=True)
def closed() -> None:
    plt.close("all")


def test_all_of_a_cells_counters_are_shown(tables: dict[str, pd.DataFrame]) -> None:
    shown = counter_section.describe_counters(tables, CELL)
    assert shown["missing"] == []
    busy = [[name, "50 %"] for name in ("all kernels", "gemm", "copy")]
    assert shown["pipes"] == {"columns": ["class", "FMA"], "rows": busy}
    assert shown["bytes"]["columns"] == ["class", "GPU time", "L2 reads", "DRAM reads"]
    assert shown["bytes"]["rows"][0] == ["gemm", "60 µs", "6 GB", "2 GB"]
    assert sum(part["percent"] for part in shown["states"][0]["strip"]) == pytest.approx(100)
    (first, second) = shown["occupancy"]
    assert (first["limiter"], first["changes"]) == ("registers", "128 registers: 25 %")
    assert (second["limiter"], second["changes"]) == ("", "")


def test_the_drawing_has_the_counted_links_with_their_shares(tables: dict[str, pd.DataFrame]) -> None:
    chart = tables["memory_chart"]
    drawing = counter_section.draw_memory(chart[chart["level"] == "cell"])
    assert [box["title"] for box in drawing["boxes"]] == ["L1", "L2", "DRAM"]
    assert [box["hits"] for box in drawing["boxes"]] == ["", "hits 61 %", ""]
    from_l2, from_dram = drawing["lines"]
    # Four products and two copies in two steps.
    assert (from_l2["text"], from_l2["share"], from_l2["known"]) == ("reads 7 GB", "", False)
    assert (from_dram["text"], from_dram["share"], from_dram["known"]) == ("reads 4 GB", "40 % of peak", True)
    # Arrows point to where the bytes go: from DRAM, on the right, to L2.
    assert from_dram["end"] < from_dram["x"]
    assert "DRAM to L2, reads 4 GB, 40 % of peak" in drawing["told"]
    # Of a kernel with few accesses, ncu 2025.3 counted 101.8 % of them as hits, each in another replay.
    chart = tables["memory_chart"].assign(hit_pct=101.8)
    drawing = counter_section.draw_memory(chart[chart["level"] == "cell"])
    assert {box["hits"] for box in drawing["boxes"]} <= {"", "hits 100 %"}
    assert "102 %" not in [text.get_text() for text in memory_chart.draw(chart).axes[0].texts]


def test_every_link_has_a_line_and_every_line_lies_between_its_boxes() -> None:
    for name, link in LINKS.items():
        row = {"link": name, "bytes": 1e6, "peak_pct": 100.0, "hit_pct": float("nan")}
        drawing = counter_section.draw_memory(pd.DataFrame([row]))
        (line,) = drawing["lines"]
        left, right = sorted(counter_section.PLACES[unit] for unit in (link.source, link.target))
        assert left[0] + left[2] <= min(line["x"], line["end"]) < max(line["x"], line["end"]) <= right[0]
        assert bool(line["head"]) != link.total


def test_what_was_not_collected_is_said_in_one_line(tables: dict[str, pd.DataFrame]) -> None:
    bare = {name: table if name == "occupancy" else table.iloc[:0] for name, table in tables.items()}
    shown = counter_section.describe_counters(bare, CELL)
    assert shown["missing"] == ["memory chart", "pipe utilisation", "warp states"]
    assert shown["drawing"] is None and shown["bytes"] is None and shown["pipes"] is None and shown["states"] == []
    assert counter_section.describe_counters({name: one.iloc[:0] for name, one in tables.items()}, CELL) is None
    assert counter_section.describe_counters({}, CELL) is None


def test_the_page_has_the_counters_of_its_cell(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    html = packed_blocks.unpack_blocks(rendered(tmp_path, ["gemm"], **tables))
    assert html.count('<svg class="memory"') == 1 and "128 registers: 25 %" in html
    assert "Not collected: memory" not in html
    bare = {name: table if name == "occupancy" else table.iloc[:0] for name, table in tables.items()}
    html = packed_blocks.unpack_blocks(rendered(tmp_path, ["gemm"], **bare))
    assert '<svg class="memory"' not in html
    missing = "Not collected: memory chart, pipe utilisation, warp states"
    assert re.search(rf"{missing}\. <code>snakemake report [^<]*charts", html)
    assert 'class="more counters"' not in rendered(tmp_path, ["gemm"])


@browser.needed
def test_a_reader_who_opens_the_counters_sees_them(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    html = tmp_path / "report.html"
    html.write_text(rendered(tmp_path, ["gemm"], **tables))
    drawn = "document.querySelectorAll('svg.memory').length"
    with devtools.driven(tmp_path / "of") as driver:
        page = driver.opened(html.as_uri())
        page.value("document.querySelector('details.cell').open = true")
        assert page.value(drawn) == 0
        page.click("details.counters > summary")
        page.until(f"{drawn} === 1")
        assert "128 registers: 25 %" in page.value("document.querySelector('details.counters').innerText")
        assert page.console() == []


@pytest.mark.parametrize("name", CHARTS)
def test_figures_are_drawn_and_say_what_is_missing(tables: dict[str, pd.DataFrame], name: str) -> None:
    drawn = FIGURES[name].draw(tables[name])
    assert drawn.axes[0].texts or drawn.axes[0].patches
    (said,) = FIGURES[name].draw(tables[name].iloc[:0]).axes[0].texts
    assert "ncu" in said.get_text() and "collects" in said.get_text()
    if name == "occupancy":
        # 400 ns limited by registers, 50 ns by nothing.
        widths = [bar.get_width() for bars in drawn.axes[0].containers for bar in bars]
        assert sum(widths) == pytest.approx(100) and max(widths) == pytest.approx(400 / 4.5)
