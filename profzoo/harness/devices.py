"""Chooses the device of a run: an available GPU is used, or the run ends with one line that says why not."""

import os
import platform
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from profzoo.errors import ConfigError
from profzoo.harness import observed_files
from profzoo.machine import external_programs, gpus

if TYPE_CHECKING:
    from profzoo.cell.job_types import CpuRoof

# What a CPU's roof is measured with: calls, the order of the matrices, and bytes that no cache holds.
ROOF_CALLS, ORDER, COPIED_BYTES = 5, 1024, 1 << 26
# CPU time that a container may use, in each period (Linux, cgroup-v2.rst).
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def choose_device(asked: str, number: int = 0) -> torch.device:
    """Choose the device; asked: `auto`, `cuda` or `cpu`; number: index among the GPUs that torch sees.

    Raises:
        ConfigError: torch cannot use the requested GPU; or `asked` is `auto` and torch cannot use the machine's GPU.
    """
    if asked == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda", number)
    found, _ = gpus.query_nvidia_smi()
    seen = [gpus.describe_gpu(word, found) for word in gpus.choose_candidates(os.environ, found)]
    if asked == "auto" and not seen and not gpus.grants_gpu(os.environ):
        return torch.device("cpu")
    drivers = [reason for gpu in seen if (reason := gpus.explain_old_driver(gpu["driver"], torch.version.cuda))]
    there = "nvidia-smi shows " + _names(seen) if seen else ""
    if not seen and gpus.grants_gpu(os.environ):
        there = f"{gpus.VISIBLE} = '{os.environ[gpus.VISIBLE]}' names one"
    raise ConfigError(
        f"device = '{asked}'{f', and {there}' if there else ''}, but torch {torch.__version__} (CUDA "
        f"{torch.version.cuda or 'none'}) sees no GPU: {drivers[0] if drivers else read_torch_reason()}; "
        "`snakemake doctor` says what is missing, and device cpu runs on the CPU"
    )


def read_torch_reason() -> str:
    """Torch's reason why it can use no GPU, without its download addresses."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return re.split(r"\.\s+(?=[A-Z])", first)[0]
    return "it says no reason"


def read_uuid(device: torch.device) -> str | None:
    """UUID of a GPU as nvidia-smi prints it; None for a CPU."""
    if device.type != "cuda":
        return None
    return "GPU-" + str(torch.cuda.get_device_properties(device).uuid).removeprefix("GPU-")


def explain_cpu(asked: str, device: torch.device) -> str | None:
    """Reason why a run used the CPU, in words; None if it used a GPU."""
    if device.type == "cuda":
        return None
    try:
        found, none = gpus.query_nvidia_smi()
    except ConfigError as error:
        found, none = [], str(error)
    if not found:
        return f"no GPU found: {none}"
    if asked == "cpu":
        return f"device = cpu, though {_names(found)} is here"
    return f"{gpus.VISIBLE} = '{os.environ.get(gpus.VISIBLE, '')}' hides {_names(found)}"


def describe_machine(asked: str, device: torch.device) -> dict[str, Any]:
    """Facts about the machine and the versions that a process runs with; asked: the setting `device`."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else f"CPU, {torch.get_num_threads()} threads",
        "device_type": device.type,
        "device_uuid": read_uuid(device),
        "device_why": explain_cpu(asked, device),
        "threads": torch.get_num_threads(),
        "cores": count_cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        **describe_packages(),
    }


def count_cores() -> float:
    """Number of CPU cores that this process may use, its part of those that processes of one launcher share."""
    cores = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        # Without a limit, the first word is not a number.
        used, period = CPU_LIMIT.read_text().split()
        cores = min(cores, int(used) / int(period))
    return cores / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def describe_packages() -> dict[str, Any]:
    """Versions of the installed packages that this process has imported, and the folders in which it looks for them."""
    folders = dict.fromkeys([*filter(observed_files.holds_packages, sys.path), str(Path(torch.__file__).parents[1])])
    return {"packages": external_programs.find_packages(sys.path, list(sys.modules)), "packages_from": list(folders)}


@torch.no_grad()
def measure_cpu_roof(precision: str) -> "CpuRoof":
    """Rates that torch reaches on this CPU with this process's threads: a large matrix product, and a large copy.

    Both are the best of ROOF_CALLS calls, which take less than a second together. precision: setting of the cell.
    """
    arithmetic = "bf16" if precision == "bf16" else "fp32"
    # Numbers of no generator, because the program's own may be used again.
    matrix = torch.full((ORDER, ORDER), 0.5, dtype=torch.bfloat16 if arithmetic == "bf16" else torch.float32)
    source = torch.zeros(COPIED_BYTES // 4)
    result, target = torch.empty_like(matrix), torch.empty_like(source)
    product_s = _shortest_s(lambda: torch.mm(matrix, matrix, out=result))
    # A copy reads and writes each byte.
    copy_s = _shortest_s(lambda: target.copy_(source))
    return {"precision": arithmetic, "flop_per_s": 2 * ORDER**3 / product_s, "bytes_per_s": 2 * COPIED_BYTES / copy_s}


def _shortest_s(work: Callable[[], object]) -> float:
    work()
    took = []
    for _ in range(ROOF_CALLS):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def _names(found: list[dict[str, str]]) -> str:
    return ", ".join(dict.fromkeys(gpu.get("gpu", gpu["gpu_uuid"]) for gpu in found))
