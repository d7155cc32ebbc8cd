"""Lines at which a step waits for the GPU, found from warnings as torch gives them, on a machine without a GPU."""

import importlib.util
import json
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from profzoo import run
from profzoo.harness.observers import host_samples, warmup_observers
from profzoo.harness.observers.host_samples import BlockingLines, ObservedStep
from profzoo.harness.ranges import Ranges
from profzoo.script_harness.session import StepWaits
from tests.gpu.programs import waits

# Objects that warn as tensors of a GPU do: their code counts as torch's by the name of its file.
OF_TORCH = f"""
import warnings
class Waiting:
    def _wait(self, given=None):
        warnings.warn({host_samples.WAITED!r} + " (Triggered internally at CUDAFunctions.cpp:145.)")
        return given
    item = lambda self: self._wait(1.0)
    __bool__ = lambda self: self._wait(True)
    __getitem__ = lambda self, key: self._wait(self)
    __setitem__ = lambda self, key, value: self._wait()
    __format__ = lambda self, form: self._wait("1")
    sum = lambda self: self
def nonzero(x):
    return x._wait(x)
"""
PROGRAM = """\
import waits_of_torch

def log(losses):
    return [loss.item() for loss in losses]

class Trainer:
    def step(self, x, losses):
        kept = x[x > 0] if False else x[x]
        kept[x] = 1
        rows = waits_of_torch.nonzero(x)
        if x.sum():
            text = f"{x}"
        total = 0.0
        for loss in losses:
            total += (
                loss.sum()
                .item()
            )
        return log(losses)
"""


class Mode:
    """Notes what is set, as there is no sync debug mode without a GPU."""

    def __init__(self, now: int = 0) -> None:
        self.now, self.told = now, [now]

    def get(self) -> int:
        return self.now

    def set(self, mode: int) -> None:
        if mode == 1:
            warnings.warn(f"{host_samples.PROTOTYPE} feature", stacklevel=1)
        self.now = mode
        self.told.append(mode)


@pytest.fixture
def of_torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("waits_of_torch")
    exec(compile(OF_TORCH, str(Path(torch.__file__).with_name("waits_of_torch.py")), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "waits_of_torch", module)
    return module


@pytest.fixture
def program(of_torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, and what waits, in the working folder."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("program", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return SimpleNamespace(module=module, waiting=of_torch.Waiting)


def watching(mode: Mode | None = None, ranges: Ranges | None = None, **given: Any) -> BlockingLines:
    return BlockingLines(ranges or Ranges(), mode=mode or Mode(), **given)


def waits_of(step: Callable[[], Any], **given: Any) -> list[Any]:
    """What is noted of a step."""
    lines = watching(**given)
    lines.start()
    step()
    found = lines.stop()
    assert found is not None
    return found


def test_each_wait_is_named_by_its_line_and_operation(program: Any) -> None:
    waiting = program.waiting()
    found = waits_of(lambda: program.module.Trainer().step(waiting, [waiting] * 3))
    shown = {(one["line"], one["function"].split(".<")[0], one["operation"], one["calls"]) for one in found}
    assert shown == {
        (4, "log", ".item()", 3),
        (8, "Trainer.step", "x[x]", 1),
        (9, "Trainer.step", "kept[x]", 1),
        (10, "Trainer.step", "waits_of_torch.nonzero()", 1),
        (11, "Trainer.step", "bool()", 1),
        (12, "Trainer.step", "format()", 1),
        (17, "Trainer.step", ".item()", 3),
    }
    assert {one["file"] for one in found} == {"program.py"} and found[0]["calls"] == 3
    assert next(one["text"] for one in found if one["line"] == 4) == "return [loss.item() for loss in losses]"
    json.dumps(found)


def test_waits_are_of_the_range_that_is_open(program: Any) -> None:
    ranges, waiting = Ranges(), program.waiting()

    def step() -> None:
        with ranges("step"):
            program.module.log([waiting])
            with ranges("backward"):
                program.module.log([waiting, waiting])

    found = waits_of(step, ranges=ranges)
    assert [(one["range"], one["calls"]) for one in found] == [("backward", 2), ("", 1)]


def test_everything_is_restored_also_when_the_step_raises(program: Any) -> None:
    mode, shown = Mode(2), warnings.showwarning
    filters, functions = list(warnings.filters), [getattr(owner, name) for owner, name in host_samples.EXPLICIT]
    observed = ObservedStep(watching(mode), warmup=3)
    with pytest.raises(ZeroDivisionError), observed.during(1):
        assert warnings.showwarning != shown
        program.module.log([program.waiting()])
        raise ZeroDivisionError
    assert mode.told == [2, 1, 2] and warnings.showwarning == shown and list(warnings.filters) == filters
    assert [getattr(owner, name) for owner, name in host_samples.EXPLICIT] == functions
    assert observed.found and observed.found[0]["calls"] == 1


def test_only_one_step_is_observed(program: Any) -> None:
    mode, waiting = Mode(), program.waiting()
    observed = ObservedStep(watching(mode), warmup=3)
    for index in range(3):
        with observed.during(index), warnings.catch_warnings():
            if index != 1:
                warnings.simplefilter("ignore")
            program.module.log([waiting] * (index + 1))
    assert observed.found and [one["calls"] for one in observed.found] == [2] and mode.told == [0, 1, 0]
    nothing = ObservedStep(None, warmup=3)
    with nothing.during(1):
        pass
    assert nothing.found is None


def test_other_warnings_are_shown_as_before_and_the_filters_of_the_program_hold(program: Any) -> None:
    lines = watching()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        lines.start()
        warnings.warn("of the program", stacklevel=1)
        program.module.log([program.waiting()])
        found = lines.stop()
    assert [str(one.message) for one in told] == ["of the program"] and found is not None and len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lines.start()
        with pytest.raises(UserWarning, match="of the program"):
            warnings.warn("of the program", stacklevel=1)
        lines.stop()


def test_a_step_that_hides_its_warnings_says_nothing(program: Any) -> None:
    """Its waits are not known, which is not the same as none."""
    lines, hidden = watching(), warnings.catch_warnings()
    shown = warnings.showwarning
    hidden.__enter__()
    lines.start()
    hidden.__exit__(None, None, None)
    assert lines.stop() is None and warnings.showwarning == shown


def test_waits_that_a_program_asks_for_are_counted_by_their_line(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called, event = [], torch.cuda.Event
    monkeypatch.setattr(torch._C, "_cuda_synchronize", lambda: called.append("synchronize"), raising=False)
    monkeypatch.setattr(event, "synchronize", lambda event: called.append(event))
    step: Any = lambda: [*(torch._C._cuda_synchronize() for _ in range(2)), torch.cuda.Event.synchronize("an event")]  # noqa: E731
    found = waits_of(step)
    assert called == ["synchronize", "synchronize", "an event"]
    right = [("torch._C._cuda_synchronize()", 2), ("torch.cuda.Event.synchronize()", 1)]
    assert [(one["operation"], one["calls"]) for one in found] == right
    assert found[0]["file"].endswith("tests/unit/test_blocking_lines.py")
    # One that warns too counts once.
    monkeypatch.setattr(torch._C, "_cuda_synchronize", program.waiting()._wait, raising=False)
    assert [one["calls"] for one in waits_of(step)] == [2, 1]


def test_a_thread_without_the_program_is_named_by_torchs_line(of_torch: ModuleType) -> None:
    """As in a thread of torch's own; the loop of steps ends the search for the program."""
    thread = threading.Thread(target=of_torch.nonzero, args=(of_torch.Waiting(),))
    found = waits_of(lambda: (thread.start(), thread.join()))
    assert [(one["file"], one["function"]) for one in found] == [("torch/waits_of_torch.py", "Waiting._wait")]


def test_frames_beyond_the_loop_are_not_the_programs(program: Any) -> None:
    (one,) = waits_of(program.waiting().item, outermost=waits_of.__code__)
    assert one["file"] == "torch/waits_of_torch.py"


def test_what_profzoo_itself_inspects_is_no_wait_of_the_program(program: Any) -> None:
    """Code of a module that looks at a step, and of one that calls the program's functions in its place."""
    own, waiting = {}, program.waiting()
    for name in ("output_samples", "training_step"):
        path = str(Path(host_samples.__file__).with_name(f"{name}.py"))
        exec(compile("def call(function):\n    return function()\n", path, "exec"), own.setdefault(name, {}))

    def step() -> None:
        own["output_samples"]["call"](waiting.item)
        own["training_step"]["call"](waiting.item)

    (one,) = waits_of(step)
    assert one["calls"] == 1 and one["text"] == 'own["training_step"]["call"](waiting.item)'


def test_paths_leave_out_the_folders_of_this_machine(program: Any) -> None:
    finder = watching()._finder
    assert finder.shorten(str(Path(torch.__file__))) == "torch/__init__.py"
    assert finder.shorten(str(Path.cwd() / "a" / "b.py")) == "a/b.py"
    assert finder.shorten(warnings.__file__) == "warnings.py"
    assert finder.shorten("/elsewhere/c.py") == "/elsewhere/c.py" and finder.shorten("<stdin>") == "<stdin>"


def test_nothing_is_observed_on_a_cpu_or_of_a_captured_step() -> None:
    for graph, device, is_observed in ((False, "cuda", True), (True, "cuda", False), (False, "cpu", False)):
        cell: Any = {"warmup": 3, "graph": graph}
        found = warmup_observers.observe_waits(cell, torch.device(device), Ranges(), waits_of.__code__)
        assert (found._make() is not None) == is_observed
    observed = StepWaits(3, Ranges())
    observed.begin_step(1, torch.device("cpu"))
    observed.end_step()
    assert observed.facts() == {}


def test_of_a_script_one_step_is_observed(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_samples, "CudaDebugMode", Mode)
    observed, waiting = StepWaits(3, Ranges()), program.waiting()
    for index in range(3):
        observed.begin_step(index, torch.device("cuda"))
        with warnings.catch_warnings():
            if index != 1:
                warnings.simplefilter("ignore")
            program.module.log([waiting] * (index + 1))
        observed.end_step()
    assert [one["calls"] for one in observed.facts()["blocking_lines"]] == [2]


def test_the_lines_of_a_models_step_become_facts(
    of_torch: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell runs as its job does; only the device, and so the mode, is another one."""
    waiting = of_torch.Waiting()

    def observe(cell: Any, device: Any, ranges: Ranges, code: Any) -> ObservedStep:
        return ObservedStep(BlockingLines(ranges, code, Mode()), cell["warmup"])

    monkeypatch.setattr(warmup_observers, "observe_waits", observe)
    monkeypatch.setattr(waits, "log_norms", lambda network: [waiting.item() for _ in range(4)])
    facts = tmp_path / "facts.json"
    words = ["waits", "train", f"module={waits.__name__}", "device=cpu", "window=1", "--facts", str(facts)]
    assert run.main(words) == 0
    (found,) = json.loads(facts.read_text())["blocking_lines"]
    assert found["operation"] == ".item()" and found["calls"] == 4 and found["range"] == ""
