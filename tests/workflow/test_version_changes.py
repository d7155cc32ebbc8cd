"""What a user is told of results that another torch has measured, and that the line to type measures them again."""

import json
import os
import re
import subprocess
import sys

import pytest

from profzoo.collect import version_changes
from tests.workflow.project import COLLECTING, Project


@pytest.mark.slow
def test_results_of_another_torch_are_told_and_can_be_measured_again(built: Project) -> None:
    assert "installed now" not in built.snakemake("report", "-n").stderr
    sidecar = built.root / "results/lstm/train.time.csv.json"
    times, facts = sidecar.stat(), json.loads(sidecar.read_text())
    sidecar.write_text(json.dumps(facts | {"torch": "1.2.3"}))
    os.utime(sidecar, ns=(times.st_atime_ns, times.st_mtime_ns))
    now = version_changes.installed_versions({"torch"})["torch"]
    for words in (["report", "-n"], ["report", "-n", "-q", "all"], ["results/lstm/train.time.csv"]):
        said = built.snakemake(*words).stderr
        assert f"profzoo: 1 cell (lstm train) was measured with torch 1.2.3, and torch {now} is installed now" in said
    # Nothing is made again by itself, and of other models and tools nothing is said.
    assert not {job.rule for job in built.dry("all")} & COLLECTING
    for words in (["results/unet/train.time.csv"], ["clean", "-n"], ["report", "-n", "--config", "models=unet"]):
        assert "installed now" not in built.snakemake(*words).stderr
    (command,) = re.findall(r"end the line with -R \$\(python (.*)\)", said)
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=built.root, capture_output=True, text=True, check=True
    )
    again = done.stdout.split()
    assert again == ["results/lstm/train.time.csv.json"]
    measuring = [(job.rule, job.model) for job in built.dry("all", "-R", *again) if job.rule in COLLECTING]
    assert measuring == [("time_training", "lstm")]
    assert "installed now" not in built.snakemake("all", "-n", "-R", *again).stderr
