"""harness/captured: steps before the capture, replays on inputs that stay, and what a graph would silently lose."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from profzoo.errors import ConfigError
from profzoo.harness import cuda_graph, interface, recorders, step_loop
from profzoo.harness.ranges import Ranges
from profzoo.tools.ncu import command as ncu
from tests import zoo
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


def losses(cell: dict, monkeypatch: pytest.MonkeyPatch, graphs: Recorded | None) -> list[float]:
    """Of all steps of a cell on the CPU, captured or not."""
    seen: list[Tensor] = []
    if graphs:
        monkeypatch.setattr(
            step_loop.cuda_graph, "CapturedStep", functools.partial(cuda_graph.CapturedStep, graphs=graphs)
        )
    plain = step_loop._finite
    monkeypatch.setattr(step_loop, "_finite", lambda results, one: seen.extend(results) or plain(results, one))
    model = interface.load_functions(cell["module"])
    step_loop.run_steps(cell, step_loop.make_network(cell, model, CPU, None), CPU, recorders.Recorder(CPU))
    monkeypatch.undo()
    return [float(loss) for loss in seen]


def test_losses_are_those_of_the_plain_step(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = zoo.cell("unet", warmup=3, window=3)
    plain, graphs = losses(cell, monkeypatch, None), Recorded()
    assert losses({**cell, "graph": True}, monkeypatch, graphs) == pytest.approx(plain, rel=1e-6)
    assert len(set(plain)) == 6
    # The first replay ends the warm-up.
    assert graphs.said == ["aside", "aside", "capture", "replay", "replay", "replay", "replay"]


def made(step: Callable[[Any], Any], network: torch.nn.Module, phase: str = "train") -> cuda_graph.CapturedStep:
    """A captured step of an own network."""
    cell = {"model": "mine", "phase": phase, "pin_memory": False, "device": "cuda"}
    return cuda_graph.CapturedStep(step, cell, network, CPU, Ranges(), 2, graphs=Recorded())


def test_what_was_made_is_not_overwritten_by_the_next_replay() -> None:
    step = made(lambda batch: batch.sum(), torch.nn.Linear(1, 1))
    transfer = step.placing(lambda batch, device: batch)
    results = [step(transfer(torch.full((2,), float(index)), CPU)) for index in range(5)]
    assert [float(one) for one in results] == [0, 2, 4, 6, 8]


def test_a_cpu_has_no_graphs() -> None:
    cell = {"model": "mine", "phase": "train", "pin_memory": False, "device": "auto"}
    with pytest.raises(ConfigError, match=r"graph: true captures CUDA graphs, and this is a CPU \(no GPU found"):
        cuda_graph.CapturedStep(len, cell, torch.nn.Linear(1, 1), CPU, Ranges(), 2)


@pytest.mark.parametrize(
    ("first", "other", "line"),
    [
        ((torch.ones(2, 3), 1), (torch.ones(2, 4), 1), "after batches of 2x3 comes one of 2x4"),
        ((torch.ones(2), 1), (torch.ones(2).double(), 1), "after batches of 2 comes one of 2"),
        ((torch.ones(2), 1), ((torch.ones(2), torch.ones(3)), 1), "after batches of 2 comes one of 2, 3"),
        ((torch.ones(2), 1), (torch.ones(2), 2), "plain values of a batch once"),
    ],
)
def test_batches_of_another_form_are_refused(first: Any, other: Any, line: str) -> None:
    inputs = cuda_graph.StaticInputs(CPU)
    held = inputs.take(first)
    assert inputs.take((torch.zeros_like(first[0]), 1)) is held and not held[0].any() and first[0].all()
    with pytest.raises(ConfigError) as error:
        inputs.take(other)
    assert line in str(error.value) and "\n" not in str(error.value)


def test_lengths_that_stay_on_the_host_may_not_change() -> None:
    inputs = cuda_graph.StaticInputs(torch.device("cuda"))
    inputs.take({"lengths": torch.tensor([3, 2])})
    inputs.take({"lengths": torch.tensor([3, 2])})
    with pytest.raises(ConfigError, match="sees a tensor on the CPU of a batch once"):
        inputs.take({"lengths": torch.tensor([3, 1])})


def test_a_network_that_keeps_its_state_is_refused_and_none_else_of_the_zoo() -> None:
    cell = zoo.cell("lstm", "inference", stateful=True)
    network, (text, _) = zoo.network(cell), zoo.batch(cell)
    step = made(network, network, "inference")
    step(text)
    with pytest.raises(ConfigError, match="cannot capture mine inference: its network keeps state from step to step"):
        step(text)


def test_what_cannot_be_captured_is_said_in_one_line() -> None:
    def waits(batch: Tensor) -> Tensor:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    step = made(waits, torch.nn.Linear(1, 1))
    step._left = 0
    step._graphs.capture = lambda step, batch: step(batch)  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=r"mine train cannot be captured .*: operation not permitted .*\.item\(\)"):
        step(torch.ones(1))


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
