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
from profzoo.harness import batch_size

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


def test_not_even_one_sample_fits() -> None:
    def rehearse(cell: dict) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")

    with pytest.raises(ConfigError, match="mine train runs out of memory at batch 1"):
        batch_size.fit_batch(CELL, rehearse)


def test_other_errors_are_not_taken_for_it() -> None:
    def rehearse(cell: dict) -> None:
        raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="multiplied"):
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
    body = (
        "\n\nplain = SentimentLSTM.forward\n"
        "def forward(self, text):\n"
        "    if len(text[0]) > 3:\n"
        "        raise torch.OutOfMemoryError('CUDA out of memory')\n"
        "    return plain(self, text)\n"
        "SentimentLSTM.forward = forward\n"
    )
    (tmp_path / f"large_{phase}.py").write_text(Path(lstm.__file__).read_text() + body)
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
