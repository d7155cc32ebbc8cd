"""Says what this machine can profile: a line a thing, what was found, and what to do where it is missing."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from profzoo.collect import diagnose
from profzoo.collect.__main__ import INSTALL, version
from profzoo.errors import ConfigError
from profzoo.machine import gpus, programs

# Seconds: longer than importing torch takes on a slow disk, and than ncu or nsys take over nothing.
PATIENCE_S = 300
TORCH = (
    "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available(), torch.cuda.device_count())"
)
KERNEL = "import torch; torch.ones(1, device='cuda').add_(1); torch.cuda.synchronize()"
RESTRICTED = Path("/proc/driver/nvidia/params")


@dataclass(frozen=True)
class Finding:
    """What one check found; advice: what to do, None where nothing is missing."""

    name: str
    found: str
    advice: str | None = None


def check_gpu() -> Finding:
    """Whether the driver shows a GPU."""
    advice = "run on a machine with an NVIDIA GPU, or profile on the CPU with tool=torch"
    try:
        found, none = gpus.ask()
        visible = gpus.visible(os.environ)
    except ConfigError as error:
        return Finding("GPU", "not known", str(error))
    if visible:
        described = [", ".join(gpu[key] for key in ("gpu", "gpu_memory") if key in gpu) for gpu in visible]
        return Finding("GPU", "; ".join(described))
    if found:
        hidden = f"{gpus.VISIBLE} = '{os.environ.get(gpus.VISIBLE)}' hides {len(found)}"
        return Finding("GPU", f"none ({hidden})", f"unset {gpus.VISIBLE}, or have it name one")
    return Finding("GPU", f"none ({none})", advice)


def check_driver() -> Finding:
    """The driver's version, and whether it is new enough for torch's CUDA."""
    visible = _visible()
    if not visible:
        return Finding("driver", "none", "install the NVIDIA driver where there is a GPU")
    driver = visible[0]["driver"]
    _, cuda, available, _ = (_python(TORCH).stdout.split() + [""] * 4)[:4]
    # NVIDIA's packages for forward compatibility let some GPUs do with an older one.
    old = None if available == "True" else gpus.too_old(driver, cuda)
    return Finding("driver", driver, f"{old}: update the driver" if old else None)


def check_torch() -> Finding:
    """Whether torch can use the GPU."""
    answer = _python(TORCH)
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or ["no output"])[-1]
        return Finding("torch", f"does not import: {last}", "make env")
    torch, cuda, available, count = answer.stdout.split()
    if available == "True":
        return Finding("torch CUDA", f"torch {torch}, {count} GPU(s)")
    if cuda == "None":
        advice = "install a torch built with CUDA (make env does)"
    else:
        oldest = gpus.OLDEST_DRIVER.get(cuda.partition(".")[0])
        needed = f"driver {oldest} or later" if oldest else "a driver that is new enough for it"
        advice = f"see GPU and driver above; CUDA {cuda} needs {needed}"
    return Finding("torch CUDA", f"torch {torch} (CUDA {cuda}) sees no GPU", advice)


def check_tool(name: str) -> Finding:
    """Whether a profiler is on PATH."""
    if shutil.which(name):
        return Finding(name, version(name) or "no version")
    return Finding(name, "not on PATH", INSTALL[name])


def check_counters() -> Finding:
    """Whether ncu may read performance counters, by profiling one small kernel."""
    name = "counters"
    if not shutil.which("ncu") or not _visible():
        return Finding(name, "not checked, which takes ncu and a GPU", "see ncu and GPU above")
    with tempfile.TemporaryDirectory() as folder:
        words = ["ncu", "--clock-control", "none", "--metrics", "gpu__time_duration.sum", "--launch-count", "1"]
        words += ["--export", f"{folder}/probe", sys.executable, "-c", KERNEL]
        answer = programs.answer(words, PATIENCE_S)
        if (Path(folder) / "probe.ncu-rep").exists():
            return Finding(name, "readable (profiled one kernel)")
    if answer.returncode == programs.TIMED_OUT:
        return Finding(name, "not known", f"{answer.stderr}: look for other jobs under ncu, or a profiler that hangs")
    reason = diagnose.cause(answer.stdout + answer.stderr) or "ncu left no report of one small kernel"
    restricted = RESTRICTED.exists() and "RmProfilingAdminOnly: 1" in RESTRICTED.read_text()
    return Finding(name, "not readable" + (" (the driver restricts them to root)" if restricted else ""), reason)


def check_importer() -> Finding:
    """Whether nsys can make a report of what it traced, by tracing nothing."""
    name = "nsys importer"
    if not shutil.which("nsys"):
        return Finding(name, "not checked, which takes nsys", "see nsys above")
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "nsys",
            "profile",
            "--trace=osrt",
            "--sample=none",
            "--cpuctxsw=none",
            f"--output={folder}/probe",
        ]
        answer = programs.answer([*words, sys.executable, "-c", "pass"], PATIENCE_S, cwd=folder)
        if (Path(folder) / "probe.nsys-rep").exists():
            return Finding(name, "works (traced one process)")
    if answer.returncode == programs.TIMED_OUT:
        return Finding(name, "not known", answer.stderr)
    printed = answer.stdout + answer.stderr
    return Finding(name, "leaves no report", diagnose.cause(printed + "\nQdstrmImporter"))


def check_nvtx() -> Finding:
    """Which nvtx the ranges come from."""
    return Finding("nvtx", importlib.metadata.version("nvtx"))


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_gpu,
    check_driver,
    check_torch,
    lambda: check_tool("ncu"),
    check_counters,
    lambda: check_tool("nsys"),
    check_importer,
    check_nvtx,
)


def main() -> int:
    """Print the findings and what can be profiled; exit code 0: a report of lacks is a result."""
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    lacking = set()
    for check in CHECKS:
        finding = check()
        mark = "ok" if finding.advice is None else "--"
        if colour:
            mark = f"\033[{'32' if finding.advice is None else '33'}m{mark}\033[0m"
        print(f"{mark}  {finding.name:<14} {finding.found}")
        if finding.advice:
            lacking.add(finding.name)
            print(f"    {'':<14} -> {finding.advice}")
    gpu = not lacking & {"GPU", "torch CUDA", "torch"}
    # A GPU that is there and not used is no matter of course.
    on_cpu = "torch (on the CPU)" if "GPU" in lacking else "torch (on the CPU, where device is cpu)"
    able = [
        *(["torch (on the GPU)"] if gpu else [on_cpu] if "torch" not in lacking else []),
        *(["ncu"] if gpu and not lacking & {"ncu", "counters"} else []),
        *(["nsys"] if not lacking & {"nsys", "nsys importer", "torch"} else []),
    ]
    print(f"\nThis machine can profile with: {', '.join(able) or 'nothing yet'}.")
    return 0


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return programs.answer([sys.executable, "-c", code], PATIENCE_S)


def _visible() -> list[dict[str, str]]:
    """The GPUs that a job may take; none where that cannot be told, which check_gpu says."""
    try:
        return gpus.visible(os.environ)
    except ConfigError:
        return []


if __name__ == "__main__":
    sys.exit(main())
