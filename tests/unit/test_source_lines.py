"""harness/source_lines: where the forward of a class is written, and that a trace of the profiler holds it."""

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from profzoo.harness import module_ranges, recorders, source_lines
from profzoo.io import chrome_trace
from profzoo.range_names import SOURCES

OPTIONS = {"wait": 0, "warmup": 1, "repeat": 2, "modules": True, "shapes": True, "memory": False, "flops": False,
           "stacks": False}  # fmt: skip
HERE = "tests/unit/test_source_lines.py"


class Doubled(nn.Module):
    """Has its forward in this file."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a sum, by a function within."""

        def twice(value: Tensor) -> Tensor:
            return value + value

        return twice(x)


class Inherits(Doubled):
    """Has the forward of another class."""


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function as decorators do."""
    return functools.wraps(function)(lambda *inputs: function(*inputs))


class Decorated(nn.Module):
    """Has a forward behind a decorator."""

    @decorated
    def forward(self, x: Tensor) -> Tensor:
        """Return the input."""
        return x


def lines_of(function: Callable[..., Any]) -> str:
    """As inspect reads them from the source, to the last line."""
    source, first = inspect.getsourcelines(function)
    return f"{HERE}:{first}-{first + len(source) - 1}"


def noted() -> dict[str, list[str]]:
    """All that was noted so far."""
    found: dict[str, list[str]] = json.loads(source_lines.trace_metadata()[1])
    return found


def test_lines_are_those_that_inspect_finds() -> None:
    network = nn.Sequential(Doubled(), Inherits(), Decorated(), nn.Linear(2, 2))
    module_ranges.mark_modules(network, module_ranges.torch_range)
    found = noted()
    assert found["Doubled"] == found["Inherits"] == [lines_of(Doubled.forward)]
    assert found["Decorated"] == [lines_of(inspect.unwrap(Decorated.forward))]
    source, first = inspect.getsourcelines(nn.Linear.forward)
    assert found["Linear"] == [f"torch/nn/modules/linear.py:{first}-{first + len(source) - 1}"]


def test_classes_of_one_name_are_told_both_and_one_without_source_is_left_out() -> None:
    other = type("Doubled", (nn.Module,), {"forward": lambda self, x: x})
    source_lines.note_source(Doubled)
    source_lines.note_source(other)
    source_lines.note_source(other)
    assert noted()["Doubled"][0] == lines_of(Doubled.forward) and len(noted()["Doubled"]) == 2
    scripted = torch.jit.script(nn.Linear(2, 2))
    source_lines.note_source(type(scripted))
    assert type(scripted).__name__ not in noted()


def test_a_trace_holds_them_whatever_the_schedule(tmp_path: Path) -> None:
    for wait, warmup, repeat in ((0, 0, 1), (0, 1, 1), (1, 1, 2)):
        trace = tmp_path / f"{wait}{warmup}{repeat}.json.gz"
        options = OPTIONS | {"wait": wait, "warmup": warmup, "repeat": repeat}
        recorder = recorders.TorchProfiler(torch.device("cpu"), options, 1, tmp_path / "o.csv", trace)
        network = nn.Sequential(Doubled())
        module_ranges.mark_modules(network, module_ranges.torch_range)
        recorder.start()
        for _ in range(repeat * (wait + warmup + 1)):
            network(torch.ones(2))
            recorder.step(1)
        recorder.stop()
        with chrome_trace.open_trace(trace) as file:
            events = chrome_trace.Events(file)
            assert "cpu_op" in {event.get("cat") for event in events}
        assert events.others[SOURCES]["Doubled"][0] == lines_of(Doubled.forward)
