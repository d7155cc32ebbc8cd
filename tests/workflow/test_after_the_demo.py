"""What the documents have a user type after the demo acts on the demo's cells, with its settings; and what cannot run says so."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests import slow
from tests.workflow.project import CHECKOUT, Project

DEMO = "--configfile config/quickstart.yaml"
PAGES = ("README.md", "docs/reference/terminal.md")
LINES = [
    line.partition("  #")[0].strip()
    for page in PAGES
    for line in (CHECKOUT / page).read_text().splitlines()
    if line.startswith("snakemake ") and DEMO in line
]


def dry(project: Project, words: list[str]) -> tuple[set[str], str]:
    """The models of which a dry run would make anything, and its output."""
    run = project.begun(*words, "-n") if "-n" not in words else project.begun(*words)
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    models = re.search(r"^  models: (.*)$", said, re.MULTILINE)
    return set(models[1].split(", ")) if models else set(), said


def test_there_are_such_lines() -> None:
    assert len(LINES) >= 4


@pytest.mark.parametrize("line", slow.first(LINES))
def test_a_line_after_the_demo_is_of_its_cells(untouched: Project, line: str) -> None:
    demo = yaml.safe_load((CHECKOUT / "config/quickstart.yaml").read_text())["models"]
    models, said = dry(untouched, shlex.split(line)[1:])
    assert models and models <= set(demo)
    cells = re.search(r"^(\d+) cells?, ", said, re.MULTILINE)
    assert cells and int(cells[1]) <= 2 * len(demo)
    assert not re.search(r"about [\d.]+ h", said)


@pytest.mark.skipif(bool(list(Path("/dev").glob("nvidia[0-9]*"))), reason="of machines without a GPU")
@pytest.mark.parametrize("tool", slow.first(["ncu", "nsys"]))
def test_a_dry_run_of_a_profiler_that_cannot_run_here_says_why(untouched: Project, tool: str) -> None:
    untouched.path = ()
    _, said = dry(untouched, ["all", "--config", "models=lstm", f"tool={tool}"])
    why = {
        "ncu": "because it profiles GPUs only, and there is no GPU",
        "nsys": "because it is not on PATH: install NVIDIA Nsight",
    }
    assert re.search(rf"^2 cells, {tool}: cannot run here$", said, re.MULTILINE)
    assert said.count(f"{tool} cannot run here, {why[tool]}") == 1 and "on this CPU" not in said
