"""Records what the GPU's allocator does within the window, and how much of its memory no tensor used."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from profzoo.errors import ConfigError
from profzoo.harness import inspection

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings
    from profzoo.cell.job_types import AllocatorFacts


# Records what the GPU's allocator does from before the network is placed until the window has ended.
#
# torch's own recording (`torch.cuda.memory._record_memory_history`) notes each allocation with the Python frames around
# it. The snapshot after the window has the blocks that are there then, and what happened before, by which the blocks at
# the peak are known. pytorch.org/memory_viz shows the same file.

SNAPSHOT = "snapshot.pickle"
# Most events that are kept; of more, the first ones are dropped.
MOST_EVENTS = 1_000_000
_recording = False


def start_history(cell: "CellSettings", device: torch.device) -> None:
    """Begin to record, if the cell asks for it (`torch.snapshot`).

    Raises:
        ConfigError: the cell runs on a CPU, whose allocator torch does not record.
    """
    global _recording
    if not cell.get("profiler", {}).get("snapshot"):
        return
    if device.type != "cuda":
        raise ConfigError(
            f"{cell['model']} {cell['phase']}: torch.snapshot records the allocator of a GPU, and the cell runs on a "
            "CPU: set torch.snapshot to false, or device to cuda"
        )
    torch.cuda.init()
    # Allocations and releases, with the frames of allocations, those of Python alone.
    torch.cuda.memory._record_memory_history(
        enabled="all", context="alloc", stacks="python", max_entries=MOST_EVENTS, device=device
    )
    _recording = True


def write_snapshot(folder: Path) -> None:
    """Write what was recorded to SNAPSHOT in a folder, and end the recording; nothing where none was begun."""
    global _recording
    if not _recording:
        return
    found = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    _recording = False
    with (folder / SNAPSHOT).open("wb") as file:
        pickle.dump(found, file)


# Notes what PyTorch's allocator of GPU memory did within the window, and how much of its memory no tensor used.
#
# Where no free block fits, the allocator asks the driver for memory. Where the driver has none left, it waits for the
# GPU, gives its free blocks back, and asks again: a retry. All numbers are torch's own (torch.cuda.memory_stats).

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
    return inspection.attempt("the allocator was not read", lambda: torch.cuda.memory_stats(device), nothing)


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
        "limit_bytes": inspection.attempt("the limit of memory is unknown", lambda: _read_limit(device), 0),
    }


def _read_limit(device: torch.device) -> int:
    """Return how many bytes of GPU memory this process may take: the GPU's, or the part that the program asked for."""
    share = float(torch.cuda.get_per_process_memory_fraction(device))
    return int(torch.cuda.get_device_properties(device).total_memory * share)
