"""harness/measure: what a run says of itself, which process writes what, and what models leave out."""

import argparse
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from profzoo.errors import ConfigError
from profzoo.harness import devices, interface
from profzoo.harness.observers import recorders
from profzoo.harness.step import measure, step_loop
from tests.harness_cells import cell, counted

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def test_facts_of_one_process_are_those_of_its_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = counted(tmp_path, monkeypatch, "counting_facts", "warmup=2", "window=3", "threads=1")
    # A line of two inputs and a bias; batches of three; the loss of step n is n.
    right = {"parameters": 3, "batch": 3, "steps": 3, "items": 9, "loss": 5, "threads": 1, "shifts": 1,
             "device": "CPU, 1 threads", "device_type": "cpu", "input": {"from": "sample", "pool": 6},
             "cuda": None, "cudnn": None, "device_uuid": None, "peak_memory_bytes": None}  # fmt: skip
    assert {key: facts[key] for key in right} == right
    assert not facts.keys() & {"ranks", "baseline", "outputs", "memory"} and facts["peak_rss_bytes"] > 50 << 20
    walls = pd.read_csv(tmp_path / "s.csv")["wall_ns"]
    assert facts["window_wall_ns"] == walls.sum() and 0 < facts["step_ns"] <= walls.max()
    assert facts["window_began_ns"] > 0


def test_a_baseline_is_told_beside_the_window_and_memory_if_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [f"--{name}={tmp_path / name}" for name in ("trace", "operators", "memory")]
    given = ["warmup=1", "window=2", "profiler.baseline=2", "profiler.wait=1", "profiler.warmup=1", "profiler.repeat=1"]
    facts = counted(tmp_path, monkeypatch, "counting_beside", *given, *files)
    assert "ranks" not in facts and "ranks" not in facts["baseline"]
    assert (facts["steps"], facts["baseline"]["steps"], facts["baseline"]["items"]) == (2, 2, 6)
    # One step of warm-up and two of the baseline; then one to wait, one to warm up, and two.
    assert facts["baseline"]["loss"] == 3 and facts["loss"] == 7
    assert facts["memory"]["allocator_peak_bytes"] is None and facts["memory"]["wall_ns"] > 0
    step = pd.read_csv(tmp_path / "memory").iloc[0]
    # Two weights and a bias, and the two moments and the count of steps of each, of four bytes.
    assert (step["range"], step["order"], step["weights_bytes"]) == ("step", 0, 12)
    assert (step["optimizer_bytes"], step["inputs_bytes"]) == (2 * 12 + 2 * 4, 3 * 2 * 4 + 3 * 8)


def test_only_the_first_process_writes_unless_all_are_traced(tmp_path: Path) -> None:
    options = argparse.Namespace(trace=tmp_path / "t", operators=tmp_path / "o", steps=tmp_path / "s", ranks=None)
    timer, profiler, plain = recorders.StepTimer, recorders.TorchProfiler, recorders.Recorder

    def kinds(rank: int, baseline: int = 3) -> list[type | None]:
        one = cell(window=2, profiler={"baseline": baseline, "modules": False})
        return [watching and type(watching) for watching in measure._watching(one, options, rank, CPU)]

    assert [kinds(rank) for rank in (0, 1)] == [[timer, profiler], [plain, plain]]
    assert [kinds(rank, 0) for rank in (0, 1)] == [[None, profiler], [None, plain]]
    options.ranks = tmp_path
    assert [kinds(rank) for rank in (0, 1)] == [[timer, profiler], [plain, profiler]]
    names = [f"{platform.node()}.1.{ending}" for ending in ("operators.csv", "trace.json.gz")]
    assert [path.name for path in measure._profiled_files(options, 1)] == names
    options.trace = None
    assert [kinds(rank) for rank in (0, 1)] == [[None, timer], [None, plain]]
    options.steps = None
    assert kinds(0) == [None, plain]


def test_facts_of_several_processes_name_each(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = SimpleNamespace(steps=4, peak_memory_bytes=5, peak_rss_bytes=6, step_ns=7, shifts=1)
    outcome = step_loop.RunOutcome(1, 2.0, 3.0, [], {}, None)  # type: ignore[typeddict-item]
    for ranks, told in (([{"rank": 0}], False), ([{"rank": 0}, {"rank": 1}], True)):
        found = measure._baseline(cell(gpus=2), timer, outcome, ranks)  # type: ignore[arg-type]
        # Batches of three of two processes.
        assert (found["items"], found["loss"], found["peak_memory_bytes"], found["step_ns"]) == (24, 3.0, 5, 7)
        assert ("ranks" in found) == told
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "H100")
    monkeypatch.setattr(devices, "read_uuid", lambda device: "GPU-1")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 9)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    right = {"device": "H100", "device_type": "cuda", "device_uuid": "GPU-1", "device_why": None, "cuda": "13.0"}
    right |= {"cudnn": 9}
    found = devices.describe_machine("auto", GPU)
    assert {key: found[key] for key in right} == right and devices.describe_machine("cpu", CPU)["cuda"] is None


@pytest.mark.parametrize(
    ("limit", "beside", "cores"),
    [
        ("max 100000\n", "1", 6),
        ("250000 100000\n", "1", 2.5),
        ("900000 100000\n", "2", 3),
        (None, "4", 1.5),
        ("?", "1", 6),
    ],
)
def test_cores_are_those_that_a_container_and_its_processes_share(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None, beside: str, cores: float
) -> None:
    monkeypatch.setattr(devices.os, "sched_getaffinity", lambda process: set(range(6)))
    monkeypatch.setattr(devices, "CPU_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", beside)
    if limit:
        (tmp_path / "cpu.max").write_text(limit)
    assert devices.count_cores() == cores


def test_functions_that_a_model_leaves_out_have_defaults() -> None:
    optimizer = interface.make_adam(nn.Linear(1, 1).parameters())
    assert type(optimizer) is torch.optim.Adam and optimizer.defaults["lr"] == 0.001
    scores, target = torch.zeros(2, 4), torch.tensor([0, 1])
    assert float(interface.default_loss(scores, target)) == pytest.approx(torch.log(torch.tensor(4.0)).item())
    own = torch.tensor(7.0)
    for outputs in ({"loss": own}, SimpleNamespace(loss=own)):
        assert interface.default_loss(outputs, None) is own
    for outputs in ({"loss": None}, SimpleNamespace(), 5):
        with pytest.raises(ConfigError):
            interface.default_loss(outputs, target)
    line = nn.Linear(1, 1)
    assert interface.whole_network(line) == (line,)
    assert not list(interface.no_others(SimpleNamespace()).parameters())


def test_the_allocators_peak_is_of_gpus_and_the_first_process_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 100)
    monkeypatch.setattr(measure.batches, "iterate_batches", lambda one, model: [one["workers"]])
    monkeypatch.setattr(measure.interface, "load_functions", lambda module: None)
    taken: list[Any] = []
    row = dict.fromkeys(measure.peak_memory.COLUMNS, 1)
    monkeypatch.setattr(measure.peak_memory, "measure_memory", lambda batch, *more: taken.append(batch) or [row])
    for rank, device, peak in ((0, GPU, 100), (1, GPU, 100), (0, CPU, None)):
        options = argparse.Namespace(memory=tmp_path / f"{rank}{device.type}.csv", remedies=False)
        found = measure._stock(cell(workers=4), options, nn.Linear(1, 1), device, None, rank)  # type: ignore[arg-type]
        assert found["allocator_peak_bytes"] == peak and options.memory.exists() == (rank == 0)
    # No worker processes are started for it.
    assert taken == [0, 0, 0]


def test_a_step_has_the_samples_of_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_loop, "batch_count", lambda cell: 4)
    counted(tmp_path, monkeypatch, "counting_items", "warmup=1", "window=2")
    assert pd.read_csv(tmp_path / "s.csv")["items"].tolist() == [12, 12]
