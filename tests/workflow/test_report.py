"""The report in a real browser: it opens offline, sorts, filters, opens a cell, and says nothing on the console."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from tests.workflow.project import Project

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# What a reader does, and what the page shows then; errors of the page itself count as well.
READER = """
<script>
window.failures = [];
addEventListener("error", event => failures.push(event.message));
</script>
"""
ACTIONS = """
<pre id="seen"></pre>
<script>
addEventListener("load", () => {
  const table = document.getElementById("table-cells"), heads = [...table.tHead.rows[0].cells];
  const column = name => heads.findIndex(head => head.textContent === name);
  const values = name => [...table.tBodies[0].rows].filter(row => !row.hidden)
    .map(row => row.cells[column(name)].dataset.value);
  const seen = {columns: heads.map(head => head.textContent)};
  heads[column("step")].click();
  seen.ascending = values("step").map(Number);
  heads[column("step")].click();
  seen.descending = values("step").map(Number);
  heads[column("model")].dispatchEvent(new KeyboardEvent("keydown", {key: "Enter"}));
  seen.models = values("model");
  const input = document.querySelector("input.filter");
  input.value = "LSTM train";
  input.dispatchEvent(new Event("input"));
  seen.filtered = [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => row.cells[0].textContent);
  const link = table.tBodies[0].querySelector("tr:not([hidden]) a");
  link.click();
  setTimeout(() => {
    const cell = document.getElementById(link.hash.slice(1));
    seen.opened = cell.open;
    seen.shows = cell.textContent.replace(/\\s+/g, " ");
    seen.figures = document.querySelectorAll("figure svg").length;
    seen.width = document.documentElement.scrollWidth <= innerWidth;
    seen.failures = failures;
    document.getElementById("seen").textContent = JSON.stringify(seen);
  }, 200);
});
</script>
"""

pytestmark = pytest.mark.skipif(not BROWSER, reason="no Chromium on this machine to open the report in")


def opened(page: Path, folder: Path) -> tuple[dict, str]:
    """What a reader sees in the page, and what the browser says on its console; no network can be reached."""
    copy = folder / "report.html"
    html = page.read_text()
    copy.write_text(html.replace("<head>", f"<head>{READER}", 1).replace("</body>", f"{ACTIONS}</body>", 1))
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
        f"--user-data-dir={folder / 'browser'}", "--proxy-server=127.0.0.1:9", "--enable-logging=stderr",
        "--virtual-time-budget=5000", "--dump-dom", copy.as_uri(),
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    seen = re.search(r'<pre id="seen">(.*?)</pre>', run.stdout, re.DOTALL)
    assert seen and seen[1], run.stderr
    console = "\n".join(line for line in run.stderr.splitlines() if "CONSOLE" in line)
    return json.loads(unescape(seen[1])), console


def test_report_in_a_browser(built: Project, tmp_path: Path) -> None:
    seen, console = opened(built.root / "results/report.html", tmp_path)
    assert not console and seen["failures"] == []
    assert seen["columns"][:2] == ["model", "phase"] and "step" in seen["columns"]
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
