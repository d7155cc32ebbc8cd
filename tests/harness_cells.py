"""Settings of a cell as the harness takes them, a model's functions, and a model whose loss counts its steps."""

import json
import os
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from profzoo import run
from profzoo.harness import interface
from profzoo.harness.observers import recorders

# Where optional packages are that train in 8 bits, unless they are installed.
if FOLDER := os.environ.get("PROFZOO_EIGHT_BIT"):
    sys.path.append(FOLDER)
needs_eight_bits = pytest.mark.skipif(
    not all(map(util.find_spec, ("bitsandbytes", "torchao"))),
    reason="no bitsandbytes or torchao: PROFZOO_EIGHT_BIT names no folder; tests/tools/install-package.sh eight-bit DIR "
    "sets one up",
)
# The loss of step n, counted from 1, is n.
COUNTING = """
import torch
from torch import nn

WORKLOADS = {"trimmed": {"train": {"batch": 3}, "inference": {"batch": 3}}}
done = [0]


def build(shape):
    return nn.Linear(2, 1)


def sample(shape, generator):
    return torch.rand(2, generator=generator), 0


def loss(outputs, target):
    done[0] += 1
    return outputs.sum() * 0 + float(done[0])
"""


class SetClock(recorders.HostClock):
    """A clock that stands until it is set; waits are counted."""

    def __init__(self, ns: int = 0) -> None:
        """ns: what it shows at first."""
        self.ns, self.waited = ns, 0

    def now(self) -> int:
        """Return the time that was set."""
        return self.ns

    def wait(self) -> None:
        """Count the wait, which takes no time."""
        self.waited += 1


def functions(**given: Any) -> interface.ModelFunctions:
    """Return the functions of a model of one layer, but for those given."""
    return interface.ModelFunctions(**{"build": lambda shape: nn.Linear(1, 1), **given})


def cell(**given: Any) -> dict[str, Any]:
    """Return the settings of a training of batches of three, but for those given."""
    return {
        "model": "m", "module": "mine", "phase": "train", "batch": 3, "samples": 7, "epochs": 2, "workers": 0, "seed": 1,
        "pin_memory": False, "gpus": 1, "nodes": 1, "shape": {}, "channels_last": False, "precision": "fp32",
        "data": {"source": "synthetic", "name": None, "root": None, "arguments": {}}, **given,
    }  # fmt: skip


def counted(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> dict[str, Any]:
    """Return the facts of a training of the model whose loss counts its steps, which leaves s.csv and f.json."""
    (folder / f"{name}.py").write_text(COUNTING)
    monkeypatch.syspath_prepend(str(folder))
    files = ["--facts", str(folder / "f.json"), "--steps", str(folder / "s.csv")]
    assert run.main(["mine", "train", f"module={name}", "device=cpu", *words, *files]) == 0
    found: dict[str, Any] = json.loads((folder / "f.json").read_text())
    return found
