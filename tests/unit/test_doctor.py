"""doctor's checks of the machine: memory, disk, permissions, versions, clocks, power, other programs; all on one screen."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from profzoo import doctor
from profzoo.machine import doctor_checks, host_checks
from profzoo.machine.doctor_checks import Finding
from profzoo.tools.ncu import doctor as ncu_doctor
from profzoo.tools.nsys import doctor as nsys_doctor
from profzoo.tools.sample import doctor as sample_doctor
from profzoo.tools.torch import doctor as torch_doctor
from tests import nvml as standin

STANDINS = Path(__file__).parents[1] / "tools/standins"
LINES, COLUMNS = 40, 100
FIRST, ROOTLESS = "         0          0 4294967295\n", "         0       1000          1\n"
ALL, NONE = "000001ffffffffff", "0000000000000000"


def program(path: Path, text: str) -> None:
    """Write a program."""
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
        ("1", f"{1 << host_checks.SYS_PTRACE:016x}", "CAP_SYS_PTRACE", False),
        ("2", NONE, "only root", True),
        ("2", ALL, "CAP_SYS_PTRACE", False),
        ("3", ALL, "nobody", False),
    ],
)
def test_who_may_look_into_a_running_process(
    tmp_path: Path, scope: str, capabilities: str, said: str, advised: bool
) -> None:
    finding = host_checks.check_ptrace(proc(tmp_path, capabilities, yama=scope))
    assert finding and said in finding.found and (finding.advice is not None) == advised


def test_a_kernel_without_yama_restricts_nothing(tmp_path: Path) -> None:
    assert host_checks.check_ptrace(proc(tmp_path)) is None and host_checks.check_ptrace(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("level", "capabilities", "namespace", "printed", "possible"),
    [
        # An nsys that does not say: by the kernel's setting.
        ("2", NONE, FIRST, "", True),
        ("-1", NONE, FIRST, "", True),
        ("3", NONE, FIRST, "", False),
        ("4", ALL, FIRST, "", True),
        ("4", f"{1 << host_checks.PERFMON:016x}", FIRST, "", True),
        ("4", ALL, ROOTLESS, "", False),
        # As nsys 2023.4 says, in a container that forbids what the setting allows.
        ("2", NONE, FIRST, "CPU Profiling Environment (process-tree): Fail", False),
        ("4", NONE, FIRST, "CPU Profiling Environment (process-tree): OK", True),
    ],
)
def test_whether_nsys_may_sample_the_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, level: str, capabilities: str, namespace: str, printed: str,
    possible: bool,
) -> None:  # fmt: skip
    program(tmp_path / "bin/nsys", f"#!/bin/sh\necho '{printed}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    finding = nsys_doctor.check_cpu_samples(proc(tmp_path, capabilities, namespace, perf=level))
    assert finding and finding.found.startswith("possible" if possible else "not possible")
    assert f"perf_event_paranoid is {level}" in finding.found
    if not possible:
        assert ("SYS_ADMIN" if level == "2" else "perf_event_paranoid=2") in str(finding.advice)


def test_nothing_is_said_of_cpu_samples_without_nsys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nsys_doctor.check_cpu_samples() is None


def test_the_real_kernel_is_read() -> None:
    """Whatever machine this is: its files have the form that is expected."""
    assert host_checks.read_number(Path("/proc/sys/kernel/pid_max")) == int(
        Path("/proc/sys/kernel/pid_max").read_text()
    )
    held = Path("/proc/self/status").read_text().partition("CapEff:\t")[2].split()[0]
    assert host_checks.has_capability(Path("/proc"), *range(64)) == (int(held, 16) > 0)
    assert host_checks.check_shared_memory().found.endswith("in /dev/shm")


def test_little_shared_memory_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "mount a tmpfs" in str(host_checks.check_shared_memory(tmp_path / "none").advice)
    # What a real file system has, against a limit above and one below it.
    monkeypatch.setattr(host_checks, "SHARED_BYTES", 10**18)
    assert "--shm-size" in str(host_checks.check_shared_memory(tmp_path).advice)
    monkeypatch.setattr(host_checks, "SHARED_BYTES", 1)
    assert host_checks.check_shared_memory(tmp_path).advice is None


def test_a_disk_needs_twice_what_is_expected(tmp_path: Path) -> None:
    results = tmp_path / "not/yet/there"
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    for expected, enough in ((0, True), (free // 4, True), (free, False)):
        finding = host_checks.check_disk(results, expected)
        assert (finding.advice is None) == enough and f"free for {results}" in finding.found, finding
        assert ("all that is selected takes about" in finding.found) == (expected > 0)
    assert not results.exists()


def test_what_results_take_is_added_up() -> None:
    tools = {"ncu": ncu_doctor, "nsys": nsys_doctor, "torch": torch_doctor, "sample": sample_doctor}
    for name, module in tools.items():
        assert doctor.estimate_bytes(0, 6, [name]) == 6 * module.REPORT_BYTES
    whole = doctor.estimate_bytes(3, 6, ["time", *tools])
    assert whole == 3 * host_checks.WEIGHTS_BYTES + 6 * sum(module.REPORT_BYTES for module in tools.values())


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
def test_versions_that_were_tried_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str, found: str
) -> None:
    program(tmp_path / "nsys", f"#!/bin/sh\necho '{printed}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert doctor_checks.check_on_path("nsys", "get it", ("2023.4", "2025.3")) == Finding("nsys", found)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin.built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def loaded(library: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The stand-in for NVML in this process, and one GPU that jobs may use."""
    return standin.load_here(library, monkeypatch)


CHECKS = (sample_doctor.check_clocks, sample_doctor.check_power, sample_doctor.check_others)


@pytest.mark.parametrize(
    ("mode", "said", "advised"),
    [
        ("", ("1980 of at most 1980 MHz", "700 W, the default", "none"), ()),
        ("idle", ("345 of at most 1980 MHz (idle)", "700 W, the default", "none"), ()),
        ("locked", ("1485 of at most 1980 MHz (application clocks)", "700 W, the default", "none"), (0,)),
        ("limited", ("1980 of at most 1980 MHz", "500 W, below the default of 700 W", "none"), (1,)),
        ("old", ("1980 of at most 1980 MHz", "700 W", "none"), ()),
        (
            "shared",
            (
                "1980 of at most 1980 MHz",
                "700 W, the default",
                "trainer (process 4711, 3.2 GB), unknown program (process 4712, 3.2 GB)",
            ),
            (2,),
        ),
    ],
)
def test_what_slows_a_gpu_down_is_said(
    loaded: pytest.MonkeyPatch, mode: str, said: Sequence[str], advised: Sequence[int]
) -> None:
    loaded.setenv("STANDIN_NVML", mode)
    found = [check() for check in CHECKS]
    assert [finding.found for finding in found if finding] == list(said)
    assert [number for number, finding in enumerate(found) if finding and finding.advice] == list(advised)


def test_gpus_in_the_same_state_are_counted(loaded: pytest.MonkeyPatch) -> None:
    loaded.setenv("STANDIN_GPUS", "2")
    loaded.setenv("CUDA_VISIBLE_DEVICES", ",".join(standin.UUIDS))
    clocks, power, others = (check() for check in CHECKS)
    assert clocks and clocks.found == "1980 of at most 1980 MHz (2 GPUs)"
    assert power and power.found == "700 W, the default (2 GPUs)" and others and others.found == "none"


@pytest.mark.parametrize(("gpus", "visible"), [("0", standin.UUIDS[0]), ("1", "-1")])
def test_nothing_is_said_of_a_gpu_that_is_not_there(loaded: pytest.MonkeyPatch, gpus: str, visible: str) -> None:
    loaded.setenv("STANDIN_GPUS", gpus)
    loaded.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [check() for check in CHECKS] == [None] * 3


def screen(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What doctor prints; it must fit a screen."""
    assert doctor.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, "\n".join(lines)
    return lines


def test_everything_that_is_missing_fits_one_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch_doctor, "VERSIONS", "print('2.11.0+cu130 13.0 False 0')")
    lines = screen(capsys, "--results", str(tmp_path), "--cells", str(10**9), "--tools", "torch")
    assert sum(line.startswith("--") for line in lines) >= 7


def test_everything_that_is_there_fits_a_screen_of_24_lines(
    capsys: pytest.CaptureFixture[str], loaded: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded.setenv("PATH", f"{STANDINS}:{os.environ['PATH']}")
    loaded.setattr(torch_doctor, "VERSIONS", "print('2.11.0+cu130 13.0 True 1')")
    lines = screen(capsys, "--results", str(tmp_path))
    assert len(lines) <= 24
    for name in ("GPU", "driver", "shared memory", "disk", "torch CUDA", "SM clock", "power limit", "GPU processes"):
        assert any(line.startswith(f"ok  {name:<14} ") for line in lines), name


def test_everything_that_is_wrong_fits_one_screen(
    capsys: pytest.CaptureFixture[str], loaded: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An old driver, counters that may not be read, an nsys that is broken, and a GPU that others use."""
    old = f"#!/bin/sh\necho 'NVIDIA H100, 550.54.15, {standin.UUIDS[0]}, 81559 MiB'\n"
    program(tmp_path / "bin/nvidia-smi", old)
    program(tmp_path / "bin/nsys", "#!/bin/sh\necho 'Importer error' >&2\nexit 1\n")
    loaded.setenv("PATH", f"{tmp_path / 'bin'}:{STANDINS}:{os.environ['PATH']}")
    loaded.setenv("STANDIN_NCU", "permission")
    loaded.setenv("STANDIN_NVML", "shared")
    loaded.setattr(torch_doctor, "VERSIONS", "print('2.11.0+cu130 13.0 False 0')")
    loaded.setattr(host_checks, "SHARED_BYTES", 10**18)
    lines = screen(capsys, "--results", str(tmp_path), "--cells", str(10**9), "--tools", "torch")
    assert any("or install torch 2.8 to 2.10" in line for line in lines)
    assert lines[-1] == "This machine can profile with: torch (on the CPU, where device is cpu)."
