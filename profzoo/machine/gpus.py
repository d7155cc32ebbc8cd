"""Lists the machine's GPUs, selects those that a job may use, and checks their driver against CUDA."""

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, takewhile

from profzoo.errors import ConfigError
from profzoo.machine import external_programs

FIELDS = {"gpu": "name", "driver": "driver_version", "gpu_uuid": "uuid", "gpu_memory": "memory.total"}
APPS = ("gpu_uuid", "pid", "process_name")
# UUID of a GPU or of a part of a GPU (MIG).
UUID = re.compile(r"(GPU|MIG)-[A-Za-z0-9/-]+")
# Variables that CUDA reads, and the value of the second with which CUDA numbers GPUs as nvidia-smi does.
VISIBLE, ORDER, BY_BUS = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
# The oldest Linux driver for programs of each major version of CUDA. Source: NVIDIA, "CUDA Compatibility", table of
# minor version compatibility.
OLDEST_DRIVER = {"11": 450, "12": 525, "13": 580}


def query_nvidia_smi() -> tuple[list[dict[str, str]], str]:
    """Query nvidia-smi for name, driver, UUID and memory of each GPU in PCI order; if none, also the reason.

    Raises:
        ConfigError: nvidia-smi hangs, so the GPUs are unknown.
    """
    if not shutil.which("nvidia-smi"):
        return [], "nvidia-smi is not on PATH"
    command = ["nvidia-smi", f"--query-gpu={','.join(FIELDS.values())}", "--format=csv,noheader"]
    answer = external_programs.ask_program(command)
    if answer.returncode == external_programs.TIMED_OUT:
        raise ConfigError(f"{answer.stderr}: the GPU's driver hangs; restart it, or set device to cpu")
    if answer.returncode:
        said = (answer.stdout + answer.stderr).strip().splitlines() or [f"exit code {answer.returncode}"]
        return [], f"nvidia-smi fails: {said[0].strip()}"
    complete = _complete(answer.stdout, FIELDS)
    return complete, "" if complete else "nvidia-smi shows none"


def list_gpus() -> list[dict[str, str]]:
    """List name, driver, UUID and memory of each GPU in nvidia-smi's order; empty without a GPU."""
    return query_nvidia_smi()[0]


def read_compute_capabilities() -> set[float]:
    """Return the compute capabilities of this machine's GPUs, such as 9.0; empty if nvidia-smi does not report them."""
    answer = external_programs.ask_program(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"])
    lines = answer.stdout.split() if answer.returncode == 0 else []
    return {float(line) for line in lines if re.fullmatch(r"\d+\.\d+", line)}


def choose_candidates(given: Mapping[str, str], found: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the UUIDs of the GPUs that a job may use: GPUs in CUDA_VISIBLE_DEVICES if it is set, else all.

    Unlike numbers, UUIDs mean the same to CUDA, nvidia-smi and locks. Parts of GPUs (MIG) are not listed by nvidia-smi
    as GPUs, and keep their names in the variable. Like CUDA, this stops at the first word that names no GPU, and finds
    no GPU at all if one is named twice.

    given: environment. found: the existing GPUs, in nvidia-smi's order.

    Raises:
        ConfigError: the variable has numbers, and GPUs are of different kinds, which CUDA may count in another order.

    >>> choose_candidates({}, [{"gpu_uuid": "GPU-a"}, {"gpu_uuid": "GPU-b"}])
    ['GPU-a', 'GPU-b']
    >>> choose_candidates({"CUDA_VISIBLE_DEVICES": "-1"}, [{"gpu_uuid": "GPU-a"}])
    []
    """
    uuids = [gpu["gpu_uuid"] for gpu in found]
    listed = given.get(VISIBLE)
    if listed is None or not found:
        return uuids
    words = [word.strip() for word in listed.split(",")]
    if words[0].startswith("MIG-"):
        chosen = list(takewhile(lambda word: word.startswith("MIG-"), words))
    elif words[0].startswith("GPU-"):
        matches = ([uuid for uuid in uuids if uuid.startswith(word)] for word in words)
        chosen = [uuid for (uuid,) in takewhile(lambda one: len(one) == 1, matches)]
    else:
        numbers = list(takewhile(lambda number: 0 <= number < len(found), map(_number, words)))
        _check_order(listed, numbers, given, found)
        chosen = [uuids[number] for number in numbers]
    return chosen if len(set(chosen)) == len(chosen) else []


def grants_gpu(given: Mapping[str, str]) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES names a GPU, present or not; an empty value and -1 hide all GPUs.

    >>> [grants_gpu({"CUDA_VISIBLE_DEVICES": word}) for word in ("0", "GPU-a", "-1", "", "NoDevFiles")]
    [True, True, False, False, False]
    """
    first = given.get(VISIBLE, "").partition(",")[0].strip()
    return first.startswith(("GPU-", "MIG-")) or _number(first) >= 0


def _number(word: str) -> int:
    """Number at the beginning of a word, as CUDA parses it; -1 if there is none."""
    digits = re.match(r"[+-]?\d+", word)
    return int(digits[0]) if digits else -1


def _check_order(
    listed: str, numbers: Sequence[int], given: Mapping[str, str], found: Sequence[Mapping[str, str]]
) -> None:
    kinds = sorted({gpu.get("gpu", "") for gpu in found})
    if len(kinds) == 1 or given.get(ORDER) == BY_BUS or set(numbers) in (set(), set(range(len(found)))):
        return
    raise ConfigError(
        f"{VISIBLE} = '{listed}' counts GPUs of different kinds ({', '.join(kinds)}), the fastest first, and "
        f"nvidia-smi in another order: give UUIDs (nvidia-smi -L), or set {ORDER}={BY_BUS}"
    )


def describe_gpu(word: str, found: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Name, driver, UUID and memory of a candidate; for a MIG instance, the values common to all GPUs here.

    >>> describe_gpu("MIG-7", [{"gpu": "A", "gpu_uuid": "GPU-a"}, {"gpu": "A", "gpu_uuid": "GPU-b"}])
    {'gpu': 'A', 'gpu_uuid': 'MIG-7'}
    """
    for gpu in found:
        if gpu["gpu_uuid"] == word:
            return dict(gpu)
    shared = {key: value for key, value in found[0].items() if all(gpu[key] == value for gpu in found)}
    return shared | {"gpu_uuid": word}


def describe_gpu_processes(words: Sequence[str]) -> list[str]:
    """Return a text that lists the processes running on these GPUs; empty if nvidia-smi reports none."""
    if not words:
        return []
    answer = external_programs.ask_program(
        ["nvidia-smi", f"--query-compute-apps={','.join(APPS)}", "--format=csv,noheader"]
    )
    # The last field is the name of a process, which may contain commas.
    apps = _complete(answer.stdout, APPS, most=len(APPS) - 1)
    return [f"{app['process_name']} (process {app['pid']})" for app in apps if app["gpu_uuid"] in words]


def _complete(printed: str, fields: Collection[str], most: int = -1) -> list[dict[str, str]]:
    """Return the lines of nvidia-smi that have all fields and a valid UUID; most: commas that separate, -1 for all."""
    rows = [[part.strip() for part in line.split(",", most)] for line in printed.splitlines()]
    found = [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]
    return [one for one in found if UUID.fullmatch(one["gpu_uuid"])]


def list_visible_gpus(given: Mapping[str, str]) -> list[dict[str, str]]:
    """List the GPUs that a job may use."""
    found = list_gpus()
    return [describe_gpu(word, found) for word in choose_candidates(given, found)]


def explain_old_driver(driver: str, cuda: str | None) -> str | None:
    """Explain why a driver cannot run programs built for a CUDA version; None if it can, or if that is unknown.

    >>> explain_old_driver("535.183.01", "13.0")
    'driver 535.183.01 is too old for CUDA 13.0, which needs 580 or later'
    >>> explain_old_driver("580.65.06", "13.0")
    """
    needed = OLDEST_DRIVER.get((cuda or "").partition(".")[0])
    major = driver.partition(".")[0]
    if needed is None or not major.isdigit() or int(major) >= needed:
        return None
    return f"driver {driver} is too old for CUDA {cuda}, which needs {needed} or later"


# Tells what joins the GPUs of a machine: NVLink, or a path over PCIe, as `nvidia-smi topo -m` prints it.

# The header is underlined by escape sequences, also in a file.
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
GPU = re.compile(r"GPU(\d+)")
LINK = re.compile(r"NV\d+|PIX|PXB|PHB|NODE|SYS")
NETWORK = "network"


def parse_topology(printed: str) -> dict[tuple[int, int], str]:
    """Return the link between each two GPUs, by their numbers in nvidia-smi, the smaller number first.

    printed: output of `nvidia-smi topo -m`. NV and a number are that many NVLinks; PIX, PXB, PHB, NODE and SYS are
    paths over PCIe, from one bridge to another socket.

    >>> parse_topology("\\tGPU0\\tGPU1\\tNIC0\\nGPU0\\t X \\tNV18\\tPIX\\nGPU1\\tNV18\\t X \\tSYS\\n")
    {(0, 1): 'NV18'}
    """
    lines = [ESCAPES.sub("", line).split() for line in printed.splitlines()]
    header = next((words for words in lines if words and GPU.fullmatch(words[0]) and "X" not in words), [])
    numbers = [int(found[1]) for word in header if (found := GPU.fullmatch(word))]
    links = {}
    for words in lines:
        row = GPU.fullmatch(words[0]) if words else None
        if not row or words is header:
            continue
        for number, link in zip(numbers, words[1:], strict=False):
            if int(row[1]) < number and LINK.fullmatch(link):
                links[int(row[1]), number] = link
    return links


def name_links(links: Mapping[tuple[int, int], str], numbers: Collection[int]) -> str:
    """Return the kinds of links between these GPUs, sorted and joined by commas; empty if none is known.

    >>> name_links({(0, 1): "NV18", (0, 2): "SYS", (1, 2): "SYS"}, [0, 1]), name_links({}, [0, 1])
    ('NV18', '')
    """
    pairs = combinations(sorted(numbers), 2)
    return ", ".join(sorted({links[pair] for pair in pairs if pair in links}))


def read_links(uuids: Sequence[str | None], listed: Sequence[Mapping[str, str]]) -> str:
    """Return the kinds of links between GPUs of this machine; empty if nvidia-smi does not tell them.

    uuids: of the GPUs; None for a process without one. listed: the machine's GPUs, in nvidia-smi's order.
    """
    places = {gpu["gpu_uuid"]: place for place, gpu in enumerate(listed)}
    numbers = [places[uuid] for uuid in uuids if uuid in places]
    if len(numbers) < 2:
        return ""
    answer = external_programs.ask_program(["nvidia-smi", "topo", "-m"])
    return name_links(parse_topology(answer.stdout), numbers) if answer.returncode == 0 else ""
