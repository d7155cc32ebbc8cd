"""Metrics of two GPUs that one process uses, and that two processes use under an nsys each; about a minute."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from profzoo.io import csv_tables
from profzoo.tables.step_timeline import SUPPLIERS
from profzoo.tools.nsys.over_time import gpu_metrics
from profzoo.tools.nsys.pictures import median_step
from profzoo.tools.nsys.steps import streams
from tests.gpu.programs import both_gpus
from tests.gpu.test_two_gpus import QUIET
from tests.gpu.under_nsys import run_under_nsys

pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="fewer than two NVIDIA GPUs are visible to torch here"
)
PROJECT = Path(__file__).parents[2]


def test_a_process_on_two_gpus_has_streams_and_metrics_of_both(tmp_path: Path) -> None:
    export, done = run_under_nsys(both_gpus.__name__, tmp_path, gpu_metrics=True)
    assert done.returncode == 0, done.stdout + done.stderr
    _, steps, said = gpu_metrics.tabulate_metrics(export)
    print(steps.T.to_string(), said)
    assert not said and len(steps) == 2 * both_gpus.STEPS
    # Copies between GPUs do not occupy SMs, or hardly.
    assert steps["sm_active_mean_pct"].to_numpy() == pytest.approx(100 * steps["kernel_share"].to_numpy(), abs=3)
    first, second = (steps[steps["gpu"] == gpu].set_index("step") for gpu in (0, 1))
    assert (first["kernel_share"] / second["kernel_share"]).to_numpy() == pytest.approx([2] * both_gpus.STEPS, rel=0.1)
    moved = both_gpus.COPIES * both_gpus.GIB
    assert first["copied_from_bytes"].to_numpy() == pytest.approx([moved] * both_gpus.STEPS, rel=0.02)
    assert second["copied_to_bytes"].to_numpy() == pytest.approx([moved] * both_gpus.STEPS, rel=0.02)
    assert not first["copied_to_bytes"].any() and not second["copied_from_bytes"].any()
    of_streams, _ = streams.tabulate_streams(export)
    print(of_streams.to_string())
    assert of_streams[of_streams["stream"] == "all"]["kernels"].tolist() == [*both_gpus.PASSES]
    timeline, spans = median_step.read_step_with_tracks(export, suppliers=SUPPLIERS) or ({}, None)
    assert timeline and spans is not None
    # Which number a stream has is the driver's choice.
    assert {re.sub(r"^\d+ ", "", name) for name in timeline["streams"]} == {"of GPU 0", "of GPU 1"}
    assert {"SMs active of GPU 0", "SMs active of GPU 1"} <= {*spans["track"]}


def test_each_process_of_a_cell_on_two_gpus_can_be_sampled(tmp_path: Path) -> None:
    """Each process runs under an nsys of its own, and both are to sample the GPUs."""
    target = f"{tmp_path}/lstm/train.nsys-metrics-steps.csv"
    given = ["models=lstm", "phases=train", "gpus=2", f"pathvars={{results: {tmp_path}}}"]
    given += ["nsys={window: 20, gpu_metrics: true}"]
    given += ["variables=TORCH_SYMM_MEM_DISABLE_MULTICAST,NVSHMEM_DISABLE_NVLS"]
    words = [sys.executable, "-m", "snakemake", "--nolock", target, "--resources", "gpu=2", "--config", *given]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False, env={**os.environ, **QUIET})
    assert done.returncode == 0, done.stdout + done.stderr
    steps = csv_tables.read(target, gpu_metrics.STEPS)
    print(done.stdout, steps.T.to_string())
    assert steps["sm_active_mean_pct"].notna().sum() >= 10
