"""Checks whether torch, and so torch.profiler, can use the GPU."""

import subprocess
from collections.abc import Sequence

from profzoo.machine import choose_lock, doctor_checks, gpus
from profzoo.machine.doctor_checks import Check, Finding

VERSIONS = (
    "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available(), torch.cuda.device_count())"
)
# Trace and tables of a cell. The compressed trace of three steps of BERT's training on an H100 takes 0.8 MB, and that
# of twenty steps of MobileNetV2's training on an H200 2.9 MB.
REPORT_BYTES = 5_000_000


def list_checks() -> Sequence[Check]:
    """List the check of torch."""
    return (check_torch,)


def describe_use(lacking: frozenset[str]) -> str | None:
    """Return how torch.profiler can run here, else None; it runs wherever torch can be imported."""
    if "torch" in lacking:
        return None
    if "GPU" in lacking:
        return "torch (on the CPU)"
    # With a GPU in the machine, using the CPU has to be chosen.
    return "torch (on the CPU, where device is cpu)" if "torch CUDA" in lacking else "torch (on the GPU)"


def read_torch_versions() -> subprocess.CompletedProcess[str]:
    """Ask torch for its version, CUDA's version, whether it can use a GPU, and the number of GPUs."""
    return doctor_checks.ask_job_python(VERSIONS)


def check_torch() -> Finding:
    """Check whether torch can use the GPU."""
    answer = read_torch_versions()
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


def suggest_release(driver: str) -> str | None:
    """Name the releases of torch on PyPI that a driver can run; None if it can run none of those that are known.

    >>> suggest_release("550.54.15"), suggest_release("470.1")
    ('torch 2.8 to 2.10, which PyPI has for CUDA 12 (`make env CUDA=12`)', None)
    """
    build = choose_lock.fit_driver(driver)
    return (
        f"torch {build.releases}, which PyPI has for CUDA {build.major} (`make env CUDA={build.major}`)"
        if build
        else None
    )
