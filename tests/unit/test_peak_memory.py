"""harness/memory and blocks: what a step holds in memory and for what, on a network of known sizes."""

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from profzoo import run
from profzoo.errors import DataError
from profzoo.harness import interface, memory_blocks, peak_memory, ranges, step_loop
from profzoo.io import csv_tables as reading
from profzoo.tools.time import tables
from tests import zoo

CPU = torch.device("cpu")
BATCH, WIDE, HIDDEN, CLASSES = 64, 512, 1024, 16
KNOWN = f"""
import torch
from torch import nn

WORKLOADS = {{"trimmed": {{"train": {{"batch": {BATCH}}}, "inference": {{"batch": {BATCH}}}}}}}

def build(shape):
    return nn.Sequential(nn.Linear({WIDE}, {HIDDEN}), nn.ReLU(), nn.Linear({HIDDEN}, {CLASSES}))

def sample(shape, generator):
    return torch.randn({WIDE}, generator=generator), 0
"""
WEIGHTS = 4 * (WIDE * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
INPUTS, HIDDEN_BYTES = 4 * BATCH * WIDE + 8 * BATCH, 4 * BATCH * HIDDEN


def held(folder: Path, monkeypatch: pytest.MonkeyPatch, phase: str, *words: str) -> pd.DataFrame:
    """The rows of the known network, by range."""
    (folder / "known.py").write_text(KNOWN)
    monkeypatch.syspath_prepend(str(folder))
    files = ["--memory", str(folder / "m.csv"), "--facts", str(folder / "f.json"), "--steps", str(folder / "s.csv")]
    assert run.main(["mine", phase, "module=known", "device=cpu", "warmup=1", "window=2", *files, *words]) == 0
    return reading.read(folder / "m.csv", tables.MEMORY).set_index("range")


def test_a_training_step_holds_what_its_sizes_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = held(tmp_path, monkeypatch, "train")
    assert list(rows.index) == ["step", "transfer", "forward", "loss", "backward", "optimizer"]
    assert (rows["weights_bytes"] == WEIGHTS).all() and (rows["inputs_bytes"] == INPUTS).all()
    # Adam's two averages, and a count of four bytes for each of four parameters.
    assert (rows["optimizer_bytes"] == 2 * WEIGHTS + 16).all() and (rows["other_bytes"] == 0).all()
    # What ReLU takes and what it makes.
    assert rows.loc["forward", "activations_bytes"] == 2 * HIDDEN_BYTES and rows.loc["forward", "gradients_bytes"] == 0
    assert rows.loc["optimizer", "gradients_bytes"] == WEIGHTS
    # Outputs and loss are there until the step's end.
    before = 3 * WEIGHTS + 16 + INPUTS
    assert rows.loc["optimizer", "end_bytes"] == before + 4 * BATCH * CLASSES + 4
    assert rows.loc["step", ["begin_bytes", "end_bytes"]].tolist() == [before, before]
    assert rows.loc["step", "peak_bytes"] == rows["peak_bytes"].max()
    assert json.loads((tmp_path / "f.json").read_text())["memory"]["wall_ns"] > 0


def test_inference_holds_no_gradients_and_no_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = held(tmp_path, monkeypatch, "inference")
    assert list(rows.index) == ["step", "transfer", "forward"]
    assert not rows[["optimizer_bytes", "gradients_bytes"]].any(axis=None)
    assert rows.loc["step", "activations_bytes"] == 2 * HIDDEN_BYTES
    assert rows.loc["step", "peak_bytes"] == WEIGHTS + INPUTS + 2 * HIDDEN_BYTES


def test_the_window_is_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps, loss and weights are those of a run that takes no stock."""
    facts, weights = [], []
    for words in ([], ["--memory", str(tmp_path / "m.csv")]):
        (tmp_path / "known.py").write_text(KNOWN)
        monkeypatch.syspath_prepend(str(tmp_path))
        told = [
            "--facts",
            str(tmp_path / "f.json"),
            "--steps",
            str(tmp_path / "s.csv"),
            "--save",
            str(tmp_path / "w.pt"),
        ]
        assert run.main(["mine", "train", "module=known", "device=cpu", "window=2", *told, *words]) == 0
        facts.append(json.loads((tmp_path / "f.json").read_text()))
        weights.append(torch.load(tmp_path / "w.pt")["0.weight"])
        assert len(list(csv.reader((tmp_path / "s.csv").open()))) == 3
    assert facts[0]["loss"] == facts[1]["loss"] and facts[0]["steps"] == facts[1]["steps"] == 2
    assert torch.equal(*weights)


def stock(name: str, **more: Any) -> pd.DataFrame:
    """The rows of a tiny cell of the zoo after a step."""
    cell = zoo.cell(name, **more)
    network = zoo.network(cell)
    repeated = step_loop.make_step(cell, interface.load_functions(cell["module"]), network, CPU, ranges.Ranges())
    batch = zoo.batch(cell)
    repeated.step(repeated.transfer(batch, CPU))
    return pd.DataFrame(peak_memory.measure_memory(batch, repeated, network, CPU))


def test_networks_that_train_in_turn_have_their_gradients_each() -> None:
    rows = stock("dped")
    assert rows["range"].tolist()[2:] == ["forward", "loss", "backward", "optimizer"] * 2
    gradients = rows[rows["range"] == "optimizer"]["gradients_bytes"].tolist()
    assert 0 < gradients[0] != gradients[1] > 0


def test_checkpoints_hold_fewer_activations() -> None:
    shape = {"layers": 8, "tokens": 64, "hidden": 64}
    plain, less = (stock("bert", **shape, checkpoint=one).iloc[0]["activations_bytes"] for one in (False, True))
    assert less < 0.6 * plain


def event(name: str, ts: float, dur: float = 0, thread: int = 1, **args: int) -> dict[str, Any]:
    """An event of a trace: an operator, a range, or with args a change of memory."""
    category = "user_annotation" if name.startswith("profzoo:") else "cpu_op"
    found: dict[str, Any] = {"name": name, "ts": ts, "tid": thread}
    return found | ({"args": args} if args else {"dur": dur, "cat": category})


def change(ts: float, address: int, size: int, device: int = 1, thread: int = 1) -> dict[str, Any]:
    """Memory allocated, or given back."""
    found = event(memory_blocks.MEMORY, ts, thread=thread, Addr=address, Bytes=size)
    return {**found, "args": {**found["args"], "Device Type": device}}


def test_blocks_are_followed_through_ranges() -> None:
    events = [
        event("profzoo:step", 0, 100), event("profzoo:forward", 10, 20), event("profzoo:backward", 40, 20),
        # An operator that allocates by another one: its output stays, and what it works in does not.
        event("aten::cudnn_convolution", 11, 8), event("aten::empty", 12, 1), change(12.5, 1, 100), change(14, 2, 50),
        change(15, 2, -50), change(16, 9, 7, device=0),
        # Of another thread, where no operator is open; then an address that is used again.
        change(42, 3, 30, thread=2), change(43, 1, -100, thread=2), change(44, 1, 40, thread=2),
        # What was there before the step.
        change(62, 8, -10), change(63, 3, -30), change(64, 1, -40),
    ]  # fmt: skip
    known = [memory_blocks.KnownAddresses("gradients", "backward", 0, {1, 2})]
    step, forward, backward = memory_blocks.memory_rows(events, 1, {"weights": 200, "other": 20}, known)
    assert (step["begin_bytes"], step["peak_bytes"], step["end_bytes"]) == (220, 370, 210)
    assert (forward["activations_bytes"], forward["workspace_bytes"], forward["peak_bytes"]) == (100, 50, 370)
    assert (backward["begin_bytes"], backward["peak_bytes"], backward["end_bytes"]) == (320, 350, 290)
    assert (backward["activations_bytes"], backward["gradients_bytes"], backward["other_bytes"]) == (130, 0, 20)


def test_a_table_whose_parts_do_not_add_up_is_refused(tmp_path: Path) -> None:
    row = dict.fromkeys(peak_memory.COLUMNS, 0) | {"range": "step", "peak_bytes": 3, "weights_bytes": 2}
    peak_memory.write_rows([row], tmp_path / "m.csv")
    with pytest.raises(DataError, match="row 1: what is held adds up to another peak"):
        reading.read(tmp_path / "m.csv", tables.MEMORY)
    assert tables.HELD == memory_blocks.HELD and set(tables.MEMORY.columns) == set(peak_memory.COLUMNS)


def test_what_layers_share_is_counted_once() -> None:
    network = nn.Linear(2, 2, bias=False)
    assert sum(peak_memory._sizes([network.weight, network.weight[0], network.weight.detach()], CPU).values()) == 16
