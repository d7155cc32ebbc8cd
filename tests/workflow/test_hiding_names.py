"""Files of the working folder that are called like modules of Python's own break no job; users' modules are found."""

import subprocess
import sys
from pathlib import Path

import pytest

from models import lstm
from tests.workflow.project import Project

HIDING = ("profile", "queue", "signal", "statistics", "random", "code")
CONFIG = """\
tool: torch
models: {mine: {module: mine, sequence_length: 8}}
phases: [train]
device: cpu
warmup: 1
time: {window: 2}
torch: {window: 1}
"""


@pytest.mark.slow
def test_jobs_go_by_pythons_own_modules(fresh: Project) -> None:
    for name in HIDING:
        fresh.write(f"{name}.py", "raise RuntimeError('hides a module of Python')\n")
    fresh.write("mine.py", Path(lstm.__file__).read_text())
    fresh.write("tiny.yaml", CONFIG)
    targets = ["results/mine/train.time.csv", "results/mine/train.torch.csv"]
    command = [str(Path(sys.executable).with_name("snakemake")), *targets, "--configfile", "tiny.yaml", "--cores", "1"]
    done = subprocess.run(
        command, cwd=fresh.root, env=fresh.environment(), capture_output=True, text=True, check=False, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all((fresh.root / target).exists() for target in targets)
