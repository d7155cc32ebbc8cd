"""Steps of users' models: batches of every form, losses of the network's own, own training steps and their precision."""

import json
from pathlib import Path

import pandas as pd
import pytest

from profzoo import run
from profzoo.tools.torch import activity

HEAD = """
from collections import UserDict
from types import SimpleNamespace
import torch
from torch import nn
from torch.nn.functional import cross_entropy

WORKLOADS = {"trimmed": {"train": {"batch": 4}, "inference": {"batch": 4}}}


class Named(nn.Module):
    '''As those of transformers: arguments by name, and a loss where labels are among them.'''

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, values, labels=None, scale=None):
        logits = self.linear(values)
        return SimpleNamespace(loss=None if labels is None else cross_entropy(logits, labels), logits=logits)


def build(shape):
    return Named()


def sample(shape, generator):
    return {"values": torch.rand(3, generator=generator), "labels": 1}
"""
PAIRS = (
    HEAD
    + """
def build(shape):
    return nn.Linear(3, 2)

def sample(shape, generator):
    return torch.rand(3, generator=generator), 1
"""
)


def ran(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, *words: str) -> tuple[int, dict]:
    """Exit code and facts of a model's file that is run for three steps."""
    name = f"own_{abs(hash((body, words)))}"
    (folder / f"{name}.py").write_text(body)
    monkeypatch.syspath_prepend(str(folder))
    facts = folder / "facts.json"
    facts.unlink(missing_ok=True)
    own = [f"module={name}", "device=cpu", "warmup=1", "window=2", "--facts", str(facts)]
    code = run.main(["mine", *words, *own])
    return code, json.loads(facts.read_text()) if facts.exists() else {}


def said(capsys: pytest.CaptureFixture) -> str:
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("profzoo: "))
    return line


@pytest.mark.parametrize("phase", ["train", "inference"])
@pytest.mark.parametrize(
    "more",
    [
        "",
        "\ndef loss(outputs, batch):\n    return cross_entropy(outputs.logits, batch['labels'])\n",
        # A mapping that is not a dict, as tokenizers of transformers give.
        "\ndef collate(samples):\n    return UserDict(torch.utils.data.default_collate(samples))\n",
        # Outputs that are a mapping.
        "\nclass Keyed(Named):\n    def forward(self, **batch):\n        return vars(super().forward(**batch))\n"
        "\ndef build(shape):\n    return Keyed()\n",
    ],
    ids=["loss of its own", "loss of the file", "mapping of a kind of its own", "outputs by key"],
)
def test_batches_that_are_mappings_are_arguments_of_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, phase: str
) -> None:
    code, facts = ran(tmp_path, monkeypatch, HEAD + more, phase)
    assert code == 0 and facts["steps"] == 2
    if phase == "train":
        # Of two classes before much is learnt.
        assert 0.2 < facts["loss"] < 1.5


def test_a_loss_of_the_network_is_taken_of_pairs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = PAIRS + (
        "\nclass Owner(nn.Linear):\n    def forward(self, inputs):\n        out = super().forward(inputs)\n"
        "        return SimpleNamespace(loss=out.sum() * 0 + 42.0, out=out)\n"
        "\ndef build(shape):\n    return Owner(3, 2)\n"
    )
    code, facts = ran(tmp_path, monkeypatch, body, "train")
    assert code == 0 and facts["loss"] == 42


def test_scores_without_a_loss_have_cross_entropy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        PAIRS
        + "\ndef build(shape):\n    m = nn.Linear(3, 2)\n    nn.init.zeros_(m.weight)\n    nn.init.zeros_(m.bias)\n"
    )
    body += "    return m\n\ndef optimizer(parameters):\n    return torch.optim.SGD(parameters, lr=0.0)\n"
    assert ran(tmp_path, monkeypatch, body, "train")[1]["loss"] == pytest.approx(0.693147, abs=1e-5)


ITEM = (
    "\nfrom dataclasses import dataclass\n\n@dataclass\nclass Item:\n    x: object\n"
    "\ndef sample(shape, generator):\n    return Item(torch.rand(3))\n"
)


@pytest.mark.parametrize(
    ("body", "phase", "words"),
    [
        (PAIRS + "\ndef sample(shape, generator):\n    return torch.rand(3)\n", "train",
         "mine: a batch is one tensor of 4 x 3, where a pair (input, target), or a mapping of the network's arguments is "
         "needed: have sample(shape, generator) of own_"),
        (PAIRS + "\ndef sample(shape, generator):\n    return 1, 2, 3\n", "inference", "a batch is a list of 3"),
        (PAIRS + "\ndef collate(samples):\n    return torch.stack([one for one, _ in samples])\n", "train",
         "have collate(samples) of own_"),
        (PAIRS + "\ndef sample(shape, generator):\n    torch.rand(3)\n", "train",
         " returned None: return a pair (input, target), or a mapping"),
        (HEAD + "\ndef sample(shape, generator):\n    return {'values': torch.rand(3)}\n", "train",
         "the network returns SimpleNamespace without a loss: define loss(outputs, target)"),
        (PAIRS + "\nclass Item:\n    pass\n\ndef sample(shape, generator):\n    return Item()\n", "inference",
         "mine: a sample holds an object of type Item, and torch makes no batch of that: define collate(samples) in own_"),
        (PAIRS + ITEM, "train", "or have sample(shape, generator) give tensors, numbers, tuples or mappings"),
        (PAIRS + "\ndef sample(shape, generator):\n    n = int(torch.randint(2, 99, (), generator=generator))\n"
         "    return torch.rand(n), 1\n", "train", "mine: samples differ in size, and torch makes no batch of that: define collate"),
    ],
)  # fmt: skip
def test_a_batch_of_no_known_form_is_one_line_that_names_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, body: str, phase: str, words: str
) -> None:
    assert ran(tmp_path, monkeypatch, body, phase)[0] == 2
    assert words in said(capsys)


OWN_STEP = (
    PAIRS
    + """
def training_step(trainer, batch):
    inputs, target = batch
    loss = cross_entropy(trainer.network(inputs), target)
    loss.backward()
    trainer.optimizers[0].step()
    trainer.optimizers[0].zero_grad()
    return loss
"""
)
FORWARD = OWN_STEP.replace(
    "    loss = cross_entropy(trainer.network(inputs), target)\n",
    "    with trainer.forward():\n        loss = cross_entropy(trainer.network(inputs), target)\n",
)


def test_parts_that_overlap_leave_nothing_over() -> None:
    rows = [("step", 100), ("forward", 90), ("loss", 30)]
    table = pd.DataFrame([{"kind": "range", "name": name, "cpu_ns": ns} for name, ns in rows])
    found = activity.summarise_ranges(table, {"device_type": "cpu"})
    assert found == ("cpu", {"forward": (90, None), "loss": (30, None)})


@pytest.mark.parametrize(
    ("body", "precision", "words"),
    [
        (OWN_STEP, "bf16", "precision = 'bf16' was not applied, as the step did not enter trainer.forward(): call"),
        (FORWARD, "fp16", "precision = 'fp16' was not applied, as gradients were not scaled: have trainer.update"),
        (OWN_STEP.replace("return loss", "return None"), "fp32", "it returned NoneType: return the loss"),
    ],
)
def test_a_step_of_ones_own_that_does_not_do_what_the_cell_says_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    body: str,
    precision: str,
    words: str,
) -> None:
    assert ran(tmp_path, monkeypatch, body, "train", f"precision={precision}")[0] == 2
    line = said(capsys)
    assert line.startswith("profzoo: training_step of own_") and words in line


@pytest.mark.parametrize(
    ("body", "precision"), [(OWN_STEP.replace("return loss", "return loss.reshape(1)"), "fp32"), (FORWARD, "bf16")]
)
def test_a_step_of_ones_own_that_does_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, precision: str
) -> None:
    code, facts = ran(tmp_path, monkeypatch, body, "train", f"precision={precision}")
    assert code == 0 and facts["steps"] == 2
