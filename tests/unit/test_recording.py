"""script_harness/recording: what a loop of one's own records of itself, and what is left of it in torch afterwards."""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import profzoo
from profzoo import run
from profzoo.errors import CollectError, ConfigError
from profzoo.script_harness import launcher, recorded_files
from profzoo.script_harness.recording import Recording

STEPS = 4
# Warm-up, timed steps, one that the profiler discards, traced steps, and one of which memory is known.
NEEDED = 3 + STEPS + 1 + STEPS + 1
ONE_EACH = {"batches": 1, "forward calls": 1, "backward passes": 1, "optimizer steps": 1}
# Of torch, what recording replaces.
WRAPPED: list[tuple[Any, str]] = [
    (torch.Tensor, "to"), (torch.autograd, "backward"), (functional, "cross_entropy"), (nn.Module, "__init__"),
    (torch.optim.Optimizer, "zero_grad"), (torch.optim.Optimizer, "__init__"), (torch.optim.Optimizer, "profile_hook_step"),
    (DataLoader, "__init__"), (torch.amp.GradScaler, "step"),
]  # fmt: skip


class Training:
    """A loop as of a notebook, whose objects are there before it is recorded."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        # Puts a wrapper around this optimizer's own step.
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 5)
        data = TensorDataset(torch.randn(240, 20), torch.randint(0, 5, (240,)))
        self.loader = DataLoader(data, batch_size=8)

    def run(self, batches: Any, after: Callable[[int], Any] = lambda number: None) -> list[torch.Tensor]:
        for number, (inputs, target) in enumerate(batches, 1):
            self.optimizer.zero_grad()
            functional.cross_entropy(self.model(inputs), target).backward()
            self.optimizer.step()
            self.schedule.step()
            after(number)
        return [one.detach().clone() for one in self.model.parameters()]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the program; and what torch is made of stays as it was."""
    monkeypatch.chdir(tmp_path)
    before = [(owner, name, vars(owner).get(name)) for owner, name in WRAPPED]
    yield tmp_path
    assert all(vars(owner).get(name) is own for owner, name, own in before)
    assert not nn.modules.module._global_forward_pre_hooks


def facts_of(record: Recording) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((record.place / "facts.json").read_text())
    return found


def ranges_of(record: Recording) -> Counter[str]:
    with gzip.open(record.place / "trace.json.gz") as file:
        return Counter(one["name"] for one in json.load(file)["traceEvents"] if one.get("cat") == "user_annotation")


@pytest.mark.parametrize(
    ("marked", "step"), [("", "a step of Adam"), ("loader", "the range record.step"), ("step", "the range record.step")]
)
def test_a_training_loop_records_what_a_script_does_and_computes_the_same(marked: str, step: str) -> None:
    plain = Training()
    expected = plain.run(plain.loader)
    own = Training()
    with profzoo.record("mine", steps=STEPS) as record:
        batches = record(own.loader) if marked == "loader" else own.loader
        found = own.run(batches, (lambda number: record.step()) if marked == "step" else lambda number: None)
    assert all(map(torch.equal, found, expected))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in own.model.modules())
    facts = facts_of(record)
    assert (facts["script"]["step"], facts["script"]["per_step"], facts["script"]["regular_share"]) == (
        step,
        ONE_EACH,
        1,
    )
    assert (facts["steps"], facts["baseline"]["steps"], facts["batch"], facts["items"]) == (STEPS, STEPS, 8, 8 * STEPS)
    assert facts["first_steps"]["gradient_norms"] and facts["memory"]["wall_ns"]
    seen = ranges_of(record)
    parts = ("step", "data", "forward", "loss", "backward")
    assert [seen[f"profzoo:{part}"] for part in parts] == [STEPS] * len(parts)
    assert len((record.place / "steps.csv").read_text().splitlines()) == STEPS + 1
    assert str(record).startswith("recorded mine, ") and record.done and not record.lacks


def test_the_window_ends_where_the_loop_goes_on() -> None:
    own, reached = Training(), list[int]()
    with profzoo.record("mine", steps=STEPS) as record:
        own.run(own.loader, lambda number: reached.append(number) if record.done else None)
    # What ends a step is known once the next one begins.
    assert reached[0] == NEEDED + 1 and reached[-1] == len(own.loader)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, token: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(token) + state)


def test_generation_has_steps_though_an_optimizer_is_left_of_training() -> None:
    encoder, decoder = nn.Linear(8, 8), Decoder()
    left = torch.optim.SGD(decoder.parameters())
    with torch.no_grad(), profzoo.record("sampled", steps=STEPS) as record:
        for _ in range(4):
            state, token = encoder(torch.randn(2, 8)), torch.zeros(2, dtype=torch.long)
            for _ in range(6):
                token = decoder(token, state).argmax(-1)
    facts = facts_of(record)
    assert (facts["script"]["step"], facts["steps"]) == ("a call of Decoder", STEPS) and left
    assert recorded_files.find_phase(facts) == "inference"


def test_a_loop_that_trains_by_hand_has_a_step_for_each_call() -> None:
    layer = nn.Linear(4, 4)
    with profzoo.record("by_hand", steps=STEPS) as record:
        for _ in range(NEEDED + 1):
            (layer(torch.ones(2, 4)) ** 2).mean().backward()
            layer.zero_grad()
    per_step = facts_of(record)["script"]["per_step"]
    assert per_step == {"forward calls": 1, "backward passes": 1} and ranges_of(record)["profzoo:backward"] == STEPS


@pytest.mark.parametrize(
    ("crash_in", "timed", "traced"), [(NEEDED - 3, STEPS, 2), (3 + STEPS + 1, STEPS, 0), (3 + 2, 2, 0)]
)
def test_an_error_of_the_loop_passes_and_leaves_the_steps_until_then(crash_in: int, timed: int, traced: int) -> None:
    own = Training()

    def crash(number: int) -> None:
        if number == crash_in:
            raise ZeroDivisionError("of the loop's own")

    record = profzoo.record("crashed", steps=STEPS)
    with pytest.raises(ZeroDivisionError, match="of the loop's own"), record:
        own.run(own.loader, crash)
    facts = facts_of(record)
    assert not any(module._forward_hooks for module in own.model.modules())
    assert len((record.place / "steps.csv").read_text().splitlines()) == timed + 1
    if traced:
        assert (facts["steps"], facts["baseline"]["steps"], record.lacks) == (traced, timed, "")
        assert ranges_of(record)["profzoo:step"] == traced
        assert {line.split(",")[4] for line in (record.place / "operators.csv").read_text().splitlines() if "profzoo:step" in line} == {str(traced)}  # fmt: skip
    else:
        assert facts["steps"] == timed and not (record.place / "trace.json.gz").exists()
        assert record.lacks == f"the loop ended after {crash_in} steps, and times with a trace take {NEEDED - 1}: give fewer steps"  # fmt: skip


def test_a_recording_of_nothing_leaves_the_one_before() -> None:
    profzoo.record_step(lambda: torch.ones(4) * 2, "kept", steps=2)
    with pytest.raises(KeyError), profzoo.record("kept", steps=2) as record:
        raise KeyError
    assert not record.kept and (record.place / "trace.json.gz").exists()
    assert record.lacks.startswith("no step was found: 0 calls of no network and 0 optimizer steps; mark steps by")
    with pytest.raises(CollectError, match=r"^nothing was recorded of kept: no step was found"):
        record.advice()


def test_a_function_is_called_as_often_as_it_takes_even_without_a_network() -> None:
    calls = list[int]()
    record = profzoo.record_step(lambda: calls.append(len(calls)), "plain", steps=STEPS)
    assert len(calls) == NEEDED and facts_of(record)["script"]["networks"] == []


def test_one_recording_at_a_time_with_a_usable_name() -> None:
    with profzoo.record("outer", steps=2) as outer:
        with pytest.raises(ConfigError) as refused, profzoo.record("inner", steps=2):
            pass
        profzoo_line = str(refused.value)
        with pytest.raises(CollectError, match="has not ended: ask for advice after it"):
            outer.advice()
    assert profzoo_line == (
        "profzoo.record('inner') begins within profzoo.record('outer'), which has not ended: record one at a time"
    )
    for wrong in ({"name": "../up"}, {"name": "lstm"}, {"name": "fine", "warmup": 1}, {"name": "fine", "steps": 0}):
        with pytest.raises(ConfigError):
            profzoo.record(**wrong)


def test_a_profiler_of_the_program_keeps_its_trace() -> None:
    own = Training()
    with torch.profiler.profile() as theirs, profzoo.record("timed", steps=STEPS) as record:
        own.run(own.loader)
    assert any("Optimizer.step" in event.key for event in theirs.key_averages())
    assert record.lacks.startswith("it could not go on: the program runs torch.profiler itself")
    assert facts_of(record)["steps"] == STEPS and str(record).startswith("recorded timed, ")


def test_a_cell_of_a_notebook_has_no_file() -> None:
    source = f"""
import torch, profzoo
net = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with profzoo.record("cell", steps={STEPS}) as record:
    for _ in range({NEEDED + 1}):
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
"""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<ipython-input-3-0123456789ab>", "exec"), names)
    facts = facts_of(names["record"])
    assert facts["steps"] == STEPS and [one["kind"] for one in facts["script"]["made"]] == ["call"]


def test_a_process_that_is_measured_already_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a script that records itself and that the workflow runs."""
    monkeypatch.setenv("PROFZOO_SCRIPT", "task.json")
    own = Training()
    with profzoo.record("mine", steps=STEPS) as record:
        own.run(record(own.loader))
    assert record.done and record.lacks == "the process was being measured already"


def job(record: Recording, *words: str, **files: Path) -> Any:
    folder = record.place.relative_to(Path.cwd())
    cell = run.resolve_words("mine", "train", "time", [f"command=recorded {folder}", *words])
    return launcher.run_script(cell, argparse.Namespace(at_least_s=0.0, **files))


def test_jobs_take_over_what_was_recorded_and_nothing_else(here: Path) -> None:
    record = profzoo.record_step(lambda: torch.ones(4) * 2, "mine", steps=2)
    timed = job(record, steps=here / "s.csv", memory=here / "m.csv")
    traced = job(record, operators=here / "o.csv", trace=here / "t.json.gz")
    assert (timed["steps"], traced["steps"]) == (2, 2) and timed["step_ns"] != traced["step_ns"]
    assert "memory" in timed and not {"memory", "baseline"} & traced.keys()
    assert (here / "s.csv").read_text() == (record.place / "steps.csv").read_text()
    with pytest.raises(CollectError, match=r"^mine train cannot be run with precision=bf16: it was recorded within"):
        job(record, "precision=bf16", steps=here / "s.csv")
    with pytest.raises(CollectError, match=r"^mine train has no report of this tool: it was recorded within"):
        job(record)
