"""Records what the GPU's allocator does from before the network is placed until the window has ended.

torch's own recording (`torch.cuda.memory._record_memory_history`) notes each allocation with the Python frames around
it. The snapshot after the window has the blocks that are there then, and what happened before, by which the blocks at
the peak are known. pytorch.org/memory_viz shows the same file.
"""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from profzoo.errors import ConfigError

if TYPE_CHECKING:
    from profzoo.cell.cell_types import CellSettings

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
