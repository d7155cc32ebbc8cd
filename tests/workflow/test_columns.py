"""Real results as their readers find them: every column of every CSV is described, and the page works in a browser."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from profzoo.catalog import csv_files
from profzoo.records import import_graph
from tests import browser, recorded_results
from tests.columns import undescribed
from tests.workflow.project import Project


def test_every_column_of_results_is_described(built: Project) -> None:
    results = built.root / "results"
    assert undescribed(results) == []
    rows = list(csv.DictReader(io.StringIO(built.read("results/tables/columns.csv"))))
    assert rows == csv_files.tabulate_columns().to_dict("records")


def test_every_column_of_counters_is_described(ncu_built: Project) -> None:
    assert list((ncu_built.root / "results").rglob("*.ncu.roofline.csv"))
    assert undescribed(ncu_built.root / "results") == []


@pytest.mark.slow
def test_all_tables_are_written_as_json_and_removed_again(built: Project) -> None:
    """By `all` with `export`; an older table that cannot be read is left out, and named."""
    built.write("results/lstm/train.sample.csv", "step\n")
    told = built.snakemake("-j1", "all", "--config", "export=json").stderr
    assert "left out of tables.json" in told and "train.sample.csv" in told
    assert "tables  results/tables.json/" in told
    tables = {path for path in built.files() if path.endswith(".csv") and csv_files.find_file(path)}
    # Snakemake leaves a file of its own in each folder that it makes.
    converted = {path for path in built.files() if path.startswith("tables.json/") and path.endswith(".json")}
    assert converted == {
        f"tables.json/{path.removesuffix('csv')}json" for path in tables - {"lstm/train.sample.csv"}
    } | {"tables.json/claims.json"}
    (step, *_) = json.loads(built.read("results/tables.json/lstm/train.time.json"))["data"]
    first = next(csv.DictReader(io.StringIO(built.read("results/lstm/train.time.csv"))))
    assert step["wall_ns"] == int(first["wall_ns"])
    assert built.dry("all", "--config", "export=json") == []
    shutil.rmtree(built.root / "results/tables.json")
    assert {job.rule for job in built.dry("report", "--config", "export=json")} == {"convert_tables"}
    built.snakemake("results/tables.json", "--config", "collect=false")
    assert converted <= built.files()
    built.snakemake("clean")
    assert not {path for path in built.files() if path.startswith("tables.json/")}


def test_the_notebook_answers_from_a_cpu(recorded: Path, tmp_path: Path) -> None:
    """Where a table needs a GPU, it has operators and times of the CPU, or one line that says what is missing."""
    notebook = import_graph.PROJECT / "docs/notebooks/ten_questions.ipynb"
    printed = recorded_results.run_notebook(notebook, recorded, tmp_path)
    model, phase = printed[1].split()
    assert (recorded / model / f"{phase}.layers.csv").exists()
    assert "kernels has no rows here" in printed[2] and "aten::" in printed[2] and "aten::" in printed[3]
    assert "by the cpu clock (torch)" in printed[4] and "of the step" in printed[6]
    assert "`snakemake trials" in printed[5] and "makes it" in printed[5] and "by nsys" in printed[7]
    assert all(output.strip() for output in printed)


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
  // tests/unit/test_whole_page.py draws them; a browser in virtual time does not wait until they are unpacked.
  seen.figures = document.querySelectorAll("figure").length;
  seen.width = document.documentElement.scrollWidth <= innerWidth;
"""


@browser.needed
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
