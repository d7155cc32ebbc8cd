"""harness/inspecting: what a run holds and makes is looked at without failing it, whatever kinds of tensors those are."""

import csv
import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from profzoo import run
from profzoo.collect import failure_causes
from profzoo.harness import interface, optimizers, output_samples, peak_memory, safe_inspection
from profzoo.io import csv_tables as reading
from profzoo.tools.time import tables

CPU = torch.device("cpu")
ROWS, WIDE, BATCH, IDS = 1000, 8, 4, 3
HEAD = f"""
import torch
from torch import nn

WORKLOADS = {{"trimmed": {{"train": {{"batch": {BATCH}}}, "inference": {{"batch": {BATCH}}}}}}}

def sample(shape, generator):
    return torch.randint({ROWS}, ({IDS},), generator=generator), 0
"""
SPARSE = f"""
def build(shape):
    return nn.Sequential(nn.EmbeddingBag({ROWS}, {WIDE}, sparse=True), nn.Linear({WIDE}, 2))
"""
SGD = """
def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)
"""
LAZY = """
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.LazyLinear(2), nn.LazyLinear(5)

    def forward(self, inputs):
        return self.used(inputs.float())

def build(shape):
    return Network()
"""
GIVES = """
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, inputs):
        outputs = self.linear(inputs.float())
        return {made}

def build(shape):
    return Network()
"""
QUANTIZED = """
def build(shape):
    from torch.ao.nn.quantized import dynamic
    return nn.Sequential(nn.EmbeddingBag(1000, 8), dynamic.Linear(8, 2))
"""


def ran(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, phase: str = "train") -> tuple[dict, list, int]:
    """Facts and rows of memory of a model that is run, and its exit code."""
    name = f"own_{abs(hash(body))}"
    (folder / f"{name}.py").write_text(HEAD + body)
    monkeypatch.syspath_prepend(str(folder))
    files = ["--memory", str(folder / "m.csv"), "--facts", str(folder / "f.json"), "--steps", str(folder / "s.csv")]
    code = run.main(["mine", phase, f"module={name}", "device=cpu", "warmup=1", "window=2", *files])
    if code:
        return {}, [], code
    rows = reading.read(folder / "m.csv", tables.MEMORY).to_dict("records")
    return json.loads((folder / "f.json").read_text()), rows, code


def test_memory_of_sparse_gradients_is_that_of_their_indices_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    facts, rows, code = ran(tmp_path, monkeypatch, SPARSE + SGD)
    assert code == 0 and facts["steps"] == 2 and len(list(csv.reader((tmp_path / "s.csv").open()))) == 3
    by_range = {row["range"]: row for row in rows}
    dense = WIDE * 2 + 2
    assert by_range["step"]["weights_bytes"] == 4 * (ROWS * WIDE + dense)
    # A row of values for each ID of the batch, whose own tensor has the indices; all of the rest is dense.
    assert by_range["optimizer"]["gradients_bytes"] == BATCH * IDS * 4 * WIDE + 4 * dense
    assert by_range["step"]["inputs_bytes"] == BATCH * IDS * 8 + BATCH * 8
    assert "Warning:" not in capsys.readouterr().err


def test_sparse_weights_train_without_an_optimizer_of_the_models_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, rows, code = ran(tmp_path, monkeypatch, SPARSE)
    assert code == 0 and facts["parameters"] == ROWS * WIDE + WIDE * 2 + 2
    # Two averages of each weight; Adam counts steps in four bytes for each of two tensors, SparseAdam in a number.
    assert rows[0]["optimizer_bytes"] == 2 * 4 * facts["parameters"] + 2 * 4


@pytest.mark.parametrize("phase", ["train", "inference"])
@pytest.mark.parametrize("body", [LAZY, QUANTIZED], ids=["lazy", "quantized"])
def test_networks_of_unusual_weights_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, phase: str
) -> None:
    if body is QUANTIZED:
        warnings.filterwarnings("ignore")
    facts, rows, code = ran(tmp_path, monkeypatch, body, phase)
    assert code == 0 and rows[0]["range"] == "step"
    assert facts["parameters"] == (3 * 2 + 2 if body is LAZY else ROWS * WIDE)


@pytest.mark.parametrize(
    ("made", "sampled"),
    [
        ("outputs.relu().to_sparse()", True),
        ("outputs.to_sparse_csr()", True),
        ("torch.nested.nested_tensor([outputs[0], outputs[1, :1]])", True),
        ("torch.nested.nested_tensor([outputs[0], outputs[1, :1]], layout=torch.jagged)", True),
        ("outputs.to_mkldnn()", False),
        ("torch.quantize_per_tensor(outputs, 0.1, 0, torch.quint8)", False),
        ("outputs.to('meta')", False),
        ("outputs.to(torch.float8_e4m3fn)", True),
        ("(outputs, None, 'text', 3)", True),
    ],
)
def test_outputs_of_all_kinds_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, sampled: bool
) -> None:
    facts, rows, code = ran(tmp_path, monkeypatch, GIVES.format(made=made), "inference")
    assert code == 0 and facts["steps"] == 2 and rows[0]["range"] == "step"
    assert bool(facts.get("outputs")) == sampled


def test_nan_within_a_sparse_output_is_still_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = GIVES.format(made="(outputs * float('nan')).to_sparse()")
    assert ran(tmp_path, monkeypatch, body, "inference")[2] == 3


def test_memory_that_cannot_be_looked_into_is_a_warning_in_the_sidecar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The step that takes stock is one too many for this model: all that was timed is there all the same."""
    body = GIVES.format(made="count(outputs)") + "\nleft = [3]\ndef count(x):\n    left[0] -= 1\n"
    body += "    if left[0] < 0:\n        raise ValueError('once too often')\n    return x\n"
    facts, rows, code = ran(tmp_path, monkeypatch, body, "inference")
    assert code == 0 and facts["steps"] == 2 and rows == []
    assert failure_causes.find_warnings(capsys.readouterr().err) == [
        "memory was not taken stock of: ValueError: once too often"
    ]


def test_what_a_tensor_is_stored_in() -> None:
    index = torch.tensor([[0, 2]])
    coo = torch.sparse_coo_tensor(index, torch.ones(2, 4), (3, 4))
    assert sum(peak_memory._sizes([coo], CPU).values()) == 2 * 8 + 2 * 4 * 4
    numbers = torch.arange(4), torch.arange(3)
    csr = torch.sparse_csr_tensor(*numbers, torch.ones(3), (3, 3))
    # Four offsets and three columns of eight bytes, three values of four.
    assert sum(peak_memory._sizes([csr], CPU).values()) == 4 * 8 + 3 * 8 + 3 * 4
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert sum(peak_memory._sizes([nested], CPU).values()) == 5 * 4
    assert peak_memory._sizes([torch.ones(2, device="meta"), nn.LazyLinear(2).weight], CPU) == {}


def test_what_cannot_be_read_is_left_out_with_a_warning(capsys: pytest.CaptureFixture) -> None:
    with FakeTensorMode():
        fake = torch.ones(3)
    assert sum(peak_memory._sizes([torch.ones(2), fake, torch.ones(2).to_mkldnn()], CPU).values()) == 8
    said = failure_causes.find_warnings(capsys.readouterr().err)
    assert any("mkldnn" in line.lower() or "opaque" in line.lower() for line in said)
    assert output_samples.sample_outputs([torch.ones(2), torch.ones(2).to_mkldnn()]) == [1.0, 1.0]


def test_a_warning_is_one_line_and_said_once(capsys: pytest.CaptureFixture) -> None:
    def failing() -> int:
        raise RuntimeError("first\nsecond")

    assert [safe_inspection.attempt("it was not read", failing, 7) for _ in range(2)] == [7, 7]
    assert failure_causes.find_warnings(capsys.readouterr().err) == ["it was not read: RuntimeError: first"]


def test_sparse_and_dense_weights_have_one_rate() -> None:
    network = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Linear(2, 1))
    found = optimizers.make_optimizers(network, interface.make_adam)
    assert [(type(one).__name__, one.param_groups[0]["lr"]) for one in found] == [("Adam", 1e-3), ("SparseAdam", 1e-3)]
    assert [len(one.param_groups[0]["params"]) for one in found] == [2, 1]
    assert len(optimizers.make_optimizers(network[1:], interface.make_adam)) == 1
