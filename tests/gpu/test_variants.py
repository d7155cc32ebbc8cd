"""Variants on a real GPU: a captured step does what the plain one does, faster, and all tools see its launches."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from profzoo import run
from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.harness import interface
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import batches, step_loop
from profzoo.io import csv_tables as reading
from profzoo.tools.time import tables
from profzoo.tools.torch import owners

PROJECT = Path(__file__).parents[2]
CUDA = torch.device("cuda")
WARMUP, REPLAYS, TIMED = 3, 5, 30
WAITING = """
from torch import nn

WORKLOADS = {"trimmed": {"train": {"batch": 2}}}

def build(shape):
    return nn.Linear(4, 2)

def sample(shape, generator):
    import torch
    return torch.ones(4), 0

def loss(outputs, target):
    found = nn.functional.cross_entropy(outputs, target)
    return found if found.item() > 0 else -found
"""


class Steps:
    """Steps of MobileNetV2 on batches that take turns, without random dropping."""

    def __init__(self, phase: str, **given: Any) -> None:
        own = {"batch": 8, "deterministic": True, **given}
        cell = settings.resolve_cell(
            "mobilenetv2", phase, "time", config.normalise_config({"settings": {"mobilenetv2": own}, "window": 50})
        )
        model = interface.load_functions(cell["module"])
        network = step_loop.make_network(cell, model, CUDA, None)
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        self._repeated = step_loop.make_step(cell, model, network, CUDA, Ranges())
        self._source = iter(batches.iterate_batches(cell, model))

    def __call__(self) -> torch.Tensor:
        return self._repeated.step(self._repeated.transfer(next(self._source), CUDA)).clone()

    def launches(self) -> int:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            self()
            torch.cuda.synchronize()
        events = [event for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        return sum(not event.name.startswith(("Memcpy", "Memset")) for event in events)

    def milliseconds(self) -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        first.record()
        for _ in range(TIMED):
            self()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) / TIMED


@pytest.mark.parametrize(
    ("phase", "more"),
    [
        *itertools.product(settings.PHASES, [{}, {"precision": "bf16", "channels_last": True}]),
        ("train", {"accumulate": 2, "clip": 0.5, "ema": 0.9}),
    ],
)
def test_replays_make_what_plain_steps_make(phase: str, more: dict) -> None:
    # Adam's first steps have the size of the learning rate whatever the gradient's, so that rounding decides where a
    # gradient is nearly none: both have the optimizer whose kernels are the same captured or not.
    same = {**more, "optimizer": "fused"} if phase == "train" else more
    plain, graph = Steps(phase, **same), Steps(phase, graph=True, **same)
    close = {"rtol": 1e-2, "atol": 1e-2} if more else {"rtol": 1e-3, "atol": 1e-4}
    for index in range(WARMUP + REPLAYS):
        torch.testing.assert_close(graph(), plain(), **close, msg=lambda why, at=index: f"step {at}: {why}")


@pytest.mark.parametrize("phase", settings.PHASES)
def test_a_replay_launches_as_many_kernels_in_less_time(phase: str) -> None:
    # Of an optimizer that does on the GPU what it would do on the CPU there would be more.
    plain, graph = (Steps(phase, optimizer="fused", graph=captured) for captured in (False, True))
    for _ in range(WARMUP + 1):
        plain()
        graph()
    (launches, slower), (replayed, faster) = ((one.launches(), one.milliseconds()) for one in (plain, graph))
    print(f"{phase}: {launches} launches, {slower:.2f} ms; captured {replayed} and {faster:.2f} ms")
    assert abs(launches - replayed) <= 5 and launches > 100 and faster < slower


@pytest.mark.parametrize("more", [{}, {"accumulate": 2, "clip": 0.5, "ema": 0.9}])
def test_half_precision_is_captured_with_a_fused_optimizer(more: dict) -> None:
    graph = Steps("train", graph=True, precision="fp16", optimizer="fused", **more)
    losses = [float(graph()) for _ in range(WARMUP + REPLAYS)]
    assert all(torch.isfinite(torch.tensor(losses))) and losses[-1] < losses[0]


def test_a_step_that_waits_for_the_gpu_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    # In a process of its own: a capture that failed leaves torch's generator of random numbers unusable.
    words = ["mine", "train", "module=waiting", "graph=true", "window=1"]
    answer = subprocess.run(
        [sys.executable, "-m", "models.run", *words],
        cwd=PROJECT, env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 2, answer.stderr
    said = answer.stderr.strip().splitlines()[-1]
    assert said.startswith("profzoo: mine train cannot be captured in a CUDA graph: ") and ".item()" in said


def held(folder: Path, *words: str) -> tuple[int, int]:
    """The most memory that a run held, and what a step's forward pass holds for the backward pass, in bytes."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    facts, memory = folder / "facts.json", folder / "memory.csv"
    assert run.main([*words, "window=2", "--facts", str(facts), "--memory", str(memory)]) == 0
    rows = reading.read(memory, tables.MEMORY).set_index("range")
    kept = rows.loc["loss", "activations_bytes"] if "loss" in rows.index else 0
    return json.loads(facts.read_text())["peak_memory_bytes"], int(kept)


@pytest.mark.parametrize("name", ["mobilenetv2", "gpt"])
def test_checkpoints_need_less_memory(tmp_path: Path, name: str) -> None:
    plain, less = (held(tmp_path, name, "train", f"checkpoint={word}") for word in ("false", "true"))
    print(f"{name}: {plain} bytes, with checkpoints {less}")
    assert less[1] < 0.8 * plain[1]
    # The peak of gpt is that of its optimizer.
    assert less[0] < (0.8 if name == "mobilenetv2" else 1.0) * plain[0]


def test_graphs_of_the_compiler_keep_what_blocks_hand_on(tmp_path: Path) -> None:
    words = ["hidden=32", "heads=2", "layers=2", "vocabulary=50", "tokens=8", "generated=4"]
    assert held(tmp_path, "gpt", "inference", "compile=reduce-overhead", *words)[0] > 0


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What snakemake makes of captured cells under every tool, in a folder of its own."""
    folder = tmp_path_factory.mktemp("results")
    cells = [f"{folder}/mobilenetv2@graph/{phase}" for phase in settings.PHASES]
    targets = [f"{cell}.{name}.csv" for cell in cells for name in ("nsys", "torch")] + [f"{cells[1]}.ncu.csv"]
    command = ["snakemake", "--nolock", *targets, "--config", "models=mobilenetv2@graph"]
    command.append(f"pathvars={{results: {folder}}}")
    answer = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return folder / "mobilenetv2@graph"


@pytest.mark.parametrize("phase", settings.PHASES)
def test_all_tools_see_the_launches_of_replays(results: Path, phase: str) -> None:
    nsys, torch_ = (pd.read_csv(results / f"{phase}.{name}.csv") for name in ("nsys", "torch"))
    counts = [nsys["launches"].sum() / 10, torch_.loc[torch_["kind"] == "kernel", "count"].sum() / 3]
    # Replays have one range, but for copies of inputs.
    name = {"train": "graph", "inference": "forward"}[phase]
    assert (nsys["range"] == name).mean() > 0.95
    # ncu cannot run each kernel of this training step's graph by itself (docs/reference/variants.md).
    if phase == "inference":
        ncu = pd.read_csv(results / f"{phase}.ncu.csv")
        counts.append(len(ncu))
        assert (ncu["range"] == name).mean() > 0.95
    assert counts[0] > 100 and max(counts) - min(counts) <= 0.02 * max(counts)


@pytest.mark.parametrize("phase", settings.PHASES)
def test_replays_have_the_layers_that_were_captured(results: Path, phase: str) -> None:
    table = reading.read(results / f"{phase}.torch.launches.csv", owners.TABLE)
    kernels = table[table["kind"] == "kernel"]
    print(kernels["module"].value_counts().to_string())
    assert (kernels["module"] == "(graph)").mean() < 0.02
    assert kernels["module"].str.startswith("features.").mean() > 0.5
