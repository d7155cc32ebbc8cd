"""The whole zoo on a real GPU: every cell runs, `trimmed` fits a small one, and `batch: auto` finds what fits."""

import json
from pathlib import Path

import pytest
import torch

from profzoo import run
from profzoo.cell import registry, settings

SMALL_GPU = 8e9
LARGE = """
import torch
from torch import nn

WORKLOADS = {"trimmed": {"train": {"batch": 1048576}, "inference": {"batch": 1048576}}}

def build(shape):
    return nn.Sequential(nn.Linear(1, 1048576), nn.ReLU(), nn.Linear(1048576, 2))

def sample(shape, generator):
    return torch.zeros(1), 0
"""


def facts(folder: Path, *words: str) -> dict:
    """What a run says of itself."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert run.main([*words, "warmup=1", "window=1", "--facts", str(folder / "facts.json")]) == 0
    return json.loads((folder / "facts.json").read_text())


@pytest.mark.parametrize("phase", settings.PHASES)
@pytest.mark.parametrize("name", sorted(registry.shipped_models()))
def test_trimmed_cells_run_in_8_gb(tmp_path: Path, name: str, phase: str) -> None:
    said = facts(tmp_path, name, phase)
    assert said["device_type"] == "cuda" and 0 < said["peak_memory_bytes"] < SMALL_GPU


@pytest.mark.parametrize("phase", settings.PHASES)
def test_a_batch_that_does_not_fit_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    (tmp_path / "large.py").write_text(LARGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    total = torch.cuda.get_device_properties(0).total_memory
    said = facts(tmp_path, "mine", phase, "module=large", "batch=auto")
    # One activation is 4 MiB a sample: one of them must have fitted, and two did not at twice the batch.
    assert total / 16 < said["batch"] * 2**22 < total
    assert said["peak_memory_bytes"] < total


def test_running_out_of_memory_names_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "too_large.py").write_text(LARGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run.main(["mine", "inference", "module=too_large", "window=1"]) == 1
    assert "ran out of memory at batch 1048576: set a smaller batch, or batch: auto" in capsys.readouterr().err
