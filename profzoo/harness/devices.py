"""Chooses the device of a run: a GPU that is there is used, or the run ends in one line that says why it is not."""

import os
import re

import torch

from profzoo.errors import ConfigError
from profzoo.machine import gpus


def choose_device(asked: str, number: int = 0) -> torch.device:
    """The device to run on; asked: `auto`, `cuda` or `cpu`; number: of the GPU among those that torch sees.

    Raises:
        ConfigError: torch cannot use a GPU that is asked for, or that is there and not turned down by `cpu`.
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
    """What torch says where it can use no GPU, without its addresses of drivers to install."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return re.split(r"\.\s+(?=[A-Z])", first)[0]
    return "it says no reason"


def read_uuid(device: torch.device) -> str | None:
    """The UUID of a GPU as nvidia-smi writes it; None for a CPU."""
    if device.type != "cuda":
        return None
    return "GPU-" + str(torch.cuda.get_device_properties(device).uuid).removeprefix("GPU-")


def explain_cpu(asked: str, device: torch.device) -> str | None:
    """Why a run was on the CPU, in words; None where it was on a GPU."""
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


def _names(found: list[dict[str, str]]) -> str:
    return ", ".join(dict.fromkeys(gpu.get("gpu", gpu["gpu_uuid"]) for gpu in found))
