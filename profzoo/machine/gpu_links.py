"""Tells what joins the GPUs of a machine: NVLink, or a path over PCIe, as `nvidia-smi topo -m` prints it."""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from profzoo.machine import external_programs

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
