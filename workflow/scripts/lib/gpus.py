"""Names the GPUs of the machine, and those of them that a job may take."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence

FIELDS = {"gpu": "name", "driver": "driver_version", "gpu_uuid": "uuid", "gpu_memory": "memory.total"}


def present() -> list[dict[str, str]]:
    """Name, driver, UUID and memory of each GPU in the order of their numbers, by nvidia-smi; empty without one."""
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS.values())}", "--format=csv,noheader"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [[part.strip() for part in line.split(",")] for line in answer.stdout.splitlines()]
    complete = [dict(zip(FIELDS, row, strict=True)) for row in rows if len(row) == len(FIELDS)]
    return [] if answer.returncode else complete


def candidates(given: Mapping[str, str], found: Sequence[Mapping[str, str]]) -> list[str]:
    """The GPUs that a job may take, in CUDA's words: those of CUDA_VISIBLE_DEVICES where that is set, else all.

    given: environment; found: the GPUs present, by whose UUIDs they are named: these, unlike numbers, mean the same to
    every tool.

    >>> candidates({"CUDA_VISIBLE_DEVICES": "2,3"}, [{"gpu_uuid": "GPU-a"}])
    ['2', '3']
    >>> candidates({"CUDA_VISIBLE_DEVICES": ""}, [{"gpu_uuid": "GPU-a"}])
    []
    >>> candidates({}, [{"gpu_uuid": "GPU-a"}, {"gpu_uuid": "GPU-b"}])
    ['GPU-a', 'GPU-b']
    """
    listed = given.get("CUDA_VISIBLE_DEVICES") if found else ""
    if listed is None:
        return [gpu["gpu_uuid"] for gpu in found]
    return [word.strip() for word in listed.split(",") if word.strip()]


def named(word: str, found: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """The GPU of a number or UUID; the first one for what nvidia-smi does not list, such as a part of a GPU (MIG)."""
    if word.isdigit() and int(word) < len(found):
        return found[int(word)]
    return next((gpu for gpu in found if gpu["gpu_uuid"].startswith(word)), found[0])


def visible(given: Mapping[str, str]) -> list[Mapping[str, str]]:
    """The GPUs that a job may take."""
    found = present()
    return [named(word, found) for word in candidates(given, found)]
