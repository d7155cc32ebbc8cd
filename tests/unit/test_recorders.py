"""harness/recorders: which steps are recorded, how long each took, by real clocks and by one that the test sets."""

import csv
import weakref
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import nn

from models import lstm
from profzoo.cell import settings
from profzoo.config import configuration as config
from profzoo.harness import interface, ranges
from profzoo.harness.observers import recorders
from profzoo.harness.step import step_loop, training_step
from profzoo.io import chrome_trace
from profzoo.io import csv_tables as reading
from profzoo.machine import time_slicing
from profzoo.statistics import process_repeats
from profzoo.tools.time import tables as time_tables
from tests import slow
from tests.harness_cells import SetClock

CPU = torch.device("cpu")


def resolved(name: str = "lstm", phase: str = "train", tool: str = "time", **given: object) -> dict:
    """A small cell."""
    small = {"sequence_length": 4, "batch": 2} if name == "lstm" else {"size": 32, "batch": 2, "classes": 10}
    general = {"torch": given.pop("torch")} if "torch" in given else {}
    checked = config.normalise_config({**general, "settings": {name: {**small, **given}}})
    return settings.resolve_cell(name, phase, tool, checked)


def run(
    one: dict, recorder: recorders.Recorder, network: nn.Module | None = None, timer: recorders.Recorder | None = None
) -> step_loop.RunOutcome:
    """All steps of a cell on the CPU."""
    model = interface.load_functions(one["module"])
    return step_loop.run_steps(one, network or step_loop.make_network(one, model, CPU, None), CPU, recorder, timer)


class Counting(nn.Module):
    """Counts its forward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.forwards = lstm.build(SimpleNamespace(**lstm.SHAPE)), 0

    def forward(self, text: tuple) -> torch.Tensor:
        self.forwards += 1
        return self.inner(text)


def test_a_step_is_told_as_tables_have_it(tmp_path: Path) -> None:
    recorder = recorders.StepTimer(CPU, tmp_path / "steps.csv")
    run(resolved(warmup=0, window=12), recorder, Counting())
    table = reading.read(tmp_path / "steps.csv", time_tables.TABLE)
    mean_ns = process_repeats.summarise_processes(process_repeats.processes(table)).mean_ns
    assert recorder.step_ns == mean_ns < table["wall_ns"].max()


@pytest.mark.parametrize(("least_s", "steps"), [(0.0, 2), (0.1, 2), (0.11, 3), (0.3, 6), (1.0, 20)])
def test_a_window_grows_by_the_time_of_its_steps(least_s: float, steps: int) -> None:
    clock = SimpleNamespace(wait=lambda: None, now=lambda: max(recorder.steps, 0) * 50_000_000)
    recorder = SimpleNamespace(least_s=least_s, steps=-1, window_began_ns=0, clock=clock)
    for index in step_loop.step_indices(resolved(warmup=1, window=2), recorder):
        recorder.steps += 1
        assert index == recorder.steps
    assert recorder.steps == steps


def test_the_profiler_is_not_there_while_the_baseline_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    network, made, marked = Counting(), recorders.profile, ranges.record_function

    def note(what: str) -> None:
        seen.append((what, network.forwards))

    network.inner.register_forward_hook(lambda *_: note(f"profiled {torch._C._autograd._profiler_enabled()}"))
    monkeypatch.setattr(recorders, "profile", lambda **given: note("made") or made(**given))
    monkeypatch.setattr(ranges, "record_function", lambda name: note("marked") or marked(name))
    one = resolved(tool="torch", warmup=2, window=2, torch={"baseline": 5, "warmup": 1})
    timer, files = recorders.StepTimer(CPU, tmp_path / "s.csv"), (tmp_path / "o.csv", tmp_path / "t.json.gz")
    outcome = run(one, recorders.TorchProfiler(CPU, one["profiler"], 2, *files), network, timer)
    assert timer.steps == 5 and network.forwards == 2 + 5 + 1 + 2 == one["steps"]
    assert ("made", 7) in seen and min(count for what, count in seen if what in ("made", "marked")) == 7
    # In the step of its own warm-up it only gets ready.
    profiled = [what for what, _ in seen if what.startswith("profiled")]
    assert profiled == ["profiled False"] * 8 + ["profiled True"] * 2 and outcome.baseline_loss != outcome.loss


class Lagging:
    """The clocks of a host and of a device that works through what it was given, in virtual time."""

    def __init__(self) -> None:
        self.host, self.done = 0, 0

    def give(self, host_ns: int, device_ns: int) -> None:
        """A step that the host takes so long to launch, and the device to carry out once the last launch is made."""
        self.host += host_ns
        self.done = max(self.done, self.host) + device_ns

    def now(self) -> int:
        return self.host

    def mark(self) -> int:
        return max(self.done, self.host)

    def between(self, first: int, last: int) -> float:
        return float(last - first)

    def wait(self) -> None:
        self.host = self.mark()


@pytest.mark.parametrize("window", [2, 10, 20])
@pytest.mark.parametrize(("host", "device"), [(3, 25), (25, 25), (25, 3)])
def test_a_step_takes_as_long_as_the_slower_of_host_and_device(host: int, device: int, window: int) -> None:
    clock = Lagging()
    recorder = recorders.Recorder(CPU, clock)
    recorder.start()
    for index in range(window):
        clock.give(host + 400 * (index == 0), device)
        recorder.step(1)
    recorder.stop()
    assert recorder.step_ns == max(host, device) and recorder.window_wall_ns == clock.done


@pytest.mark.parametrize(("wait", "warmup", "repeat"), slow.first([(2, 1, 2), (1, 0, 2)]))
def test_torch_profiler_follows_its_schedule(tmp_path: Path, wait: int, warmup: int, repeat: int) -> None:
    given = resolved(tool="torch", warmup=1, window=2, torch={"wait": wait, "warmup": warmup, "repeat": repeat})
    assert given["steps"] == 1 + repeat * (wait + warmup + 2)
    operators, trace = tmp_path / "o.csv", tmp_path / "t.json.gz"
    recorder = recorders.TorchProfiler(CPU, given["profiler"], given["window"], operators, trace)
    run(given, recorder)
    assert recorder.steps == 2 * repeat
    table = pd.read_csv(operators).set_index("name")
    assert table.loc["profzoo:forward", "count"] == 2  # Of the last cycle.
    # Times are in ns, as the columns say: the trace of the same cycle has them in µs.
    opened = [event["dur"] for event in chrome_trace.read_events(trace)
              if event.get("cat") == "user_annotation" and event["name"] == "profzoo:forward"]  # fmt: skip
    assert table.loc["profzoo:forward", "cpu_ns"] == pytest.approx(sum(opened) * 1000, abs=2)
    assert not [name for name in table if "time" in name] and table["cpu_ns"].dtype == "int64"


@pytest.mark.parametrize("precision", slow.only(["fp32", "tf32", "bf16", "fp16"], "tf32", "bf16"))
def test_precision_is_what_the_network_computes_in(precision: str) -> None:
    seen, given = [], resolved("mobilenetv2", precision=precision, warmup=0, window=1)
    network = step_loop.make_network(given, interface.load_functions(given["module"]), CPU, None)
    network.features[0][0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    run(given, recorders.Recorder(CPU), network)
    assert seen == [training_step.AUTOCAST.get(precision, torch.float32)]
    assert torch.backends.cudnn.allow_tf32 == torch.backends.cuda.matmul.allow_tf32 == (precision == "tf32")


def test_of_inference_only_the_last_output_is_kept() -> None:
    seen, alive = [], []

    class Watched(Counting):
        def forward(self, text: tuple) -> torch.Tensor:
            seen.append(len(alive))
            output = super().forward(text)
            alive.append(1)
            weakref.finalize(output, alive.pop)
            return output

    run(resolved(phase="inference", warmup=0, window=5), recorders.Recorder(CPU), Watched().eval())
    assert max(seen) == 1


GPU = torch.device("cuda", 0)


MS = 1_000_000


def recorded(*ends_ns: int, stop_ns: int) -> recorders.Recorder:
    recorder = recorders.Recorder(CPU, clock := SetClock(1000))
    recorder.start()
    for clock.ns in ends_ns:
        recorder.step(1)
    clock.ns = stop_ns
    recorder.stop()
    return recorder


def test_time_from_the_end_of_the_first_step_is_shared_by_the_others() -> None:
    recorder = recorded(1500, 1600, 1700, stop_ns=1900)
    assert (recorder.steps, recorder.window_wall_ns, recorder.step_ns) == (3, 900, (1900 - 1500) / 2)
    assert recorded(1500, 1600, stop_ns=1900).step_ns == 400
    # Of one step, all of the window is it.
    assert recorded(1500, stop_ns=1900).step_ns == 900


def test_a_step_is_from_the_end_of_the_one_before_to_its_own(tmp_path: Path) -> None:
    timer = recorders.StepTimer(CPU, tmp_path / "s.csv")
    timer.clock = clock = SetClock(1000)
    timer.start()
    for clock.ns, items in ((1100, 2), (1250, 3), (1450, 4)):
        timer.step(items)
    clock.ns = 1500
    timer.stop()
    # The last has what the device still had to do.
    assert (tmp_path / "s.csv").read_text().splitlines()[1:] == ["0,100,,2,", "1,150,,3,", "2,250,,4,"]
    assert (timer.window_began_ns, timer.window_wall_ns, timer.shifts, timer.steps) == (1000, 500, 1, 3)
    assert timer.peak_memory_bytes is None and timer.peak_rss_bytes > 1 << 20


def test_rests_between_shifts_of_thirty_ms_are_in_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs have the machine for a second at each rest."""
    rested: list[int] = []
    monkeypatch.setattr(recorders, "CpuContention", lambda: SimpleNamespace(share=lambda ns: rested.append(ns) or 0.25))
    timer, rests = recorders.StepTimer(CPU, tmp_path / "s.csv"), list[int]()
    timer.clock = clock = SetClock(5 * MS)

    def rest() -> None:
        rests.append(clock.ns)
        clock.ns += 1000 * MS

    timer._worker = SimpleNamespace(rest=rest)
    timer.start()
    for took_ms in (10, 20, 40, 29, 7):
        clock.ns += took_ms * MS
        timer.step(1)
    clock.ns += 2 * MS
    timer.stop()
    # After 30 ms, 40 ms and 36 ms; the last rest is over before the window closes.
    assert len(rests) == 3 and timer.shifts == 4
    assert (pd.read_csv(tmp_path / "s.csv")["wall_ns"] // MS).tolist() == [10, 20, 40, 29, 7]
    assert timer.window_wall_ns == 106 * MS and timer.cpu_taken_share == 0.25 and rested == [3000 * MS + 2 * MS]


def test_a_compared_step_counts_its_time_on_a_core_unless_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second step is disturbed for 8 ms, and the third waits for 9 ms itself."""
    monkeypatch.setenv(time_slicing.BESIDE, "2")
    used = iter([(0, 0), (10 * MS, 0), (15 * MS, 0), (16 * MS, 1)])
    timer, now = recorders.StepTimer(CPU, tmp_path / "s.csv"), SimpleNamespace(ns=0, waits=0)
    timer.clock = clock = SetClock(0)

    def read() -> int:
        now.ns, now.waits = next(used)
        return now.ns

    monkeypatch.setattr(recorders.time, "thread_time_ns", read)
    monkeypatch.setattr(recorders.resource, "getrusage", lambda who: SimpleNamespace(ru_nvcsw=now.waits, ru_maxrss=1))
    timer.start()
    for clock.ns in (10 * MS, 23 * MS, 33 * MS):
        timer.step(1)
    timer.stop()
    table = pd.read_csv(tmp_path / "s.csv")
    assert (table["own_ns"] // MS).tolist() == [10, 5, 10] and (table["wall_ns"] // MS).tolist() == [10, 13, 10]
    monkeypatch.delenv(time_slicing.BESIDE)
    assert not recorders.StepTimer(CPU, tmp_path / "s.csv")._compared


def test_a_step_on_a_gpu_is_timed_by_its_own_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The device is done 50 ns after the host, then 90; of the last step before the host is.
    memory, marks = iter((100, 300, 700)), iter((50, 190, 330))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: next(memory))
    monkeypatch.setattr(recorders.time_slicing, "find_worker", lambda: pytest.fail("a GPU has no shifts"))
    monkeypatch.setattr(recorders.devices, "read_uuid", lambda device: None)
    timer = recorders.StepTimer(GPU, tmp_path / "s.csv")
    timer.clock = clock = SetClock(0)
    clock.mark = lambda: next(marks)  # type: ignore[method-assign]
    timer.start()
    for clock.ns in (100, 200):
        timer.step(8)
    clock.ns = 400
    timer.stop()
    assert (tmp_path / "s.csv").read_text().splitlines()[1:] == ["0,100,140,8,300", "1,300,140,8,700"]
    assert timer.peak_memory_bytes == 700 and timer.step_ns == 140


OPTIONS = {"wait": 1, "warmup": 1, "repeat": 1, "modules": False, "shapes": True, "memory": True, "flops": True,
           "stacks": False}  # fmt: skip


def products(path: Path) -> dict[str, str]:
    """The only row of products in a table of operators."""
    with path.open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["name"] == "aten::mm"]
    return row


def test_operators_of_active_steps_are_in_the_table_with_shapes_bytes_and_operations(tmp_path: Path) -> None:
    profiler = recorders.TorchProfiler(CPU, OPTIONS, 3, tmp_path / "o.csv", tmp_path / "t.json")
    profiler.clock = clock = SetClock(0)
    profiler.start()
    for took in (7, 9, 100, 500, 300):
        torch.mm(torch.ones(2, 3), torch.ones(3, 5))
        clock.ns += took
        profiler.step(1)
    profiler.stop()
    # Neither the one that waits nor the one that warms up.
    assert (profiler.steps, profiler.step_ns, profiler.window_wall_ns) == (3, 300, 900)
    assert profiler.window_began_ns == 0 and clock.waited == 6
    row = products(tmp_path / "o.csv")
    # Twice the 2 x 3 x 5 products, and a result of 2 x 5 numbers of four bytes, three times.
    assert (row["device"], row["shapes"], row["count"], row["stack"]) == ("CPU", "[[2, 3], [3, 5]]", "3", "")
    assert (row["flops"], row["cpu_memory_bytes"]) == (str(3 * 60), str(3 * 40))
    assert 0 < int(row["self_cpu_ns"]) <= int(row["cpu_ns"]) < 10**9 and row["device_ns"] == "0"
    assert sum(one["name"] == "aten::mm" for one in chrome_trace.read_events(tmp_path / "t.json")) == 3


def test_without_shapes_the_table_has_none(tmp_path: Path) -> None:
    without = {**OPTIONS, "shapes": False, "wait": 0, "stacks": True}
    profiler = recorders.TorchProfiler(CPU, without, 1, tmp_path / "o.csv", tmp_path / "t.json")
    profiler.start()
    for _ in range(2):
        torch.mm(torch.ones(2, 3), torch.ones(3, 5))
        profiler.step(1)
    profiler.stop()
    row = products(tmp_path / "o.csv")
    assert row["shapes"] == "" and Path(__file__).name in row["stack"] and row["stack"].count("|") == 4


def test_the_longest_need_of_all_processes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = recorders.Recorder(torch.device("cpu"))
    recorder.least_s, recorder.steps = 1.0, 3
    monkeypatch.setattr(step_loop.distributed, "gather_facts", lambda cell, own: [{"steps": 2}, {"steps": 5}])
    assert step_loop._more({}, recorder) == 5
