"""harness/inspection: what a run holds and makes is looked at without failing it, whatever kinds of tensors those are."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from profzoo import run
from profzoo.collect import failures
from profzoo.harness import inspection
from profzoo.harness.observers import first_steps
from profzoo.harness.step import peak_memory
from profzoo.io import csv_tables as reading
from profzoo.tools.time import tables
from tests import slow

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
    """Facts and rows of the memory of ranges of a model that is run, and its exit code."""
    name = f"own_{abs(hash(body))}"
    (folder / f"{name}.py").write_text(HEAD + body)
    monkeypatch.syspath_prepend(str(folder))
    files = [f"--memory={folder / 'm.csv'}", f"--facts={folder / 'f.json'}", f"--steps={folder / 's.csv'}"]
    code = run.main(["mine", phase, f"module={name}", "device=cpu", "warmup=1", "window=2", *files])
    if code:
        return {}, [], code
    rows = reading.read(folder / "m.csv", tables.MEMORY)
    return json.loads((folder / "f.json").read_text()), rows[rows["module"] == ""].to_dict("records"), code


def test_memory_of_sparse_gradients_is_that_of_their_indices_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    facts, rows, code = ran(tmp_path, monkeypatch, SPARSE + SGD)
    assert code == 0 and facts["steps"] == 2
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
@pytest.mark.parametrize("body", slow.first([LAZY, QUANTIZED]), ids=["lazy", "quantized"])
def test_networks_of_unusual_weights_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, phase: str
) -> None:
    if body is QUANTIZED:
        warnings.filterwarnings("ignore")
    facts, rows, code = ran(tmp_path, monkeypatch, body, phase)
    assert code == 0 and rows[0]["range"] == "step"
    assert facts["parameters"] == (3 * 2 + 2 if body is LAZY else ROWS * WIDE)


# Makes outputs of a kind from two rows of numbers, and whether there are samples of it.
KINDS = [
    ("(outputs.relu().to_sparse(), None, 'text', 3)", True),
    ("outputs.to_sparse_csr()", True),
    ("torch.nested.nested_tensor([outputs[0], outputs[1, :1]])", True),
    ("torch.nested.nested_tensor([outputs[0], outputs[1, :1]], layout=torch.jagged)", True),
    ("outputs.to_mkldnn()", False),
    ("torch.quantize_per_tensor(outputs, 0.1, 0, torch.quint8)", False),
    ("outputs.to('meta')", False),
    ("outputs.to(torch.float8_e4m3fn)", True),
]


@pytest.mark.parametrize(("made", "sampled"), KINDS)
def test_outputs_of_all_kinds_are_looked_at(made: str, sampled: bool) -> None:
    made = eval(made, {"outputs": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "torch": torch})
    assert first_steps.is_finite([made]) and bool(first_steps.sample_outputs(made)) == sampled
    assert sum(peak_memory._sizes([made], CPU).values()) >= 0


@pytest.mark.parametrize(("made", "sampled"), slow.first(KINDS))
def test_outputs_of_all_kinds_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, sampled: bool
) -> None:
    facts, rows, code = ran(tmp_path, monkeypatch, GIVES.format(made=made), "inference")
    assert code == 0 and facts["steps"] == 2 and rows[0]["range"] == "step"
    assert bool(facts.get("outputs")) == sampled


def test_nan_within_a_sparse_output_is_still_found() -> None:
    outputs = torch.tensor([1.0, float("nan")])
    assert not first_steps.is_finite([outputs.to_sparse()]) and first_steps.is_finite([outputs[:1].to_sparse()])


def test_memory_that_cannot_be_looked_into_is_a_warning_in_the_sidecar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The step that takes stock is one too many for this model: all that was timed is there all the same."""
    body = GIVES.format(made="count(outputs)") + "\nleft = [3]\ndef count(x):\n    left[0] -= 1\n"
    body += "    if left[0] < 0:\n        raise ValueError('once too often')\n    return x\n"
    facts, rows, code = ran(tmp_path, monkeypatch, body, "inference")
    assert code == 0 and facts["steps"] == 2 and rows == []
    said = ["memory was not taken stock of: ValueError: once too often"]
    assert failures.find_warnings(capsys.readouterr().err) == said


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
    said = failures.find_warnings(capsys.readouterr().err)
    assert any("mkldnn" in line.lower() or "opaque" in line.lower() for line in said)
    assert first_steps.sample_outputs([torch.ones(2), torch.ones(2).to_mkldnn()]) == [1.0, 1.0]


def test_what_cannot_be_read_is_a_warning_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def look() -> int:
        raise ValueError("first\nsecond")

    def silent() -> int:
        raise KeyError

    assert inspection.attempt("it", lambda: 5, 6) == 5 and inspection.attempt("it", look, 6) == 6
    assert inspection.attempt("it", silent, 7) == 7
    assert capsys.readouterr().err == "Warning: it: ValueError: first\nWarning: it: KeyError: no message\n"
    parts = {layout: list(inspection.strided_tensors(torch.eye(4).to_sparse(layout=layout, **more))) for layout, more in (
        (torch.sparse_coo, {}), (torch.sparse_csr, {}), (torch.sparse_csc, {}), (torch.sparse_bsr, {"blocksize": (2, 2)}),
    )}  # fmt: skip
    # Four ones: an index of two rows and values; pointers to five places, four columns, values; two blocks.
    assert [[tuple(one.shape) for one in some] for some in parts.values()] == [
        [(2, 4), (4,)], [(5,), (4,), (4,)], [(5,), (4,), (4,)], [(3,), (2,), (2, 2, 2)],
    ]  # fmt: skip
    assert list(inspection.strided_tensors(nn.LazyLinear(2).weight)) == []
