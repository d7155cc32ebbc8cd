"""The stand-in for NVML that tests build, and the values planted in it."""

import os
import subprocess
from pathlib import Path

import pytest

from profzoo.tools.sample import nvml

SOURCE = Path(__file__).parent / "tools" / "standins" / "nvml.c"
UUIDS = [f"GPU-00000000-0000-0000-0000-{number:012}" for number in range(2)]


def built(folder: Path) -> Path:
    """Build the library in a folder, under the name by which it is loaded, and return the folder."""
    folder.mkdir(exist_ok=True)
    # With this name in the file, the NVML binding accepts the library as the one that it loads.
    words = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-Wall", "-Werror", "-O1", str(SOURCE), "-lm"]
    subprocess.run([*words, "-o", str(folder / "libnvidia-ml.so.1")], check=True)
    return folder


def load_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Have this process load the library in the folder, with one GPU that jobs may use."""
    monkeypatch.setattr(nvml, "LIBRARY", str(folder / nvml.LIBRARY))
    for name in ("STANDIN_NVML", "STANDIN_GPUS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUIDS[0])
    return monkeypatch


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return this process's environment, changed so that programs load the library in the folder."""
    paths = filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")])
    return os.environ | {"LD_LIBRARY_PATH": ":".join(paths), "CUDA_VISIBLE_DEVICES": UUIDS[0]} | more


def energy_j(at_ns: int) -> float:
    """Return the energy in J that each GPU has used at a time of the monotonic clock.

    In every second, power goes from 100 W to 300 W.
    """
    seconds, part = divmod(at_ns / 1e9, 1)
    return seconds * 200 + 100 * part + 100 * part**2
