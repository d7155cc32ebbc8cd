"""Files that a model declares are inputs of its jobs: what is replaced runs again, what is missing is one line."""

import os
from pathlib import Path

import pytest

from tests.workflow.project import Project, models, rules

TARGETS = [f"results/{model}/train.time.csv" for model in ("lstm", "unet")]


@pytest.mark.slow
def test_replaced_weights_run_again_what_reads_them(fresh: Project, recorded: Path) -> None:
    fresh.recording = recorded
    fresh.replace("models/lstm.py", "WORKLOADS = {", 'FILES = ("lstm.bin",)\nWORKLOADS = {')
    weights = fresh.root / "models/lstm.bin"
    weights.write_text("one")
    fresh.snakemake(*TARGETS)
    assert fresh.dry(*TARGETS) == []
    weights.write_text("two")
    # Older than all that was made, as an archive may leave it.
    os.utime(weights, ns=(0, 0))
    planned = fresh.dry(*TARGETS)
    assert rules(planned) == {"time_training"} and models(planned) == {"lstm"}
    weights.unlink()
    refused = fresh.snakemake(TARGETS[0], "--dry-run", ok=False)
    lines = [line for line in (refused.stdout + refused.stderr).splitlines() if "lstm.bin" in line]
    assert refused.returncode and len(lines) == 1, refused.stdout + refused.stderr
    assert "model 'lstm' names 'lstm.bin' in FILES, and there is no such file in " in lines[0]
