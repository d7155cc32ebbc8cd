"""doctor's checks of the machine: memory, disk, permissions, versions, clocks, power, other programs; all on one screen."""

import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from profzoo.cli import doctor
from profzoo.machine import doctor_checks, external_programs
from profzoo.machine.doctor_checks import Finding
from profzoo.tools.ncu import doctor as ncu_doctor
from profzoo.tools.nsys import doctor as nsys_doctor
from profzoo.tools.sample import doctor as sample_doctor
from profzoo.tools.torch import doctor as torch_doctor
from tests import nvml

STANDINS = Path(__file__).parents[1] / "tools/standins"
LINES, COLUMNS = 40, 100
Patch, Printed = pytest.MonkeyPatch, pytest.CaptureFixture[str]
FIRST, ROOTLESS = "         0          0 4294967295\n", "         0       1000          1\n"
ALL, NONE = "000001ffffffffff", "0000000000000000"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def proc(folder: Path, capabilities: str = NONE, namespace: str = FIRST, **settings: str) -> Path:
    """A folder with the files of /proc that are read; settings: `perf` and `yama`, as the kernel writes them."""
    files = {"self/status": f"Name:\tpython\nCapEff:\t{capabilities}\n", "self/uid_map": namespace}
    names = {"perf": nsys_doctor.PARANOID, "yama": "sys/kernel/yama/ptrace_scope"}
    for name, text in (files | {names[key]: f"{value}\n" for key, value in settings.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("scope", "capabilities", "said", "advised"),
    [
        ("0", NONE, "any running process of yours", False),
        ("1", NONE, "not into running ones", False),
        ("1", f"{1 << doctor_checks.SYS_PTRACE:016x}", "CAP_SYS_PTRACE", False),
        ("2", NONE, "only root", True),
        ("2", ALL, "CAP_SYS_PTRACE", False),
        ("3", ALL, "nobody", False),
    ],
)
def test_who_may_look_into_a_running_process(
    tmp_path: Path, scope: str, capabilities: str, said: str, advised: bool
) -> None:
    finding = doctor_checks.check_ptrace(proc(tmp_path, capabilities, yama=scope))
    assert finding and said in finding.found and (finding.advice is not None) == advised


def test_a_kernel_without_yama_restricts_nothing(tmp_path: Path) -> None:
    assert doctor_checks.check_ptrace(proc(tmp_path)) is None and doctor_checks.check_ptrace(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("level", "capabilities", "namespace", "printed", "possible"),
    [
        # An nsys that does not say: by the kernel's setting.
        ("2", NONE, FIRST, "", True),
        ("3", NONE, FIRST, "", False),
        ("4", ALL, FIRST, "", True),
        ("4", f"{1 << doctor_checks.PERFMON:016x}", FIRST, "", True),
        ("4", ALL, ROOTLESS, "", False),
        # As nsys 2023.4 says, in a container that forbids what the setting allows.
        ("2", NONE, FIRST, "CPU Profiling Environment (process-tree): Fail", False),
        ("4", NONE, FIRST, "CPU Profiling Environment (process-tree): OK", True),
    ],
)
def test_whether_nsys_may_sample_the_cpu(
    monkeypatch: Patch, tmp_path: Path, level: str, capabilities: str, namespace: str, printed: str, possible: bool
) -> None:
    program(tmp_path / "bin/nsys", f"#!/bin/sh\necho '{printed}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    finding = nsys_doctor.check_cpu_samples(proc(tmp_path, capabilities, namespace, perf=level))
    assert finding and finding.found.startswith("possible" if possible else "not possible")
    assert f"perf_event_paranoid is {level}" in finding.found
    if not possible:
        assert ("SYS_ADMIN" if level == "2" else "perf_event_paranoid=2") in str(finding.advice)


def test_little_shared_memory_is_said(monkeypatch: Patch, tmp_path: Path) -> None:
    assert "mount a tmpfs" in str(doctor_checks.check_shared_memory(tmp_path / "none").advice)
    # What a real file system has, against a limit above and one below it.
    monkeypatch.setattr(doctor_checks, "SHARED_BYTES", 10**18)
    assert "--shm-size" in str(doctor_checks.check_shared_memory(tmp_path).advice)
    monkeypatch.setattr(doctor_checks, "SHARED_BYTES", 1)
    assert doctor_checks.check_shared_memory(tmp_path).advice is None


def test_a_disk_needs_twice_what_is_expected(tmp_path: Path) -> None:
    results = tmp_path / "not/yet/there"
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    for expected, enough in ((0, True), (free // 4, True), (free, False)):
        finding = doctor_checks.check_disk(results, expected)
        assert (finding.advice is None) == enough and f"free for {results}" in finding.found, finding
        assert ("all that is selected takes about" in finding.found) == (expected > 0)
    assert not results.exists()


@pytest.mark.parametrize(
    ("driver", "other"),
    [("580.65", "torch 2.11 or later"), ("570.1", "torch 2.8 to 2.10"), ("470.2", None), ("x", None)],
)
def test_a_torch_for_an_older_driver_is_named(driver: str, other: str | None) -> None:
    named = torch_doctor.suggest_release(driver)
    assert named is None if other is None else (named or "").startswith(other)


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("Version 2025.3.1.0 (build 36398880) (public-release)", "2025.3.1.0 (tried: 2023.4, 2025.3)"),
        ("NVIDIA Nsight Systems version 2023.4.4.54-234433681190v0", "2023.4.4.54 (tried: 2023.4, 2025.3)"),
        ("2025.30.1", "2025.30.1 (not tried; tried: 2023.4, 2025.3)"),
        ("unknown", "unknown"),
    ],
)
def test_versions_that_were_tried_are_said(monkeypatch: Patch, tmp_path: Path, printed: str, found: str) -> None:
    program(tmp_path / "nsys", f"#!/bin/sh\necho '{printed}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert doctor_checks.check_on_path("nsys", "get it", ("2023.4", "2025.3")) == Finding("nsys", found)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml.built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def loaded(library: Path, monkeypatch: Patch) -> Patch:
    """The stand-in for NVML in this process, and one GPU that jobs may use."""
    return nvml.load_here(library, monkeypatch)


OTHERS = "trainer (process 4711, 3.2 GB), unknown program (process 4712, 3.2 GB)"
CHECKS = (sample_doctor.check_clocks, sample_doctor.check_power, sample_doctor.check_others)


@pytest.mark.parametrize(
    ("mode", "said", "advised"),
    [
        ("", ("1980 of at most 1980 MHz", "700 W, the default", "none"), ()),
        ("idle", ("345 of at most 1980 MHz (idle)", "700 W, the default", "none"), ()),
        ("locked", ("1485 of at most 1980 MHz (application clocks)", "700 W, the default", "none"), (0,)),
        ("limited", ("1980 of at most 1980 MHz", "500 W, below the default of 700 W", "none"), (1,)),
        ("old", ("1980 of at most 1980 MHz", "700 W", "none"), ()),
        ("shared", ("1980 of at most 1980 MHz", "700 W, the default", OTHERS), (2,)),
    ],
)
def test_what_slows_a_gpu_down_is_said(loaded: Patch, mode: str, said: Sequence[str], advised: Sequence[int]) -> None:
    loaded.setenv("STANDIN_NVML", mode)
    found = [check() for check in CHECKS]
    assert [finding.found for finding in found if finding] == list(said)
    assert [number for number, finding in enumerate(found) if finding and finding.advice] == list(advised)


def test_gpus_in_the_same_state_are_counted(loaded: Patch) -> None:
    loaded.setenv("STANDIN_GPUS", "2")
    loaded.setenv("CUDA_VISIBLE_DEVICES", ",".join(nvml.UUIDS))
    clocks, power, others = (check() for check in CHECKS)
    assert clocks and clocks.found == "1980 of at most 1980 MHz (2 GPUs)"
    assert power and power.found == "700 W, the default (2 GPUs)" and others and others.found == "none"


@pytest.mark.parametrize(("gpus", "visible"), [("0", nvml.UUIDS[0]), ("1", "-1")])
def test_nothing_is_said_of_a_gpu_that_is_not_there(loaded: Patch, gpus: str, visible: str) -> None:
    loaded.setenv("STANDIN_GPUS", gpus)
    loaded.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [check() for check in CHECKS] == [None] * 3


def screen(capsys: Printed, *words: str) -> list[str]:
    assert doctor.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, "\n".join(lines)
    return lines


def test_everything_that_is_there_fits_a_screen_of_24_lines(capsys: Printed, loaded: Patch, tmp_path: Path) -> None:
    loaded.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    loaded.setattr(torch_doctor, "VERSIONS", "print('2.11.0+cu130 13.0 True 1')")
    lines = screen(capsys, "--results", str(tmp_path))
    assert len(lines) <= 24
    for name in ("GPU", "driver", "shared memory", "disk", "torch CUDA", "SM clock", "power limit", "GPU processes"):
        assert any(line.startswith(f"ok  {name:<14} ") for line in lines), name


def test_everything_that_is_wrong_fits_one_screen(capsys: Printed, loaded: Patch, tmp_path: Path) -> None:
    """An old driver, counters that may not be read, an nsys that is broken, and a GPU that others use."""
    old = f"#!/bin/sh\necho 'NVIDIA H100, 550.54.15, {nvml.UUIDS[0]}, 81559 MiB'\n"
    program(tmp_path / "bin/nvidia-smi", old)
    program(tmp_path / "bin/nsys", "#!/bin/sh\necho 'Importer error' >&2\nexit 1\n")
    loaded.setenv("PATH", f"{tmp_path / 'bin'}:{STANDINS}:{os.environ['PATH']}")
    loaded.setenv("STANDIN_NCU", "permission")
    loaded.setenv("STANDIN_NVML", "shared")
    loaded.setattr(torch_doctor, "VERSIONS", "print('2.11.0+cu130 13.0 False 0')")
    loaded.setattr(doctor_checks, "SHARED_BYTES", 10**18)
    lines = screen(capsys, "--results", str(tmp_path), "--cells", str(10**9), "--tools", "torch")
    assert any("or install torch 2.8 to 2.10" in line for line in lines)
    assert lines[-1] == "This machine can profile with: torch (on the CPU, where device is cpu)."


OLD = (
    "driver 535.54 is too old for CUDA 13.0, which needs 580 or later: update the driver, or install torch 2.8 to 2.10, "
    "which PyPI has for CUDA 12 (`make env CUDA=12`)"
)


@pytest.fixture
def bare(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("check", "found", "advice"),
    [
        (doctor.check_gpu, "none (nvidia-smi is not on PATH)", "profile on the CPU"),
        (doctor.check_driver, "none", "install the NVIDIA driver"),
        (ncu_doctor.check_program, "not on PATH", "install NVIDIA Nsight Compute"),
        (nsys_doctor.check_program, "not on PATH", "install NVIDIA Nsight Systems"),
        (ncu_doctor.check_counters, "not checked, because this needs ncu and a GPU", "see ncu and GPU above"),
        (nsys_doctor.check_importer, "not checked, because this needs nsys", "see nsys above"),
    ],
)
def test_every_lack_has_its_advice(check, found: str, advice: str) -> None:
    finding = check()
    assert finding.found == found and advice in (finding.advice or "")


def test_nothing_is_advised_where_nothing_is_missing(monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch_doctor, "VERSIONS", "print('2 13.0 True 1')")
    findings = [doctor.check_gpu(), doctor.check_driver(), ncu_doctor.check_program(), nsys_doctor.check_nvtx()]
    assert [finding.advice for finding in findings] == [None] * 4
    assert findings[0].found == "NVIDIA H200, 143771 MiB" and findings[1].found.startswith("580.159.04 (this torch")


def standin(folder: Path, monkeypatch: Patch, body: str) -> None:
    """An nvidia-smi first in PATH."""
    program(folder / "nvidia-smi", f"#!/bin/sh\n{body}\n")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("torch", "advice"),
    [
        ("2 13.0 False 0", OLD),
        # By a package for forward compatibility.
        ("2 13.0 True 1", None),
        ("2 12.8 False 0", None),
    ],
)
def test_an_old_driver_is_said(monkeypatch: Patch, tmp_path: Path, torch: str, advice: str | None) -> None:
    standin(tmp_path, monkeypatch, "echo 'NVIDIA A100, 535.54, GPU-a, 40960 MiB'")
    monkeypatch.setattr(torch_doctor, "VERSIONS", f"print({torch!r})")
    cuda = torch.split()[1]
    needed = {"13.0": 580, "12.8": 525}[cuda]
    told = f"535.54 (this torch, for CUDA {cuda}, needs {needed} or later)"
    assert doctor.check_driver() == Finding("driver", told, advice)


@pytest.mark.parametrize(
    ("body", "visible", "found"),
    [
        ("echo 'NVIDIA-SMI has failed'; exit 9", None, "none (nvidia-smi fails: NVIDIA-SMI has failed)"),
        ("echo 'NVIDIA A100, 1, GPU-a, 1 MiB'", "-1", "none (CUDA_VISIBLE_DEVICES = '-1' hides 1)"),
        ("echo 'A, 1, GPU-a, 1 MiB'; echo 'B, 1, GPU-b, 1 MiB'", "1", "not known"),
        ("exec sleep 60", None, "not known"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_said(
    monkeypatch: Patch, tmp_path: Path, body: str, visible: str | None, found: str
) -> None:
    standin(tmp_path, monkeypatch, body)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    answer, most = external_programs.ask_program, 0.1 if "sleep" in body else 60
    monkeypatch.setattr(external_programs, "ask_program", lambda asked, _=60, **more: answer(asked, most, **more))
    finding = doctor.check_gpu()
    assert finding.found == found and finding.advice
    assert doctor.check_driver().found == "none" and ncu_doctor.check_counters().found.startswith("not checked")


def test_a_torch_that_does_not_import_is_said(monkeypatch: Patch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finding = torch_doctor.check_torch()
    assert finding == Finding("torch", "does not import: ImportError: libcudart.so is missing", "make env")


@pytest.mark.parametrize(
    ("facts", "advice"),
    [
        ("2 None False 0", "install a torch built with CUDA"),
        ("2 13.0 False 0", "CUDA 13.0 needs driver 580 or later"),
        ("2 99.1 False 0", "CUDA 99.1 needs a driver that is new enough"),
        ("2 13.0 True 4", None),
    ],
)
def test_a_torch_without_cuda_is_said(monkeypatch: Patch, facts: str, advice: str | None) -> None:
    monkeypatch.setattr(torch_doctor, "VERSIONS", f"print({facts!r})")
    finding = torch_doctor.check_torch()
    assert (finding.advice is None) if advice is None else advice in (finding.advice or "")


@pytest.mark.parametrize(
    ("lacking", "nsys", "torch"),
    [
        ([], "nsys", "torch (on the GPU)"), (["GPU", "torch CUDA"], "nsys", "torch (on the CPU)"),
        (["torch CUDA"], "nsys", "torch (on the CPU, where device is cpu)"), (["torch", "GPU"], None, None),
        (["nsys"], None, "torch (on the GPU)"), (["nsys importer"], None, "torch (on the GPU)"), (["nvtx"], None, "torch (on the GPU)"),
        (["ncu"], "nsys", "torch (on the GPU)"),
    ],
)  # fmt: skip
def test_which_tools_can_profile_where_something_lacks(lacking: list[str], nsys: str | None, torch: str | None) -> None:
    found = [doctor.describe_use(frozenset(lacking)) for doctor in (nsys_doctor, torch_doctor)]
    assert found == [nsys, torch]


@pytest.mark.slow
def test_the_torch_that_is_here_is_told() -> None:
    assert metadata.version("torch").partition("+")[0] in torch_doctor.check_torch().found
