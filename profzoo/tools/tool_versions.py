"""Reads from sidecars which versions of torch, the driver and the profilers measurements were made with."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from profzoo import tools

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

TORCH, DRIVER = "torch", "driver"
NUMBER = re.compile(r"\d+(\.\d+)+")


def profilers() -> list[str]:
    """Return the names of the tools that are programs with versions of their own."""
    return [name for name, command in tools.commands().items() if command.PROGRAM]


def versions_of(facts: "Sidecar") -> dict[str, str]:
    """Return versions by name: `torch`, `driver` (with a GPU), and the tool if it is a program of its own.

    facts: a sidecar; versions that it lacks are left out.

    >>> versions_of({"tool": "nsys", "torch": "2.9.0", "tool_version": "NVIDIA Nsight Systems version 2025.3.2.4-1v0"})
    {'torch': '2.9.0', 'nsys': '2025.3.2.4'}
    """
    found = {name: facts.get(name) for name in (TORCH, DRIVER)}
    if facts.get("tool") in profilers():
        found[facts["tool"]] = short(str(facts.get("tool_version") or ""))
    return {name: version for name, version in found.items() if isinstance(version, str) and version}


def short(printed: str) -> str:
    """Return the number in the text that a program prints as its version; the whole text without a number.

    >>> short("Version 2025.3.1.0 (build 36398880) (public-release)")
    '2025.3.1.0'
    """
    found = NUMBER.search(printed)
    return found[0] if found else printed


def merge_versions(by_tool: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return one text per versioned program for all tools of a cell; if versions differ, with the tool of each.

    by_tool: results of versions_of, by tool.

    >>> merge_versions({"time": {"torch": "2.9.0"}, "nsys": {"torch": "2.10.0", "nsys": "2025.3"}})
    {'torch': '2.9.0 (time), 2.10.0 (nsys)', 'nsys': '2025.3'}
    """
    found: dict[str, dict[str, list[str]]] = {}
    for tool, versions in by_tool.items():
        for name, version in versions.items():
            found.setdefault(name, {}).setdefault(version, []).append(tool)
    return {
        name: next(iter(who))
        if len(who) == 1
        else ", ".join(f"{version} ({', '.join(names)})" for version, names in who.items())
        for name, who in found.items()
    }
