"""Snakemake's own report: what it carries, in categories with labels."""

import json
import zipfile
from typing import Any

import pytest

from tests.workflow.project import Project


def variable(page: str, name: str) -> Any:
    """What the page's script of that name assigns to the variable of that name."""
    script = page.partition(f'<script id="{name}">')[2]
    return json.JSONDecoder().raw_decode(script.partition(f"var {name} = ")[2])[0]


@pytest.mark.slow
def test_it_carries_tables_figures_and_the_page(built: Project) -> None:
    built.snakemake("--report", "out.zip")
    with zipfile.ZipFile(built.root / "out.zip") as archive:
        page = archive.read("out/report.html").decode()
        kept = {name.rpartition("/")[2] for name in archive.namelist()}
    results, categories = variable(page, "results"), variable(page, "categories")
    shown = {name: sorted(path for part in parts.values() for path in part) for name, parts in categories.items()}
    expected = {"Report": ["report.html"], "Tables": [], "Figures": []}
    expected["Tables"] = [f"tables/{path.name}" for path in built.root.glob("results/tables/*.csv")]
    expected["Figures"] = [f"figures/{path.name}" for path in built.root.glob("results/figures/*.svg")]
    assert shown == {name: sorted(f"results/{path}" for path in paths) for name, paths in expected.items()}
    assert results["results/tables/steps.csv"]["labels"] == {"table": "steps", "a row": "a cell and process"}
    assert all(one["labels"] and one["caption"] for one in results.values())
    assert {"cells.csv", "verdicts.csv", "step_time.svg"} <= kept
