"""Which GPUs there are, which a job takes, and what it tells the profiled process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from profzoo.errors import ConfigError
from profzoo.machine import external_programs, gpu_slots, gpus, job_limits
from tests.unit.collected import collected

PROJECT = Path(__file__).parents[2]
FOUND = [{"gpu": f"GPU {name}", "gpu_uuid": f"GPU-{name}-1"} for name in "abc"]
ROWS = "\n".join(f"NVIDIA {name}, 580.1, GPU-{name}-1, 143771 MiB" for name in "abc")
# Leaves what the profiled process sees of GPUs and temporary folders.
PROBE = """
import json, os, sys
seen = {key: os.environ.get(key) for key in ("CUDA_VISIBLE_DEVICES", "TMPDIR")}
facts = {"torch": "2", "seen": seen, "exists": os.path.isdir(seen["TMPDIR"])} | json.loads(sys.argv[2])
open(sys.argv[1], "w").write(json.dumps(facts))
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose nvidia-smi shows three GPUs, and whose jobs lock them in a folder of its own."""
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'EOF'\n{ROWS}\nEOF\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv(job_limits.LIMITS, json.dumps({"locks": str(tmp_path / "locks")}))
    return tmp_path


def job(folder: Path, device: str = "auto", code: int = 0, cell: dict | None = None, **facts: object) -> dict:
    """The sidecar of a job of the wrapper, whose command leaves these facts; empty where it fails, as code says."""
    sidecar = folder / "s.json"
    # What fails leaves that of an earlier one.
    sidecar.unlink(missing_ok=True)
    program = [sys.executable, "-c", PROBE, str(sidecar), json.dumps(facts)]
    assert collected(folder, *program, leaves=(), cell={"device": device} | (cell or {})) == code
    return json.loads(sidecar.read_text()) if sidecar.exists() else {}


LISTS = ["", "-1", "0", "2", "2,0", "0,2,-1,1", "1,7,0", "7", "0,0", "NoDevFiles", "1gpu2,2ampere", " 1 , 2 ", "0,,1"]
LISTS += [
    "GPU-a-1", "GPU-c", "GPU-", "GPU-c,GPU-a", "GPU-a,GPU-a-1", "GPU-b,GPU-z,GPU-a", "GPU-a,1", "1,GPU-a", "GPU-z",
]  # fmt: skip


@pytest.mark.parametrize("listed", LISTS)
def test_candidates_are_what_cuda_sees(monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    """torch has to know without CUDA which GPUs that will show, and reads the variable by CUDA's rules."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    uuids = [gpu["gpu_uuid"] for gpu in FOUND]
    seen = torch.cuda._parse_visible_devices()
    if seen and isinstance(seen[0], str):
        seen = torch.cuda._transform_uuid_to_ordinals(seen, uuids)
    # Numbers of GPUs that are not there end the list as well.
    numbers = seen[: next((at for at, number in enumerate(seen) if number >= len(uuids)), None)]
    found = gpus.choose_candidates({"CUDA_VISIBLE_DEVICES": listed, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, FOUND)
    assert found == [uuids[number] for number in numbers]


def test_parts_of_gpus_keep_their_words() -> None:
    given = {"CUDA_VISIBLE_DEVICES": "MIG-1, MIG-GPU-a-1/2/0"}
    assert gpus.choose_candidates(given, FOUND) == ["MIG-1", "MIG-GPU-a-1/2/0"]
    # Of which GPU they are is not known: what differs between these is not said.
    assert gpus.describe_gpu("MIG-1", FOUND) == {"gpu_uuid": "MIG-1"}
    assert gpus.describe_gpu("MIG-1", FOUND[:1]) == {"gpu": "GPU a", "gpu_uuid": "MIG-1"}


@pytest.mark.parametrize(("listed", "order", "refused"), [
    ("1", None, True), ("0,2", "FASTEST_FIRST", True), ("1", "PCI_BUS_ID", False), ("2,0,1", None, False),
    ("-1", None, False), ("GPU-b", None, False),
])  # fmt: skip
def test_numbers_of_gpus_of_several_kinds_are_refused(listed: str, order: str | None, refused: bool) -> None:
    """CUDA counts the fastest first, nvidia-smi by the PCI bus: 1 may be another GPU for either."""
    given = {"CUDA_VISIBLE_DEVICES": listed} | ({"CUDA_DEVICE_ORDER": order} if order else {})
    if refused:
        with pytest.raises(ConfigError, match=r"give UUIDs .* or set CUDA_DEVICE_ORDER=PCI_BUS_ID"):
            gpus.choose_candidates(given, FOUND)
    else:
        gpus.choose_candidates(given, FOUND)


def test_numbers_of_gpus_of_one_kind_are_nvidia_smis() -> None:
    alike = [gpu | {"gpu": "the same"} for gpu in FOUND]
    assert gpus.choose_candidates({"CUDA_VISIBLE_DEVICES": "2,1"}, alike) == ["GPU-c-1", "GPU-b-1"]


def test_a_hanging_nvidia_smi_is_said(machine: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    (machine / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    answer = external_programs.ask_program
    monkeypatch.setattr(
        external_programs, "ask_program", lambda command, seconds=60, **more: answer(command, 0.5, **more)
    )
    assert job(machine, code=1) == {}
    assert "nvidia-smi did not answer within 0.5 s: the GPU's driver hangs" in capsys.readouterr().err


def test_a_job_takes_a_free_gpu_and_a_temporary_folder_of_its_own(machine: Path) -> None:
    first, second = job(machine), job(machine)
    assert first["seen"]["CUDA_VISIBLE_DEVICES"] == first["gpu_uuid"] == "GPU-a-1" and first["gpu"] == "NVIDIA a"
    assert first["exists"] and not Path(first["seen"]["TMPDIR"]).exists()
    assert second["seen"]["TMPDIR"] != first["seen"]["TMPDIR"]


def test_a_job_leaves_a_gpu_that_is_taken(machine: Path) -> None:
    uuids = [gpu["gpu_uuid"] for gpu in gpus.list_gpus()]
    with gpu_slots.hold_gpus(1, uuids, print, gpu_slots.LockTerms(machine / "locks")):
        assert job(machine)["gpu"] == "NVIDIA b"


def test_another_process_on_the_gpu_is_said(machine: Path, capsys: pytest.CaptureFixture) -> None:
    """What shares the GPU takes its time from the cell."""
    apps = "GPU-a-1, 4242, python3, or so\nGPU-b-1, 4243, [Not Found]\nNo such thing"
    script = f"""#!/bin/sh\ncase "$1" in --query-compute-apps*) cat <<'EOF'\n{apps}\nEOF\n;; *) cat <<'EOF'\n{ROWS}\nEOF\n;; esac\n"""
    (machine / "nvidia-smi").write_text(script)
    line = "another process used the GPU, so that times and counters include its work: python3, or so (process 4242)"
    assert job(machine)["warnings"] == [line]
    assert capsys.readouterr().err == f"profzoo: {machine / 's'}: {line}\n"
    assert job(machine, "cpu")["warnings"] == []


def test_a_job_keeps_to_what_the_batch_system_gave_it(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    sidecar = job(machine)
    assert sidecar["seen"]["CUDA_VISIBLE_DEVICES"] == sidecar["gpu_uuid"] == "GPU-c-1" and sidecar["gpu"] == "NVIDIA c"


def test_a_job_that_ran_on_another_gpu_fails(machine: Path, capsys: pytest.CaptureFixture) -> None:
    # A part of a GPU has a UUID that nvidia-smi does not list among GPUs.
    assert job(machine, device_uuid="GPU-f")["device_uuid"] == "GPU-f"
    assert job(machine, code=1, device_uuid="GPU-b-1") == {}
    assert "ran on GPU-b-1, but the job held GPU-a-1" in capsys.readouterr().err
    ranks = [{"device_uuid": "GPU-a-1"}, {"device_uuid": "GPU-c-1"}]
    assert job(machine, cell={"gpus": 2}, code=1, device_uuid="GPU-a-1", ranks=ranks) == {}
    assert "ran on GPU-c-1, but the job held GPU-a-1, GPU-b-1" in capsys.readouterr().err


def test_a_job_on_the_cpu_says_so(machine: Path, capsys: pytest.CaptureFixture) -> None:
    why = "device = cpu, though NVIDIA a is here"
    assert job(machine, "cpu", device_type="cpu", device_why=why)["device_why"] == why
    assert capsys.readouterr().err == f"profzoo: {machine / 's'}: measured on the CPU: {why}\n"


@pytest.mark.parametrize(("device", "given", "seen"), [("cpu", None, None), ("auto", "-1", "-1")])
def test_a_job_without_a_gpu_takes_none(
    machine: Path, monkeypatch: pytest.MonkeyPatch, device: str, given: str | None, seen: str | None
) -> None:
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    sidecar = job(machine, device)
    assert sidecar["seen"]["CUDA_VISIBLE_DEVICES"] == seen and "gpu" not in sidecar


@pytest.mark.parametrize("uuid", ["\0", "h;\0-y", "", "..", "../../../escape", "GPU-", "GPU-a b", "GPU-\x1b[2J", "é"])
def test_a_row_that_names_no_gpu_is_none(monkeypatch: pytest.MonkeyPatch, uuid: str) -> None:
    """What is not a UUID could not be handed to a program, or be the name of a lock."""
    printed = f"NVIDIA H200, 580.1, {uuid}, 1 MiB\nNVIDIA H200, 580.1, GPU-a-1, 1 MiB\n"
    said = subprocess.CompletedProcess([], 0, printed, "")
    monkeypatch.setattr(gpus.shutil, "which", lambda program: program)
    monkeypatch.setattr(gpus.external_programs, "ask_program", lambda command: said)
    assert [gpu["gpu_uuid"] for gpu in gpus.list_gpus()] == ["GPU-a-1"]


# What nvidia-smi says.


def test_gpus_are_lines_with_all_fields(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi("A 100, 580.1, GPU-1, 80 MiB\nN/A\nB, 580.1, none, 1 MiB\nC, 580.1, GPU-2, 1 MiB, more")
    assert gpus.query_nvidia_smi() == (
        [{"gpu": "A 100", "driver": "580.1", "gpu_uuid": "GPU-1", "gpu_memory": "80 MiB"}],
        "",
    )
    nvidia_smi("")
    assert gpus.query_nvidia_smi() == ([], "nvidia-smi shows none")
    nvidia_smi("  no driver \nmore", 9)
    assert gpus.query_nvidia_smi() == ([], "nvidia-smi fails: no driver")
    nvidia_smi("", 9)
    assert gpus.query_nvidia_smi() == ([], "nvidia-smi fails: exit code 9")


def test_compute_capabilities_are_numbers(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi("9.0\n8.6\n9.0\n[N/A]\n10\n12.0x")
    assert gpus.read_compute_capabilities() == {9.0, 8.6}
    nvidia_smi("9.0", 1)
    assert gpus.read_compute_capabilities() == set()


def test_others_on_a_gpu_are_those_of_its_uuid_whatever_their_names_hold(nvidia_smi: Callable[..., None]) -> None:
    nvidia_smi("GPU-1, 12, python, -m x\nGPU-2, 13, b\nGPU-1, 14\nGPU-3, 15, c")
    assert gpus.describe_gpu_processes(["GPU-1", "GPU-3"]) == ["python, -m x (process 12)", "c (process 15)"]
    assert gpus.describe_gpu_processes([]) == [] and gpus.describe_gpu_processes(["GPU-9"]) == []


def test_a_part_of_a_gpu_has_what_all_gpus_share() -> None:
    found = [{"gpu": "A", "driver": "1", "gpu_uuid": "GPU-1"}, {"gpu": "B", "driver": "1", "gpu_uuid": "GPU-2"}]
    assert (
        gpus.describe_gpu("MIG-7", found) == {"driver": "1", "gpu_uuid": "MIG-7"}
        and gpus.describe_gpu("GPU-2", found) == found[1]
    )


def test_a_driver_as_old_as_the_oldest_is_not_too_old() -> None:
    told = [gpus.explain_old_driver(driver, cuda) is not None for driver, cuda in
            (("580.1", "13.0"), ("579.9", "13.0"), ("525.1", "12.8"), ("524.9", "12.8"), ("450.1", "11.0"),
             ("449.9", "11.0"), ("1.0", "14.0"), ("1.0", None), ("N/A", "13.0"))]  # fmt: skip
    assert told == [False, True, False, True, False, True, False, False, False]
