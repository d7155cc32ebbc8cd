"""Writes traces of several processes in the form of torch.profiler's, with known lateness and bytes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.tools.torch import trace
from profzoo.tools.torch.collective_events import read_collectives
from profzoo.tools.torch.collective_tables import Process, Timeline, make_timeline

BASE_NS, BASE_US = 1_790_857_026_000_000_000, 1_000_000.0


@dataclass(frozen=True)
class Sent:
    """An operation of a simulated process, in us from the beginning: name, elements, when it was called and ran."""

    name: str
    elements: int
    called: float
    start: float
    end: float
    dtype: str = "Float"
    # Ranks of the group; all of them where there are none.
    group: tuple[int, ...] = ()


def write_trace(
    path: Path,
    ranges: Sequence[tuple[str, float, float]],
    sent: Sequence[Sent],
    kernels: Sequence[tuple[float, float, float]] = (),
    clock_us: float = 0.0,
    size: int = 2,
    drop: Sequence[str] = (),
) -> Path:
    """Write the trace of a process.

    ranges: name, start and end. kernels: when each was called, and its start and end. clock_us: how far the host's
    clock is ahead. drop: keys of NCCL's kernels that this version of torch does not write.
    """
    zero = BASE_US + clock_us
    events: list[dict[str, Any]] = [
        _event("user_annotation", f"profzoo:{name}", zero + start, end - start, {"External id": 1})
        for name, start, end in ranges
    ]
    for number, (called, start, end) in enumerate(kernels):
        own = {"correlation": 1000 + number, "External id": 5, "stream": 7, "device": 0, "context": 1}
        events.append(_event("cuda_runtime", "cudaLaunchKernel", zero + called, 1, own))
        events.append(_event("kernel", "void gemm<float>(int)", zero + start, end - start, own))
    for number, one in enumerate(sent):
        total, group = one.elements, list(one.group or range(size))
        own = {"correlation": number + 1, "External id": 9, "stream": 20, "device": 0, "context": 1}
        about = {
            "Collective name": one.name, "In msg nelems": total, "Out msg nelems": total,
            "Group size": len(group),
            "dtype": one.dtype, "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
            "Process Group Description": "default_pg", "Process Group Ranks": str(group), "Seq": number,
        }  # fmt: skip
        if "gather" in one.name:
            about["In msg nelems"] = total // len(group)
        about = {key: value for key, value in about.items() if key not in drop}
        events.append(_event("cuda_runtime", "cudaLaunchKernelExC", zero + one.called, 2, own))
        kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        events.append(_event("kernel", kernel, zero + one.start, one.end - one.start, {**own, **about}))
    whole = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": size}}
    whole |= {"baseTimeNanoseconds": BASE_NS, "traceEvents": events}
    path.write_text(json.dumps(whole))
    return path


def _event(category: str, name: str, start: float, length: float, about: Mapping[str, Any]) -> dict[str, Any]:
    own = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1}
    return {**own, "ts": start, "dur": length, "args": dict(about)}


def read_process(path: Path, host: str, rank: int) -> tuple[Process, Timeline]:
    """Read the trace of a process, as the export does."""
    events = trace.read_trace(path)
    found = read_collectives(path, events)
    return Process(host, rank, found), make_timeline(events, found.base_ns)
