"""Writes what is known of an imported report: what the file is, its tool and GPU, its steps, and what is missing."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from profzoo.range_names import IMPORTED
from profzoo.records import digests

# Seconds since 1970 that a trace of torch.profiler can have begun at: from 2018 to 2100.
EARLIEST_S, LATEST_S = 1_514_764_800, 4_102_444_800
UNKNOWN_GPU = "unknown GPU"


def file_facts(path: str | Path, form: str) -> dict[str, Any]:
    """Return what a file is: its path as it was given, its size and digest, and its form in words."""
    size = digests.measure_size(Path(path))
    return {"file": str(path), "sha256": digests.compute_digest(Path(path)), "bytes": size, "form": form}


def cell_facts(model: str, steps: int) -> dict[str, Any]:
    """Return a cell's settings as far as an import knows them: which cell it is, and its number of steps."""
    return {"model": model, "phase": IMPORTED, "window": steps, "workload": "", "precision": ""}


def step_facts(found_by: str, wall_ns: np.ndarray, gpu_ns: np.ndarray | None) -> dict[str, Any]:
    """Return what is known of the steps: what they are taken from, and how long each took."""
    return {
        "steps_from": found_by,
        "wall_ns": [int(ns) for ns in wall_ns],
        "gpu_ns": None if gpu_ns is None else [int(ns) for ns in gpu_ns],
    }


def report_facts(
    tool: str, model: str, device: tuple[str, str], steps: Mapping[str, Any], files: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the facts that the sidecar of any imported report has.

    device: its name, and `cuda` or `cpu`. steps: as of `step_facts`. files: as of `file_facts`.
    """
    name, kind = device
    clock = steps["gpu_ns"] or steps["wall_ns"]
    return {
        "tool": tool,
        "device": name,
        "device_type": kind,
        "capture": "run",
        "cell": cell_facts(model, len(clock)),
        "command": [],
        "started": "",
        "torch": "",
        "cuda": None,
        "steps": len(clock),
        "traced_steps": len(clock),
        "step_ns": float(np.median(clock)),
        "imported": {"files": list(files), **steps},
    }


def device_name(names: Mapping[str, Any], used: object) -> str:
    """Return the name of a GPU as far as a report tells it.

    names: of all GPUs, by what the report calls each. used: what it calls the one that ran most launches.

    >>> device_name({"0": "", "1": "H100"}, "0"), device_name({}, "0")
    ('H100', 'unknown GPU')
    """
    alike = {str(name) for name in names.values() if name}
    return str(names.get(used) or "") or (alike.pop() if len(alike) == 1 else "") or UNKNOWN_GPU  # type: ignore[call-overload]


def date_of(epoch_ns: int) -> str:
    """Return when a time in ns since 1970 was, as sidecars have it; empty for what is no such time.

    >>> date_of(1694040009743542000), date_of(4374064379813)
    ('2023-09-06T22:40:09+00:00', '')
    """
    seconds = epoch_ns // 10**9
    if not EARLIEST_S <= seconds <= LATEST_S:
        return ""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
