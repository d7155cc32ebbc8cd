"""script_harness/session: the ranges of steps and parts follow one another, wherever in a step the next one begins."""

from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from profzoo import run
from profzoo.range_names import STEP, WINDOW, make_nvtx_name
from profzoo.script_harness import launcher, observers, session, task

WITHIN = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)))


class Domain:
    """Stands in for a domain of NVTX: the spans of ranges, as a profiler closes what was opened last."""

    def __init__(self) -> None:
        self.now, self.open = 0, list[tuple[str, int]]()
        self.spans = list[tuple[str, int, int]]()

    def get_event_attributes(self, message: str) -> str:
        return message

    def push_range(self, name: str) -> None:
        self.now += 1
        self.open.append((name, self.now))

    def pop_range(self) -> None:
        self.now += 1
        name, began = self.open.pop()
        self.spans.append((name, began, self.now))

    def of(self, name: str) -> list[tuple[int, int]]:
        return [(began, end) for own, began, end in self.spans if own == make_nvtx_name(name)]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[session.Session, Domain]:
    domain = Domain()
    monkeypatch.setattr("profzoo.harness.ranges.nvtx", SimpleNamespace(get_domain=lambda name: domain))
    words = ["command=python x.py", "step=module:1.0", "warmup=1", "window=3", "finish=true"]
    cell: dict[str, Any] = dict(run.resolve_words("mine", "train", "time", words))
    asked = task.Task(cell, launcher.setting_defaults(), tmp_path, {"steps": tmp_path / "s.csv"})
    return session.Session(asked), domain


def test_a_step_that_ends_within_a_part_ends_with_it(watched: tuple[session.Session, Domain]) -> None:
    """As by `step: module:NAME` of a module inside the network: profilers close what was opened last."""
    own, domain = watched
    own.networks.note(WITHIN)
    for _ in range(5):
        if own.active:
            for part in ("forward", "backward"):
                own.begin_part(part)
                if part == "forward":
                    own.module_called("1.0")
                own.end_part()
    steps = domain.of(STEP)
    assert len(steps) >= 3 and len(domain.of(WINDOW)) == 1
    assert all(end < began for (_, end), (began, _) in pairwise(steps))
    for part in ("forward", "backward"):
        for began, end in domain.of(part)[1:]:
            inside = [one for one in steps if one[0] < began and end < one[1]]
            assert len(inside) == 1 or end > steps[-1][1], (part, began, end, steps)
    assert not domain.open


class Named(nn.Module):
    """Called as Hugging Face's models are, by names."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.table(input_ids) * attention_mask[..., None]


@pytest.mark.parametrize("compiled", [False, True])
def test_padding_is_noted_of_inputs_with_names(
    watched: tuple[session.Session, Domain], monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    own, network = watched[0], Named()
    monkeypatch.setattr(nn.modules.module, "_global_forward_pre_hooks", OrderedDict())
    monkeypatch.setattr(nn.Module, "compile", nn.Module.compile)
    observers.NetworkWatcher(own).watch()
    if compiled:
        network.compile(backend="eager")
    words, mask = torch.randint(1, 10, (4, 32)), torch.ones(4, 32)
    mask[:, 24:] = 0
    network(input_ids=words, attention_mask=mask)
    (one,) = own._padding.read()
    assert (one["rows"], one["places"], one["padded"], one["longest"]) == (4, 32, 4 * 8, 24)
