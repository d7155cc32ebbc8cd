"""docs/extending.md, to the letter: its files are written into a copy of the checkout, and its commands run there."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pandas as pd
import pytest
import yaml

from profzoo.config import configuration
from profzoo.reading import kinds
from profzoo.tables import across
from profzoo.tools.ncu import command
from tests.workflow.project import CHECKOUT, Project, copy

PAGE = CHECKOUT / "docs" / "extending.md"
# A block of code, and before it the line that names the file that it is, if it is one.
BLOCK = re.compile(r"^(?:(?P<named>[^\n]*`[^\n]+):\n\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.M)
APPENDED = "At the end of "
TESTS = (
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/unit/__init__.py",
    "tests/data",
    "pyproject.toml",
    "tests/unit/test_tools.py",
)
DRAWN = "from profzoo.figures import drawing; drawing.main('memory', {'cells': 'cells.csv'}, {}, ['memory.svg'])"


def files(page: str) -> Iterator[tuple[str, str, bool]]:
    """Path and text of each file on the page, and whether the text is to be appended to it."""
    for block in BLOCK.finditer(page):
        if block["language"] != "sh":
            assert block["named"], f"no file is named for:\n{block['text']}"
            yield re.findall(r"`([^`]+)`", block["named"])[0], block["text"], block["named"].startswith(APPENDED)


def commands(page: str) -> list[str]:
    """The commands on the page, in order."""
    return [line for block in BLOCK.finditer(page) if block["language"] == "sh" for line in block["text"].splitlines()]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the checkout with all files on the page."""
    project = copy(tmp_path_factory.mktemp("extended") / "project")
    for name in TESTS:
        target = project.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (CHECKOUT / name).is_dir() else shutil.copy2)(CHECKOUT / name, target)
    for name, text, appended in files(PAGE.read_text()):
        assert (project.root / name).exists() == appended
        with (project.root / name).open("a") as file:
            file.write(text)
    return project


def run(project: Project, *words: str) -> str:
    """What a command prints, which must succeed."""
    done = subprocess.run(
        words, cwd=project.root, env=project.environment(), capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PRINTED = {
    "python -m models.run perceptron train hidden=128 device=cpu": "394,634 parameters",
    "snakemake -n results/perceptron/train.ncu.csv": "1 cell, ncu: about ",
    "snakemake -n results/lstm/train.ncu.pipes.csv --configfile mine.yaml": "  ncu pipes    1 job ",
    "python -m pytest -q tests/unit/test_memory.py": "2 passed",
    "snakemake -n results/figures/memory.svg --config models=lstm": "  figures       1 job ",
    "python -m pytest -q tests/unit/test_host_bound.py": "1 passed",
    "python -m pytest -q tests/unit/test_tools.py": "passed",
    "snakemake -n results/lstm/train.sample.csv": "  sample   1 job ",
    "snakemake -n report --config models=lstm tool=sample": "2 cells, sample: about ",
}


def test_all_commands_are_known() -> None:
    assert commands(PAGE.read_text()) == list(PRINTED)


@pytest.mark.parametrize("line", PRINTED)
def test_a_command_does_what_the_page_says(extended: Project, line: str) -> None:
    assert PRINTED[line] in run(extended, "bash", "-c", line)


def test_the_figure_is_drawn(extended: Project) -> None:
    cells = pd.DataFrame({"model": ["lstm", "unet"], "phase": "train", "device": "a GPU", "date": "2025-01-01"})
    others = {name: "a" if kind == kinds.TEXT else 1 for name, kind in across.TABLES["cells"].columns.items()}
    cells = cells.assign(**{name: value for name, value in others.items() if name not in cells})
    cells.assign(peak_memory_bytes=[2**30, 2**31]).to_csv(extended.root / "cells.csv", index=False)
    run(extended, sys.executable, "-c", DRAWN)
    assert "<svg" in (extended.root / "memory.svg").read_text()


def test_the_section_set_is_what_ncu_is_asked_for(extended: Project) -> None:
    chosen = configuration.normalise(yaml.safe_load(extended.read("mine.yaml")))["ncu"]
    words = " ".join(command.options(chosen, "pipes"))
    assert "--section ComputeWorkloadAnalysis --metrics gpu__time_duration.sum" in words


def test_a_file_without_a_name_is_no_file() -> None:
    page = "A file:\n\n```python\nimport os\n```\n"
    with pytest.raises(AssertionError, match="no file is named for"):
        list(files(page))
    assert list(files(f"`a.py`, a file:\n\n{page[9:]}")) == [("a.py", "import os\n", False)]
    assert list(files(f"At the end of `a.yaml`:\n\n{page[9:]}")) == [("a.yaml", "import os\n", True)]
    assert commands("```sh\nls\ntrue\n```\n") == ["ls", "true"] and not list(files("```sh\nls\n```\n"))
