"""harness/devices: a GPU that is there is used, or one line says why not; a CPU on purpose is said."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from profzoo import run
from profzoo.calibration import peaks
from profzoo.errors import ConfigError
from profzoo.harness import devices
from profzoo.machine import job_limits
from tests.unit.collected import collected

STANDINS = Path(__file__).parents[1] / "tools/standins"
GPU = "GPU-00000000-0000-0000-0000-000000000000"
TINY = ["lstm", "inference", "sequence_length=8", "warmup=0", "window=1"]
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a GPU nor a variable that names one."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # The folder of a tool may hold nvidia-smi too.
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}")


@pytest.fixture
def pretended(bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that nvidia-smi shows, and torch does not see."""
    monkeypatch.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}:/usr/bin:/bin")


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize("visible", [None, GPU, "0"])
def test_a_gpu_that_torch_does_not_see_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path, visible: str | None
) -> None:
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert run.main([*TINY, "--facts", str(tmp_path / "f")]) == 2
    assert peaks.main(["--out", str(tmp_path / "p")]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == printed.count("profzoo: ") == 2 and not list(tmp_path.iterdir())
    for line in printed.splitlines():
        assert "nvidia-smi shows NVIDIA H200, but torch " in line
        assert "sees no GPU: Found no NVIDIA driver on your system; `snakemake doctor`" in line


@pytest.mark.parametrize("visible", ["0", GPU, "MIG-1"])
def test_a_granted_gpu_without_nvidia_smi_is_an_error(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(ConfigError, match=f"CUDA_VISIBLE_DEVICES = '{visible}' names one, but torch"):
        devices.choose_device("auto")


@pytest.mark.usefixtures("pretended")
def test_a_granted_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-11111111")
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES = 'GPU-11111111' names one, but torch"):
        devices.choose_device("auto")


def test_an_old_driver_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA A100, 535.183.01, GPU-a, 40960 MiB'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    with pytest.raises(ConfigError, match=r"driver 535\.183\.01 is too old for CUDA 13\.0, which needs 580 or later; "):
        devices.choose_device("auto")


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize(
    ("words", "visible", "why"),
    [
        (["device=cpu"], None, "device = cpu, though NVIDIA H200 is here"),
        ([], "-1", "CUDA_VISIBLE_DEVICES = '-1' hides NVIDIA H200"),
        ([], "", "CUDA_VISIBLE_DEVICES = '' hides NVIDIA H200"),
    ],
)
def test_a_cpu_on_purpose_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path,
    words: list[str], visible: str | None, why: str,
) -> None:  # fmt: skip
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert run.main([*TINY, *words, "--facts", str(tmp_path / "f")]) == 0
    facts = json.loads((tmp_path / "f").read_text())
    assert (facts["device_type"], facts["device_uuid"], facts["device_why"]) == ("cpu", None, why)
    assert f"threads ({why}): 1 steps" in capsys.readouterr().out


def test_a_machine_without_a_gpu_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert run.main([*TINY, "--facts", str(tmp_path / "f")]) == 0
    why = json.loads((tmp_path / "f").read_text())["device_why"]
    assert why == "no GPU found: nvidia-smi is not on PATH" and why in capsys.readouterr().out


@pytest.mark.usefixtures("pretended")
def test_a_job_that_was_given_a_gpu_fails_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv(job_limits.LIMITS, json.dumps({"locks": str(tmp_path / "locks")}))
    command = [sys.executable, "-m", "models.run", *TINY, "--facts", str(tmp_path / "s.json")]
    assert collected(tmp_path, *command, cell={"device": "auto"}) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1 and "nvidia-smi shows NVIDIA H200, but torch" in printed
    assert not (tmp_path / "s.json").exists()
