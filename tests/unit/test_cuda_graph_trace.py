"""harness/capture_trace: the capture of a step explains its replays, though both were traced apart."""

import functools
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from profzoo.harness import cuda_graph, cuda_graph_trace, interface, recorders, step_loop
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from tests import zoo
from tests.unit.test_cuda_graph import CPU, Recorded

OPTIONS = {"wait": 0, "warmup": 1, "repeat": 1, "modules": True, "shapes": True, "memory": False, "flops": False,
           "stacks": False}  # fmt: skip


def event(name: str, at: float, category: str, long: float = 1, **linked: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": long, "pid": 1, "tid": 1, "args": linked}


def captured_step(at: float) -> list[dict[str, Any]]:
    """Two operators of two layers, each of which puts a node into a graph."""
    found = [event("cudaStreamBeginCapture", at, "cuda_runtime", correlation=1)]
    for index, layer in enumerate(("stem", "head")):
        begins = at + 10 + 10 * index
        found += [
            event(f"profzoo:module:{layer}:Linear", begins, "cpu_op", 8, **{"External id": 3 + 2 * index}),
            event("aten::mm", begins + 1, "cpu_op", 5, **{"External id": 4 + 2 * index}),
            event("cudaLaunchKernel", begins + 2, "cuda_runtime",
                  **{"External id": 4 + 2 * index, "correlation": 2 + index}),
        ]  # fmt: skip
    return [*found, event("cudaStreamEndCapture", at + 40, "cuda_runtime", correlation=9)]


def replayed_step(at: float, call: int = 2) -> list[dict[str, Any]]:
    """A replay, whose numbers are those of the capture by chance."""
    size = {"grid": [1, 1, 1], "block": [32, 1, 1], "stream": 7, "shared memory": 0}
    return [
        event("profzoo:step", at, "user_annotation", 50, **{"External id": 3}),
        event("cudaGraphLaunch", at + 1, "cuda_runtime", correlation=call),
        *(event(f"k{place}", at + 5 + 5 * place, "kernel", correlation=call, **size) for place in range(2)),
    ]


def test_replays_have_the_operators_of_a_capture_that_was_traced_apart() -> None:
    window = [*replayed_step(5000.0), *replayed_step(6000.0, 3)]
    table = owners.tabulate_launches(
        torch_trace.make_trace(cuda_graph_trace.join_capture(window, captured_step(9000.0)))
    )
    assert table["operator"].tolist() == ["aten::mm"] * 4 and table["step"].tolist() == [0, 0, 1, 1]
    assert table["module"].tolist() == ["stem", "head"] * 2
    alone = owners.tabulate_launches(torch_trace.make_trace(window))
    assert set(alone["module"]) == {"(graph)"} and alone["start_ns"].tolist() == table["start_ns"].tolist()


def test_a_trace_without_a_capture_stays_as_it_is() -> None:
    window = replayed_step(5000.0)
    assert cuda_graph_trace.join_capture(window, [{"ph": "M", "name": "process_name", "args": {}}]) == window


def test_what_a_capture_runs_by_itself_is_no_launch_of_the_window() -> None:
    window = replayed_step(5000.0)
    seeded = event("vectorized_elementwise_kernel", 9001.0, "kernel", correlation=1, grid=[1, 1, 1], block=[64, 1, 1])
    found = cuda_graph_trace.join_capture(window, [seeded, *captured_step(9000.0)])
    assert seeded["name"] not in {one["name"] for one in found}
    assert len(torch_trace.make_trace(found).launches["start"]) == 2


class Running(Recorded):
    """Whose capture calls what it captures, as a real one does."""

    def capture(self, step: Callable[[Any], Any], batch: Any) -> tuple[Callable[[], None], Any]:
        step(batch)
        return super().capture(step, batch)


def explained(graphs: Recorded, trace: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict], list[dict]]:
    """The events of a captured cell under torch.profiler, before and after its replays are explained."""
    monkeypatch.setattr(step_loop.cuda_graph, "CapturedStep", functools.partial(cuda_graph.CapturedStep, graphs=graphs))
    cell = {**zoo.cell("unet", warmup=3, window=2), "graph": True}
    recorder = recorders.TorchProfiler(CPU, OPTIONS, 1, trace.with_name("operators.csv"), trace)
    network = step_loop.make_network(cell, interface.load_functions(cell["module"]), CPU, None)
    outcome = step_loop.run_steps(cell, network, CPU, recorder)
    before = events(trace)
    recorder.explain(outcome.repeated.step)
    return before, events(trace)


def events(trace: Path) -> list[dict]:
    with gzip.open(trace, "rt") as file:
        return json.load(file)["traceEvents"]


def test_a_captured_cell_is_captured_again_behind_its_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = Running()
    before, after = explained(graphs, tmp_path / "trace.json.gz", monkeypatch)
    assert graphs.said[-2:] == ["replay", "capture"] and after[-len(before) :] == before
    added = after[: -len(before)]
    # Once, with the ranges of its modules, and before all that the window has.
    assert [one["name"] for one in added].count("profzoo:backward") == 1
    assert any(one["name"].startswith("profzoo:module:") for one in added)
    begins = min(one["ts"] for one in before if one.get("ph") == "X")
    assert max(one["ts"] + one.get("dur", 0) for one in added) < begins
    # What leads from forward to backward came along, under numbers that the window does not use.
    pairs = [{one["id"] for one in some if one.get("cat") == "fwdbwd"} for some in (added, before)]
    assert len(pairs[0]) > 10 and not pairs[0] & pairs[1]


def test_a_capture_that_fails_leaves_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    class Full(Running):
        def capture(self, step: Callable[[Any], Any], batch: Any) -> tuple[Callable[[], None], Any]:
            if "capture" in self.said:
                raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")
            return super().capture(step, batch)

    before, after = explained(Full(), tmp_path / "trace.json.gz", monkeypatch)
    assert before == after
    assert (
        capsys.readouterr().err
        == "profzoo: launches of the CUDA graph cannot be assigned to layers: CUDA out of memory.\n"
    )


def test_a_step_that_is_not_captured_is_not_captured_again(tmp_path: Path) -> None:
    recorder = recorders.TorchProfiler(CPU, OPTIONS, 1, tmp_path / "operators.csv", tmp_path / "trace.json.gz")
    recorder.explain(lambda batch: pytest.fail("it was run"))
    assert not list(tmp_path.iterdir())
