"""harness/cuda_graph: steps before the capture, replays on inputs that stay, what a graph would lose, and the trace of a capture."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from profzoo.errors import ConfigError
from profzoo.harness import interface
from profzoo.harness.observers import recorders
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import step_loop, training_step
from profzoo.harness.variants import cuda_graph
from profzoo.io import chrome_trace
from profzoo.tools.ncu import command as ncu
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from tests import zoo
from tests.harness_cells import cell
from tests.unit.test_variants import resolved

CPU = torch.device("cpu")


class Recorded:
    """In place of CUDA graphs, on tensors that stay where they are: a capture runs nothing, a replay all of it."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def aside(self, step: Callable[[Any], Any], batch: Any) -> Any:
        self.said.append("aside")
        return step(batch)

    def capture(self, step: Callable[[Any], Any], batch: Any) -> tuple[Callable[[], None], Any]:
        self.said.append("capture")
        made = torch.zeros(())

        def replay() -> None:
            self.said.append("replay")
            made.copy_(step(batch))

        return replay, made


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict:
    """A captured cell that trains by SGD, as a CPU has no Adam that a graph could capture."""
    load = interface.load_functions
    sgd = functools.partial(torch.optim.SGD, lr=0.01)
    monkeypatch.setattr(interface, "load_functions", lambda module: replace(load(module), optimizer=sgd))
    return {**zoo.cell("srcnn", warmup=3, window=3, size=16), "graph": True}


def losses(cell: dict, monkeypatch: pytest.MonkeyPatch, graphs: Recorded) -> list[float]:
    """Of all steps of a cell on the CPU, captured or not."""
    seen: list[Tensor] = []
    model, plain = interface.load_functions(cell["module"]), step_loop._finite
    with monkeypatch.context() as patched:
        replaced = functools.partial(cuda_graph.CapturedStep, graphs=graphs)
        patched.setattr(step_loop.cuda_graph, "CapturedStep", replaced)
        patched.setattr(step_loop, "_finite", lambda results, one: seen.extend(results) or plain(results, one))
        step_loop.run_steps(cell, step_loop.make_network(cell, model, CPU, None), CPU, recorders.Recorder(CPU))
    return [float(loss) for loss in seen]


def test_losses_are_those_of_the_plain_step(tiny: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = Recorded()
    plain = losses({**tiny, "graph": False}, monkeypatch, graphs)
    assert not graphs.said and len(set(plain)) == 6
    assert losses(tiny, monkeypatch, graphs) == pytest.approx(plain, rel=1e-6)
    # The first replay ends the warm-up.
    assert graphs.said == ["aside", "aside", "capture", "replay", "replay", "replay", "replay"]


@pytest.mark.parametrize(
    ("first", "other", "line"),
    [
        ((torch.ones(2, 3), 1), (torch.ones(2, 4), 1), "after batches of 2x3 comes one of 2x4"),
        ((torch.ones(2), 1), (torch.ones(2).double(), 1), "after batches of 2 comes one of 2"),
        ((torch.ones(2), 1), (torch.ones(()), 1), "after batches of 2 comes one of 1:"),
        ((torch.ones(2), 1), ((torch.ones(2), torch.ones(3)), 1), "after batches of 2 comes one of 2, 3"),
        ((torch.ones(2), 1), (torch.ones(2), 2), "sees plain values of a batch once"),
    ],
)
def test_batches_of_another_form_are_refused(first: Any, other: Any, line: str) -> None:
    inputs = cuda_graph.StaticInputs(CPU)
    held = inputs.take(first)
    assert inputs.take((torch.zeros_like(first[0]), 1)) is held and not held[0].any() and first[0].all()
    with pytest.raises(ConfigError) as error:
        inputs.take(other)
    assert line in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["lstm@graph", "lstm@reduce-overhead"])
def test_ncu_profiles_the_kernels_of_graphs(name: str) -> None:
    config = zoo.config.normalise_config({})["ncu"]
    words = ncu.options(ncu.adapt_to_cell(config, "launch", resolved(name)), "launch")
    assert words[-2:] == ["--graph-profiling", "node"]
    assert ncu.adapt_to_cell(config, "launch", resolved("lstm")) is config
    own = {**config, "extra": ["--graph-profiling=graph"]}
    assert ncu.adapt_to_cell(own, "launch", resolved(name))["extra"] == own["extra"]


def test_ranges_that_a_captured_step_has_not_are_refused() -> None:
    config = zoo.config.normalise_config({})["ncu"]
    with pytest.raises(ConfigError, match=r"ncu.sets.ranges.ranges holds backward, and lstm replays its step in one"):
        ncu.adapt_to_cell(config, "ranges", resolved("lstm@graph"))
    assert ncu.adapt_to_cell(config, "step", resolved("lstm@graph"))


def captured(step: Any, network: nn.Module, uncaptured: int, **given: Any) -> tuple[cuda_graph.CapturedStep, Recorded]:
    graphs, one = Recorded(), cell(device="cuda", **given)
    return cuda_graph.CapturedStep(step, one, network, CPU, Ranges(), uncaptured, graphs=graphs), graphs


def test_a_step_is_captured_once_after_it_ran_as_it_is() -> None:
    for uncaptured in (0, 1, 3):
        step, graphs = captured(lambda batch: batch.sum(), nn.Linear(1, 1), uncaptured)
        step.again()
        results = [float(step(torch.full((2,), float(index)))) for index in range(5)]
        step.again()
        asides, replays = ["aside"] * uncaptured, ["replay"] * (5 - uncaptured)
        assert graphs.said == [*asides, "capture", *replays, "capture"]
        assert results[:uncaptured] == [0, 2, 4][:uncaptured]


def test_outputs_of_inference_are_where_the_graph_leaves_them() -> None:
    for phase, same in (("inference", True), ("train", False)):
        step, _ = captured(lambda batch: batch.sum(), nn.Linear(1, 1), 0, phase=phase)
        assert (step(torch.ones(2)) is step(torch.ones(2))) == same


class Keeping(nn.Module):
    def __init__(self, *kept: Any) -> None:
        super().__init__()
        self.kept = kept[0] if len(kept) == 1 else kept


def test_what_a_network_keeps_from_step_to_step_is_refused() -> None:
    one = torch.ones(1)

    def stepped(first: Any, then: Any) -> None:
        network = Keeping(first)

        def run(batch: Any) -> Any:
            network.kept = then
            return batch.sum()

        step, _ = captured(run, nn.ModuleDict({"a": network}), 2)
        step(torch.ones(1))

    stepped(one, one)
    # Of the first step nothing was kept, and plain values are not tensors.
    stepped(None, one)
    stepped((), (one,))
    stepped(5, 6)
    stepped((one, 5), (torch.ones(1), 5))
    for first, then in ((one, torch.ones(1)), ((one, one), (one, torch.ones(1))), ([one], [torch.ones(1)])):
        with pytest.raises(ConfigError, match=r"its network keeps a\.kept from step to step"):
            stepped(first, then)


def test_the_first_error_says_why_there_is_no_capture() -> None:
    def fail(batch: Any) -> Any:
        try:
            raise RuntimeError("operation not permitted\nmore")
        except RuntimeError:
            raise RuntimeError("capture was invalidated")  # noqa: B904

    def throw(error: Exception) -> Callable[[Any], Any]:
        return lambda batch: (_ for _ in ()).throw(error)

    for failing, said in ((fail, "operation not permitted"), (throw(RuntimeError()), "RuntimeError"),
                          (throw(RuntimeError("a\nb")), "a")):  # fmt: skip
        step, graphs = captured(failing, nn.Linear(1, 1), 0)
        graphs.capture = lambda step, batch: step(batch)  # type: ignore[method-assign]
        with pytest.raises(ConfigError, match=f"m train cannot be captured in a CUDA graph: {said}; leave"):
            step(torch.ones(1))
    step, graphs = captured(throw(torch.OutOfMemoryError("x")), nn.Linear(1, 1), 0)
    graphs.capture = lambda step, batch: step(batch)  # type: ignore[method-assign]
    with pytest.raises(torch.OutOfMemoryError):
        step(torch.ones(1))


def test_a_cpu_refuses_a_graph_unless_its_graphs_are_given() -> None:
    with pytest.raises(ConfigError, match=r"graph: true captures CUDA graphs, and this is a CPU \(no GPU found"):
        cuda_graph.CapturedStep(print, cell(device="auto"), nn.Linear(1, 1), CPU, Ranges(), 1)
    assert training_step.make_autocast(cell(precision="bf16"), CPU)().__class__ is torch.autocast


def test_a_capture_lies_a_millisecond_before_its_window_under_numbers_of_its_own() -> None:
    def event(at: float, long: float | None, category: str, **more: Any) -> dict[str, Any]:
        return {"ph": "X", "cat": category, "ts": at, **({} if long is None else {"dur": long}), **more}

    window = [
        event(5000, 10, "cpu_op", args={"External id": 4}), event(4900, 5, "kernel", args={"correlation": 6}),
        {"ph": "s", "cat": "fwdbwd", "ts": 4000, "id": 2}, {"ph": "M", "name": "x"},
    ]  # fmt: skip
    capture = [
        event(100, 20, "cpu_op", args={"External id": 1, "correlation": 3, "more": "x"}), event(150, 1, "kernel"),
        {"ph": "f", "cat": "fwdbwd", "ts": 125, "id": 1}, {"ph": "M", "name": "y"}, event(110, 2, "cpu_op"),
    ]  # fmt: skip
    moved = cuda_graph.join_capture(window, capture)
    assert moved[3:] == window and len(moved) == 7
    # It ends at 125, and is to at 4900 - 1000.
    assert [one["ts"] for one in moved[:3]] == [100 + 3775, 3900, 110 + 3775]
    assert moved[0]["args"] == {"External id": 1 + 5, "correlation": 3 + 7, "more": "x"}
    assert moved[1]["id"] == 1 + 3 and "args" not in moved[2]


def test_inputs_of_a_graph_are_copied_where_they_were() -> None:
    inputs = cuda_graph.StaticInputs(CPU)
    held = inputs.take({"x": torch.ones(2), "n": 3})
    assert inputs.take({"x": torch.full((2,), 5.0), "n": 3}) is held and held["x"].tolist() == [5, 5]
    # Lengths that stay on the host may not change.
    other = cuda_graph.StaticInputs(torch.device("cuda"))
    for _ in range(2):
        other.take(torch.ones(2))
    with pytest.raises(ConfigError, match="sees a tensor on the CPU of a batch once"):
        other.take(torch.zeros(2))


def test_a_thread_that_pins_memory_does_not_end_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    assert [cuda_graph.CudaGraphs(CPU, pins)._mode for pins in (True, False)] == ["thread_local", "global"]


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
    table = owners.tabulate_launches(torch_trace.make_trace(cuda_graph.join_capture(window, captured_step(9000.0))))
    assert table["operator"].tolist() == ["aten::mm"] * 4 and table["step"].tolist() == [0, 0, 1, 1]
    assert table["module"].tolist() == ["stem", "head"] * 2
    alone = owners.tabulate_launches(torch_trace.make_trace(window))
    assert set(alone["module"]) == {"(graph)"} and alone["start_ns"].tolist() == table["start_ns"].tolist()


def test_a_trace_without_a_capture_stays_as_it_is() -> None:
    window = replayed_step(5000.0)
    assert cuda_graph.join_capture(window, [{"ph": "M", "name": "process_name", "args": {}}]) == window


def test_what_a_capture_runs_by_itself_is_no_launch_of_the_window() -> None:
    window = replayed_step(5000.0)
    seeded = event("vectorized_elementwise_kernel", 9001.0, "kernel", correlation=1, grid=[1, 1, 1], block=[64, 1, 1])
    found = cuda_graph.join_capture(window, [seeded, *captured_step(9000.0)])
    assert seeded["name"] not in {one["name"] for one in found}
    assert len(torch_trace.make_trace(found).launches["start"]) == 2


class Running(Recorded):
    """Whose capture calls what it captures, as a real one does."""

    def capture(self, step: Callable[[Any], Any], batch: Any) -> tuple[Callable[[], None], Any]:
        step(batch)
        return super().capture(step, batch)


def explained(
    graphs: Recorded, tiny: dict, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[dict], list[dict]]:
    """The events of a captured cell under torch.profiler, before and after its replays are explained."""
    monkeypatch.setattr(step_loop.cuda_graph, "CapturedStep", functools.partial(cuda_graph.CapturedStep, graphs=graphs))
    recorder = recorders.TorchProfiler(CPU, OPTIONS, 1, trace.with_name("operators.csv"), trace)
    network = step_loop.make_network(tiny, interface.load_functions(tiny["module"]), CPU, None)
    outcome = step_loop.run_steps(tiny, network, CPU, recorder)
    before = list(chrome_trace.read_events(trace))
    recorder.explain(outcome.repeated.step)
    return before, list(chrome_trace.read_events(trace))


def test_a_captured_cell_is_captured_again_behind_its_window(
    tiny: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = Running()
    before, after = explained(graphs, tiny, tmp_path / "trace.json.gz", monkeypatch)
    assert graphs.said[-2:] == ["replay", "capture"] and after[-len(before) :] == before
    added = after[: -len(before)]
    # Once, with the ranges of its modules, and before all that the window has.
    assert [one["name"] for one in added].count("profzoo:backward") == 1
    assert any(one["name"].startswith("profzoo:module:") for one in added)
    begins = min(one["ts"] for one in before if one.get("ph") == "X")
    assert max(one["ts"] + one.get("dur", 0) for one in added) < begins
    # What leads from forward to backward came along, under numbers that the window does not use.
    pairs = [{one["id"] for one in some if one.get("cat") == "fwdbwd"} for some in (added, before)]
    assert len(pairs[0]) > 3 and not pairs[0] & pairs[1]


def test_a_capture_that_fails_leaves_the_trace(
    tiny: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    class Full(Running):
        def capture(self, step: Callable[[Any], Any], batch: Any) -> tuple[Callable[[], None], Any]:
            if "capture" in self.said:
                raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")
            return super().capture(step, batch)

    before, after = explained(Full(), tiny, tmp_path / "trace.json.gz", monkeypatch)
    assert before == after
    said = "profzoo: launches of the CUDA graph cannot be assigned to layers: CUDA out of memory.\n"
    assert capsys.readouterr().err == said


def test_a_step_that_is_not_captured_is_not_captured_again(tmp_path: Path) -> None:
    recorder = recorders.TorchProfiler(CPU, OPTIONS, 1, tmp_path / "operators.csv", tmp_path / "trace.json.gz")
    recorder.explain(lambda batch: pytest.fail("it was run"))
    assert not list(tmp_path.iterdir())
