"""A page of nothing but cells on a CPU speaks of no GPU, neither as it is nor as a browser opens its cells."""

import re
from pathlib import Path

import pytest

from profzoo.report import glossary, overview, step_bars
from tests import browser, cpu_page, whole_zoo


@pytest.mark.slow
def test_what_is_of_gpus_is_found_in_a_page_of_these(tmp_path: Path) -> None:
    assert len(cpu_page.of_gpus(whole_zoo.write(tmp_path, drawn=False).read_text())) > 50
    (found,) = cpu_page.of_gpus('<p title="the GPU">nothing</p><script>launches</script><code>a/ncu.csv</code>')
    assert found.split() == ["nothing", "the", "GPU"]


def test_a_page_of_cells_on_a_cpu_has_no_words_of_gpus(tmp_path: Path) -> None:
    html = cpu_page.write(tmp_path).read_text()
    assert cpu_page.of_gpus(html) == []
    # Without counters, colours of bounds mean nothing; and nothing is simulated.
    said = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.DOTALL)
    assert "not counted" not in said and "simulat" not in said
    assert "Largest operators" in html and "operator-bound" in html and "Top operators" in html
    # And all that it links is there.
    for entry in (entry for entries in glossary.load_groups(on_cpu=True).values() for entry in entries):
        assert f'id="{entry["anchor"]}"' in html


def test_one_cell_on_a_gpu_makes_a_page_of_gpus() -> None:
    cells = cpu_page.tables()["cells"]
    assert overview.all_on_cpu(cells)
    cells.loc[0, "device"] = "NVIDIA H200"
    assert not overview.all_on_cpu(cells) and not overview.all_on_cpu(cells.head(0))


OPENED = """
  for (const cell of document.querySelectorAll("details.cell")) cell.open = true;
  await wait(300);
  seen.text = [...document.querySelectorAll("details.cell")].map(cell => cell.innerText).join(" ");
  seen.heads = [...document.querySelectorAll("details.cell h3")].map(head => head.textContent);
"""


@browser.needed
def test_cells_on_a_cpu_open_without_words_of_gpus(tmp_path: Path) -> None:
    seen, _ = browser.opened(cpu_page.write(tmp_path), tmp_path, OPENED)
    assert seen["failures"] == [] and "Where the CPU's time goes" in seen["heads"]
    assert cpu_page.of_gpus(f"<p>{seen['text']}</p>") == []


def test_numbers_of_a_page_by_hand(tmp_path: Path) -> None:
    given = cpu_page.tables()
    cells = given["cells"].assign(step_ns=[2.02e9, 1e7], step_low_ns=[1.5e9, 9.9e6], step_high_ns=[2.54e9, 1.01e7])
    cells = cells.assign(step_median_ns=[1.6e9, 1e7], step_lower_quartile_ns=[1.32e9, 9.9e6], processes=[3, 1])
    cells = cells.assign(step_upper_quartile_ns=[1.95e9, 1.01e7])
    shown = overview.cells_context({**given, "cells": cells}, [], [])
    rows = {row["phase"]: row for row in shown["cells"]}
    # The mean with its interval, the median with its quartiles.
    assert [rows["train"][name] for name in ("step", "spread", "steps")] == [
        "2.02 s",
        "1.5 to 2.54 s",
        "10 steps × 3 processes",
    ]
    assert (rows["inference"]["spread"], rows["inference"]["steps"]) == ("9.9 to 10.1 ms", "10 steps")
    median = rows["train"]["fields"][shown["cell_columns"].index("median") - len(overview.LEADING_COLUMNS)]
    assert (median["text"], median["between"]) == ("1.6 s", "1.32 s to 1.95 s")
    # Data for 1 of 10 ms, forward for 9.
    strip = step_bars.step_parts(given, "m", "train")
    assert [(part["part"], part["percent"]) for part in strip] == [
        ("data", pytest.approx(10)),
        ("forward", pytest.approx(90)),
    ]
    # Half a percent is the least that is shown.
    for ns, parts in ((0.06e6, ["data", "forward"]), (0.05e6, ["data", "forward"]), (0.04e6, ["forward"])):
        ranges = given["ranges"].assign(ns_per_step=[ns, 10e6 - ns] * 2)
        assert [part["part"] for part in step_bars.step_parts({**given, "ranges": ranges}, "m", "train")] == parts
