"""harness/ranges: each call of a module has a range, and a trace of the profiler holds where its forward is written."""

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profzoo.harness import ranges
from profzoo.harness.observers import recorders
from profzoo.io import chrome_trace
from profzoo.range_names import SOURCES

OPTIONS = {"wait": 0, "warmup": 1, "repeat": 2, "modules": True, "shapes": True, "memory": False, "flops": False,
           "stacks": False}  # fmt: skip


HERE = "tests/unit/test_source_lines.py"


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """Return a sum, by a function within."""

        def twice(value: Tensor) -> Tensor:
            return value + value

        return twice(x)


class Inherits(Doubled):
    pass


class Decorated(nn.Module):
    @lambda function: functools.wraps(function)(lambda *inputs: function(*inputs))
    def forward(self, x: Tensor) -> Tensor:
        return x


def lines_of(function: Callable[..., Any], file: str = HERE) -> str:
    """As inspect reads them from the source, to the last line."""
    source, first = inspect.getsourcelines(function)
    return f"{file}:{first}-{first + len(source) - 1}"


def noted() -> dict[str, list[str]]:
    """All that was noted so far."""
    found: dict[str, list[str]] = json.loads(ranges.trace_metadata()[1])
    return found


def test_lines_are_those_that_inspect_finds() -> None:
    network = nn.Sequential(Doubled(), Inherits(), Decorated(), nn.Linear(2, 2))
    ranges.mark_modules(network, ranges.torch_range)
    found = noted()
    assert found["Doubled"] == found["Inherits"] == [lines_of(Doubled.forward)]
    assert found["Decorated"] == [lines_of(inspect.unwrap(Decorated.forward))]
    assert found["Linear"] == [lines_of(nn.Linear.forward, "torch/nn/modules/linear.py")]


def test_classes_of_one_name_are_told_both_and_one_without_source_is_left_out() -> None:
    other = type("Doubled", (nn.Module,), {"forward": lambda self, x: x})
    ranges.note_source(Doubled)
    ranges.note_source(other)
    ranges.note_source(other)
    assert noted()["Doubled"][0] == lines_of(Doubled.forward) and len(noted()["Doubled"]) == 2
    scripted = torch.jit.script(nn.Linear(2, 2))
    ranges.note_source(type(scripted))
    assert type(scripted).__name__ not in noted()


def test_a_trace_holds_them_whatever_the_schedule(tmp_path: Path) -> None:
    for wait, warmup, repeat in ((0, 0, 1), (0, 1, 1), (1, 1, 2)):
        trace = tmp_path / f"{wait}{warmup}{repeat}.json.gz"
        options = OPTIONS | {"wait": wait, "warmup": warmup, "repeat": repeat}
        recorder = recorders.TorchProfiler(torch.device("cpu"), options, 1, tmp_path / "o.csv", trace)
        network = nn.Sequential(Doubled())
        ranges.mark_modules(network, ranges.torch_range)
        recorder.start()
        for _ in range(repeat * (wait + warmup + 1)):
            network(torch.ones(2))
            recorder.step(1)
        recorder.stop()
        with chrome_trace.open_trace(trace) as file:
            events = chrome_trace.Events(file)
            assert "cpu_op" in {event.get("cat") for event in events}
        assert events.others[SOURCES]["Doubled"][0] == lines_of(Doubled.forward)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.b = nn.Sequential(nn.Tanh(), self.a)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(inputs))


def test_each_call_of_a_module_has_a_range_within_that_of_its_caller() -> None:
    said: list[str] = []

    def opener(name: str, inputs: tuple[Any, ...]) -> Any:
        said.append(f"+{name}")
        return lambda: said.append(f"-{name}")

    network = Nested()
    ranges.mark_modules(network, opener)
    network(torch.ones(1, 2))
    root, *paths, end = (f"{word[0]}{word.split(':')[1]}" for word in said)
    # a goes by its first name, also where b holds it.
    assert paths == ["+a", "-a", "+b", "+b.0", "-b.0", "+a", "-a", "-b"] and root[1:] == end[1:]
    assert [word.rpartition(":")[2] for word in said[:2]] == ["Nested", "Linear"]
    said.clear()
    with pytest.raises(RuntimeError):
        network(torch.ones(1, 3))
    assert [word[0] for word in said] == ["+", "+", "-", "-"]


def test_only_encoder_layers_in_inference_are_marked_within_their_forward() -> None:
    def marked(network: nn.Module) -> list[bool]:
        ranges.mark_modules(network, lambda name, inputs: lambda: None)
        return ["forward" in vars(one) for one in (network, *network.children())][:2]

    def layer() -> nn.Module:
        return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    assert marked(layer().eval()) == [True, True] and marked(layer().train()) == [False, False]
    assert marked(Nested().eval()) == marked(Nested().train()) == [False, False]
    wrapped = nn.Module()
    wrapped._fsdp_wrapped_module = nn.Linear(1, 1)
    listed = nn.ModuleDict({"x": nn.ModuleList([wrapped])})
    # What only holds others is never called, and what stands for another goes by its path.
    assert [(path, type(one)) for path, one, _ in ranges._walk(listed, "", set())] == [("x.0", nn.Linear)]
    assert [path for path, *_ in ranges._walk(listed, "others", set())] == ["others.x.0"]


def test_ranges_are_told_as_they_end() -> None:
    found, closed = ranges.Ranges(), list[str]()
    found.closed = closed.append
    with found("forward"), found("loss"):
        assert closed == []
    assert closed == ["loss", "forward"]
    with pytest.raises(ValueError, match="x"), found("backward"):
        raise ValueError("x")
    assert closed[-1] == "backward"
