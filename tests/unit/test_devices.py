"""harness/devices: a GPU that is there is used, or one line says why not; a CPU on purpose is said."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from profzoo import run
from profzoo.calibration import peaks
from profzoo.errors import ConfigError
from profzoo.harness import devices
from profzoo.machine import gpus, job_limits
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
@pytest.mark.parametrize("visible", [None, GPU])
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


@pytest.mark.usefixtures("pretended")
def test_a_cpu_on_purpose_is_said(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    assert run.main([*TINY, "device=cpu", "--facts", str(tmp_path / "f")]) == 0
    facts, why = json.loads((tmp_path / "f").read_text()), "device = cpu, though NVIDIA H200 is here"
    assert (facts["device_type"], facts["device_uuid"], facts["device_why"]) == ("cpu", None, why)
    assert f"threads ({why}): 1 steps" in capsys.readouterr().out


@pytest.mark.slow
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


CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
FOUND = [{"gpu": "A", "driver": "579.1", "gpu_uuid": "GPU-1"}, {"gpu": "A", "driver": "580.1", "gpu_uuid": "GPU-2"}]


@pytest.mark.parametrize(
    ("asked", "found", "visible", "said"),
    [
        ("auto", [], None, None), ("cpu", FOUND, None, None), ("auto", FOUND, "-1", None), ("auto", FOUND, "", None),
        ("cuda", [], None, "^device = 'cuda', but torch"), ("auto", [], "0", "and CUDA_VISIBLE_DEVICES = '0' names one, but"),
        ("auto", FOUND, None, "and nvidia-smi shows A, but .* driver 579.1 is too old for CUDA 13.0, which needs 580 or later; "),
        ("auto", FOUND, "1", r"shows A, but torch .* \(CUDA 13.0\) sees no GPU: why not;"),
        ("auto", FOUND, "GPU-11", "CUDA_VISIBLE_DEVICES = 'GPU-11' names one, but torch"),
    ],
)  # fmt: skip
def test_a_gpu_that_torch_cannot_use_is_told(
    monkeypatch: pytest.MonkeyPatch, asked: str, found: list[dict], visible: str | None, said: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(gpus, "query_nvidia_smi", lambda: (found, "" if found else "none is there"))
    monkeypatch.setattr(devices, "read_torch_reason", lambda: "why not")
    if visible is not None:
        monkeypatch.setenv(gpus.VISIBLE, visible)
    if said:
        with pytest.raises(ConfigError, match=said):
            devices.choose_device(asked)
        return
    assert devices.choose_device(asked) == CPU
    why = {"auto": f"CUDA_VISIBLE_DEVICES = '{visible}' hides A", "cpu": "device = cpu, though A is here"}
    assert devices.explain_cpu(asked, CPU) == (why[asked] if found else "no GPU found: none is there")
    assert devices.explain_cpu(asked, CUDA) is None and devices.read_uuid(CPU) is None


def test_a_gpu_is_taken_by_its_number_and_named_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.choose_device("auto", 3) == torch.device("cuda", 3) and devices.choose_device("cuda") == CUDA
    for given in ("GPU-1a", "1a"):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=given))  # noqa: B023
        assert devices.read_uuid(CUDA) == "GPU-1a"
    for error, said in ((RuntimeError("No driver. Get one at x"), "No driver"), (AssertionError(""), "AssertionError"),
                        (RuntimeError("a\nb"), "a")):  # fmt: skip

        def init(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(torch.cuda, "init", init)
        assert devices.read_torch_reason() == said
