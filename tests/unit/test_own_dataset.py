"""A data set of a model's own: every sample is read when it is needed, and what that takes is part of the step."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from profzoo import run

SLEEP_S, BATCH = 0.005, 4
MODEL = f"""
import time
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

SHAPE = {{"length": 100}}
WORKLOADS = {{"trimmed": {{"train": {{"batch": {BATCH}}}, "inference": {{"batch": {BATCH}}}}}}}
read = []


class Slow(Dataset):
    def __init__(self, length, sleep_s):
        self.length, self.sleep_s = length, sleep_s

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        read.append(index)
        time.sleep(self.sleep_s)
        return torch.full((3,), float(index)), index % 2


def build(shape):
    return nn.Linear(3, 2)


def dataset(shape):
    return Slow(shape.length, {SLEEP_S})
"""
FAST = MODEL.replace(f"Slow(shape.length, {SLEEP_S})", "Slow(shape.length, 0)")
STREAM = f"""{FAST}
class Stream(IterableDataset):
    def __iter__(self):
        return ((torch.ones(3), 1) for _ in range(10))

def dataset(shape):
    return Stream()
"""


@pytest.fixture(autouse=True, scope="module")
def impatient() -> Iterator[None]:
    """Torch waits for the workers of a loader that failed when it is collected, which may be in a later test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)
        yield


class Run:
    """What a model's file leaves that is run by hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, *words: str) -> None:
        self.name = f"own_{abs(hash((body, words)))}"
        (folder / f"{self.name}.py").write_text(body)
        monkeypatch.syspath_prepend(str(folder))
        files = {name: folder / f"{self.name}.{name}" for name in ("facts", "steps")}
        given = [f"module={self.name}", "device=cpu", *(f"--{name}={path}" for name, path in files.items())]
        self.code = run.main(["mine", *(words or ("train",)), *given])
        self.facts = json.loads(files["facts"].read_text()) if files["facts"].exists() else {}
        self.walls = [int(row["wall_ns"]) for row in csv.DictReader(files["steps"].open())] if self.facts else []

    def read(self) -> list[int]:
        return __import__(self.name).read


def test_the_time_of_a_sample_is_in_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Run(tmp_path, monkeypatch, MODEL, "train", "warmup=1", "window=6")
    assert found.code == 0 and len(found.walls) == 6 and min(found.walls) >= BATCH * SLEEP_S * 1e9
    # Seven batches, each of samples that were not read before.
    assert len(found.read()) == len(set(found.read())) == 7 * BATCH
    assert found.facts["input"] == {"from": "dataset", "pool": None}


def test_workers_load_beside_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Run(tmp_path, monkeypatch, MODEL, "train", "warmup=1", "window=3", "workers=1")
    # Processes of their own read them.
    assert found.code == 0 and found.read() == [] and found.facts["steps"] == 3


def test_training_shuffles_by_the_seed_and_inference_does_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", "warmup=0", "window=10"]
    one, same, other = (Run(tmp_path, monkeypatch, f"{FAST}# {n}", *words, f"seed={s}").read() for n, s in
                        enumerate((1, 1, 2)))  # fmt: skip
    assert one == same != other and one != sorted(one) and len(set(one)) == 40


def test_a_short_data_set_comes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Run(tmp_path, monkeypatch, FAST, "train", "warmup=0", "window=6", "length=9")
    # Two whole batches of nine samples an epoch, three epochs, each in an order of its own.
    epochs = [found.read()[place : place + 8] for place in (0, 8, 16)]
    assert found.code == 0 and len(found.read()) == 24
    assert all(len(set(epoch)) == 8 for epoch in epochs) and len(set(map(tuple, epochs))) == 3


def test_a_stream_of_samples_is_read_in_its_order_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Run(tmp_path, monkeypatch, STREAM, "train", "warmup=0", "window=6").facts["steps"] == 6


@pytest.mark.parametrize(
    ("body", "words", "says"),
    [
        (FAST, ["length=3"], "dataset(shape) of own_|has 3 samples, too few for one batch of 4: lower batch"),
        (STREAM, ["batch=11"], "dataset(shape) of own_|ended before one batch of 11: lower batch"),
        (FAST + "\ndef dataset(shape):\n    pass\n", [], "returned NoneType: return a torch Dataset"),
        (FAST + "\nSlow.__len__ = None\n", [], "returned Slow, which has no length: give it __len__, or make it an Iter"),
        (FAST + "\nSlow.__getitem__ = lambda self, index: torch.ones(3)\n", [], "have dataset(shape) of own_"),
        (FAST + "\ndef f(self, index):\n    raise KeyError('no such image')\nSlow.__getitem__ = f\n", ["workers=1"],
         "failed with KeyError: 'no such image'"),
    ],
)  # fmt: skip
def test_a_data_set_that_cannot_be_used_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, body: str, words: list, says: str
) -> None:
    assert Run(tmp_path, monkeypatch, body, "train", "warmup=1", "window=2", *words).code
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("profzoo: "))
    assert all(part in line for part in says.split("|"))


def test_samples_of_a_pool_are_said_to_be_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = FAST.replace("def dataset(shape):\n    return Slow(shape.length, 0)\n",
                        "def sample(shape, generator):\n    read.append(1)\n    return torch.rand(3), 1\n")  # fmt: skip
    found = Run(tmp_path, monkeypatch, body, "train", "warmup=1", "window=9")
    # Ten steps of four, of two batches that were made beforehand.
    assert len(found.read()) == 2 * BATCH and found.facts["input"] == {"from": "sample", "pool": 2 * BATCH}


@pytest.mark.slow
def test_ranks_share_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two processes reads half of them, no sample twice in an epoch; too few for both is said."""
    from tests.unit.test_distributed import WORDS, torchrun

    body = (
        FAST
        + f"""
import atexit, os, json
atexit.register(lambda: open("{tmp_path}/" + os.environ["RANK"], "w").write(json.dumps(read)))
"""
    )
    (tmp_path / "spread.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = torchrun("mine", *WORDS, "module=spread", "length=24")
    assert done.returncode == 0, done.stderr
    mine, others = (json.loads((tmp_path / str(rank)).read_text()) for rank in (0, 1))
    assert len(mine) == len(others) > 0 and not set(mine[:12]) & set(others[:12])
    # Of eight, four an epoch each, which are drawn anew.
    done = torchrun("mine", *WORDS, "module=spread", "length=8")
    assert done.returncode == 0, done.stderr
    mine = json.loads((tmp_path / "0").read_text())
    assert len(mine) == 12 and len({tuple(mine[place : place + 4]) for place in (0, 4, 8)}) > 1
    done = torchrun("mine", *WORDS, "module=spread", "length=7")
    assert done.returncode and "too few for one batch of 4 in each of 2 processes" in done.stderr
