"""lib/gpus and the collecting wrapper: which GPU a job takes, and what it tells the profiled process."""

import json
import os
import sys
from pathlib import Path

import pytest

from workflow.scripts import collect
from workflow.scripts.lib import gpu_slots, gpus

FOUND = [{"gpu": f"GPU {name}", "gpu_uuid": f"GPU-{name}-1"} for name in "abc"]
ROWS = "\n".join(f"NVIDIA {name}, 580.1, GPU-{name}-1, 143771 MiB" for name in "abc")
# Leaves what the profiled process sees of GPUs and temporary folders.
PROBE = """
import json, os, sys
seen = {key: os.environ.get(key) for key in ("CUDA_VISIBLE_DEVICES", "TMPDIR")}
open(sys.argv[1], "w").write(json.dumps({"torch": "2", "seen": seen, "exists": os.path.isdir(seen["TMPDIR"])}))
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose nvidia-smi shows three GPUs, and whose jobs lock them in a folder of its own."""
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'EOF'\n{ROWS}\nEOF\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    taken, folder = gpu_slots.taken, tmp_path / "locks"
    monkeypatch.setattr(gpu_slots, "taken", lambda *given: taken(*given, folder))
    return tmp_path


def job(folder: Path, device: str = "auto") -> dict:
    """The sidecar of a job of the wrapper."""
    sidecar = folder / "s.json"
    given = {"tool": "time", "cell": {"device": device}, "environment": []}
    words = ["--job", json.dumps(given), "--sidecar", str(sidecar), "--log", str(folder / "log")]
    assert collect.main([*words, "--", sys.executable, "-c", PROBE, str(sidecar)]) == 0
    return json.loads(sidecar.read_text())


@pytest.mark.parametrize(
    ("word", "name"), [("1", "GPU b"), ("GPU-c", "GPU c"), ("GPU-c-1", "GPU c"), ("MIG-7", "GPU a")]
)
def test_a_gpu_is_named_by_number_or_uuid(word: str, name: str) -> None:
    assert gpus.named(word, FOUND)["gpu"] == name


def test_a_job_takes_a_free_gpu_and_a_temporary_folder_of_its_own(machine: Path) -> None:
    first, second = job(machine), job(machine)
    assert first["seen"]["CUDA_VISIBLE_DEVICES"] == first["gpu_uuid"] == "GPU-a-1" and first["gpu"] == "NVIDIA a"
    assert first["exists"] and not Path(first["seen"]["TMPDIR"]).exists()
    assert second["seen"]["TMPDIR"] != first["seen"]["TMPDIR"]


def test_a_job_leaves_a_gpu_that_is_taken(machine: Path) -> None:
    uuids = [gpu["gpu_uuid"] for gpu in gpus.present()]
    with gpu_slots.taken(1, uuids, uuids, print):
        assert job(machine)["gpu"] == "NVIDIA b"


def test_a_job_keeps_to_what_the_batch_system_gave_it(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    sidecar = job(machine)
    assert sidecar["seen"]["CUDA_VISIBLE_DEVICES"] == "2" and sidecar["gpu"] == "NVIDIA c"


@pytest.mark.parametrize(("device", "given", "seen"), [("cpu", None, None), ("auto", "", ""), ("cpu", "1", "1")])
def test_a_job_without_a_gpu_takes_none(
    machine: Path, monkeypatch: pytest.MonkeyPatch, device: str, given: str | None, seen: str | None
) -> None:
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    sidecar = job(machine, device)
    assert sidecar["seen"]["CUDA_VISIBLE_DEVICES"] == seen and "gpu" not in sidecar
