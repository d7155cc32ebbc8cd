"""Lines at which a step waits for the GPU, found from warnings as torch gives them, on a machine without a GPU."""

import importlib.util
import json
import sys
import threading
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from profzoo import run
from profzoo.harness import blocking_lines, warmup_observers
from profzoo.harness.blocking_lines import BlockingLines, ObservedStep
from profzoo.harness.ranges import Ranges
from profzoo.script_harness.step_waits import StepWaits
from tests.gpu.programs import waits

# Objects that warn as tensors of a GPU do: their code counts as torch's by the name of its file.
OF_TORCH = f"""
import warnings
class Waiting:
    def _wait(self):
        warnings.warn({blocking_lines.WAITED!r} + " (Triggered internally at CUDAFunctions.cpp:145.)")
    def item(self):
        self._wait()
        return 1.0
    def __bool__(self):
        self._wait()
        return True
    def __getitem__(self, key):
        self._wait()
        return self
    def __setitem__(self, key, value):
        self._wait()
    def __format__(self, form):
        self._wait()
        return "1"
    def sum(self):
        return self
def nonzero(x):
    x._wait()
    return x
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
            warnings.warn(f"{blocking_lines.PROTOTYPE} feature", stacklevel=1)
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


def test_each_wait_is_named_by_its_line_and_operation(program: Any) -> None:
    lines, waiting = watching(), program.waiting()
    lines.start()
    program.module.Trainer().step(waiting, [waiting] * 3)
    found = lines.stop()
    assert found is not None
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
    lines = watching(ranges=ranges)
    lines.start()
    with ranges("step"):
        program.module.log([waiting])
        with ranges("backward"):
            program.module.log([waiting, waiting])
    found = lines.stop()
    assert found is not None
    assert [(one["range"], one["calls"]) for one in found] == [("backward", 2), ("", 1)]


def test_everything_is_restored_also_when_the_step_raises(program: Any) -> None:
    mode, shown = Mode(2), warnings.showwarning
    filters, functions = list(warnings.filters), [getattr(owner, name) for owner, name in blocking_lines.EXPLICIT]
    observed = ObservedStep(watching(mode), warmup=3)
    with pytest.raises(ZeroDivisionError), observed.during(1):
        assert warnings.showwarning != shown
        program.module.log([program.waiting()])
        raise ZeroDivisionError
    assert mode.told == [2, 1, 2] and warnings.showwarning == shown and list(warnings.filters) == filters
    assert [getattr(owner, name) for owner, name in blocking_lines.EXPLICIT] == functions
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
    assert [str(one.message) for one in told] == ["of the program"]
    assert found is not None and len(found) == 1
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
    called = []
    monkeypatch.setattr(torch._C, "_cuda_synchronize", lambda: called.append("synchronize"), raising=False)
    monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda event: called.append(event))
    lines = watching()
    lines.start()
    for _ in range(2):
        torch._C._cuda_synchronize()
    torch.cuda.Event.synchronize("an event")  # type: ignore[arg-type]
    found = lines.stop()
    assert called == ["synchronize", "synchronize", "an event"] and found is not None
    assert [(one["operation"], one["calls"]) for one in found] == [
        ("torch._C._cuda_synchronize()", 2),
        ("torch.cuda.Event.synchronize()", 1),
    ]
    assert found[0]["file"].endswith("tests/unit/test_blocking_lines.py")


def test_an_explicit_wait_that_warns_too_counts_once(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = program.waiting()
    monkeypatch.setattr(torch._C, "_cuda_synchronize", lambda: waiting._wait(), raising=False)
    lines = watching()
    lines.start()
    torch._C._cuda_synchronize()
    found = lines.stop()
    assert found is not None and [one["calls"] for one in found] == [1]


def test_a_thread_without_the_program_is_named_by_torchs_line(of_torch: ModuleType) -> None:
    """As in a thread of torch's own; the loop of steps ends the search for the program."""
    lines = watching()
    lines.start()
    thread = threading.Thread(target=of_torch.nonzero, args=(of_torch.Waiting(),))
    thread.start()
    thread.join()
    found = lines.stop()
    assert found is not None and [(one["file"], one["function"]) for one in found] == [
        ("torch/waits_of_torch.py", "Waiting._wait")
    ]


def loop(waiting: Any, lines: BlockingLines) -> Any:
    lines.start()
    waiting.item()
    return lines.stop()


def test_frames_beyond_the_loop_are_not_the_programs(program: Any) -> None:
    found = loop(program.waiting(), watching(outermost=loop.__code__))
    assert [one["file"] for one in found] == ["torch/waits_of_torch.py"]


def test_what_profzoo_itself_inspects_is_no_wait_of_the_program(program: Any) -> None:
    """Code of a module that looks at a step, and of one that calls the program's functions in its place."""
    code = "def call(function):\n    return function()\n"
    own = {}
    for name in ("output_samples", "training_step"):
        exec(
            compile(code, str(Path(blocking_lines.__file__).with_name(f"{name}.py")), "exec"), own.setdefault(name, {})
        )
    lines, waiting = watching(), program.waiting()
    lines.start()
    own["output_samples"]["call"](waiting.item)
    own["training_step"]["call"](waiting.item)
    (one,) = lines.stop() or []
    assert one["calls"] == 1 and one["text"] == 'own["training_step"]["call"](waiting.item)'


def test_paths_leave_out_the_folders_of_this_machine(program: Any) -> None:
    finder = watching()._finder
    assert finder.shorten(str(Path(torch.__file__))) == "torch/__init__.py"
    assert finder.shorten(str(Path.cwd() / "a" / "b.py")) == "a/b.py"
    assert finder.shorten(warnings.__file__) == "warnings.py"
    assert finder.shorten("/elsewhere/c.py") == "/elsewhere/c.py" and finder.shorten("<stdin>") == "<stdin>"


def test_nothing_is_observed_on_a_cpu_or_of_a_captured_step() -> None:
    ranges, cpu, gpu = Ranges(), torch.device("cpu"), torch.device("cuda")
    for cell, device, is_observed in (
        ({"warmup": 3, "graph": False}, gpu, True),
        ({"warmup": 3, "graph": True}, gpu, False),
        ({"warmup": 3, "graph": False}, cpu, False),
    ):
        found = warmup_observers.observe_waits(cell, device, ranges, loop.__code__)  # type: ignore[arg-type]
        assert (found._make() is not None) == is_observed


def test_a_script_on_a_cpu_is_not_observed() -> None:
    observed = StepWaits(3, Ranges())
    observed.begin_step(1, torch.device("cpu"))
    observed.end_step()
    assert observed.facts() == {}


def test_of_a_script_one_step_is_observed(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_lines, "CudaDebugMode", Mode)
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
