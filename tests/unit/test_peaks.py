"""calibration/peaks and launch_costs: rates of known work, with their units, and how they were measured."""

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from profzoo.calibration import launch_costs, peaks
from profzoo.harness.observers import recorders
from tests.harness_cells import SetClock

CPU = torch.device("cpu")


def test_rates_are_work_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "time_call", once)
    found = {name: (rate, unit) for name, rate, unit, _ in peaks.measure_peaks(CPU, peaks.Sizes(1 << 20, 1 << 12, 8))}
    assert found == {
        "dram": (2 * (1 << 20) / 0.5, "byte/s"), "l2": (peaks.ROWS * (1 << 12) / 0.5, "byte/s"),
        "fp64": (2 * 4**3 / 0.5, "flop/s"), **dict.fromkeys(("fp32", "bf16", "int8"), (2 * 8**3 / 0.5, "flop/s")),
    }  # fmt: skip


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "LEAST_S", 0.002)
    monkeypatch.setattr(peaks, "choose_sizes", lambda device: peaks.Sizes(1 << 20, 1 << 16, 128))
    out, facts = tmp_path / "p.csv", tmp_path / "p.json"
    assert peaks.main(["--out", str(out), "--facts", str(facts), "--device", "cpu"]) == 0
    rows = {row["peak"]: float(row["rate"]) for row in csv.DictReader(out.open())}
    assert set(rows) == {"dram", "l2", "fp64", "fp32", "bf16", "int8"} and all(rate > 1e8 for rate in rows.values())
    assert json.loads(facts.read_text())["device_type"] == "cpu"


def test_a_call_is_timed_in_series_that_are_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call takes 2 ms, so 25 make a series of LEAST_S; the best of five series counts."""
    series: list[int] = []
    times = iter([0.002, 0.1, 0.075, 0.05, 0.2, 0.3])
    monkeypatch.setattr(peaks, "_series", lambda work, count, device: (series.append(count), next(times))[1])
    assert peaks.time_call(lambda: None, CPU) == 0.05 / 25 and series == [1, 25, 25, 25, 25, 25]
    # No clock can tell less than a microsecond; of a call that takes longer than a series there is one.
    for once, count in ((0.0, 50_000), (0.2, 1)):
        series.clear()
        times = iter([once, *[1.0] * 5])
        assert peaks.time_call(lambda: None, CPU) == 1.0 / count and series[1] == count


def test_the_cost_of_a_launch_is_that_of_those_after_the_first_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_costs, "time_launches", lambda device: [9.0, 8.0, 0.1, 0.5, 0.3, 0.2, 7.0, 0.4])
    assert launch_costs.main(["--facts", str(tmp_path / "f.json"), "--device", "cpu"]) == 0
    facts = json.loads((tmp_path / "f.json").read_text())
    assert facts["launch_s"] == 0.35 and facts["launches_s"][:2] == [9.0, 8.0] and len(facts["launches_s"]) == 8


def test_a_series_on_a_cpu_lasts_as_long_as_its_calls() -> None:
    assert 0.02 <= peaks._series(lambda: time.sleep(0.004), 5, CPU) < 0.08


GPU = torch.device("cuda", 0)


MS = 1_000_000


def test_a_probe_times_eight_launches_of_products_and_sums_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th takes n seconds, the first two to set up: the median is that of 3 to 8."""
    clock, called = SetClock(0), list[str]()

    def counted(name: str) -> None:
        real = getattr(torch, name)

        def call(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> Any:
            called.append(name)
            assert left.shape == out.shape == (128, 128)
            clock.ns += max(len(called) - 2, 0) * 10**9
            return real(left, right, out=out)

        monkeypatch.setattr(torch, name, call)

    monkeypatch.setattr(launch_costs.recorders, "timer_of", lambda device: clock)
    counted("mm")
    counted("add")
    assert launch_costs.main(["--facts", str(tmp_path / "f.json"), "--device", "cpu"]) == 0
    facts = json.loads((tmp_path / "f.json").read_text())
    assert facts["launches_s"] == [1, 2, 3, 4, 5, 6, 7, 8] and facts["launch_s"] == 5.5
    # Both once before, and each launch is waited for.
    assert called == ["mm", "add"] * 5 and clock.waited == 1 + 8
    assert (facts["device_type"], facts["cuda"], facts["device_uuid"]) == ("cpu", None, None)


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
    asked, eight_bits = list[tuple[int, torch.dtype, bool]](), list[tuple[int, str]]()

    def product(order: int, dtype: torch.dtype, device: torch.device) -> float:
        asked.append((order, dtype, torch.backends.cuda.matmul.allow_tf32))
        return 2.0

    def eight_bit(order: int, name: str, device: torch.device) -> float:
        eight_bits.append((order, name))
        return 1.0

    monkeypatch.setattr(peaks, "_copy", lambda size, device: 4.0)
    monkeypatch.setattr(peaks, "_sums", lambda size, device: 8.0)
    monkeypatch.setattr(peaks, "_product", product)
    monkeypatch.setattr(peaks, "_eight_bit_product", eight_bit)
    found, before = {}, torch.backends.cuda.matmul.allow_tf32
    for capability, device in (((8, 6), GPU), ((9, 0), GPU), ((0, 0), CPU)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, now=capability: now)
        asked.clear()
        rows = peaks.measure_peaks(device, peaks.Sizes(1 << 20, 1 << 10, 100))
        found[capability] = {name: (rate, unit) for name, rate, unit, _ in rows}
        if capability == (9, 0):
            assert asked == [
                (50, torch.float64, False), (100, torch.float32, False), (100, torch.float32, True),
                (100, torch.bfloat16, False), (100, torch.float16, False),
            ]  # fmt: skip
    torch.backends.cuda.matmul.allow_tf32 = before
    assert found[9, 0] == {
        "dram": (2 * 2**20 / 4, "byte/s"), "l2": (256 * 2**10 / 8, "byte/s"), "fp64": (2 * 50**3 / 2, "flop/s"),
        **dict.fromkeys(("fp32", "tf32", "bf16", "fp16"), (2 * 100**3 / 2, "flop/s")),
        **dict.fromkeys(("int8", "fp8"), (2 * 100**3 / 1, "flop/s")),
    }  # fmt: skip
    assert list(found[8, 6])[-1] == "int8" and "fp8" not in found[8, 6]
    assert eight_bits == [(100, "int8"), (100, "int8"), (100, "fp8"), (100, "int8")]
    assert list(found[0, 0]) == ["dram", "l2", "fp64", "fp32", "bf16", "int8"]


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
    assert recorders.CudaClock.between(None, SimpleNamespace(elapsed_time=lambda last: 1.5), None) == 1.5 * MS  # type: ignore[arg-type]
