"""Weights that are damaged, or another model's: a cell that is to load them says so in one line, and runs none of it."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.faults.harm import PROJECT

pytestmark = pytest.mark.faults
WORDS = ["lstm", "inference", "device=cpu", "warmup=0", "window=1", "batch=1", "sequence_length=4"]


class Code:
    """What a pickle may do as it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo ran > ran",)


def save(path: Path, kind: str) -> None:
    if kind == "code":
        path.write_bytes(pickle.dumps(Code()))
    elif kind == "code in an archive":
        torch.save(Code(), path)
    elif kind == "no tensors":
        torch.save({"step": 3}, path)
    elif kind == "another model's":
        torch.save({"conv.weight": torch.zeros(3, 3)}, path)
    elif kind == "bytes":
        path.write_bytes(bytes(range(256)) * 100)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()


@pytest.mark.parametrize(
    "kind", ["code", "code in an archive", "no tensors", "another model's", "bytes", "empty", "a folder", "none"]
)
def test_weights_that_cannot_be_loaded(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "weights.pt"
    save(path, kind)
    words = [sys.executable, "-m", "models.run", *WORDS, "--load", str(path)]
    ran = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=False
    )
    own = [line for line in ran.stderr.splitlines() if line.startswith("profzoo: ")]
    assert ran.returncode in (1, 2) and len(own) == 1, ran.stderr
    assert not (tmp_path / "ran").exists()
