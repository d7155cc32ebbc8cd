"""Results that were copied from another checkout: figures and the report are made of them, and nothing is collected."""

import csv
import os
import random
import shutil
from pathlib import Path

import pytest

from tests.workflow.project import COLLECTING, Project, copy, rules

AS_IT_IS = ["--config", "collect=false"]
ADDED_UP = ("layers", "operators", "layer-kernels", "owners", "ranges", "repetition", "step-launches", "fusion",
            "fusion-kernels")  # fmt: skip


@pytest.fixture
def copied(built: Project, tmp_path: Path) -> Project:
    """Another checkout with what was collected and exported, the times of the files mixed up, without tables."""
    other = copy(tmp_path / "project")
    shutil.copytree(built.root / "results", other.root / "results")
    for folder in ("tables", "figures"):
        shutil.rmtree(other.root / "results" / folder)
    (other.root / "results/report.html").unlink()
    chance = random.Random(0)
    for path in (other.root / "results").rglob("*"):
        os.utime(path, (when := 1.7e9 + chance.randrange(10**7), when))
    return other


@pytest.mark.slow
def test_copied_results_are_drawn_and_not_collected_again(built: Project, copied: Project) -> None:
    # By their times Snakemake would make all of them again: their records tell that they are what it would make.
    assert not rules(copied.dry("report")) & COLLECTING
    exported = [path for path in copied.root.glob("results/*/*.csv") if path.name.split(".")[1] not in ADDED_UP]
    before = {path: path.stat().st_mtime_ns for path in exported}
    planned = {rule for rule in rules(copied.dry("report", *AS_IT_IS)) if not rule.startswith("draw_")}
    # Not layers of cells: these came along with their records.
    assert planned == {"tabulate_cells", "write_report"}
    copied.snakemake("report", *AS_IT_IS)
    assert before == {path: path.stat().st_mtime_ns for path in before}
    # `all` makes one that no page shows.
    there, here = ({path.name: path.read_text() for path in project.root.glob("results/tables/*.csv")}
                   for project in (built, copied))  # fmt: skip
    assert there == {**here, "fusion.csv": there["fusion.csv"]}
    drawn = {path.name for path in copied.root.glob("results/figures/*.svg")}
    assert drawn == {path.name for path in built.root.glob("results/figures/*.svg")}
    assert copied.dry("report", *AS_IT_IS) == []


@pytest.mark.slow
def test_what_was_not_copied_is_said_to_be_missing(copied: Project) -> None:
    copied.draw_one()
    (copied.root / "results/unet/train.torch.csv").unlink()
    (copied.root / "results/lstm/inference.time.csv").unlink()
    with (copied.root / "results/logs/lstm/inference.time.log").open("a") as log:
        log.write("profzoo: the cat is on the keyboard\n")
    said = copied.snakemake("report", *AS_IT_IS).stderr
    assert said.count("warning: no results of torch in 1 cell (unet train): train.torch.csv is missing") == 1
    assert said.count("warning: no results in 1 cell (lstm inference): the cat is on the keyboard") == 1
    page = copied.read("results/report.html")
    assert "<b>1 of 4 cells is missing</b>" in page and "lstm inference: the cat is on the keyboard" in page
    assert "<b>1 measurement is missing</b>" in page and "unet train under torch: train.torch.csv is missing" in page
    told = {tuple(row[:2]) for row in csv.reader(copied.read("results/tables/cells.csv").splitlines()[1:])}
    assert told == {("lstm", "train"), ("unet", "train"), ("unet", "inference")}
    seen = {tuple(row[:2]) for row in csv.reader(copied.read("results/tables/activity.csv").splitlines()[1:])}
    assert seen == told - {("unet", "train")}


def test_a_copy_of_nothing_says_what_it_takes(copied: Project) -> None:
    for path in copied.root.glob("results/*/*.time.csv"):
        path.unlink()
    run = copied.snakemake("report", "--dry-run", *AS_IT_IS, ok=False)
    assert run.returncode == 1 and "results/lstm/train.time.csv" in run.stdout + run.stderr
