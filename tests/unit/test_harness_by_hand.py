"""Numbers of the harness, each worked out by hand: blocks of memory, the baseline's loss, how often work is timed."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from profzoo.calibration import peaks
from profzoo.experiments import interleaved_runs
from profzoo.harness import memory_blocks, recorders
from profzoo.harness.memory_blocks import KnownAddresses
from tests.unit.test_recorders import CPU, cell, run


def span(name: str, at: float, long: float, category: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "tid": 1, "ts": at, "dur": long, "args": {}}


def move(at: float, address: int, size: int, device: int = 0) -> dict[str, Any]:
    """What is allocated, or given back, at a moment."""
    return {
        "name": memory_blocks.MEMORY,
        "tid": 1,
        "ts": at,
        "args": {"Device Type": device, "Addr": address, "Bytes": size},
    }


# In an operator 100 bytes at 1 that it gives back itself, by way of one that allocates for it, and 40 at 2 that stay.
# The optimizer takes 7, and 500 that were there before go at its end; at 2 there is something else by then.
STEP = [
    *(span(f"profzoo:{name}", at, long, "user_annotation") for name, at, long in
      (("step", 0, 100), ("forward", 10, 30), ("backward", 50, 20), ("optimizer", 80, 10))),
    span("aten::conv2d", 12, 10), span("aten::empty", 13, 1), move(13.5, 1, 100), move(15, 2, 40), move(20, 1, -100),
    span("aten::mm", 52, 10), move(53, 3, 25), move(75, 2, -40), move(76, 2, 11),
    span("aten::add", 82, 2), move(83, 4, 7), move(88, 9, -500), move(14, 5, 10_000, device=1),
]  # fmt: skip
BEFORE = {"weights": 1000, "other": 600}


def test_what_a_step_holds_is_followed_block_by_block() -> None:
    known = [KnownAddresses("gradients", "backward", 0, {3, 2})]
    found = {row["range"]: row for row in memory_blocks.memory_rows(STEP, 0, BEFORE, known)}
    assert [row["order"] for row in found.values()] == [0, 1, 2, 3] and list(found) == [
        "step",
        "forward",
        "backward",
        "optimizer",
    ]
    sizes = {name: [row[f"{part}_bytes"] for part in ("begin", "peak", "end")] for name, row in found.items()}
    assert sizes == {
        # 1600 before; 1740 with both blocks; 1600 + 25 + 11 + 7 - 500 in the end.
        "step": [1600, 1740, 1143], "forward": [1600, 1740, 1640], "backward": [1640, 1665, 1665], "optimizer": [1636, 1643, 1143],
    }  # fmt: skip
    held = {
        name: {part: row[f"{part}_bytes"] for part in memory_blocks.HELD if row[f"{part}_bytes"]}
        for name, row in found.items()
    }
    assert held == {
        "step": {"weights": 1000, "workspace": 100, "gradients": 40, "other": 600},
        "forward": {"weights": 1000, "workspace": 100, "gradients": 40, "other": 600},
        # What is at 2 as the backward pass ends is a gradient from the first, and what comes there later is not.
        "backward": {"weights": 1000, "gradients": 65, "other": 600},
        "optimizer": {"weights": 1000, "gradients": 25, "activations": 11, "workspace": 7, "other": 600},
    }  # fmt: skip


def test_only_allocations_of_the_device_count() -> None:
    (step, *_) = memory_blocks.memory_rows(STEP, 1, {}, [])
    assert [step[f"{part}_bytes"] for part in ("begin", "peak", "end")] == [0, 10_000, 10_000]


def test_the_loss_of_the_baseline_is_that_of_its_last_step(tmp_path: Path) -> None:
    """The same steps without a window behind them end with it."""
    one = cell(tool="torch", warmup=2, window=2, torch={"baseline": 3, "warmup": 1})
    timer = recorders.StepTimer(CPU, tmp_path / "s.csv")
    profiler = recorders.TorchProfiler(CPU, one["profiler"], 2, tmp_path / "o.csv", tmp_path / "t.json.gz")
    outcome = run(one, profiler, timer=timer)
    alone = run({**one, "warmup": 4, "window": 1, "steps": 5, "profiler": {}}, recorders.Recorder(CPU))
    assert outcome.baseline_loss == alone.loss != outcome.loss


@pytest.mark.parametrize(("takes_s", "fewest", "most"), [(0.005, 2, 10), (0.12, 1, 1)])
def test_work_is_timed_for_as_long_as_takes_a_clock(takes_s: float, fewest: int, most: int) -> None:
    """Once to begin with, once to see how long it takes, and five times as often as 0.05 s hold, or once."""
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        assert calls < 200
        time.sleep(takes_s)

    took = peaks.time_call(work, torch.device("cpu"))
    assert 2 + 5 * fewest <= calls <= 2 + 5 * most and takes_s <= took < 4 * takes_s


def test_items_of_all_processes_are_added_up() -> None:
    found = interleaved_runs.summarize_processes(["a", "b"], [{"items": 30, "batch": 3}, {"items": 12, "batch": 4}], 7)
    assert found == {
        "items": 42, "batch": 3, "steps": 7,
        "processes": [{"side": "a", "items": 30, "batch": 3}, {"side": "b", "items": 12, "batch": 4}],
    }  # fmt: skip
