"""The allocator on a real GPU: retries and unused memory are noted of steps that plant them, and not of their twins.

Each program runs in a process of its own that may use 2 GiB: its tensors never need more than half of that at a time.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
MIB, LIMIT_MIB, WARMUP, STEPS = 2**20, 2048, 2, 8
# Sizes in MiB of the one tensor of each step, by program: of growing ones, no free block fits the next.
SIZES = {
    "growing": [300 + 60 * step for step in range(WARMUP + STEPS)],
    "equal": [840] * (WARMUP + STEPS),
    "growing before the window": [500, 900, *[300] * STEPS],
}
PROGRAM = f"""
import json, sys
from pathlib import Path
import torch
from profzoo.harness.observers import recorders

device = torch.device("cuda", 0)
torch.cuda.set_per_process_memory_fraction({LIMIT_MIB * MIB} / torch.cuda.get_device_properties(0).total_memory, 0)
timer = recorders.StepTimer(device, Path(sys.argv[1]))
for step, size in enumerate(json.loads(sys.argv[2])):
    if step == {WARMUP}:
        timer.start()
    torch.empty(size * {MIB}, dtype=torch.uint8, device=device).zero_()
    if step >= {WARMUP}:
        timer.step(1)
timer.stop()
print("FOUND" + json.dumps(recorders.describe_window(timer)))
"""


def noted(program: str, folder: Path, **variables: str) -> dict[str, Any]:
    """What a process noted of its window."""
    words = [sys.executable, "-c", PROGRAM, str(folder / "steps.csv"), json.dumps(SIZES[program])]
    paths = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": paths} | variables
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.partition("FOUND")[2])
    print(program, variables, found)
    return found


def test_tensors_that_fit_no_free_block_cause_retries(tmp_path: Path) -> None:
    found = noted("growing", tmp_path)["allocator"]
    assert found["retries"] >= 1 and found["failures"] == 0
    # One block for each step, as none fits; those before a retry are given back by it.
    assert found["driver_allocations"] == STEPS and found["driver_frees"] >= 2
    assert found["used_peak_bytes"] == max(SIZES["growing"]) * MIB
    assert found["limit_bytes"] == pytest.approx(LIMIT_MIB * MIB, rel=0.01)


def test_tensors_of_one_size_cause_none(tmp_path: Path) -> None:
    found = noted("equal", tmp_path)["allocator"]
    assert found["retries"] == found["driver_allocations"] == found["driver_frees"] == 0
    assert found["reserved_bytes"] == found["used_peak_bytes"] == 840 * MIB


def test_the_advised_setting_cures_them(tmp_path: Path) -> None:
    found = noted("growing", tmp_path, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")["allocator"]
    assert found["retries"] == 0 and found["used_peak_bytes"] == max(SIZES["growing"]) * MIB


def test_memory_that_no_tensor_used_is_told(tmp_path: Path) -> None:
    found = noted("growing before the window", tmp_path)["allocator"]
    assert found["retries"] == 0
    assert found["reserved_bytes"] == 1400 * MIB and found["used_peak_bytes"] == 900 * MIB
