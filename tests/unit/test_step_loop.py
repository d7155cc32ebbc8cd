"""harness/step_loop: what is compiled, marked, rehearsed, kept, and refused; windows that grow; networks kept for forks."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from profzoo import run
from profzoo.errors import ConfigError
from profzoo.harness import interface
from profzoo.harness.observers import recorders
from profzoo.harness.ranges import Ranges
from profzoo.harness.step import measure, step_loop
from profzoo.range_names import STEP, WINDOW
from tests import zoo
from tests.harness_cells import COUNTING, cell, functions

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


def parts(network: nn.Module, compiled: Any) -> step_loop.StepParts:
    one = cell(phase="inference", compile=compiled, cudnn_benchmark=False, deterministic=False)
    return step_loop.make_step(one, functions(build=lambda shape: network), network, CPU, Ranges())


@pytest.mark.parametrize(
    ("asked", "mode"), [(True, [{"mode": None}]), ("max-autotune", [{"mode": "max-autotune"}]), (False, [])]
)
def test_what_is_compiled_is_so_in_the_mode_asked_for(asked: Any, mode: list) -> None:
    network = Compiling()
    found = parts(network, asked)
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
    made = parts(network, False).step((torch.ones(3, 2), None))
    assert made.is_inference() and torch.equal(made, network(torch.ones(3, 2)))
    own = functions(infer=lambda network, inputs: inputs * 2)
    step = step_loop._inference(cell(phase="inference"), own, network, CPU, Ranges())
    assert step((torch.ones(2), None)).tolist() == [2, 2]


def test_a_rehearsal_has_two_steps_or_those_up_to_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    for graph, steps in ((False, 2), (True, 5)):
        ran: list[Any] = []
        own = SimpleNamespace(transfer=lambda batch, device: batch, step=ran.append)
        monkeypatch.setattr(step_loop, "make_step", lambda *given: own)  # noqa: B023
        monkeypatch.setattr(step_loop, "iterate_batches", lambda one, model: iter(["first", "second"]))
        step_loop.rehearse(cell(graph=graph, warmup=5), functions(), CPU)
        assert ran == ["first"] * steps


def test_weights_that_do_not_fit_or_are_none_are_told(tmp_path: Path) -> None:
    model = functions(build=lambda shape: nn.Linear(2, 1))
    torch.save(nn.Linear(3, 1).state_dict(), tmp_path / "other.pt")
    torch.save(nn.Linear(2, 1).state_dict(), tmp_path / "right.pt")
    (tmp_path / "none.pt").write_text("")
    for name, why in (
        ("other.pt", "other.pt does not fit m in train: size mismatch"),
        ("none.pt", "--load .*none.pt: no weights that torch can read: .*(EOFError|Ran out of input)"),
        ("missing.pt", "--load .*missing.pt: no weights that torch can read: .*No such file"),
    ):
        with pytest.raises(ConfigError, match=why):
            step_loop.build_network(cell(), model, tmp_path / name)
    found = step_loop.build_network(cell(), model, tmp_path / "right.pt")
    assert torch.equal(found.weight, torch.load(tmp_path / "right.pt")["weight"])
    # Without weights they are those of the seed.
    one, same, other = (step_loop.build_network(cell(seed=seed), model, None).weight for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


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


def test_a_window_comes_behind_warm_up_and_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain_of_loop.py").write_text(COUNTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    given = {"module": "plain_of_loop", "phase": "inference", "compile": False, "cudnn_benchmark": False,
             "deterministic": False, "warmup": 1, "samples": 12, "epochs": 1, "profiler": {"baseline": 2}}  # fmt: skip
    step = [f"+{STEP}", "+data", "-", "+transfer", "-", "+forward", "-", "-"]
    noted, network = Noted(monkeypatch), nn.Linear(2, 1)
    outcome = step_loop.run_steps(cell(steps=4, **given), network, CPU, noted.recorder("w"), noted.recorder("b"))
    assert noted.said == [
        *step, "b starts", f"+{WINDOW}", *step, "b 3", *step, "b 3", "b stops", "-",
        "w starts", f"+{WINDOW}", *step, "w 3", "w stops", "-",
    ]  # fmt: skip
    assert outcome.parameters == 3 and outcome.loss is None and len(outcome.outputs) == 3
    noted.said.clear()
    step_loop.run_steps(cell(steps=2, **given), network, CPU, noted.recorder("w"))
    assert noted.said == [*step, "w starts", f"+{WINDOW}", *step, "w 3", "w stops", "-"]
    with pytest.raises(ConfigError, match="the data ended after 4 of 5 steps"):
        step_loop.run_steps(cell(steps=5, **given), network, CPU, noted.recorder("w"))


def test_a_window_has_a_step_more_for_each_that_it_lacks() -> None:
    clock = SimpleNamespace(now=lambda: 400_000_000, wait=lambda: None)
    recorder = SimpleNamespace(least_s=1.0, steps=2, window_began_ns=0, clock=clock)
    # 0.6 s are missing, of steps of 0.2 s.
    assert step_loop._more(cell(), recorder) == 3  # type: ignore[arg-type]
    recorder.least_s = 1.01
    assert step_loop._more(cell(), recorder) == 4  # type: ignore[arg-type]
    for recorder.least_s in (0.0, 0.4, 0.3):
        assert step_loop._more(cell(), recorder) == 0  # type: ignore[arg-type]
    assert step_loop.extend_epochs(cell(), recorder)["epochs"] == 10**9  # type: ignore[arg-type]
    recorder.least_s = 0.0
    assert step_loop.extend_epochs(cell(), recorder)["epochs"] == 2  # type: ignore[arg-type]


def test_losses_are_looked_at_step_by_step() -> None:
    results = [torch.tensor([1.0]), torch.tensor(math.nan), torch.tensor(3.0)]
    with pytest.raises(step_loop.NotFiniteError, match="the loss is nan at step 1 of 3"):
        step_loop._finite(results, cell())  # type: ignore[arg-type]
    assert step_loop._finite(results[::2], cell()) == [1.0, 3.0]  # type: ignore[arg-type]
    assert step_loop._finite([torch.ones(1)], cell(phase="inference")) == [None]  # type: ignore[arg-type]
    with pytest.raises(step_loop.NotFiniteError):
        step_loop._finite([results[1]], cell(phase="inference"))  # type: ignore[arg-type]


def tiny(name: str, **changed: Any) -> Any:
    shape = {**zoo.TINY[name], **changed}
    return run.resolve_words(name, "train", "time", [f"{key}={value}" for key, value in shape.items()])


@pytest.mark.parametrize("name", ["lstm", "mobilenetv2"])
def test_a_kept_network_is_the_one_that_would_be_built(name: str) -> None:
    one, threads = tiny(name), torch.get_num_threads()
    model = interface.load_functions(one["module"])
    alone, state = step_loop.build_network(one, model, None).state_dict(), torch.get_rng_state()
    torch.set_num_threads(2)
    measure.keep_network(one, None)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    torch.manual_seed(99)
    kept = measure.take_network(one, model, None).state_dict()
    assert kept.keys() == alone.keys() and all(torch.equal(kept[key], alone[key]) for key in alone)
    assert torch.equal(torch.get_rng_state(), state)


def kept_beside(**changed: Any) -> tuple[nn.Module, nn.Module]:
    """The network that was kept, and the one that another cell gets."""
    measure.keep_network(tiny("lstm"), None)
    ((kept, _),) = measure._kept.values()
    one = tiny("lstm", **changed)
    return kept, measure.take_network(one, interface.load_functions(one["module"]), None)


def test_a_cell_with_another_seed_or_shape_builds_its_own() -> None:
    for changed in ({"seed": 5}, {"sequence_length": 8}, {"hidden": 8}):
        kept, network = kept_beside(**changed)
        # The kept one takes no memory any more, and is not given to a second cell.
        assert network is not kept and not measure._kept
    kept, network = kept_beside(batch=2, precision="bf16", compile="true")
    assert network is kept
