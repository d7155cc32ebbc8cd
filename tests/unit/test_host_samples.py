"""Lines at which the host spends a step, sampled from real steps of torch with a planted fault, and of their twins."""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from profzoo import run
from profzoo.harness.observers import host_samples
from profzoo.harness.observers.host_samples import HostSamples, SampledStep
from profzoo.harness.ranges import Ranges
from profzoo.script_harness.session import StepWaits
from profzoo.verdicts.causes import noted_verdicts
from tests.known_rules import a_verdict
from tests.planted.development import diffusion_schedules, gpt_busy_thread

Lines = Sequence[Any]


def sampled(step: Callable[[Ranges], Any]) -> Lines:
    """Lines of a step, which gets the ranges that it may open."""
    ranges = Ranges()
    samples = HostSamples(ranges)
    samples.start()
    step(ranges)
    found = samples.stop()
    assert found is not None
    return found


def share_of(lines: Lines, file: str, **where: str) -> float:
    return sum(one["share"] for one in lines if file in one["file"] and all(one[name] == where[name] for name in where))


def work_for(seconds: float) -> None:
    """Run Python alone; a busy machine may take longer."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(50))


@pytest.mark.slow
def test_another_thread_that_runs_is_named_with_its_lines() -> None:
    """The planted case's own log, beside Python and products of matrices; its twin adds up with numpy.

    On a busy machine all shares are smaller, because a step waits for a CPU.
    """
    found = {}
    for fault in (True, False):
        log, weights = gpt_busy_thread.Log(2_000_000, fault), torch.randn(64, 64)

        def step(ranges: Ranges, log: gpt_busy_thread.Log = log, weights: Tensor = weights) -> None:
            thread = threading.Thread(target=log.summarise, name="log")
            thread.start()
            work_for(0.15)
            for _ in range(20):
                weights.mm(weights)
            thread.join()

        found[fault] = sampled(step)
    shares = {fault: share_of(lines, "gpt_busy_thread.py", thread="log") for fault, lines in found.items()}
    assert shares[True] > max(shares[False], 0.01)
    row = a_verdict("GIL contention", about=noted_verdicts.LOCK, next_step="move it")
    lines = [line | {"share": max(line["share"], 0.05)} for line in found[True]]
    told = noted_verdicts.name_places(row, lines).next_step
    assert told.startswith("thread 'log' runs Log.summarise at ") and told.endswith(": move it")


@pytest.mark.parametrize("fault", [True, False])
def test_python_that_a_step_runs_besides_launching_is_named(fault: bool) -> None:
    """The planted case's own network, with a schedule of many times."""
    shape = {"fault": fault, "size": 16, "width": 8, "depth": 1, "times": 200000}
    network = diffusion_schedules.build(SimpleNamespace(**shape))
    given = torch.randn(1, 3, 16, 16), torch.randn(1, 3, 16, 16), torch.tensor([5])

    def step(ranges: Ranges) -> None:
        with ranges("forward"):
            network(given)
            work_for(0.05)

    lines = sampled(step)
    found = share_of(lines, "diffusion_schedules.py", thread="", range="forward")
    assert found > 0.3 if fault else found < 0.25
    row = a_verdict("host work", about=noted_verdicts.WORK, next_step="do it once")
    assert ("diffusion_schedules.py:" in noted_verdicts.name_places(row, lines).next_step) or not fault


class Samples(Dataset[Tensor]):
    """Samples that take some time of Python each."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Tensor:
        work_for(self.seconds)
        return torch.zeros(4)


@pytest.mark.parametrize(
    ("slow", "fast", "reading", "collating"), [("reading", "collating", 0.05, 0.0), ("collating", "reading", 0.0, 0.4)]
)
def test_reading_and_collating_are_told_apart(slow: str, fast: str, reading: float, collating: float) -> None:
    def collate(samples: list[Tensor]) -> Tensor:
        work_for(collating)
        return torch.stack(samples)

    source = iter(DataLoader(Samples(reading), batch_size=8, collate_fn=collate))

    def step(ranges: Ranges) -> None:
        with ranges("data"):
            next(source)
        work_for(0.1)

    lines = sampled(step)
    assert share_of(lines, "test_host_samples.py", work=slow, range="data") > 0.4
    assert share_of(lines, "test_host_samples.py", work=fast, range="data") < 0.2
    row = a_verdict("input-bound", about=noted_verdicts.DATA, next_step="decode less")
    told = noted_verdicts.name_places(row, lines).next_step
    assert told.startswith(f"{noted_verdicts.WORKS[slow]} takes ") and told.endswith(": decode less")


def test_what_was_set_is_set_again_also_if_the_step_fails() -> None:
    before = sys.getswitchinterval()
    step = SampledStep(3, Ranges())
    with pytest.raises(ZeroDivisionError), step.during(1):
        assert sys.getswitchinterval() == pytest.approx(host_samples.SWITCH_S)
        raise ZeroDivisionError
    assert sys.getswitchinterval() == pytest.approx(before)
    assert not any(thread.name == "profzoo samples" for thread in threading.enumerate())
    with SampledStep(3, Ranges()).during(1):
        sys.setswitchinterval(0.02)
    assert sys.getswitchinterval() == pytest.approx(0.02)
    sys.setswitchinterval(before)


def test_only_one_step_is_sampled_and_nothing_is_told_of_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    step = SampledStep(3, Ranges())
    with step.during(0):
        work_for(0.02)
    assert step.found is None
    monkeypatch.setattr(host_samples, "FEWEST", 1_000_000)
    with step.during(1):
        work_for(0.02)
    assert step.found is None
    before = sys.getswitchinterval()
    with SampledStep(1, Ranges()).during(0):
        assert sys.getswitchinterval() == before


def test_of_a_script_one_step_is_sampled() -> None:
    waits = StepWaits(3, Ranges())
    for index in range(3):
        waits.begin_step(index, torch.device("cpu"))
        work_for(0.05 if index == 1 else 0.0)
        waits.end_step()
    lines = waits.facts()["host_lines"]
    assert share_of(lines, "test_host_samples.py", function="work_for") > 0.5


@pytest.mark.slow
def test_the_lines_of_a_models_step_become_facts(tmp_path: Path) -> None:
    """The planted case that decodes in its process, as its job runs it."""
    facts = tmp_path / "facts.json"
    words = ["resnet_slow_decoding", "train", "module=tests.planted.development.resnet_slow_decoding", "device=cpu"]
    words += ["size=512", "images=32", "width=4", "depths=[1]", "batch=16", "window=1", "warmup=3", "workers=0"]
    assert run.main([*words, "--facts", str(facts)]) == 0
    lines = json.loads(facts.read_text())["host_lines"]
    assert share_of(lines, "resnet_slow_decoding.py", work="reading", range="data") > 0
    # Sampling has lines of its own, at which the step has ended.
    assert share_of(lines, "host_samples.py") == 0


def test_advice_stays_as_it_is_where_nothing_was_sampled_or_found() -> None:
    row = a_verdict("host work", about=noted_verdicts.WORK, next_step="do it once")
    line = {"range": "forward", "file": "torch/nn/x.py", "line": 1} | dict.fromkeys(
        ("thread", "work", "function", "text"), ""
    )
    little: Any = line | {"file": "mine.py", "share": 0.001}
    of_torch: Any = line | {"share": 0.9}
    for lines in (None, [], [of_torch], [little]):
        assert noted_verdicts.name_places(row, lines) == row


def test_copies_are_named_by_the_lines_that_wait_for_them() -> None:
    row = a_verdict("pageable copies", about=noted_verdicts.COPIES, next_step="pin it")
    wait = {"file": "net.py", "line": 7, "function": "f", "text": "", "range": "forward", "calls": 2}
    lines: Any = [wait | {"operation": ".item()", "line": 3}, wait | {"operation": ".to()"}]
    told = noted_verdicts.name_places(row, None, lines).next_step
    assert told == ".to() at net.py:7, 2 times per step: pin it"
    assert noted_verdicts.name_places(row, None, lines[:1]) == row


def test_modules_of_torch_are_not_the_programs() -> None:
    """A layer of torch is named by the line of the program that calls it."""
    network = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    given = torch.randn(512, 256)

    def step(ranges: Ranges) -> None:
        for _ in range(100):
            network(given).sum().backward()

    lines = sampled(step)
    assert share_of(lines, "test_host_samples.py", thread="") > 0.5
