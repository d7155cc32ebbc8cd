"""The clock of a real GPU at both ends of a window: it is NVML's, of a GPU at work, and reading it costs no step time."""

import statistics
import time
from pathlib import Path

import pynvml
import torch

from profzoo.harness import devices
from profzoo.harness.observers import recorders
from profzoo.tools.sample import gpu_state

WARMUP, STEPS = 5, 20


def run_window(folder: Path) -> recorders.StepTimer:
    """Steps of products that keep the GPU busy, long behind the host."""
    device = torch.device("cuda", 0)
    matrix = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    timer = recorders.StepTimer(device, folder / "steps.csv")
    for step in range(WARMUP + STEPS):
        if step == WARMUP:
            timer.start()
        for _ in range(10):
            torch.mm(matrix, matrix)
        if step >= WARMUP:
            timer.step(1)
    timer.stop()
    return timer


def test_clocks_of_a_gpu_at_work(tmp_path: Path) -> None:
    timer = run_window(tmp_path)
    print(timer.clocks)
    assert timer.clocks is not None
    before, after = timer.clocks
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(devices.read_uuid(timer.device))
    highest = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM) * 10**6
    assert all(highest / 4 < one["sm_clock_hz"] <= highest for one in (before, after))
    # While it works it is not idle, so that both readings count.
    assert not (before["throttle_reasons"] | after["throttle_reasons"]) & gpu_state.IDLE
    found = gpu_state.summarise_clocks(timer.clocks)
    assert found is not None and found.high_hz == max(before["sm_clock_hz"], after["sm_clock_hz"])


def test_a_reading_takes_less_than_a_millisecond() -> None:
    clocks, took = recorders.GpuClocks(devices.read_uuid(torch.device("cuda", 0))), []
    for _ in range(20):
        began = time.perf_counter()
        assert clocks.read()
        took.append(time.perf_counter() - began)
    clocks.close()
    print(f"a reading takes {1e3 * statistics.median(took):.3f} ms, at most {1e3 * max(took):.3f} ms")
    assert statistics.median(took) < 1e-3
