"""docs/guides/extending.md, to the letter: its files go into a copy of the checkout, where commands and tests run."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from profzoo.config import configuration
from profzoo.io import column_types
from profzoo.tables import schemas
from profzoo.tools.ncu import command
from tests import browser, slow
from tests.workflow import forked
from tests.workflow.project import CHECKOUT, TINY, Project

PAGE = CHECKOUT / "docs" / "guides" / "extending.md"
# A block of code, and before it the line that names the file that it is, if it is one.
BLOCK = re.compile(r"^(?:(?P<named>[^\n]*`[^\n]+):\n\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.M)
APPENDED = "At the end of "
INSERTED = re.compile(r"In `(?P<path>[^`]+)`, after `(?P<line>[^`]+)`$")
# What of a checkout is no part of the project.
BESIDES = shutil.ignore_patterns(
    ".venv", ".git", ".snakemake", "results", "runs", "shared", "__pycache__", ".*_cache", "*.egg-info"
)
# Tests of what the page adds to. The others have no more to do with it: `make faults` runs all of tests/unit.
TOUCHED = (
    "memory_blocks", "cpu_verdicts", "document_zoo", "gain_models", "figures", "house", "imports", "savings", "registry", "schema",
    "terminal", "tools", "verdict_rules", "verdicts", "whole_page",
)  # fmt: skip
DRAWN = "from profzoo.figures import drawing; drawing.main('memory', {'cells': 'cells.csv'}, {}, ['memory.svg'])"


@dataclass(frozen=True)
class Written:
    """A text on the page and its file: new, or appended to, or with the text after a line."""

    path: str
    text: str
    appended: bool = False
    after: str = ""

    def write(self, root: Path) -> None:
        """Do as the page says; what it creates must not be there, and what it adds to must."""
        path = root / self.path
        assert path.exists() == (self.appended or bool(self.after)), f"{self.path} exists already, or does not"
        before = path.read_text() if path.exists() else ""
        if self.after:
            assert before.count(f"{self.after}\n") == 1, f"{self.path}: not one line {self.after!r}"
            path.write_text(before.replace(f"{self.after}\n", f"{self.after}\n{self.text}"))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(before + self.text)


def files(page: str) -> Iterator[Written]:
    """The files on the page."""
    for block in BLOCK.finditer(page):
        # How a package that is installed names its extension is no file here.
        if block["language"] not in ("sh", "toml"):
            assert block["named"], f"no file is named for:\n{block['text']}"
            if inserted := INSERTED.match(block["named"]):
                yield Written(inserted["path"], block["text"], after=inserted["line"])
            else:
                path = re.findall(r"`([^`]+)`", block["named"])[0]
                yield Written(path, block["text"], block["named"].startswith(APPENDED))


def counted(page: str) -> list[str]:
    """A row per section of the page that writes files: how many, and how many lines."""
    rows = []
    for section in page.split("\n## ")[1:]:
        written = list(files(section))
        if written:
            lines = sum(one.text.count("\n") for one in written)
            rows.append(f"| {section.splitlines()[0]} | {len({one.path for one in written})} | {lines} |")
    return rows


def commands(page: str) -> list[str]:
    """The commands on the page, in order."""
    return [line for block in BLOCK.finditer(page) if block["language"] == "sh" for line in block["text"].splitlines()]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the checkout with all files on the page."""
    root = tmp_path_factory.mktemp("extended") / "profzoo"
    shutil.copytree(CHECKOUT, root, ignore=BESIDES)
    (root / "tiny.yaml").write_text(TINY)
    for one in files(PAGE.read_text()):
        one.write(root)
    # The suite itself opens the page in a browser; of the page that has one section more, `make faults` does.
    return Project(root, variables={browser.HIDDEN: "1"})


def run(project: Project, *words: str) -> str:
    """What a command prints, which must succeed."""
    if words[0] == "snakemake":
        done = forked.snakemake(words[1:], project.root, project.environment())
    else:
        done = subprocess.run(
            words,
            cwd=project.root,
            env=project.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PRINTED = {
    "python -m models.run perceptron train hidden=128 device=cpu": "394,634 parameters",
    "snakemake -n results/perceptron/train.ncu.csv": "1 cell, ncu: cannot run here",
    "python -m profzoo.document.zoo docs/reference/zoo.md": "",
    "python -m pytest -q tests/unit/test_models.py tests/unit/test_registry.py -k perceptron": "passed",
    "snakemake -n results/lstm/train.ncu.pipes.csv --configfile mine.yaml": "  ncu pipes    1 job ",
    "python -m pytest -q tests/unit/test_memory_figure.py": "2 passed",
    "snakemake -n results/figures/memory.svg --config models=lstm": "  figures       1 job ",
    "python -m pytest -q tests/unit/test_host_bound.py": "1 passed",
    "python -m profzoo.document.verdicts docs/guides/verdicts.md": "",
    "python -m profzoo.document.config config/README.md": "",
    "snakemake -n results/figures/parameters.svg --config models=lstm figures='{most_cells: 10}'": "  figures       1 job ",
    "python -m pytest -q tests/unit/test_whole_page.py tests/unit/test_house.py": "passed",
    "python -m pytest -q tests/unit/test_tools.py": "passed",
    "snakemake -n results/lstm/train.sample.csv": "  sample   1 job ",
    "snakemake -n report --config models=lstm tool=sample": "2 cells, sample: about ",
    "snakemake -n results/figures/parameter_count.svg --config models=lstm extensions=lab": "  figures       1 job ",
    "snakemake -n results/lstm/train.ncu.lab_pipes.csv --config extensions=lab": "  ncu lab_pipes   1 job ",
    "snakemake -n results/lstm/train.clock.csv --config extensions=lab": "  clock    1 job ",
    "snakemake -n report --config models=lstm tool=clock extensions=lab": "2 cells, clock: about ",
}


def run_by_the_page() -> set[str]:
    """The files of unit tests, by their names, that commands on the page run from end to end in the same copy."""
    whole = [line for line in PRINTED if "pytest" in line and " -k " not in line]
    return {name for line in whole for name in re.findall(r"tests/unit/test_(\w+)\.py\b", line)}


def test_the_page_says_what_each_task_takes() -> None:
    page = PAGE.read_text()
    rows = counted(page)
    assert len(rows) >= 8 and "\n".join(["|---|---|---|", *rows, ""]) in page, "\n".join(rows)


def test_a_tool_from_outside_measures(extended: Project) -> None:
    """Also a column of the page's table of cells is its own."""
    (extended.root / "outside.yaml").write_text(f"extensions: [lab]\n{TINY}clock: {{window: 1}}\n")
    run(extended, "snakemake", "results/lstm/train.clock.csv", "-c1", "--configfile", "outside.yaml")
    (row,) = pd.read_csv(extended.root / "results/lstm/train.clock.csv").to_dict("records")
    assert row["cpu_s"] > 0
    again = run(extended, "snakemake", "-n", "results/lstm/train.clock.csv", "--configfile", "outside.yaml")
    assert "Nothing to be done" in again
    (extended.root / "lab/tools/clock/clock.py").write_text("# Another.\n" + extended.read("lab/tools/clock/clock.py"))
    again = run(extended, "snakemake", "-n", "results/lstm/train.clock.csv", "--configfile", "outside.yaml")
    assert "  clock    1 job" in again


def test_a_figure_and_a_rule_from_outside_are_known(extended: Project) -> None:
    code = (
        "from profzoo.figures import all_figures; from profzoo.verdicts import rules; from profzoo import extensions; "
    )
    code += "extensions.use('lab'); from profzoo.report import glossary; print('parameter_count' in all_figures(), "
    code += "rules.load_rules()['rules'][-1]['verdict'], 'Python-bound' in glossary.load_meanings())"
    assert run(extended, sys.executable, "-c", code) == "True Python-bound True\n"


def test_all_commands_are_known() -> None:
    assert commands(PAGE.read_text()) == list(PRINTED)


@pytest.mark.parametrize("line", slow.first(PRINTED, 2))
def test_a_command_does_what_the_page_says(extended: Project, line: str) -> None:
    words = shlex.split(line) if line.startswith("snakemake ") else ["bash", "-c", line]
    assert PRINTED[line] in run(extended, *words)


@pytest.mark.slow
def test_the_tests_of_what_the_page_adds_to_pass(extended: Project) -> None:
    """After the commands before, which write the documents that they hold."""
    run(extended, "bash", "-c", "python -m profzoo.document.zoo docs/reference/zoo.md")
    run(extended, "bash", "-c", "python -m profzoo.document.config config/README.md")
    # The page's own commands run the others.
    there = run_by_the_page()
    assert there >= {"house", "tools", "whole_page"}
    names = (f"tests/unit/test_{name}.py" for name in TOUCHED if name not in there)
    printed = run(extended, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names)
    assert " passed" in printed and "failed" not in printed


@pytest.mark.faults
def test_all_unit_tests_pass_with_what_the_page_adds(extended: Project) -> None:
    words = (sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "tests/unit")
    printed = run(replace(extended, variables={}), *words)
    assert " passed" in printed and "failed" not in printed


@pytest.mark.slow
def test_the_figure_is_drawn(extended: Project) -> None:
    cells = pd.DataFrame({"model": ["lstm", "unet"], "phase": "train", "device": "a GPU", "date": "2025-01-01"})
    others = {name: "a" if kind == column_types.TEXT else 1 for name, kind in schemas.TABLES["cells"].columns.items()}
    cells = cells.assign(**{name: value for name, value in others.items() if name not in cells})
    cells.assign(peak_memory_bytes=[2**30, 2**31]).to_csv(extended.root / "cells.csv", index=False)
    run(extended, sys.executable, "-c", DRAWN)
    assert "<svg" in (extended.root / "memory.svg").read_text()


@pytest.mark.slow
def test_the_section_set_is_what_ncu_is_asked_for(extended: Project) -> None:
    chosen = configuration.normalise_config(yaml.safe_load(extended.read("mine.yaml")))["ncu"]
    words = " ".join(command.options(chosen, "pipes"))
    assert "--section ComputeWorkloadAnalysis --metrics gpu__time_duration.sum" in words


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    Written("new.py", "a\nb\n").write(tmp_path)
    with pytest.raises(AssertionError, match=r"new\.py exists already"):
        Written("new.py", "c\n").write(tmp_path)
    with pytest.raises(AssertionError, match="not one line 'c'"):
        Written("new.py", "d\n", after="c").write(tmp_path)
    Written("new.py", "d\n", after="a").write(tmp_path)
    Written("new.py", "e\n", appended=True).write(tmp_path)
    assert (tmp_path / "new.py").read_text() == "a\nd\nb\ne\n"


def test_a_file_without_a_name_is_no_file() -> None:
    page = "A file:\n\n```python\nimport os\n```\n"
    with pytest.raises(AssertionError, match="no file is named for"):
        list(files(page))
    assert list(files(f"`a.py`, a file:\n\n{page[9:]}")) == [Written("a.py", "import os\n")]
    assert list(files(f"At the end of `a.yaml`:\n\n{page[9:]}")) == [Written("a.yaml", "import os\n", True)]
    assert list(files(f"In `a.py`, after `  b`:\n\n{page[9:]}")) == [Written("a.py", "import os\n", after="  b")]
    assert commands("```sh\nls\ntrue\n```\n") == ["ls", "true"] and not list(files("```sh\nls\n```\n"))
