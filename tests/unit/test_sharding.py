"""profzoo.harness.sharding: weights split over two processes compute what one process computes, with gloo on a CPU."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from models import bert
from profzoo import run
from profzoo.cell import settings
from profzoo.config import configuration
from profzoo.errors import ConfigError
from profzoo.harness import interface, sharding
from tests.unit.test_distributed import PROJECT

SIZES = ["hidden=32", "heads=2", "layers=2", "vocabulary=97", "tokens=8", "dropout=0", "batch=2"]
WORDS = ["train", "device=cpu", "warmup=2", "window=1", *SIZES]
# Every process has the same batch, so that the mean over processes is what one of them computes.
SAME = """


class Same(torch.utils.data.Dataset):
    def __init__(self, shape):
        self._one = sample(shape, torch.Generator().manual_seed(1))

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return self._one


def dataset(shape):
    return Same(shape)
"""


def trained(folder: Path, name: str, *words: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Facts and weights after training; on two processes if the words say so."""
    files = ["--facts", str(folder / f"{name}.json"), "--save", str(folder / f"{name}.pt")]
    if "gpus=2" in words:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        command = [*launcher, "-m", "models.run", "mine", *WORDS, *words, *files]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
    else:
        assert run.main(["mine", *WORDS, *words, *files]) == 0
    return json.loads((folder / f"{name}.json").read_text()), torch.load(folder / f"{name}.pt", weights_only=True)


@pytest.mark.slow
def test_split_weights_compute_what_one_process_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "same_batch.py").write_text((PROJECT / "models" / "gpt.py").read_text() + SAME)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    one, alone = trained(tmp_path, "one", "module=same_batch")
    for kind, batches in (("fsdp", 2), ("tensor", 1)):
        found, weights = trained(tmp_path, kind, "module=same_batch", "gpus=2", f"parallel={kind}")
        assert found["parameters"] == one["parameters"] and found["items"] == batches * one["items"]
        for name in ("losses", "gradient_norms"):
            ours, theirs = (torch.tensor(facts["first_steps"][name]) for facts in (found, one))
            assert torch.allclose(ours, theirs, rtol=1e-5), (kind, name)
        assert found["first_steps"]["used_parameters"] == one["first_steps"]["used_parameters"]
        assert weights.keys() == alone.keys()
        assert all(torch.allclose(weights[name], alone[name], atol=1e-5) for name in alone), kind


def test_blocks_are_what_fsdp_gathers_together() -> None:
    shape = SimpleNamespace(**bert.SHAPE | {"hidden": 8, "heads": 2, "layers": 3, "vocabulary": 11})
    network = bert.build(shape)
    units = sharding.find_units(network)
    assert [part for part in units if isinstance(part, nn.TransformerEncoderLayer)] == [*network.encoder.layers]
    # Shared weights belong to no block, as another one uses them too.
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    assert sharding.find_units(tied) == [tied[2]]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (None, "lstm has no plan of how its layers are split: define split(network) in its file"),
        ({"other": "columns"}, "split(network) names 'other', which is no linear layer"),
        ({"0": "cols"}, "split(network) says 'cols' of 0: say columns or rows"),
        ({"0": "rows"}, "the 3 rows of 0 cannot be split evenly over 2 processes"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan: dict[str, str] | None, why: str) -> None:
    cell = {"gpus": 2, "nodes": 1, "model": "lstm", "parallel": "tensor"}
    model = interface.ModelFunctions(build=lambda shape: nn.Module(), split=plan and (lambda network: plan))
    with pytest.raises(ConfigError, match=re.escape(why)):
        sharding.tensor_plan(nn.Sequential(nn.Linear(3, 4)), cell, model)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpus": 1}, "parallel: fsdp splits the network over several GPUs: set gpus to 2 or more"),
        ({"precision": "fp16"}, "parallel: fsdp and precision: fp16 cannot be combined"),
        ({"channels_last": True}, "parallel: fsdp and channels_last: true cannot be combined"),
    ],
)
def test_settings_that_exclude_splitting_are_refused(changes: dict[str, Any], why: str) -> None:
    given = configuration.normalise_config({"settings": {"lstm": {"gpus": 2, "parallel": "fsdp", **changes}}})
    with pytest.raises(ConfigError, match=re.escape(why)):
        settings.resolve_cell("lstm", "train", "time", given)


def test_samples_count_for_each_batch() -> None:
    given = configuration.normalise_config({"gpus": "2", "parallel": "tensor"})
    cell = settings.resolve_cell("bert", "train", "time", given)
    assert cell["parallel"] == "tensor" and cell["samples"] == cell["batch"] * cell["steps"]
    # A cell as before has no such key, so that its results stay valid.
    assert "parallel" not in settings.resolve_cell("bert", "inference", "time", given)
    assert "parallel" not in settings.resolve_cell("bert", "train", "time", given | {"parallel": "ddp"})


def test_split_and_whole_weights_are_updated_apart() -> None:
    class Split(nn.Parameter):
        def full_tensor(self) -> torch.Tensor:
            return self.data

    weights = [nn.Parameter(torch.zeros(1)), Split(torch.zeros(2)), nn.Parameter(torch.zeros(3))]
    optimizer = sharding.separate_groups(torch.optim.AdamW(weights, lr=0.5))
    assert [[one.numel() for one in group["params"]] for group in optimizer.param_groups] == [[1, 3], [2]]
    assert all(group["lr"] == 0.5 for group in optimizer.param_groups)
