"""Notes what PyTorch's allocator of GPU memory did within the window, and how much of its memory no tensor used.

Where no free block fits, the allocator asks the driver for memory. Where the driver has none left, it waits for the
GPU, gives its free blocks back, and asks again: a retry. All numbers are torch's own (torch.cuda.memory_stats).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from profzoo.harness import safe_inspection

if TYPE_CHECKING:
    from profzoo.cell.job_types import AllocatorFacts

# Facts that are counts of events, and torch's names for them.
COUNTS = {
    "retries": "num_alloc_retries", "failures": "num_ooms", "driver_allocations": "num_device_alloc",
    "driver_frees": "num_device_free",
}  # fmt: skip
RESERVED, USED, STUCK = "reserved_bytes.all.current", "allocated_bytes.all.peak", "inactive_split_bytes.all.current"


def read_statistics(device: torch.device) -> Mapping[str, int]:
    """Return torch's statistics of the GPU's memory now; empty for a CPU, or where torch tells none."""
    if device.type != "cuda":
        return {}
    nothing: Mapping[str, int] = {}
    return safe_inspection.attempt("the allocator was not read", lambda: torch.cuda.memory_stats(device), nothing)


def describe_allocator(
    before: Mapping[str, int], after: Mapping[str, int], device: torch.device
) -> "AllocatorFacts | None":
    """Return what happened between two readings of `read_statistics`; None if one of them tells nothing.

    An allocator other than torch's own (backend:cudaMallocAsync) tells no retries: then there is nothing to return.
    """
    if not {*COUNTS.values(), RESERVED, USED} <= set(before) & set(after):
        return None
    counted = {name: after[own] - before[own] for name, own in COUNTS.items()}
    return {
        "retries": counted["retries"],
        "failures": counted["failures"],
        "driver_allocations": counted["driver_allocations"],
        "driver_frees": counted["driver_frees"],
        "reserved_bytes": max(before[RESERVED], after[RESERVED]),
        "used_peak_bytes": after[USED],
        "stuck_bytes": after.get(STUCK, 0),
        "limit_bytes": safe_inspection.attempt("the limit of memory is unknown", lambda: _read_limit(device), 0),
    }


def _read_limit(device: torch.device) -> int:
    """Return how many bytes of GPU memory this process may take: the GPU's, or the part that the program asked for."""
    share = float(torch.cuda.get_per_process_memory_fraction(device))
    return int(torch.cuda.get_device_properties(device).total_memory * share)
