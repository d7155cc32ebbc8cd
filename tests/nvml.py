"""The stand-in for NVML that tests build, and what is planted in it."""

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "tools" / "standins" / "nvml.c"
UUIDS = [f"GPU-00000000-0000-0000-0000-{number:012}" for number in range(2)]


def built(folder: Path) -> Path:
    """The folder, with the library in it under the name that it is loaded by."""
    folder.mkdir(exist_ok=True)
    # By its own name, the binding takes it for the one that it would load.
    words = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-Wall", "-Werror", "-O1", str(SOURCE), "-lm"]
    subprocess.run([*words, "-o", str(folder / "libnvidia-ml.so.1")], check=True)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """This process's environment for programs that are to find the library there."""
    paths = filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")])
    return os.environ | {"LD_LIBRARY_PATH": ":".join(paths), "CUDA_VISIBLE_DEVICES": UUIDS[0]} | more


def energy_j(at_ns: int) -> float:
    """What each of its GPUs has used up by a time of the monotonic clock: from 100 W to 300 W in every second."""
    seconds, part = divmod(at_ns / 1e9, 1)
    return seconds * 200 + 100 * part + 100 * part**2
