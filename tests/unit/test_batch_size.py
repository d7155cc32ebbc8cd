"""harness/fitting: batch: auto halves the batch until it fits, and says what it came to."""

import json
from pathlib import Path

import pytest
import torch

from models import lstm
from profzoo import run
from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.errors import ConfigError
from profzoo.harness.variants import batch_size

LARGE = """
plain = SentimentLSTM.forward
def forward(self, text):
    if len(text[0]) > 3:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return plain(self, text)
SentimentLSTM.forward = forward
"""
CELL = {"model": "mine", "phase": "train", "batch": 20}


@pytest.mark.parametrize(("limit", "batch"), [(20, 20), (19, 10), (10, 10), (9, 5), (4, 2), (1, 1)])
def test_the_batch_is_halved_until_it_fits(limit: int, batch: int) -> None:
    tried = []

    def rehearse(cell: dict) -> None:
        tried.append(cell["batch"])
        if cell["batch"] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")

    assert batch_size.fit_batch(CELL, rehearse) == {**CELL, "batch": batch}
    assert tried == [size for size in (20, 10, 5, 2, 1) if size >= batch]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            "DefaultCPUAllocator: can't allocate memory: 1 bytes",
            ConfigError,
            "mine train runs out of memory at batch 1",
        ),
        ("shapes cannot be multiplied", RuntimeError, "multiplied"),
    ],
)
def test_what_no_batch_mends_is_said(error: str, kind: type[Exception], said: str) -> None:
    def rehearse(cell: dict) -> None:
        raise RuntimeError(error)

    with pytest.raises(kind, match=said):
        batch_size.fit_batch(CELL, rehearse)


def test_memory_of_a_failed_rehearsal_is_free_before_the_next() -> None:
    alive: list[int] = []

    class Held:
        def __init__(self) -> None:
            alive.append(1)

        def __del__(self) -> None:
            alive.pop()

    def rehearse(cell: dict) -> None:
        assert not alive
        held = Held()
        if cell["batch"] > 3:
            raise MemoryError(held)

    assert batch_size.fit_batch(CELL, rehearse)["batch"] == 2


@pytest.mark.parametrize("phase", settings.PHASES)
def test_a_run_records_what_it_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    (tmp_path / f"large_{phase}.py").write_text(Path(lstm.__file__).read_text() + LARGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["mine", phase, f"module=large_{phase}", "sequence_length=4", "window=2", "warmup=1", "device=cpu"]
    facts, steps = tmp_path / "facts.json", tmp_path / "steps.csv"
    assert run.main([*words, "batch=auto", "--facts", str(facts), "--steps", str(steps)]) == 0
    said = json.loads(facts.read_text())
    assert (said["batch"], said["steps"], said["items"]) == (2, 2, 4)  # Of 10, 5 and 2.
    assert steps.read_text().count("\n") == 3


def test_auto_goes_through_the_command_line() -> None:
    checked = config.normalise_config({"batch": "auto", "settings": {"unet": {"batch": "3"}}})
    cell = settings.resolve_cell("lstm", "train", "nsys", checked)
    assert cell["fit"] and cell["batch"] == 10 and "batch=auto" in settings.setting_words(cell)
    assert run.resolve_words("lstm", "train", "nsys", settings.setting_words(cell)[2:]) == cell
    fixed = settings.resolve_cell("unet", "train", "nsys", checked)
    assert not fixed["fit"] and fixed["batch"] == 3
