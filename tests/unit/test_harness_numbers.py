"""Numbers of the harness by hand: samples of a step, losses around the baseline, series of peaks, sums of rounds."""

import csv
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from profzoo import run
from profzoo.calibration import peaks
from profzoo.experiments import interleaved_runs
from profzoo.harness import (
    activation_checkpointing,
    cpu_contention,
    memory_blocks,
    recorders,
    step_loop,
    window_length,
)

# The loss of step n, counted from 1, is n.
COUNTING = """
import torch
from torch import nn

WORKLOADS = {"trimmed": {"train": {"batch": 3}}}
done = [0]


def build(shape):
    return nn.Linear(2, 1)


def sample(shape, generator):
    return torch.rand(2, generator=generator), 0


def loss(outputs, target):
    done[0] += 1
    return outputs.sum() * 0 + float(done[0])
"""


def counted(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *words: str) -> dict:
    (folder / f"{name}.py").write_text(COUNTING)
    monkeypatch.syspath_prepend(str(folder))
    files = ["--facts", str(folder / "f.json"), "--steps", str(folder / "s.csv")]
    assert run.main(["mine", "train", f"module={name}", "device=cpu", *words, *files]) == 0
    return json.loads((folder / "f.json").read_text())


def test_the_baseline_s_loss_is_that_of_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["--trace", str(tmp_path / "t.json.gz"), "--operators", str(tmp_path / "o.csv")]
    given = ["warmup=2", "window=3", "profiler.baseline=4", "profiler.wait=1", "profiler.warmup=1", "profiler.repeat=1"]
    facts = counted(tmp_path, monkeypatch, "counting_baseline", *given, *files)
    # Two steps of warm-up and four of the baseline; then one to wait, one to warm up, and three.
    assert (facts["baseline"]["loss"], facts["loss"]) == (6, 11)
    assert (facts["baseline"]["items"], facts["items"]) == (4 * 3, 3 * 3)


def test_a_step_has_the_samples_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_loop, "batch_count", lambda cell: 4)
    counted(tmp_path, monkeypatch, "counting_items", "warmup=1", "window=2")
    assert [row["items"] for row in csv.DictReader((tmp_path / "s.csv").open())] == ["12", "12"]


def test_a_series_is_as_many_calls_as_last_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def series(work: object, count: int, device: torch.device) -> float:
        counts.append(count)
        # The first of the long ones is disturbed.
        return count * 0.001 * (3 if len(counts) == 2 else 1)

    monkeypatch.setattr(peaks, "_series", series)
    assert peaks.time_call(lambda: None, torch.device("cpu")) == pytest.approx(0.001)
    assert counts == [1, *[round(peaks.LEAST_S / 0.001)] * peaks.REPEATS]
    monkeypatch.setattr(peaks, "_series", lambda work, count, device: (counts.append(count), count * 10.0)[1])
    counts.clear()
    assert peaks.time_call(lambda: None, torch.device("cpu")) == 10
    assert counts == [1] * (1 + peaks.REPEATS)


def test_rounds_add_up_the_samples_of_all_processes() -> None:
    facts = [{"items": 3, "loss": 1.0}, {"items": 5, "loss": 2.0}, {"loss": 3.0}]
    found = interleaved_runs.summarize_processes(["a", "b", "a"], facts, 9)
    assert (found["items"], found["steps"], found["loss"]) == (8, 9, 1.0)
    assert [(one["side"], one.get("items")) for one in found["processes"]] == [("a", 3), ("b", 5), ("a", None)]


def test_a_block_that_its_operator_gives_back_is_workspace() -> None:
    def move(ts: float, address: int, size: int) -> dict:
        return {
            "name": memory_blocks.MEMORY,
            "ts": ts,
            "tid": 1,
            "args": {"Device Type": 0, "Addr": address, "Bytes": size},
        }

    events = [
        {"name": "profzoo:forward", "cat": "user_annotation", "ts": 0, "dur": 20, "tid": 1},
        {"name": "aten::mm", "cat": "cpu_op", "ts": 1, "dur": 4, "tid": 1},
        move(2, 1, 16), move(3, 2, 64), move(4, 2, -64),
        # The operator has ended by then: what it made is an activation until it is given back.
        move(9, 1, -16),
    ]  # fmt: skip
    (row,) = memory_blocks.memory_rows(events, 0, {}, [])
    assert (row["peak_bytes"], row["workspace_bytes"], row["activations_bytes"], row["end_bytes"]) == (80, 64, 16, 0)


def test_the_longest_need_of_all_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = recorders.Recorder(torch.device("cpu"))
    recorder.least_s, recorder.steps = 1.0, 3
    monkeypatch.setattr(window_length.distributed, "gather_facts", lambda cell, own: [{"steps": 2}, {"steps": 5}])
    assert window_length._more({}, recorder) == 5


def test_what_programs_and_a_hypervisor_take_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited, ticks = iter([0, 1000]), iter([100, 400]), iter([[0] * 8, [10, 0, 10, 50, 0, 0, 0, 5]])
    monkeypatch.setattr(cpu_contention.time, "perf_counter_ns", lambda: next(clock))
    monkeypatch.setattr(cpu_contention, "_waited", lambda: next(waited))
    monkeypatch.setattr(cpu_contention, "_ticks", lambda: next(ticks))
    # 300 of 1000 ns waited, and 5 of the 25 ticks that all wanted.
    assert cpu_contention.CpuContention().share() == pytest.approx(0.3 + 0.2)


def test_runs_of_checkpoints_are_as_many_as_the_root() -> None:
    assert [len(run) for run in activation_checkpointing.group_modules([nn.Linear(1, 1) for _ in range(5)])] == [
        2,
        2,
        1,
    ]
