"""The page of a whole zoo in a real browser: it answers first, sorts, filters, remembers, and names what is missing."""

import re
from pathlib import Path

import pytest

from profzoo.report import overview, savings
from tests import browser, devtools, slow, whole_zoo


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_zoo.write(tmp_path_factory.mktemp("zoo"), drawn=False)


def test_the_page_answers_first(html: Path) -> None:
    text = html.read_text()
    places = [text.index(f'id="{name}"') for name in ("first", "trials", "cells", "details", "figures", "words")]
    assert places == sorted(places)
    first = text[places[0] : places[1]]
    # What to do and what to type stands before the verdicts, which are the bottlenecks.
    assert (
        first.count('class="saved"') == 5
        and "snakemake compare" in first
        and "saves 117 of 152 ms</b><small>per step (16.9 ms slower to 130 ms faster)" in first
    )
    assert first.index("<code>graph=true precision=bf16</code>") < first.index("candidate=graph+bf16")
    assert first.index("candidate=graph+bf16") < first.index("Bottlenecks: launch-bound")
    assert "<code>compile=true</code>: the step waits for the GPU: .item() at train.py:84" in text
    assert "runs 2.90 times as fast with <code>graph=true</code>: measured" in text
    assert "1 of 43 cells is missing" in text[: places[0]]


def test_what_failed_is_a_row_with_its_reason(html: Path) -> None:
    (row,) = re.findall(r'<tr class="lacking">(.*?)</tr>', html.read_text(), re.DOTALL)
    assert "esrgan" in row and "not measured" in row and "out of GPU memory" in row


def test_what_is_missing_for_one_reason_is_said_once() -> None:
    given = whole_zoo.tables()
    cells = list(given["cells"][["model", "phase"]].itertuples(index=False, name=None))
    missing = [{"model": model, "phase": phase, "tool": "ncu", "why": "not measured yet"} for model, phase in cells]
    missing.insert(9, {"model": "esrgan", "phase": "train", "tool": "ncu", "why": "out of GPU memory"})
    told = overview.cells_context(given, [], missing)
    assert [(len(one["cells"]), one["why"]) for one in told["partial_why"]] == [
        (42, "not measured yet"),
        (1, "out of GPU memory"),
    ]
    assert told["lacking_why"] == [] and told["partial_why"][1]["cells"] == ["esrgan train"]


def test_a_row_says_one_verdict_with_its_own_next_step() -> None:
    given = whole_zoo.tables()
    promised = savings.list_savings(given)
    rows = overview.cells_context(given, promised, [])["cells"]
    advised = {(one.model, one.phase, one.verdict, one.next_step) for one in promised}
    assert len(rows) == 42
    for row in rows:
        if row["promise"]:
            assert (row["model"], row["phase"], row["verdict"], row["next"]) in advised


def test_every_word_that_is_linked_is_in_the_glossary(html: Path) -> None:
    text = html.read_text()
    linked = set(re.findall(r'href="#(word-[^"]+)"', text))
    assert len(linked) > 8 and all(f'id="{one}"' in text for one in linked)


def test_times_carry_their_spread(html: Path) -> None:
    text = html.read_text()
    assert text.count("20 steps") >= 42 and "20 steps × 3 processes</small>" in text
    assert 'title="the middle half of the steps spreads by 13%"' in text


@browser.needed
def test_order_filter_columns_and_open_cells_stay_in_the_address(html: Path, tmp_path: Path) -> None:
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
      await wait(100);
      seen.hash = location.hash;
      seen.unetOpen = document.getElementById("unet-train").open;
      seen.top = document.getElementById("lstm-train").getBoundingClientRect().top;
    """
    seen, console = browser.opened(html, tmp_path, reader)
    assert not console and seen["failures"] == []
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
    then, console = browser.opened(html, tmp_path, again, at=seen["hash"][1:])
    assert not console and then["failures"] == [] and then["hash"] == seen["hash"]
    assert then["rows"] and all("train" in row and "launch" in row for row in then["rows"])
    assert then["order"] == "time saved per step" and set(then["open"]) == {"unet-train", "lstm-train"}
    assert then["hidden"] == "none"


@browser.needed
def test_an_open_cell_fits_a_phone(html: Path, tmp_path: Path) -> None:
    with devtools.driven(tmp_path) as driver:
        page = driver.opened(html.as_uri())
        page.ask("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        wide = "document.documentElement.scrollWidth"
        assert page.value(wide) <= 390
        page.value("document.getElementById('mobilenetv2-train').open = true")
        page.until("document.querySelectorAll('.tree-line, .roofline').length > 2")
        page.value("for (const one of document.querySelectorAll('.tree details')) one.open = true")
        assert page.value(wide) <= 390


@browser.needed
@pytest.mark.parametrize("width", [1600, 500])
def test_the_page_is_no_wider_than_its_window(html: Path, tmp_path: Path, width: int) -> None:
    reader = """seen.wide = document.documentElement.scrollWidth; seen.window = innerWidth;
      document.querySelector(".scroll.tall").scrollTop = 300; await wait(50);
      const head = document.querySelector("#table-cells th").getBoundingClientRect();
      seen.sticks = Math.abs(head.top - document.querySelector(".scroll.tall").getBoundingClientRect().top) < 3;"""
    seen, _ = browser.opened(html, tmp_path, reader, width=width)
    assert seen["wide"] <= seen["window"] and (seen["sticks"] or width < 600)


@browser.needed
def test_a_cell_is_drawn_when_it_is_opened_and_its_parts_are_linked(html: Path, tmp_path: Path) -> None:
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
    seen, console = browser.opened(html, tmp_path, reader, width=1500)
    assert not console and seen["failures"] == []
    assert seen["before"] == 0 and 50 < seen["circles"] <= seen["total"] and seen["drawn"] < 45 < seen["total"]
    assert seen["still"] == "none"
    assert (
        seen["titled"].split("\n")[0] in seen["chosen"]
        and "bound by" in seen["titled"]
        and seen["moved"] != seen["chosen"]
    )
    assert seen["sorted"] == "descending" and seen["found"] and all("dgrad" in row for row in seen["found"])
    assert seen["zoomed"] and seen["fits"] and re.match(r"\d+ found, ", seen["said"])
    assert seen["deeper"] > seen["tree"] > 1 and "stage" in seen["layers"]


@browser.needed
def test_of_ten_thousand_rows_only_those_in_sight_are_drawn(html: Path, tmp_path: Path) -> None:
    reader = f"""{whole_zoo.MANY_ROWS}
      seen.top = home.querySelector(".grid-row").textContent;
      scroll(home.querySelector(".grid"), 80000);
      seen.drawn = home.querySelectorAll(".grid-row").length;
      seen.first = home.querySelector(".grid-row").textContent;
      sort(home, "kernel 99");
      seen.left = home.querySelectorAll(".grid-row").length;
      seen.said = home.querySelector("small").textContent;"""
    seen, console = browser.opened(html, tmp_path, reader)
    assert not console and seen["failures"] == []
    assert 5 < seen["drawn"] < 60 and 5 < seen["left"] < 60
    assert seen["said"].startswith("280 of 10,000 rows") and "kernel" in seen["first"] != seen["top"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with its figures."""
    return whole_zoo.write(tmp_path_factory.mktemp("whole"))


def test_a_page_of_42_cells_is_small_and_needs_nothing_from_elsewhere(whole: Path) -> None:
    text = whole.read_text()
    assert whole.stat().st_size < 15e6
    blocks = re.findall(r'<script type="application/json" class="data">(.*?)</script>', text, re.DOTALL)
    assert len(blocks) == 42 and max(map(len, blocks)) < 300_000
    assert not re.findall(r'(?:src|href)="(?:https?:)?//(?!ui\.perfetto\.dev)', text)
    assert "url(http" not in text and "@import" not in text


@browser.needed
def test_the_page_and_a_cell_open_without_a_word_on_the_console(whole: Path, tmp_path: Path) -> None:
    reader = """const cell = document.getElementById("bert-train");
      cell.open = true;
      await wait(0);
      seen.rows = cell.querySelectorAll(".grid-row").length;"""
    seen, console = browser.opened(whole, tmp_path, reader)
    assert not console and seen["failures"] == [] and seen["rows"] > 5


PHONE = """(() => {
  const shown = element => element.getClientRects().length > 0, seen = {};
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
  return seen;
})()"""


@browser.needed
def test_on_a_phone_values_have_names_and_nothing_is_out_of_sight_without_a_cue(whole: Path, tmp_path: Path) -> None:
    with devtools.driven(tmp_path) as driver:
        page = driver.opened(whole.as_uri())
        page.ask("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
        page.value("document.getElementById('mobilenetv2-train').open = true")
        page.until("document.querySelectorAll('.tree-line, .roofline').length > 2")
        seen = page.value(PHONE)
    assert seen["values"] > 200 and seen["nameless"] == [] and seen["stacked"] == []
    assert {"bottleneck", "time saved per step", "what to do", "time per step", "GPU busy"} <= set(seen["labels"])
    assert {"about", "time per step", "share of the step", "expected gain", "what to do"} <= set(seen["verdicts"])
    assert seen["wide"] >= 2 and seen["uncued"] == [] and seen["cropped"] == 0 and seen["figures"] > 8


@browser.needed
def test_the_page_reads_without_its_script(whole: Path, tmp_path: Path) -> None:
    """Headless Chromium has no switch for that, so the script is left out."""
    bare = tmp_path / "bare.html"
    bare.write_text(re.sub(r"<script>.*?</script>", "", whole.read_text(), flags=re.DOTALL))
    reader = """const shown = element => element.getClientRects().length > 0;
      const cell = document.getElementById("unet-train");
      cell.open = true;
      seen.still = shown(cell.querySelector(".still table"));
      seen.rows = cell.querySelectorAll(".still tbody tr").length;
      seen.useless = [...document.querySelectorAll(".needs-script")].filter(shown).length;
      seen.cells = [...document.getElementById("table-cells").tBodies[0].rows].filter(shown).length;"""
    seen, console = browser.opened(bare, tmp_path, reader)
    assert not console and seen["failures"] == []
    assert seen["still"] and seen["rows"] == 10 and seen["useless"] == 0 and seen["cells"] == 43


@browser.needed
@pytest.mark.skipif(
    not browser.AXE, reason="no axe-core: PROFZOO_AXE names none; tests/tools/install-axe.sh DIR gets one"
)
@pytest.mark.parametrize("dark", slow.first([False, True]))
def test_axe_finds_nothing(whole: Path, tmp_path: Path, dark: bool) -> None:
    page = tmp_path / "with_axe.html"
    script = Path(browser.AXE or "").read_text()
    page.write_text(browser.with_script(whole.read_text(), script, "</head>"))
    reader = """
      for (const one of document.querySelectorAll("details.trial, #unet-train")) one.open = true;
      await wait(300);
      const found = await axe.run(document, {resultTypes: ["violations"]});
      seen.dark = matchMedia("(prefers-color-scheme: dark)").matches;
      seen.passed = found.passes.length;
      seen.against = found.violations.map(one => `${one.id}: ${one.nodes.map(node => node.html.slice(0, 120))}`);
    """
    words = ["--blink-settings=preferredColorScheme=0"] if dark else []
    seen, _ = browser.opened(page, tmp_path, reader, more=words)
    assert seen["failures"] == [] and seen["dark"] == dark and seen["passed"] > 30
    assert seen["against"] == []


CONTRAST = """
  const light = colour => {
    const [r, g, b] = colour.match(/[\\\\d.]+/g).slice(0, 3).map(Number).map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
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


@browser.needed
@pytest.mark.parametrize("dark", slow.first([False, True]))
def test_contrast_names_and_keys(whole: Path, tmp_path: Path, dark: bool) -> None:
    # Of all text, also where axe-core cannot tell what lies behind it (WCAG 2.1 AA: 1.4.3, 4.1.2, 2.1.1).
    words = ["--blink-settings=preferredColorScheme=0"] if dark else []
    seen, console = browser.opened(whole, tmp_path, CONTRAST.replace("\\\\", "\\"), more=words)
    assert not console and seen["failures"] == [] and seen["dark"] == dark and seen["checked"] > 1000
    assert seen["poor"] == [] and seen["nameless"] == [] and seen["twice"] == [] and seen["unreached"] == 0
