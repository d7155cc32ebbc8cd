"""The page of a whole zoo, and that of cells on a CPU, as text and in a real browser: it answers, sorts and remembers."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profzoo.report import cell_data, comparison_section, glossary, overview, packed_blocks, savings, value_formats
from tests import browser, cpu_page, devtools, slow, whole_zoo

# What a cell may take of a page, with its share of the figures: 100 cells take at most 5 MB.
BYTES_OF_A_CELL = 50_000
DRAW_ALL = "for (const picture of document.querySelectorAll('.picture')) await page.come(picture);"
HELPERS = """
  const seen = {}, wait = ms => new Promise(done => setTimeout(done, ms));
  const type = (input, words) => { input.value = words; input.dispatchEvent(new Event("input")); };
  const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
"""


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_zoo.write(tmp_path_factory.mktemp("zoo"), drawn=False)


@pytest.fixture(scope="module", params=slow.first([False, True]))
def whole(request: pytest.FixtureRequest, html: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page without its figures, which take a minute, and with them."""
    return whole_zoo.write(tmp_path_factory.mktemp("whole")) if request.param else html


@pytest.fixture(scope="module")
def of_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cpu_page.write(tmp_path_factory.mktemp("cpu"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[devtools.Driver]:
    with devtools.driven(tmp_path_factory.mktemp("browser")) as running:
        yield running


@contextmanager
def opened(driver: devtools.Driver, html: Path, at: str = "", *, dark: bool = False) -> Iterator[devtools.Page]:
    """A window with the page, in which nothing may be said on the console."""
    page = driver.opened(f"{html.as_uri()}{at}")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.ask("Emulation.setEmulatedMedia", features=[scheme])
    resize(page, 1280)
    yield page
    assert page.console() == []
    page.ask("Page.close")


def resize(page: devtools.Page, width: int) -> None:
    page.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)


def read(page: devtools.Page, reader: str) -> dict[str, Any]:
    """What a reader's statements put into `seen`."""
    return page.value(f"(async () => {{{HELPERS}{reader}\n return seen; }})()")


def test_the_page_answers_first(html: Path) -> None:
    text = html.read_text()
    places = [text.index(f'id="{name}"') for name in ("first", "trials", "cells", "details", "figures", "words")]
    assert places == sorted(places)
    first = text[places[0] : places[1]]
    # What to do and what to type stands before the verdicts, which are the bottlenecks.
    assert first.count('class="saved"') == 5 and "snakemake compare" in first
    assert "saves 117 of 152 ms</b><small>per step (16.9 ms slower to 130 ms faster)" in first
    assert first.index("<code>graph=true precision=bf16</code>") < first.index("candidate=graph+bf16")
    assert first.index("candidate=graph+bf16") < first.index("Bottlenecks: launch-bound")
    assert "<code>compile=true</code>: the step waits for the GPU: .item() at train.py:84" in text
    assert "runs 2.90 times as fast with <code>graph=true</code>: measured" in text
    assert "1 of 43 cells is missing" in text[: places[0]]
    (row,) = re.findall(r'<tr class="lacking">(.*?)</tr>', text, re.DOTALL)
    assert "esrgan" in row and "not measured" in row and "out of GPU memory" in row


def test_words_are_explained_times_have_spreads_and_headings_hints(html: Path) -> None:
    text = html.read_text()
    linked = set(re.findall(r'href="#(word-[^"]+)"', text))
    assert len(linked) > 8 and all(f'id="{one}"' in text for one in linked)
    assert text.count("20 steps") >= 42 and "20 steps × 3 processes</small>" in text
    assert 'title="the middle half of the steps spreads by 13%"' in text
    heads = dict(re.findall(r'<th scope="col"[^>]* title="([^"]*)">([^<]*)</th>', text))
    (hint,) = (hint for hint, head in heads.items() if head == "samples/s")
    assert hint == "Throughput: samples of the data per second, by the mean step. (items_per_s in cells.csv)"
    assert '"titles":{"ns":"GPU time per step of these launches together. (total_ns in kernels.csv)"' in text
    assert 'title="Launches per step by the tool that the name begins with. (nsys_launches in agreement.csv)"' in text
    assert '<a href="tables/columns.csv">' in text


def test_what_is_missing_for_one_reason_is_said_once() -> None:
    given = whole_zoo.tables()
    cells = list(given["cells"][["model", "phase"]].itertuples(index=False, name=None))
    missing = [{"model": model, "phase": phase, "tool": "ncu", "why": "not measured yet"} for model, phase in cells]
    missing.insert(9, {"model": "esrgan", "phase": "train", "tool": "ncu", "why": "out of GPU memory"})
    promised = savings.list_savings(given)
    told = overview.cells_context(given, promised, missing)
    whys = [(len(one["cells"]), one["why"]) for one in told["partial_why"]]
    assert whys == [(42, "not measured yet"), (1, "out of GPU memory")]
    assert told["lacking_why"] == [] and told["partial_why"][1]["cells"] == ["esrgan train"]
    # A row says one verdict with its own next step.
    advised = {(one.model, one.phase, one.verdict, one.next_step) for one in promised}
    rows = [row for row in told["cells"] if row["promise"]]
    assert len(told["cells"]) == 42 and rows
    assert {(row["model"], row["phase"], row["verdict"], row["next"]) for row in rows} <= advised


@browser.needed
def test_order_filter_columns_and_open_cells_stay_in_the_address(html: Path, driver: devtools.Driver) -> None:
    reader = """
      const table = document.getElementById("table-cells"), heads = [...table.tHead.rows[0].cells];
      const saved = heads.findIndex(head => head.textContent === "time saved per step");
      const values = () => [...table.tBodies[0].rows].map(row => Number(row.cells[saved].dataset.value));
      seen.before = values();
      press(heads[saved], "Enter");
      seen.after = values();
      type(document.querySelector("input.filter"), "train launch");
      const box = document.querySelector('[data-column="8"]');
      box.click();
      document.getElementById("unet-train").open = true;
      document.querySelector('a[href="#lstm-train"]').click();
      for (let tries = 0; tries < 60 && !location.hash.includes("lstm-train%2C"); tries++) await wait(50);
      seen.hash = location.hash;
      seen.unetOpen = document.getElementById("unet-train").open;
      seen.top = document.getElementById("lstm-train").getBoundingClientRect().top;
    """
    with opened(driver, html) as page:
        seen = read(page, reader)
    known = [value for value in seen["before"] if value]
    assert known == sorted(known, reverse=True) and seen["after"] != seen["before"]
    assert seen["hash"].startswith("#lstm-train&") and seen["unetOpen"] and -5 < seen["top"] < 100
    again = """
      const table = document.getElementById("table-cells"), rows = [...table.tBodies[0].rows].filter(row => !row.hidden);
      seen.rows = rows.map(row => row.textContent);
      seen.order = table.tHead.rows[0].querySelector("[aria-sort]").textContent;
      seen.open = [...document.querySelectorAll("details.cell[open]")].map(one => one.id);
      seen.hidden = getComputedStyle(table.rows[0].cells[8]).display;
      seen.hash = location.hash;
    """
    with opened(driver, html, seen["hash"]) as page:
        then = read(page, again)
    assert then["hash"] == seen["hash"]
    assert then["rows"] and all("train" in row and "launch" in row for row in then["rows"])
    assert then["order"] == "time saved per step" and set(then["open"]) == {"unet-train", "lstm-train"}
    assert then["hidden"] == "none"


MANY = f"""{whole_zoo.MANY_ROWS}
  seen.top = home.querySelector(".grid-row").textContent;
  scroll(home.querySelector(".grid"), 80000);
  seen.drawn = home.querySelectorAll(".grid-row").length;
  seen.first = home.querySelector(".grid-row").textContent;
  sort(home, "kernel 99");
  seen.left = home.querySelectorAll(".grid-row").length;
  seen.said = home.querySelector("small").textContent;"""


@browser.needed
def test_a_cell_is_drawn_when_it_is_opened_and_its_parts_are_linked(html: Path, driver: devtools.Driver) -> None:
    reader = """
      const cell = document.getElementById("mobilenetv2-train");
      seen.before = cell.querySelectorAll("circle").length;
      cell.open = true;
      await wait(300);
      const grid = cell.querySelector(".grid"), rows = () => [...cell.querySelectorAll(".grid-row")];
      seen.circles = cell.querySelectorAll("circle").length;
      seen.total = Number(grid.getAttribute("aria-rowcount")) - 1;
      seen.drawn = rows().length;
      seen.still = getComputedStyle(cell.querySelector(".still")).display;
      // From the plot to the table, and back by the keyboard.
      const circle = cell.querySelector("circle");
      circle.dispatchEvent(new MouseEvent("click", {bubbles: true}));
      seen.chosen = cell.querySelector(".grid-row.current").textContent;
      seen.titled = circle.querySelector("title").textContent;
      grid.scrollTop = 0;
      press(grid, "ArrowDown");
      seen.moved = cell.querySelector(".grid-row.current").textContent;
      const head = [...cell.querySelectorAll(".grid-head button")].find(button => button.textContent === "launches");
      head.click();
      seen.sorted = head.parentElement.getAttribute("aria-sort");
      type(cell.querySelector(".grid-home input"), "dgrad");
      seen.found = rows().map(row => row.textContent);
      const canvas = cell.querySelector("canvas"), draws = () => canvas.toDataURL();
      const whole = draws();
      press(canvas, "+");
      seen.zoomed = draws() !== whole;
      press(canvas, "0");
      seen.fits = canvas.toDataURL().length > 2000;
      const search = [...cell.querySelectorAll("input")].find(input => input.placeholder === "search the step");
      type(search, "memcpy");
      seen.said = search.parentElement.querySelector("small").textContent;
      seen.tree = cell.querySelectorAll(".tree-line").length;
      const module = cell.querySelector(".tree details:not([open])");
      module.open = true;
      await wait(50);
      seen.deeper = cell.querySelectorAll(".tree-line").length;
      const layers = cell.querySelector('input[value="layers"]');
      layers.checked = true;
      layers.dispatchEvent(new Event("change"));
      seen.layers = rows()[0].textContent;
    """
    with opened(driver, html) as page:
        resize(page, 1500)
        seen, many = read(page, reader), read(page, MANY)
    assert seen["before"] == 0 and 50 < seen["circles"] <= seen["total"] and seen["drawn"] < 45 < seen["total"]
    assert seen["still"] == "none"
    assert seen["titled"].split("\n")[0] in seen["chosen"] and "bound by" in seen["titled"]
    assert seen["moved"] != seen["chosen"]
    assert seen["sorted"] == "descending" and seen["found"] and all("dgrad" in row for row in seen["found"])
    assert seen["zoomed"] and seen["fits"] and re.match(r"\d+ found, ", seen["said"])
    assert seen["deeper"] > seen["tree"] > 1 and "stage" in seen["layers"]
    # Of ten thousand rows only those in sight are drawn.
    assert 5 < many["drawn"] < 60 and 5 < many["left"] < 60
    assert many["said"].startswith("280 of 10,000 rows") and "kernel" in many["first"] != many["top"]


def test_a_page_of_42_cells_is_small_and_needs_nothing_from_elsewhere(whole: Path) -> None:
    text = whole.read_text()
    assert whole.stat().st_size < 42 * BYTES_OF_A_CELL
    assert len(packed_blocks.list_blocks(text, "data")) == 42
    assert not re.findall(r'(?:src|href)="(?:https?:)?//(?!(?:ui\.perfetto\.dev|docs\.pytorch\.org)\b)', text)
    assert "url(http" not in text and "@import" not in text


@browser.needed
@pytest.mark.slow
def test_a_page_of_100_cells_opens_at_once(tmp_path: Path, driver: devtools.Driver) -> None:
    """Each cell has counters, and a timeline of as many launches as it has."""
    html = whole_zoo.write(tmp_path, cells=100)
    assert html.stat().st_size < 100 * BYTES_OF_A_CELL
    with opened(driver, html) as page:
        page.until("performance.getEntriesByName('first-contentful-paint').length")
        assert page.value("performance.getEntriesByName('first-contentful-paint')[0].startTime") < 1000
        assert page.value("document.querySelectorAll('figure svg, .live > *').length") == 0
        page.value("document.querySelector('#unet-2-train').open = true")
        page.until("document.querySelectorAll('#unet-2-train :is(canvas.timeline, .roofline, .tree)').length === 3")


@browser.needed
def test_figures_are_drawn_near_the_window_and_before_printing(
    of_cpu: Path, driver: devtools.Driver, tmp_path: Path
) -> None:
    drawn, figure = "document.querySelectorAll('figure svg').length", "document.querySelector('figure')"
    far = tmp_path / "far.html"
    heading = '<h2 id="figures">'
    far.write_text(of_cpu.read_text().replace(heading, f'<div style="height: 5000px"></div>{heading}'))
    with opened(driver, far) as page:
        room = page.value(f"{figure}.getBoundingClientRect().height")
        assert page.value(drawn) == 0 and room > 200
        page.value(f"{figure}.scrollIntoView()")
        page.until(f"{drawn} > 0")
        # There was room for it, so nothing below it moves.
        assert page.value(f"{figure}.getBoundingClientRect().height") == pytest.approx(room, abs=2)
    with opened(driver, far) as page:
        page.until("page.texts.size === document.querySelectorAll('script.drawn').length")
        assert page.value(drawn) == 0
        page.ask("Page.printToPDF")
        assert page.value(drawn) == len(cpu_page.FIGURES) > 2


@browser.needed
def test_a_word_says_what_it_means_when_a_reader_comes_to_it(html: Path, driver: devtools.Driver) -> None:
    with opened(driver, html) as page:
        said = read(
            page,
            """const word = document.querySelector("#table-cells a.word");
            seen.before = word.title;
            word.focus();
            seen.title = word.title;
            seen.entry = document.getElementById(word.hash.slice(1)).querySelector("dd").textContent;""",
        )
    assert said["before"] == "" and said["title"] == said["entry"] and len(said["title"]) > 20


PHONE = """
  const shown = element => element.getClientRects().length > 0;
  for (const one of document.querySelectorAll("details.trial, #mobilenetv2-train")) one.open = true;
  const told = cell => getComputedStyle(cell, "::before").content.replaceAll('"', "");
  const values = [...document.querySelectorAll("table.stacked td[data-label]")].filter(cell => shown(cell) && cell.textContent);
  seen.values = values.length;
  seen.nameless = values.filter(cell => told(cell) !== cell.dataset.label).map(cell => cell.outerHTML.slice(0, 80));
  seen.labels = [...new Set(values.filter(cell => cell.closest("#table-cells")).map(told))];
  seen.verdicts = [...new Set(values.filter(cell => cell.closest(".advice")).map(told))];
  const beyond = box => box.scrollWidth > box.clientWidth + 1;
  seen.stacked = [...document.querySelectorAll(".scroll:has(> table.stacked)")].filter(shown).filter(beyond).map(box => box.textContent.slice(0, 60));
  const wide = [...document.querySelectorAll(".scroll, .grid")].filter(shown).filter(beyond);
  seen.wide = wide.length;
  seen.uncued = wide.filter(box => !getComputedStyle(box).backgroundImage.includes("gradient")).map(box => box.className);
  seen.cropped = [...document.querySelectorAll("figure svg, .roofline")].filter(shown).filter(svg => svg.getBoundingClientRect().right > innerWidth).length;
  seen.figures = [...document.querySelectorAll("figure svg")].filter(shown).length;
"""
HEAD = """seen.wide = document.documentElement.scrollWidth; seen.window = innerWidth;
  document.querySelector(".scroll.tall").scrollTop = 300; await wait(50);
  const head = document.querySelector("#table-cells th").getBoundingClientRect();
  seen.sticks = Math.abs(head.top - document.querySelector(".scroll.tall").getBoundingClientRect().top) < 3;"""


@browser.needed
def test_on_a_phone_values_have_names_and_nothing_is_out_of_sight_without_a_cue(
    whole: Path, driver: devtools.Driver
) -> None:
    """No window is narrower than its page; cells and figures fit a phone."""
    wide = "document.documentElement.scrollWidth"
    with opened(driver, whole) as page:
        for width in (1600, 500):
            resize(page, width)
            seen = read(page, HEAD)
            assert seen["wide"] <= seen["window"] == width and (seen["sticks"] or width < 600)
        resize(page, 390)
        assert page.value(wide) <= 390
        page.value("document.getElementById('mobilenetv2-train').open = true")
        page.until("document.querySelectorAll('.tree-line, .roofline').length > 2")
        read(page, DRAW_ALL)
        seen = read(page, PHONE)
        page.value("for (const one of document.querySelectorAll('.tree details')) one.open = true")
        assert page.value(wide) <= 390
        figures = "<figure" in whole.read_text()
    assert seen["values"] > 200 and seen["nameless"] == [] and seen["stacked"] == []
    assert {"bottleneck", "time saved per step", "what to do", "time per step", "GPU busy"} <= set(seen["labels"])
    assert {"about", "time per step", "share of the step", "expected gain", "what to do"} <= set(seen["verdicts"])
    assert seen["wide"] >= 2 and seen["uncued"] == [] and seen["cropped"] == 0
    assert seen["figures"] > 8 if figures else seen["figures"] == 0


@browser.needed
def test_the_page_reads_without_its_script(html: Path, driver: devtools.Driver, tmp_path: Path) -> None:
    """Headless Chromium has no switch for that, so the script is left out."""
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub(r"<script>.*?</script>", "", html.read_text(), flags=re.DOTALL))
    reader = """const shown = element => element.getClientRects().length > 0;
      const cell = document.getElementById("unet-train");
      cell.open = true;
      seen.still = shown(cell.querySelector(".still table"));
      seen.rows = cell.querySelectorAll(".still tbody tr").length;
      seen.useless = [...document.querySelectorAll(".needs-script")].filter(shown).length;
      seen.cells = [...document.getElementById("table-cells").tBodies[0].rows].filter(shown).length;"""
    with opened(driver, bare) as page:
        seen = read(page, reader)
    assert seen["still"] and seen["rows"] == 10 and seen["useless"] == 0 and seen["cells"] == 43


CONTRAST = """
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!colour.startsWith("rgba") || colour.endsWith(", 1)")) return colour;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(20, 24, 28)" : "rgb(255, 255, 255)";
  };
  for (const cell of document.querySelectorAll("details.cell")) if (cell.id.startsWith("unet")) cell.open = true;
  await wait(300);
  seen.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  seen.checked = 0;
  seen.poor = new Set();
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.getClientRects().length || element.closest("svg, script, style")) continue;
    const one = light(getComputedStyle(element).color), other = light(behind(element));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    seen.checked++;
    if (ratio < 4.5) seen.poor.add(`${element.tagName}.${element.className} ${ratio.toFixed(2)} ${node.textContent.trim().slice(0, 30)}`);
  }
  seen.poor = [...seen.poor];
  // What is operated has a name, what is an image too, and ids are each one's own.
  const named = element => (element.getAttribute("aria-label") || element.textContent || element.title || "").trim() || element.closest("label");
  seen.nameless = [...document.querySelectorAll("button, input, a[href], summary, [role=img], canvas")].filter(element => !named(element)).map(element => element.outerHTML.slice(0, 80));
  const ids = [...document.querySelectorAll("[id]")].map(element => element.id);
  seen.twice = ids.filter((id, place) => ids.indexOf(id) !== place).slice(0, 5);
  seen.unreached = [...document.querySelectorAll("th.sort, .scroll.tall, .grid, canvas")].filter(element => element.tabIndex < 0).length;
"""
LOOKS = pytest.mark.parametrize("dark", slow.first([False, True]))


@browser.needed
@LOOKS
def test_contrast_names_and_keys(whole: Path, driver: devtools.Driver, dark: bool) -> None:
    # Of all text, also where axe-core cannot tell what lies behind it (WCAG 2.1 AA: 1.4.3, 4.1.2, 2.1.1).
    with opened(driver, whole, dark=dark) as page:
        seen = read(page, DRAW_ALL + CONTRAST)
    assert seen["dark"] == dark and seen["checked"] > 1000
    assert seen["poor"] == [] and seen["nameless"] == [] and seen["twice"] == [] and seen["unreached"] == 0


# What is of the same kind as many others goes first, because axe-core looks at each element.
AXE = """
  const few = !document.querySelector("figure");
  for (const one of few ? document.querySelectorAll("details.cell:not(#unet-train)") : []) one.remove();
  for (const one of few ? [...document.getElementById("table-cells").tBodies[0].rows].slice(8) : []) one.remove();
  for (const one of document.querySelectorAll("details.trial, #unet-train")) one.open = true;
  await wait(300);
  const found = await axe.run(document, {resultTypes: ["violations"]});
  seen.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  seen.passed = found.passes.length;
  seen.against = found.violations.map(one => `${one.id}: ${one.nodes.map(node => node.html.slice(0, 120))}`);
"""


@browser.needed
@pytest.mark.skipif(
    not browser.AXE, reason="no axe-core: PROFZOO_AXE names none; tests/tools/install-axe.sh DIR gets one"
)
@LOOKS
def test_axe_finds_nothing(whole: Path, driver: devtools.Driver, dark: bool) -> None:
    with opened(driver, whole, dark=dark) as page:
        page.value(f"{Path(browser.AXE or '').read_text()}\n; 0")
        seen = read(page, DRAW_ALL + AXE)
    assert seen["dark"] == dark and seen["passed"] > 30 and seen["against"] == []


def test_hints_are_of_headings_that_the_page_has() -> None:
    """A heading that was renamed keeps its hint."""
    found, cell = overview.list_hints(), {"model", "phase", "candidate"}
    assert set(value_formats.CELL_COLUMNS) <= set(found["cells"])
    assert set(found["processes"]) == set(value_formats.PROCESS_COLUMNS)
    assert all(set(overview.SAME[table]) <= set(found[table]) for table in ("comparison", "grid"))
    assert found["grid"]["launches"] == "Launches per step. (launches in kernels.csv)"
    on_cpu = overview.list_hints(all_on_cpu=True).values()
    assert not [text for hints in on_cpu for text in hints.values() if "GPU" in text]
    # Model and phase need no hint.
    assert {*overview.CELLS, *overview.EXPLAINED} == set(overview.LEADING_COLUMNS) - cell
    assert set(found["comparison"]) == set(comparison_section.COLUMNS) - cell
    assert set(found["parts"]) == set(comparison_section.PART_COLUMNS) - cell
    assert set(found["grid"]) <= {*cell_data.KERNEL_COLUMNS, *cell_data.LAYER_COLUMNS}


@pytest.fixture(scope="module")
def cell() -> dict[str, pd.DataFrame]:
    given = whole_zoo.tables()
    return {name: given[name][(given[name]["model"] == "unet") & (given[name]["phase"] == "train")]
            for name in ("kernels", "roofline", "layers")}  # fmt: skip


def column(packed: dict, name: str) -> list:
    values = packed[name]
    return [values["words"][place] for place in values["places"]] if isinstance(values, dict) else values


def test_kernels_are_those_of_the_table_longest_first(cell: dict[str, pd.DataFrame]) -> None:
    found = json.loads(cell_data.cell_block(cell, None) or "")["kernels"]
    times = column(found, "ns")
    assert len(times) == len(cell["kernels"]) and times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(cell["kernels"]["total_ns"].sum(), rel=1e-3)
    row = cell["kernels"].sort_values("total_ns", ascending=False, kind="stable").iloc[0]
    assert column(found, "bytes")[0] == pytest.approx(row["dram_bytes"] * row["launches"], rel=1e-3)
    assert set(column(found, "bound")) <= {"dram", "l2", "simt", "tensor", ""}
    assert column(found, "bound").count("") < len(times) / 2


def test_layers_are_those_with_time_of_their_own(cell: dict[str, pd.DataFrame]) -> None:
    found = json.loads(cell_data.cell_block(cell, None) or "")
    own = cell["layers"][cell["layers"]["self_ns"] > 0]
    assert sorted(column(found["layers"], "name")) == sorted(own["module"])
    assert len(column(found["tree"], "name")) == len(cell["layers"])


def test_names_of_the_step_are_those_of_the_table(cell: dict[str, pd.DataFrame]) -> None:
    (kernel, *_) = cell["kernels"]["kernel"]
    step = {
        "ns": 9,
        "names": ["step", kernel],
        "streams": {"7": [[0, 5, 1]]},
        "ranges": [[0, 9, 0]],
        "calls": [],
        "gaps": [],
    }
    found = json.loads(cell_data.cell_block(cell, step) or "")
    assert found["timeline"]["names"][1] in column(found["kernels"], "name")
    assert found["timeline"]["names"][0] == "step" and found["timeline"]["classes"][0] == ""


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<!--", "a\u2028b", "ü & <T>"])
def test_no_name_ends_the_block(cell: dict[str, pd.DataFrame], name: str) -> None:
    layers = cell["layers"].assign(module=name)
    text = str(cell_data.cell_block({"layers": layers}, None))
    assert "<" not in text and "\u2028" not in text
    assert set(column(json.loads(text)["tree"], "name")) == {name}
    assert cell_data.cell_block({}, None) is None


def test_a_page_of_cells_on_a_cpu_has_no_words_of_gpus(of_cpu: Path) -> None:
    html = of_cpu.read_text()
    assert cpu_page.of_gpus(html) == []
    (found,) = cpu_page.of_gpus('<p title="the GPU">nothing</p><script>launches</script><code>a/ncu.csv</code>')
    assert found.split() == ["nothing", "the", "GPU"]
    # Without counters, colours of bounds mean nothing; and nothing is simulated.
    said = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    assert "not counted" not in said and "simulat" not in said
    assert "Largest operators" in html and "operator-bound" in html and "Top operators" in html
    # And all that it links is there.
    for entry in (entry for entries in glossary.load_groups(on_cpu=True).values() for entry in entries):
        assert f'id="{entry["anchor"]}"' in html


OPENED = """
  for (const cell of document.querySelectorAll("details.cell")) cell.open = true;
  await wait(300);
  seen.text = [...document.querySelectorAll("details.cell")].map(cell => cell.innerText).join(" ");
  seen.heads = [...document.querySelectorAll("details.cell h3")].map(head => head.textContent);
"""


@browser.needed
def test_cells_on_a_cpu_open_without_words_of_gpus(of_cpu: Path, driver: devtools.Driver) -> None:
    with opened(driver, of_cpu) as page:
        seen = read(page, OPENED)
    assert "Where the CPU's time goes, under the profiler" in seen["heads"]
    assert cpu_page.of_gpus(f"<p>{seen['text']}</p>") == []


def test_numbers_of_a_page_by_hand() -> None:
    given = cpu_page.tables()
    cells = given["cells"].assign(step_ns=[2.02e9, 1e7], step_low_ns=[1.5e9, 9.9e6], step_high_ns=[2.54e9, 1.01e7])
    cells = cells.assign(step_median_ns=[1.6e9, 1e7], step_lower_quartile_ns=[1.32e9, 9.9e6], processes=[3, 1])
    cells = cells.assign(step_upper_quartile_ns=[1.95e9, 1.01e7])
    shown = overview.cells_context({**given, "cells": cells}, [], [])
    rows = {row["phase"]: row for row in shown["cells"]}
    # The mean with its interval, the median with its quartiles.
    told = [rows["train"][name] for name in ("step", "spread", "steps")]
    assert told == ["2.02 s", "1.5 to 2.54 s", "mean of 10 steps × 3 processes"]
    assert (rows["inference"]["spread"], rows["inference"]["steps"]) == ("9.9 to 10.1 ms", "mean of 10 steps")
    median = rows["train"]["fields"][shown["cell_columns"].index("median") - len(overview.LEADING_COLUMNS)]
    assert (median["text"], median["between"]) == ("1.6 s", "1.32 s to 1.95 s")
    # Data for 1 of 10 ms, forward for 9; half a percent is the least that is shown.
    strip = value_formats.step_parts(given, "m", "train")
    assert {part["part"]: part["percent"] for part in strip} == pytest.approx({"data": 10, "forward": 90})
    for ns, parts in ((0.06e6, ["data", "forward"]), (0.05e6, ["data", "forward"]), (0.04e6, ["forward"])):
        ranges = given["ranges"].assign(ns_per_step=[ns, 10e6 - ns] * 2)
        assert [part["part"] for part in value_formats.step_parts({**given, "ranges": ranges}, "m", "train")] == parts
    # One cell on a GPU makes a page of GPUs.
    assert overview.all_on_cpu(given["cells"]) and not overview.all_on_cpu(cells.head(0))
    assert not overview.all_on_cpu(cells.assign(device=["NVIDIA H200", given["cells"]["device"][1]]))
