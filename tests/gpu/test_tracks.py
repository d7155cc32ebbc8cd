"""GPU metrics, GPU memory and tracks of a program whose use of the GPU is known at each moment.

The two runs of nsys take about a minute. `-s` shows what was measured beside what is known.
"""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables
from profzoo.range_names import STEP, make_nvtx_name
from profzoo.tables.step_timeline import SUPPLIERS
from profzoo.tools.nsys.events import intervals
from profzoo.tools.nsys.events.trace import RANGE_TEXT, open_trace
from profzoo.tools.nsys.over_time import gpu_memory, gpu_metrics
from profzoo.tools.nsys.pictures import median_step, tracks
from tests.gpu.programs import over_time
from tests.gpu.under_nsys import run_under_nsys

PROJECT = Path(__file__).parents[2]
# What is at the edges of a section and left out: launching, waiting, and two samples.
EDGE = 1_000_000


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of the program under nsys, by the options that the workflow gives it."""
    folder = tmp_path_factory.mktemp("tracks")
    path, run = run_under_nsys(over_time.__name__, folder, gpu_metrics=True, cuda_memory_usage=True)
    said = run.stdout + run.stderr
    if "NVGPUCTRPERM" in said:
        pytest.skip("this user may not read the GPU's performance counters, which nsys samples")
    assert run.returncode == 0, said
    print(said)
    return path


def query(export: Path, words: str, *given: object) -> np.ndarray:
    with closing(sqlite3.connect(export)) as database:
        return np.array(database.execute(words, given).fetchall(), dtype=np.int64).reshape(-1, 2)


@pytest.fixture(scope="module")
def section(export: Path) -> Callable[[str], np.ndarray]:
    """Start and end in ns of a section in each step."""

    def find(name: str) -> np.ndarray:
        found = query(export, f"SELECT start, end FROM NVTX_EVENTS WHERE {RANGE_TEXT} = ? ORDER BY start", name)
        assert len(found) == over_time.STEPS, (name, found)
        return found

    return find


@pytest.fixture(scope="module")
def samples(export: Path) -> pd.DataFrame:
    steps = query(export, f"SELECT start, end FROM NVTX_EVENTS WHERE {RANGE_TEXT} = ?", make_nvtx_name(STEP))
    with open_trace(export) as trace:
        found = gpu_metrics.read_samples(trace, int(steps.min()), int(steps.max()))
    assert isinstance(found, pd.DataFrame), found
    # The program runs on the first GPU alone.
    return found[found["gpu"] == 0]


def mean(samples: pd.DataFrame, quantity: str, spans: np.ndarray) -> float:
    mine = samples[samples["quantity"] == quantity]
    assert len(mine), f"no {quantity} among {sorted(samples['quantity'].unique())}"
    total = weight = 0.0
    for start, end in spans:
        inside = (mine["end"].clip(upper=end) - mine["start"].clip(lower=start)).clip(lower=0)
        total, weight = total + float((mine["value"] * inside).sum()), weight + float(inside.sum())
    return total / weight


def kernels_in(export: Path, spans: np.ndarray) -> np.ndarray:
    ran = intervals.union(query(export, "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL"))
    return intervals.intersect(ran, intervals.union(spans))


def inner(spans: np.ndarray) -> np.ndarray:
    return np.array([[start + EDGE, end - EDGE] for start, end in spans])


def test_sms_are_active_while_kernels_run_and_not_else(
    export: Path, samples: pd.DataFrame, section: Callable[[str], np.ndarray]
) -> None:
    spans = section("stream")
    busy = kernels_in(export, spans)
    active_ns = mean(samples, "sm_active", spans) / 100 * intervals.total(spans)
    print("stream: SMs were active for", active_ns / 1e6, "ms; its kernels took", intervals.total(busy) / 1e6, "ms")
    assert active_ns == pytest.approx(intervals.total(busy), rel=0.02)
    idle = mean(samples, "sm_active", inner(section("sleep")))
    print("sleep: SMs were active for", idle, "%")
    assert idle < 1 and mean(samples, "dram_read", inner(section("sleep"))) < 2
    product = kernels_in(export, section("product"))
    tensor = mean(samples, "tensor_active", product), mean(samples, "tensor_active", busy)
    print("tensor cores:", tensor, "% in products and in the stream")
    assert tensor[0] > 30 and tensor[1] < 1


def test_samples_begin_when_the_trace_says(
    export: Path, samples: pd.DataFrame, section: Callable[[str], np.ndarray]
) -> None:
    """The shift of samples against kernels that fits best is less than half of a millisecond."""
    mine = samples[samples["quantity"] == "sm_active"]
    busy = kernels_in(export, section("stream"))
    shifts = np.arange(-20, 21) * 50_000
    fits = [mean(mine, "sm_active", busy + shift) for shift in shifts]
    best = shifts[int(np.argmax(fits))]
    every = (mine["end"] - mine["start"]).median()
    near = {int(shift): round(fit, 2) for shift, fit in zip(shifts, fits, strict=True) if abs(shift - best) <= 200_000}
    print("best shift of kernels:", best, "ns; interval:", every, "ns; % of SMs by shift:", near)
    assert abs(best) < 500_000 and every == pytest.approx(100_000, rel=0.05)


def test_dram_moves_the_bytes_that_are_known(
    export: Path, samples: pd.DataFrame, section: Callable[[str], np.ndarray]
) -> None:
    (peak,) = query(export, "SELECT memoryBandwidth, id FROM TARGET_INFO_GPU ORDER BY id")[:1]
    for name, times in (("stream", over_time.STREAMED), ("copy", over_time.COPIED)):
        known = times * over_time.GIB * over_time.STEPS
        spans = section(name)
        moved = [
            mean(samples, quantity, spans) / 100 * peak[0] * intervals.total(spans) / 1e9
            for quantity in ("dram_read", "dram_write")
        ]
        print(f"{name}: DRAM read and wrote {moved[0] / known:.3f} and {moved[1] / known:.3f} of the known bytes")
        assert moved == pytest.approx([known, known], rel=0.02)
    upload = mean(samples, "pcie_rx", inner(section("upload"))), mean(samples, "pcie_rx", inner(section("sleep")))
    print("PCIe to the GPU:", upload, "% in uploads and in sleep")
    assert upload[0] > 20 and upload[1] < 2


def test_tables_say_the_same_and_contradict_nothing(export: Path, tmp_path: Path) -> None:
    (tmp_path / "rep.json").write_text('{"capture": "window"}')
    made = [str(tmp_path / name) for name in ("metrics.csv", "steps.csv", "memory.csv")]
    said: list[str] = []
    gpu_metrics.export_over_time(
        str(export), str(tmp_path / "rep.json"), *made, say=lambda line: said.append(str(line))
    )
    print(*said, sep="\n")
    # Releases before 2025.3 do not tell what was allocated before the window, and a machine may have other GPUs.
    known = ("allocated before the window", "as the traced program did nothing there")
    assert all(any(part in line for part in known) for line in said), said
    metrics = csv_tables.read(made[0], gpu_metrics.METRIC_SAMPLES)
    steps = csv_tables.read(made[1], gpu_metrics.STEPS)
    print(steps.T.to_string())
    assert list(steps["step"]) == list(range(over_time.STEPS)) and steps["sampled_share"].iloc[1:].min() > 0.95
    assert set(metrics["step"]) == set(range(over_time.STEPS)) and 1e8 < metrics["gpc_clock_hz"].median() < 4e9
    copied = over_time.COPIED * over_time.GIB
    assert steps["copied_from_bytes"].sum() == pytest.approx(copied * over_time.STEPS, rel=0.02)
    uploaded = over_time.UPLOADED * over_time.UPLOAD
    assert steps["copied_to_bytes"].sum() == pytest.approx((copied + uploaded) * over_time.STEPS, rel=0.02)


def test_memory_is_taken_and_freed_when_the_program_does(export: Path, section: Callable[[str], np.ndarray]) -> None:
    table, _ = gpu_memory.tabulate_memory(export)
    print(table.to_string())
    kept = table[(table["kind"] == "device") & (table["operation"] == "before")]
    if len(kept):
        # Tensors of the program, and what torch and cuBLAS hold besides.
        known = 3 * over_time.GIB + 3 * 2 * over_time.SIDE**2 + over_time.UPLOAD
        assert known <= kept["bytes"].item() < known + (200 << 20)
    blocks = table[(table["bytes"] == over_time.BLOCK) & (table["operation"] != "before")]
    assert list(blocks["operation"]) == ["allocation", "free"] * over_time.STEPS and set(blocks["kind"]) == {"device"}
    assert list(blocks["step"]) == [step for step in range(over_time.STEPS) for _ in range(2)]
    first = query(export, f"SELECT start, end FROM NVTX_EVENTS WHERE {RANGE_TEXT} = ?", make_nvtx_name(STEP)).min()
    held = blocks["t_ns"].to_numpy().reshape(-1, 2) + first
    assert ((held > section("memory")[:, :1]) & (held < section("memory")[:, 1:])).all()
    assert held[:, 1] - held[:, 0] == pytest.approx(over_time.SLEEP_S * 1e9, rel=0.1)
    assert gpu_memory.TABLE.holds(table) is None and blocks["in_use_bytes"].iloc[::2].min() >= over_time.BLOCK


def test_tracks_of_the_typical_step_show_each_section(export: Path) -> None:
    found = median_step.read_step_with_tracks(export, False, SUPPLIERS)
    assert found
    timeline, spans = found
    assert tracks.TABLE.holds(spans) is None and len(json.dumps(timeline)) < 500_000
    assert not [line for line in timeline["not_collected"] if "gpu_metrics" in line or "memory_usage" in line]
    names = [track["name"] for track in timeline["tracks"]]
    print(names, timeline["not_collected"])
    assert {"SMs active", "tensor cores", "DRAM read", "DRAM write", "PCIe to GPU", "memory: device"} <= set(names)
    of_sms = spans[spans["track"] == "SMs active"]
    covered = (of_sms["end_ns"] - of_sms["start_ns"]).sum() / timeline["ns"]
    assert covered == pytest.approx(1, abs=0.02) and of_sms["value"].max() >= 98


def test_the_workflow_makes_tables_and_tracks(tmp_path: Path) -> None:
    targets = [
        f"{tmp_path}/lstm/train.{name}" for name in ("nsys-metrics-steps.csv", "nsys-memory.csv", "timeline.json")
    ]
    given = [
        "models=lstm",
        f"pathvars={{results: {tmp_path}}}",
        "nsys={window: 40, gpu_metrics: true, cuda_memory_usage: true}",
    ]
    words = [sys.executable, "-m", "snakemake", "--nolock", *targets, "--config", *given]
    answer = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    steps = csv_tables.read(targets[0], gpu_metrics.STEPS)
    print(steps.T.to_string())
    assert len(steps) == 40 and steps["sm_active_mean_pct"].notna().sum() >= 20
    drawn = [track["name"] for track in json.loads(Path(targets[2]).read_text())["tracks"]]
    assert "SMs active" in drawn, drawn
