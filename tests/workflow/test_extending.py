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
from profzoo.io.columns import TEXT
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
# What of a checkout is not a part of the project.
BESIDES = shutil.ignore_patterns(
    ".venv", ".git", ".snakemake", "results", "runs", "shared", "__pycache__", ".*_cache", "*.egg-info"
)
DRAWN = "from profzoo.figures import drawing; drawing.main({'cells': 'cells.csv'}, {}, ['memory.svg'], 100)"


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


# A second rule on a share that a shipped rule has, with its word and its evidence: what an extender writes first.
SECOND = (
    Written("profzoo/verdicts/rules/rules.yaml", """\
  - verdict: transfer-heavy
    of: step
    share: transfer
    at_least: 0.05
    cured: 1
    advice:
      - next: "send less to the GPU"
    source: "PyTorch performance tuning guide"
""", appended=True),
    Written("profzoo/report/words.yaml", '  - {word: transfer-heavy, means: "Transfers take a part."}\n', appended=True),
    Written(
        "profzoo/document/verdict_evidence.yaml", '    transfer-heavy: {told: "At least 5 % of the step."}\n', appended=True
    ),
)  # fmt: skip


def files(page: str) -> Iterator[Written]:
    for block in BLOCK.finditer(page):
        # How a package that is installed names its extension is not a file here.
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
    return [line for block in BLOCK.finditer(page) if block["language"] == "sh" for line in block["text"].splitlines()]


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the checkout with all files on the page."""
    root = tmp_path_factory.mktemp("extended") / "profzoo"
    shutil.copytree(CHECKOUT, root, ignore=BESIDES)
    (root / "tiny.yaml").write_text(TINY)
    for one in files(PAGE.read_text()):
        one.write(root)
    # The suite itself opens the page in a browser; of the page that has one section more, the last test does.
    return Project(root, variables={browser.HIDDEN: "1"})


def run(project: Project, *words: str, timeout_s: float = 1200) -> str:
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
            timeout=timeout_s,
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
    "python -m profzoo.document.columns docs/reference/columns.md": "",
    "python -m profzoo.document.config config/README.md": "",
    "python -m profzoo.document.python_types profzoo/cell": "",
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


def test_the_page_says_what_each_task_takes() -> None:
    page = PAGE.read_text()
    rows = counted(page)
    assert len(rows) >= 8 and "\n".join(["|---|---|---|", *rows, ""]) in page, "\n".join(rows)


@pytest.mark.slow
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
    code = "from profzoo.figures import all_figures; from profzoo.verdicts.rules import rules; from profzoo import extensions; "
    code += "extensions.use('lab'); from profzoo.report import glossary; print('parameter_count' in all_figures(), "
    code += "rules.load_rules()['rules'][-1]['verdict'], 'Python-bound' in glossary.load_meanings())"
    assert run(extended, sys.executable, "-c", code) == "True Python-bound True\n"


def test_all_commands_are_known() -> None:
    assert commands(PAGE.read_text()) == list(PRINTED)


@pytest.mark.parametrize("line", slow.only(PRINTED, "snakemake -n results/perceptron/train.ncu.csv"))
def test_a_command_does_what_the_page_says(extended: Project, line: str) -> None:
    words = shlex.split(line) if line.startswith("snakemake ") else ["bash", "-c", line]
    assert PRINTED[line] in run(extended, *words)


@pytest.mark.slow
def test_all_unit_tests_pass_with_what_the_page_adds(extended: Project) -> None:
    """Also with a second rule on the share of a shipped one, after the page's commands that write documents."""
    for one in SECOND:
        one.write(extended.root)
    for line in (line for line in PRINTED if line.startswith("python -m profzoo.document.")):
        run(extended, *line.split())
    # A GPU that is named, as in other tests, counts as granted.
    words = shlex.split("env -u CUDA_VISIBLE_DEVICES python -m pytest -q -n 2 -p no:cacheprovider tests/unit")
    printed = run(replace(extended, variables={}), *words, "-m", "not slow and not faults", timeout_s=3600)
    assert " passed" in printed and "failed" not in printed


@pytest.mark.slow
def test_the_figure_is_drawn(extended: Project) -> None:
    cells = pd.DataFrame({"model": ["lstm", "unet"], "phase": "train", "device": "a GPU", "date": "2025-01-01"})
    others = {name: "a" if one.kind == TEXT else 1 for name, one in schemas.TABLES["cells"].columns.items()}
    cells = cells.assign(**{name: value for name, value in others.items() if name not in cells})
    cells.assign(peak_memory_bytes=[2**30, 2**31]).to_csv(extended.root / "cells.csv", index=False)
    run(extended, sys.executable, "-c", DRAWN)
    assert "<svg" in (extended.root / "memory.svg").read_text()


@pytest.mark.slow
def test_the_section_set_is_what_ncu_is_asked_for(extended: Project) -> None:
    chosen = configuration.normalise_config(yaml.safe_load(extended.read("mine.yaml")))["ncu"]
    words = " ".join(command.options(chosen, "pipes"))
    assert "--section ComputeWorkloadAnalysis --metrics gpu__time_duration.sum" in words
