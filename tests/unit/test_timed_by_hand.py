"""What watches a window, by a clock that the test sets: steps, shifts, operators; and what a probe and peaks time."""

import csv
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from profzoo.calibration import launch_costs, peaks
from profzoo.harness import recorders, timers

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)
MS = 1_000_000


class Set(timers.HostClock):
    """A clock that stands until it is set; waits are counted."""

    def __init__(self, ns: int = 0) -> None:
        self.ns, self.waited = ns, 0

    def now(self) -> int:
        return self.ns

    def wait(self) -> None:
        self.waited += 1


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def recorded(*ends_ns: int, stop_ns: int) -> recorders.Recorder:
    recorder = recorders.Recorder(CPU, clock := Set(1000))
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


class Resting:
    """Other programs have the machine for a second at each rest."""

    def __init__(self, clock: Set) -> None:
        self.clock, self.rests = clock, 0

    def rest(self) -> None:
        self.rests += 1
        self.clock.ns += 1000 * MS


def test_a_step_is_from_the_end_of_the_one_before_to_its_own(tmp_path: Path) -> None:
    timer = recorders.StepTimer(CPU, tmp_path / "s.csv")
    timer.clock = clock = Set(1000)
    timer.start()
    for clock.ns, items in ((1100, 2), (1250, 3), (1450, 4)):
        timer.step(items)
    clock.ns = 1500
    timer.stop()
    # The last has what the device still had to do.
    rows = [(row["step"], row["wall_ns"], row["gpu_ns"], row["items"]) for row in read(tmp_path / "s.csv")]
    assert rows == [("0", "100", "", "2"), ("1", "150", "", "3"), ("2", "250", "", "4")]
    assert (timer.window_began_ns, timer.window_wall_ns, timer.shifts, timer.steps) == (1000, 500, 1, 3)
    assert timer.peak_memory_bytes is None and timer.peak_rss_bytes > 1 << 20


def test_rests_between_shifts_of_thirty_ms_are_in_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rested: list[int] = []
    monkeypatch.setattr(recorders, "CpuContention", lambda: SimpleNamespace(share=lambda ns: rested.append(ns) or 0.25))
    timer = recorders.StepTimer(CPU, tmp_path / "s.csv")
    timer.clock = clock = Set(5 * MS)
    timer._worker = worker = Resting(clock)
    timer.start()
    for took_ms in (10, 20, 40, 29, 7):
        clock.ns += took_ms * MS
        timer.step(1)
    clock.ns += 2 * MS
    timer.stop()
    # After 30 ms, 40 ms and 36 ms; the last rest is over before the window closes.
    assert worker.rests == 3 and timer.shifts == 4
    assert [int(row["wall_ns"]) // MS for row in read(tmp_path / "s.csv")] == [10, 20, 40, 29, 7]
    assert timer.window_wall_ns == 106 * MS and timer.cpu_taken_share == 0.25
    assert rested == [3000 * MS + 2 * MS]


def test_a_step_on_a_gpu_is_timed_by_its_own_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = iter((100, 300, 700))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: next(memory))
    monkeypatch.setattr(recorders.time_slicing, "find_worker", lambda: pytest.fail("a GPU has no shifts"))
    monkeypatch.setattr(recorders.devices, "read_uuid", lambda device: None)
    timer = recorders.StepTimer(GPU, tmp_path / "s.csv")
    clock = Set(0)
    # The device is done 50 ns after the host, then 90; of the last step before the host is.
    marks = iter((50, 190, 330))
    clock.mark = lambda: next(marks)  # type: ignore[method-assign]
    timer.clock = clock
    timer.start()
    for clock.ns in (100, 200):
        timer.step(8)
    clock.ns = 400
    timer.stop()
    rows = [tuple(row.values()) for row in read(tmp_path / "s.csv")]
    assert rows == [("0", "100", "140", "8", "300"), ("1", "300", "140", "8", "700")]
    assert timer.peak_memory_bytes == 700 and timer.step_ns == 140


OPTIONS = {"wait": 1, "warmup": 1, "repeat": 1, "modules": False, "shapes": True, "memory": True, "flops": True,
           "stacks": False}  # fmt: skip


def test_operators_of_active_steps_are_in_the_table_with_shapes_bytes_and_operations(tmp_path: Path) -> None:
    profiler = recorders.TorchProfiler(CPU, OPTIONS, 3, tmp_path / "o.csv", tmp_path / "t.json")
    profiler.clock = clock = Set(0)
    left, right = torch.ones(2, 3), torch.ones(3, 5)
    profiler.start()
    for took in (7, 9, 100, 500, 300):
        torch.mm(left, right)
        clock.ns += took
        profiler.step(1)
    profiler.stop()
    # Neither the one that waits nor the one that warms up.
    assert (profiler.steps, profiler.step_ns, profiler.window_wall_ns) == (3, 300, 900)
    assert profiler.window_began_ns == 0 and clock.waited == 6
    (row,) = [row for row in read(tmp_path / "o.csv") if row["name"] == "aten::mm"]
    # Twice the 2 x 3 x 5 products, and a result of 2 x 5 numbers of four bytes, three times.
    assert (row["device"], row["shapes"], row["count"], row["stack"]) == ("CPU", "[[2, 3], [3, 5]]", "3", "")
    assert (row["flops"], row["cpu_memory_bytes"]) == (str(3 * 60), str(3 * 40))
    assert 0 < int(row["self_cpu_ns"]) <= int(row["cpu_ns"]) < 10**9 and row["device_ns"] == "0"
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(one["name"] == "aten::mm" for one in events) == 3


def test_without_shapes_the_table_has_none(tmp_path: Path) -> None:
    without = {**OPTIONS, "shapes": False, "wait": 0, "stacks": True}
    profiler = recorders.TorchProfiler(CPU, without, 1, tmp_path / "o.csv", tmp_path / "t.json")
    profiler.start()
    for _ in range(2):
        torch.mm(torch.ones(2, 3), torch.ones(3, 5))
        profiler.step(1)
    profiler.stop()
    (row,) = [row for row in read(tmp_path / "o.csv") if row["name"] == "aten::mm"]
    assert row["shapes"] == "" and Path(__file__).name in row["stack"] and row["stack"].count("|") == 4


def test_a_probe_times_eight_launches_of_products_and_sums_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th takes n seconds, the first two to set up: the median is that of 3 to 8."""
    clock, called = Set(0), list[str]()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> Any:
            called.append(name)
            assert left.shape == (128, 128) and out.shape == (128, 128)
            clock.ns += max(len(called) - 2, 0) * 10**9
            return real(left, right, out=out)

        return call

    monkeypatch.setattr(launch_costs.timers, "timer_of", lambda device: clock)
    monkeypatch.setattr(torch, "mm", counted("mm", torch.mm))
    monkeypatch.setattr(torch, "add", counted("add", torch.add))
    assert launch_costs.main(["--facts", str(tmp_path / "f.json"), "--device", "cpu"]) == 0
    facts = json.loads((tmp_path / "f.json").read_text())
    assert facts["launches_s"] == [1, 2, 3, 4, 5, 6, 7, 8] and facts["launch_s"] == 5.5 == statistics.median(
        range(3, 9)
    )
    # Both once before, and each launch is waited for.
    assert called == ["mm", "add"] * 5 and clock.waited == 1 + 8
    assert facts["device_type"] == "cpu" and facts["cuda"] is None and facts["device_uuid"] is None


def once(work: Callable[[], object], device: torch.device) -> float:
    work()
    return 0.5


def test_peaks_are_of_work_of_the_sizes_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = dict[str, Any]()
    monkeypatch.setattr(peaks, "time_call", once)
    real = torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda left, right, out: seen.update(left=left, right=right) or real(left, right, out=out)
    )
    assert peaks._product(128, torch.float64, CPU) == 0.5
    for matrix in seen.values():
        # Numbers from -0.5 to 0.5, as many of either sign.
        assert matrix.shape == (128, 128) and matrix.dtype == torch.float64 and abs(matrix.mean()) < 0.02
        assert -0.5 <= matrix.min() < -0.49 and 0.49 < matrix.max() <= 0.5
    works = list[Callable[[], torch.Tensor]]()
    monkeypatch.setattr(peaks, "time_call", lambda work, device: works.append(work) or 1.0)
    peaks._copy(1 << 20, CPU)
    peaks._sums(1 << 12, CPU)
    copied, sums = (work() for work in works)
    assert copied.numel() * copied.element_size() == 1 << 20
    # 256 sums of 1024 numbers of four bytes, which all are the same ones.
    assert sums.shape == (256,) and not sums.any()


def test_sizes_of_a_gpu_go_by_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=48 << 20))
    assert peaks.choose_sizes(GPU) == peaks.Sizes(2**30, 12 * 2**20, 8192)
    assert peaks.choose_sizes(CPU) == peaks.Sizes(64 * 2**20, 2**20, 512)


def test_each_arithmetic_is_timed_with_matrices_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a GPU all seven, fp64 at half the order, and TensorFloat-32 allowed for tf32 alone; of a CPU those it has."""
    asked = list[tuple[int, torch.dtype, bool]]()

    def product(order: int, dtype: torch.dtype, device: torch.device) -> float:
        asked.append((order, dtype, torch.backends.cuda.matmul.allow_tf32))
        return 2.0

    eight_bits = list[tuple[int, str]]()
    monkeypatch.setattr(peaks, "_copy", lambda size, device: 4.0)
    monkeypatch.setattr(peaks, "_sums", lambda size, device: 8.0)
    monkeypatch.setattr(peaks, "_product", product)
    monkeypatch.setattr(
        peaks, "_eight_bit_product", lambda order, name, device: eight_bits.append((order, name)) or 1.0
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    ampere = [name for name, *_ in peaks.measure_peaks(GPU, peaks.Sizes(1 << 20, 1 << 10, 100))]
    assert ampere[-1] == "int8" and "fp8" not in ampere
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    asked.clear()
    eight_bits.clear()
    before = torch.backends.cuda.matmul.allow_tf32
    found = {name: (rate, unit) for name, rate, unit, _ in peaks.measure_peaks(GPU, peaks.Sizes(1 << 20, 1 << 10, 100))}
    of_cpu = [name for name, *_ in peaks.measure_peaks(CPU, peaks.Sizes(1 << 20, 1 << 10, 100))]
    torch.backends.cuda.matmul.allow_tf32 = before
    flops = dict.fromkeys(("fp32", "tf32", "bf16", "fp16"), (2 * 100**3 / 2, "flop/s"))
    assert found == {
        "dram": (2 * 2**20 / 4, "byte/s"), "l2": (256 * 2**10 / 8, "byte/s"), "fp64": (2 * 50**3 / 2, "flop/s"), **flops,
        **dict.fromkeys(("int8", "fp8"), (2 * 100**3 / 1, "flop/s")),
    }  # fmt: skip
    assert asked[:5] == [
        (50, torch.float64, False), (100, torch.float32, False), (100, torch.float32, True),
        (100, torch.bfloat16, False), (100, torch.float16, False),
    ]  # fmt: skip
    assert eight_bits == [(100, "int8"), (100, "fp8"), (100, "int8")]
    assert of_cpu == ["dram", "l2", "fp64", "fp32", "bf16", "int8"]


def test_series_on_a_gpu_are_timed_by_events_in_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, marks = list[int](), list[int]()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            marks.append(len(calls))

        def elapsed_time(self, end: "Event") -> float:
            return 250.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert peaks._series(lambda: calls.append(1), 3, GPU) == 0.25 and marks == [0, 3]
    assert timers.CudaClock.between(None, SimpleNamespace(elapsed_time=lambda last: 1.5), None) == 1.5 * MS  # type: ignore[arg-type]
