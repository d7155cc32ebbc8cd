"""The report in a real browser: it opens offline, sorts, filters, opens a cell, and says nothing on the console."""

import re
from pathlib import Path

from tests import browser
from tests.workflow.project import Project

pytestmark = browser.needed
READER = """
  const table = document.getElementById("table-cells"), heads = [...table.tHead.rows[0].cells];
  const column = name => heads.findIndex(head => head.textContent === name);
  const values = name => [...table.tBodies[0].rows].filter(row => !row.hidden)
    .map(row => row.cells[column(name)].dataset.value);
  seen.columns = heads.map(head => head.textContent);
  heads[column("time per step")].click();
  seen.ascending = values("time per step").map(Number);
  heads[column("time per step")].click();
  seen.descending = values("time per step").map(Number);
  press(heads[column("model")], "Enter");
  seen.models = values("model");
  type(document.querySelector("input.filter"), "LSTM train");
  seen.filtered = [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[0].textContent);
  const link = table.tBodies[0].querySelector("tr:not([hidden]) a");
  link.click();
  await wait(200);
  const cell = document.getElementById(link.hash.slice(1));
  seen.opened = cell.open;
  seen.shows = cell.textContent.replace(/\\s+/g, " ");
  seen.figures = document.querySelectorAll("figure svg").length;
  seen.width = document.documentElement.scrollWidth <= innerWidth;
"""


def test_report_in_a_browser(built: Project, tmp_path: Path) -> None:
    seen, console = browser.opened(built.root / "results/report.html", tmp_path, READER)
    assert not console and seen["failures"] == []
    assert seen["columns"][:2] == ["model", "phase"] and "time per step" in seen["columns"]
    assert len(seen["ascending"]) == 4
    assert seen["ascending"] == sorted(seen["ascending"])
    assert seen["descending"] == seen["ascending"][::-1]
    assert seen["models"] == ["lstm", "lstm", "unet", "unet"]
    assert seen["filtered"] == ["lstm"] and seen["opened"]
    assert "train.torch.csv" in seen["shows"] and "Perfetto" in seen["shows"]
    assert seen["figures"] >= 3 and seen["width"]


def test_report_needs_nothing_from_elsewhere(built: Project) -> None:
    html = built.read("results/report.html")
    assert not re.findall(r'(?:src|href)="(?:https?:)?//(?!ui\.perfetto\.dev)', html)
    for link in re.findall(r'href="([^"#:]+)"', html):
        assert (built.root / "results" / link).exists(), link
