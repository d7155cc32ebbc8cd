"""The loop of a cell and what it captures, by hand: what is compiled, marked, rehearsed, kept, and refused."""

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from profzoo.errors import ConfigError
from profzoo.harness import cuda_graph, interface, optimizers, recorders, step_loop, training_step
from profzoo.harness.ranges import Ranges
from profzoo.range_names import STEP, WINDOW
from tests.unit.test_cuda_graph import Recorded
from tests.unit.test_fed_by_hand import cell

CPU = torch.device("cpu")


class Compiling(nn.Linear):
    """Notes how it is compiled, and that its weights were prepared."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.said: list[Any] = []

    def compile(self, **given: Any) -> None:
        self.said.append(given)

    def prepare(self) -> None:
        self.said.append("prepared")


def repeated(network: nn.Module, **given: Any) -> step_loop.StepParts:
    one = cell(phase="inference", compile=False, cudnn_benchmark=False, deterministic=False, **given)
    return step_loop.make_step(one, interface.ModelFunctions(lambda shape: network), network, CPU, Ranges())


@pytest.mark.parametrize(
    ("asked", "mode"), [(True, [{"mode": None}]), ("max-autotune", [{"mode": "max-autotune"}]), (False, [])]
)
def test_what_is_compiled_is_so_in_the_mode_asked_for(asked: Any, mode: list) -> None:
    network = Compiling()
    one = cell(phase="inference", compile=asked, cudnn_benchmark=False, deterministic=False)
    found = step_loop.make_step(one, interface.ModelFunctions(lambda shape: network), network, CPU, Ranges())
    assert network.said == mode and found.trainer is None and found.step is found.plain


def test_only_reduce_overhead_is_told_where_steps_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: told.append("begins"))
    step = lambda batch: told.append(batch) or 5  # noqa: E731
    assert step_loop._begun({"compile": "reduce-overhead"}, step)("x") == 5 and told == ["begins", "x"]
    assert step_loop._begun({"compile": True}, step) is step and step_loop._begun({"compile": False}, step) is step


def test_a_network_of_its_phase_is_prepared_once_placed() -> None:
    for phase in ("train", "inference"):
        network = step_loop.set_up_network(Compiling(), cell(phase=phase), CPU)
        assert network.training == (phase == "train") and network.said == ["prepared"]


def test_inference_makes_no_gradients_and_is_the_models_own_where_it_has_one() -> None:
    network = nn.Linear(2, 1)
    made = repeated(network).step((torch.ones(3, 2), None))
    assert made.is_inference() and torch.equal(made, network(torch.ones(3, 2)))
    one = cell(phase="inference")
    own = interface.ModelFunctions(lambda shape: network, infer=lambda network, inputs: inputs * 2)
    assert step_loop._inference(one, own, network, CPU, Ranges())((torch.ones(2), None)).tolist() == [2, 2]


def test_a_rehearsal_has_two_steps_or_those_up_to_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    for graph, steps in ((False, 2), (True, 5)):
        ran: list[Any] = []
        own = SimpleNamespace(transfer=lambda batch, device: batch, step=ran.append)
        monkeypatch.setattr(step_loop, "make_step", lambda *given: own)  # noqa: B023
        monkeypatch.setattr(step_loop, "iterate_batches", lambda one, model: iter(["first", "second"]))
        step_loop.rehearse(cell(graph=graph, warmup=5), interface.ModelFunctions(lambda shape: nn.Linear(1, 1)), CPU)
        assert ran == ["first"] * steps


def test_weights_that_do_not_fit_or_are_none_are_told(tmp_path: Path) -> None:
    model = interface.ModelFunctions(lambda shape: nn.Linear(2, 1))
    torch.save(nn.Linear(3, 1).state_dict(), tmp_path / "other.pt")
    with pytest.raises(ConfigError, match=r"other.pt does not fit m in train: size mismatch"):
        step_loop.build_network(cell(), model, tmp_path / "other.pt")
    (tmp_path / "none.pt").write_text("")
    for name, why in (("none.pt", "EOFError|Ran out of input"), ("missing.pt", "No such file")):
        with pytest.raises(ConfigError, match=f"--load .*{name}: no weights that torch can read: .*({why})"):
            step_loop.build_network(cell(), model, tmp_path / name)
    torch.save(nn.Linear(2, 1).state_dict(), tmp_path / "right.pt")
    found = step_loop.build_network(cell(), model, tmp_path / "right.pt")
    assert torch.equal(found.weight, torch.load(tmp_path / "right.pt")["weight"])
    # Without weights they are those of the seed.
    assert torch.equal(
        step_loop.build_network(cell(), model, None).weight, step_loop.build_network(cell(), model, None).weight
    )
    assert not torch.equal(
        step_loop.build_network(cell(), model, None).weight, step_loop.build_network(cell(seed=2), model, None).weight
    )


class Noted:
    """Notes the ranges and the moments of a recorder in one list."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        monkeypatch.setattr(Ranges, "open", lambda ranges, name: self.said.append(f"+{name}"))
        monkeypatch.setattr(Ranges, "close", lambda ranges: self.said.append("-"))

    def recorder(self, name: str) -> recorders.Recorder:
        made = recorders.Recorder(CPU)
        plain = made.step
        made.start = lambda meet: self.said.append(f"{name} starts")  # type: ignore[method-assign]
        made.step = lambda items: plain(items) or self.said.append(f"{name} {items}")  # type: ignore[method-assign]
        made.stop = lambda: self.said.append(f"{name} stops")  # type: ignore[method-assign]
        return made


PLAIN = """
import torch
from torch import nn

WORKLOADS = {"trimmed": {"train": {"batch": 3}}}


def build(shape):
    return nn.Linear(2, 1)


def sample(shape, generator):
    return torch.rand(2, generator=generator), 0
"""


def test_a_window_comes_behind_warm_up_and_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain_of_loop.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    given = {"module": "plain_of_loop", "phase": "inference", "compile": False, "cudnn_benchmark": False,
             "deterministic": False, "warmup": 1, "samples": 12, "epochs": 1, "profiler": {"baseline": 2}}  # fmt: skip
    step = [f"+{STEP}", "+data", "-", "+transfer", "-", "+forward", "-", "-"]
    noted = Noted(monkeypatch)
    one = cell(steps=4, **given)
    outcome = step_loop.run_steps(
        one,
        step_loop.make_network(one, interface.load_functions("plain_of_loop"), CPU, None),
        CPU,
        noted.recorder("w"),
        noted.recorder("b"),
    )
    assert noted.said == [
        *step, "b starts", f"+{WINDOW}", *step, "b 3", *step, "b 3", "b stops", "-",
        "w starts", f"+{WINDOW}", *step, "w 3", "w stops", "-",
    ]  # fmt: skip
    assert outcome.parameters == 3 and outcome.loss is None and len(outcome.outputs) == 3
    noted.said.clear()
    step_loop.run_steps(cell(steps=2, **given), nn.Linear(2, 1), CPU, noted.recorder("w"))
    assert noted.said == [*step, "w starts", f"+{WINDOW}", *step, "w 3", "w stops", "-"]
    with pytest.raises(ConfigError, match="the data ended after 4 of 5 steps"):
        step_loop.run_steps(cell(steps=5, **given), nn.Linear(2, 1), CPU, noted.recorder("w"))


# Captured steps.


def made(step: Any, network: nn.Module, uncaptured: int, **given: Any) -> tuple[cuda_graph.CapturedStep, Recorded]:
    graphs, one = Recorded(), cell(device="cuda", **given)
    return cuda_graph.CapturedStep(step, one, network, CPU, Ranges(), uncaptured, graphs=graphs), graphs


def test_a_step_is_captured_once_after_it_ran_as_it_is() -> None:
    for uncaptured in (0, 1, 3):
        step, graphs = made(lambda batch: batch.sum(), nn.Linear(1, 1), uncaptured)
        step.again()
        results = [float(step(torch.full((2,), float(index)))) for index in range(5)]
        step.again()
        asides, replays = ["aside"] * uncaptured, ["replay"] * (5 - uncaptured)
        assert (
            graphs.said == [*asides, "capture", *replays, "capture"] and results[:uncaptured] == [0, 2, 4][:uncaptured]
        )


def test_outputs_of_inference_are_where_the_graph_leaves_them() -> None:
    for phase, same in (("inference", True), ("train", False)):
        step, _ = made(lambda batch: batch.sum(), nn.Linear(1, 1), 0, phase=phase)
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

        step, _ = made(run, nn.ModuleDict({"a": network}), 2)
        step(torch.ones(1))

    stepped(one, one)
    # Of the first step nothing was kept, and plain values are no tensors.
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

    step, graphs = made(fail, nn.Linear(1, 1), 0)
    graphs.capture = lambda step, batch: step(batch)  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="m train cannot be captured in a CUDA graph: operation not permitted; leave"):
        step(torch.ones(1))
    for error, said in ((RuntimeError(), "RuntimeError"), (RuntimeError("a\nb"), "a")):
        graphs.capture = functools.partial(lambda error, step, batch: (_ for _ in ()).throw(error), error)  # type: ignore[method-assign]
        with pytest.raises(ConfigError, match=f"in a CUDA graph: {said}; leave"):
            step(torch.ones(1))
    graphs.capture = functools.partial(
        lambda error, step, batch: (_ for _ in ()).throw(error), torch.OutOfMemoryError("x")
    )  # type: ignore[method-assign]
    with pytest.raises(torch.OutOfMemoryError):
        step(torch.ones(1))


def test_a_cpu_refuses_a_graph_unless_its_graphs_are_given() -> None:
    with pytest.raises(ConfigError, match="captures CUDA graphs, and this is a CPU"):
        cuda_graph.CapturedStep(print, cell(device="cpu"), nn.Linear(1, 1), CPU, Ranges(), 1)
    assert training_step.make_autocast(cell(precision="bf16"), CPU)().__class__ is torch.autocast


class Refusing(torch.optim.SGD):
    """An own optimizer that is made once, and says nothing where it is to be made again."""

    made = 0

    def __init__(
        self, parameters: Any, lr: float = 1.0, foreach: bool | None = None, fused: bool | None = None
    ) -> None:
        Refusing.made += 1
        if Refusing.made > 1:
            raise ValueError
        super().__init__(parameters, lr=lr)


def test_an_optimizer_that_cannot_be_made_again_is_told_though_it_says_nothing() -> None:
    own = Refusing(nn.Linear(1, 1).parameters())
    with pytest.raises(ConfigError, match="Refusing of m cannot be made so: ValueError; set optimizer to auto"):
        optimizers.choose_implementation(own, cell(optimizer="foreach"))
