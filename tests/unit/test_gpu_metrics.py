"""Sampled GPU metrics: what they say of real steps agrees with the kernels of the same trace, whose times are known."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables
from profzoo.io.scripts import write_csv
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.trace import open_trace
from profzoo.tools.nsys.over_time import gpu_memory, gpu_metrics
from profzoo.tools.nsys.over_time.gpu_metrics import find_quantity
from profzoo.tools.nsys.pictures import tracks
from tests import sampled_traces, slow

EVERY = 100_000
SM, TENSOR, DRAM_READ, DRAM_WRITE = (
    f"{name} [Throughput %]" for name in ("SMs Active", "Tensor Active", "DRAM Read Bandwidth", "DRAM Write Bandwidth")
)
CLOCK = "GPC Clock Frequency [MHz]"


def kernels_of(path: Path) -> np.ndarray:
    with closing(sqlite3.connect(path)) as database:
        return np.array(database.execute("SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall())


def shares(spans: np.ndarray, times: np.ndarray) -> np.ndarray:
    """What of each sample's time spans cover, in whole percent, as nsys has it."""
    lengths = np.cumsum(np.diff(spans)[:, 0])
    covered = np.column_stack([lengths - np.diff(spans)[:, 0], lengths]).ravel()
    until = [np.interp(moments, spans.ravel(), covered) for moments in (times, times + EVERY)]
    return np.round(100 * (until[1] - until[0]) / EVERY).astype(int)


@cache
def times_and_shares(source: Path) -> tuple[np.ndarray, np.ndarray]:
    """When the recorded training is sampled, every 100 us, and how much of each sample its kernels take."""
    spans = intervals.union(kernels_of(source))
    times = np.arange(spans[0, 0] - 500 * EVERY, spans[-1, 1] + 10 * EVERY, EVERY)
    return times, shares(spans, times)


def sampled(source: Path, folder: Path, raw: bool = True, without: str = "") -> Path:
    """The recorded training with samples as hardware would count them; without: metric to leave out."""
    path = sampled_traces.copy_trace(source, folder / "t.sqlite")
    times, active = times_and_shares(source)
    metrics = {
        SM: active,
        TENSOR: active // 2,
        DRAM_READ: active // 5,
        DRAM_WRITE: np.where(active > 0, 10, 0),
        CLOCK: np.full(len(times), 1_755_000_000),
        "NVLink RX Requests User Data [Throughput %]": np.full(len(times), 3),
        "NVLink RX Responses User Data [Throughput %]": np.full(len(times), 4),
        "Compute Warps in Flight [Avg]": np.full(len(times), -7),
    }
    sampled_traces.add_metrics(path, times, {name: one for name, one in metrics.items() if name != without}, raw)
    return path


@pytest.mark.parametrize("raw", slow.first([True, False]))
def test_samples_say_as_much_of_each_step_as_its_kernels(recording: Callable, tmp_path: Path, raw: bool) -> None:
    path = sampled(recording("nsys/train.sqlite"), tmp_path, raw)
    samples, steps, said = gpu_metrics.tabulate_metrics(path)
    assert said == [] and list(steps["step"]) == list(range(10)) and steps["gpu"].eq(0).all()
    # Independent of the samples: the union of the trace's kernels.
    assert (steps["sm_active_mean_pct"] - 100 * steps["kernel_share"]).abs().max() < 0.5
    assert steps["sm_active_peak_pct"].between(99, 100).all() and steps["sampled_share"].min() > 0.999
    assert steps["nvlink_rx_mean_pct"].to_numpy() == pytest.approx(np.full(10, 7))
    assert steps["pcie_rx_mean_pct"].isna().all()
    # A sample is in one step, and the steps' samples are one after the other.
    assert samples["gpc_clock_hz"].eq(1.755e9).all() and (samples["end_ns"] - samples["start_ns"]).eq(EVERY).all()
    assert samples["start_ns"].is_monotonic_increasing and samples["step"].is_monotonic_increasing
    assert len(samples) == pytest.approx(steps["step_ns"].sum() / EVERY, abs=2)
    # Of the H200 that the trace names: 4,814 GB/s.
    share = np.average(steps["dram_read_mean_pct"], weights=steps["step_ns"]) / 100
    assert steps["dram_read_bytes"].sum() == pytest.approx(share * 4814.304 * steps["step_ns"].sum(), rel=1e-6)
    for name, table, made in (("s", gpu_metrics.METRIC_SAMPLES, samples), ("p", gpu_metrics.STEPS, steps)):
        write_csv(made, str(tmp_path / name))
        pd.testing.assert_frame_equal(csv_tables.read(tmp_path / name, table), made, check_dtype=False)


def test_a_gpu_on_which_the_program_did_nothing_is_in_no_table(recording: Callable, tmp_path: Path) -> None:
    """Copies and kernels of the program on GPU 0 say nothing about GPU 1, which nsys samples too."""
    path = sampled(recording("nsys/train.sqlite"), tmp_path)
    times, _ = times_and_shares(recording("nsys/train.sqlite"))
    sampled_traces.add_metrics(path, times, {SM: np.zeros(len(times)), DRAM_READ: np.zeros(len(times))}, gpu=1)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 8, bytes = 10000000000 WHERE rowid = 1")
        database.commit()
    samples, steps, said = gpu_metrics.tabulate_metrics(path)
    assert set(samples["gpu"]) == set(steps["gpu"]) == {0}
    assert said[-1] == "samples of GPU 1 are in no table, as the traced program did nothing there"
    assert not any(line.startswith("GPU 1:") for line in said)


def test_a_process_that_uses_two_gpus_has_the_metrics_of_both(recording: Callable, tmp_path: Path) -> None:
    """Every fourth kernel ran on GPU 1, and a copy of 1 GB went there from GPU 0."""
    path = sampled_traces.copy_trace(recording("nsys/train.sqlite"), tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 1 WHERE rowid % 4 = 0")
        database.execute("INSERT INTO TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid) SELECT 1, 1, pid FROM "
                         "TARGET_INFO_CUDA_DEVICE LIMIT 1")  # fmt: skip
        copied = "(SELECT rowid FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start LIMIT 1 OFFSET 5)"
        database.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 10, bytes = 1000000000, srcDeviceId = 0, dstDeviceId = 1 "
            f"WHERE rowid = {copied}"
        )
        database.commit()
        spans = {
            gpu: np.array(database.execute(
                "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = ?", (gpu,)).fetchall())
            for gpu in (0, 1)
        }  # fmt: skip
    times = np.arange(spans[0].min() - 20 * EVERY, spans[0].max() + 10 * EVERY, EVERY)
    for gpu, ran in spans.items():
        active = shares(intervals.union(ran), times)
        sampled_traces.add_metrics(path, times, {SM: active, DRAM_READ: 0 * active + 90}, gpu=gpu)
    samples, steps, said = gpu_metrics.tabulate_metrics(path)
    assert said == [] and set(samples["gpu"]) == {0, 1}
    # Each GPU's samples agree with its own kernels, of which GPU 0 has three times as many.
    assert (steps["sm_active_mean_pct"] - 100 * steps["kernel_share"]).abs().max() < 0.5
    first, second = (steps[steps["gpu"] == gpu].reset_index(drop=True) for gpu in (0, 1))
    assert (first["kernel_share"] > 2 * second["kernel_share"]).all()
    assert first["copied_from_bytes"].max() >= 1e9 and second["copied_to_bytes"].max() == pytest.approx(1e9)
    assert second["copied_from_bytes"].sum() == 0 and first["copied_to_bytes"].max() < 1e9
    with open_trace(path) as trace:
        spans = gpu_memory.read_step_spans(trace)
        # Steps divide the time among them.
        assert (spans["end"].iloc[:-1].to_numpy() == spans["start"].iloc[1:].to_numpy()).all()
        assert spans["end"].iloc[-1] >= kernels_of(path)[:, 1].max()
        span = spans.iloc[3]
        step = tracks.TypicalStep(int(span["process"]), int(span["start"]), int(span["end"]))
        found = tracks.supply_gpu_metrics(trace, step)
    assert isinstance(found, pd.DataFrame)
    expected = [f"{name} of GPU {gpu}" for name in ("SMs active", "DRAM read") for gpu in (0, 1)]
    assert [*found["track"].unique()] == expected


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("DROP TABLE GPU_METRICS", "set nsys.gpu_metrics to true"),
        ("DROP TABLE TARGET_INFO_GPU_METRICS", "no table TARGET_INFO_GPU_METRICS"),
        ("ALTER TABLE GPU_METRICS DROP COLUMN value", "no column value in GPU_METRICS"),
        ("DELETE FROM GPU_METRICS", "no sample of a known metric"),
        ("UPDATE TARGET_INFO_GPU_METRICS SET metricName = 'other'", "no sample of a known metric"),
        ("UPDATE GPU_METRICS SET value = -1", "no sample of a known metric"),
        ("UPDATE GPU_METRICS SET timestamp = timestamp + 1000000000000", "no sample of a known metric"),
    ],
)
def test_what_is_missing_is_said_in_a_line(recording: Callable, tmp_path: Path, damage: str, why: str) -> None:
    path = sampled_traces.copy_trace(recording("nsys/train.sqlite"), tmp_path / "t.sqlite")
    times, _ = times_and_shares(recording("nsys/train.sqlite"))
    sampled_traces.add_metrics(path, times[::100], {SM: [50] * len(times[::100])})
    with closing(sqlite3.connect(path)) as database:
        database.execute(damage)
        database.commit()
    samples, steps, said = gpu_metrics.tabulate_metrics(path)
    assert samples.empty and steps.empty and len(said) == 1 and why in said[0] and "\n" not in said[0]


def test_sampling_that_left_nothing_is_told_from_none(recording: Callable, tmp_path: Path) -> None:
    path = sampled_traces.copy_trace(recording("nsys/train.sqlite"), tmp_path / "t.sqlite")
    assert gpu_metrics.tabulate_metrics(path)[2] == [gpu_metrics.NOT_COLLECTED]
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO META_DATA_CAPTURE VALUES ('GPU_METRICS_OPTIONS:SAMPLING_FREQUENCY', '10000')")
        database.commit()
    assert gpu_metrics.tabulate_metrics(path)[2] == [gpu_metrics.NO_SAMPLE]


@pytest.mark.parametrize(
    ("facts", "missed"),
    [
        ({"command": ["nsys", "--gpu-metrics-device=all"]}, ["nsys.gpu_metrics"]),
        ({"command": ["nsys", "--cuda-memory-usage=true"]}, ["nsys.cuda_memory_usage"]),
        ({"command": ["nsys", "profile"]}, ["nsys.gpu_metrics", "nsys.cuda_memory_usage"]),
        ({}, ["nsys.gpu_metrics", "nsys.cuda_memory_usage"]),
        ({"device_type": "cpu"}, ["as the cell ran on a CPU"]),
    ],
)
def test_what_nobody_asked_for_is_missed_in_the_log_alone(
    recording: Callable, tmp_path: Path, facts: dict, missed: list[str]
) -> None:
    (sidecar := tmp_path / "r.json").write_text(json.dumps({"capture": "window", **facts}))
    said: list[str] = []
    made = [str(tmp_path / name) for name in ("metrics.csv", "steps.csv", "memory.csv")]
    gpu_metrics.export_over_time(
        str(recording("nsys/train.sqlite")), str(sidecar), *made, say=lambda line: said.append(str(line))
    )
    assert len(said) == len(missed) and all(word in line for word, line in zip(missed, said, strict=True)), said


def test_samples_of_another_program_or_clock_are_said(recording: Callable, tmp_path: Path) -> None:
    """SMs were active twice as long as the trace's kernels; half of the samples are missing; DRAM took too little."""
    path = sampled(recording("nsys/train.sqlite"), tmp_path)
    with closing(sqlite3.connect(path)) as database:
        first, last = database.execute("SELECT min(timestamp), max(timestamp) FROM GPU_METRICS").fetchone()
        database.execute("UPDATE GPU_METRICS SET value = 100 WHERE metricId = 0")
        database.execute("DELETE FROM GPU_METRICS WHERE timestamp BETWEEN ? AND ?", (first, (first + last) // 2))
        # 40 GB were copied on the GPU.
        database.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 8, bytes = 1000000000 WHERE rowid IN "
            "(SELECT rowid FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start DESC LIMIT 40)"
        )
        database.execute("UPDATE GPU_METRICS SET value = 0 WHERE metricId = 3")
        database.commit()
    _, steps, said = gpu_metrics.tabulate_metrics(path)
    assert steps["copied_to_bytes"].sum() >= 40e9
    assert any("another program used it" in line for line in said), said
    assert any("nsys lost others" in line for line in said), said
    assert any("dram_write_bytes says 0 bytes" in line for line in said), said


def test_lost_samples_of_one_metric_leave_the_others(recording: Callable, tmp_path: Path) -> None:
    """Those of tensor cores; and a generation of GPUs has none of what DRAM reads."""
    path = sampled(recording("nsys/train.sqlite"), tmp_path, without=DRAM_READ)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM GPU_METRICS WHERE metricId = 1 AND rowid % 3 = 0")
        database.commit()
    samples, steps, said = gpu_metrics.tabulate_metrics(path)
    assert samples["dram_read_pct"].isna().all() and steps["dram_read_bytes"].isna().all() and said == []
    assert steps["dram_write_bytes"].notna().all()
    write_csv(samples, str(tmp_path / "s.csv"))
    # Also checks that no two rows are of one time.
    assert len(csv_tables.read(tmp_path / "s.csv", gpu_metrics.METRIC_SAMPLES)) == len(samples)
    assert samples["sm_active_pct"].notna().all()
    assert samples["tensor_active_pct"].isna().mean() == pytest.approx(1 / 3, abs=0.02)
    assert (steps["sm_active_mean_pct"] - 100 * steps["kernel_share"]).abs().max() < 0.5


# By what nsys calls metrics on a generation of GPUs: columns; clocks and the rest are the same on all.
GENERATIONS = {
    "TU10x": {
        "SM Active [Throughput %]": "sm_active_pct",
        "Tensor Active / FP16 Active [Throughput %]": "tensor_active_pct",
        "Dispatch Started [Workloads]": None,
    },
    "GA100 by nsys 2021": {"SM Active": "sm_active_pct", "GPC Clock Frequency": "gpc_clock_hz"},
    "GH100": {
        "SMs Active [Throughput %]": "sm_active_pct",
        "Tensor Active [Throughput %]": "tensor_active_pct",
        "GR Active [Throughput %]": "gr_active_pct",
        "SM Issue [Throughput %]": "sm_issue_pct",
        "Compute Warps in Flight [Throughput %]": "warps_pct",
        "Compute Warps in Flight [Avg]": None,
        "Unallocated Warps in Active SMs [Throughput %]": "unused_warps_pct",
        "DRAM Read Bandwidth [Throughput %]": "dram_read_pct",
        "DRAM Write Bandwidth [Throughput %]": "dram_write_pct",
        "NVLink RX Requests Protocol Data [Throughput %]": "nvlink_rx_pct",
        "NVLink RX Responses User Data [Throughput %]": "nvlink_rx_pct",
        "NVLink TX Requests User Data [Throughput %]": "nvlink_tx_pct",
        "PCIe RX Throughput [Throughput %]": "pcie_rx_pct",
        "PCIe TX Throughput [Throughput %]": "pcie_tx_pct",
        "GPC Clock Frequency [MHz]": "gpc_clock_hz",
        "SYS Clock Frequency [MHz]": "sys_clock_hz",
    },
    "GB20B": {"Async Copy Engine Active 0 [Cycles Active]": None, "Sync Copy Engine Active [Throughput %]": None},
}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_metrics_have_the_same_columns_on_each_generation(generation: str) -> None:
    for metric, column in GENERATIONS[generation].items():
        found = find_quantity(metric)
        assert (found.column if found else None) == column, metric


@pytest.mark.parametrize("value", [1755, 1_755_000_000])
def test_clocks_are_in_hertz_however_nsys_writes_them(recording: Callable, tmp_path: Path, value: int) -> None:
    path = sampled_traces.copy_trace(recording("nsys/train.sqlite"), tmp_path / "t.sqlite")
    sampled_traces.add_metrics(path, range(0, 10**9, 10**6), {CLOCK: [value] * 1000})
    with open_trace(path) as trace:
        found = gpu_metrics.read_samples(trace, 10**8, 2 * 10**8)
    assert isinstance(found, pd.DataFrame) and set(found["value"]) == {1.755e9}
