"""Finds the blocks that were allocated at the peak of a GPU's memory, with the Python lines that allocated them.

The file is the snapshot of torch's allocator (profzoo/harness/observers/allocator.py). It is read without running any
code in it. The blocks of its end and the events before lead back to each earlier moment.
"""

import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

import pandas as pd

from profzoo.errors import DataError
from profzoo.io.columns import COUNT, CPU, FLAG, TEXT, Column
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv

# Name in the folder of further files; of harness/observers/allocator.py.
SNAPSHOT = "snapshot.pickle"
ALLOCATED, TAKEN, RETURNED = "active_allocated", "alloc", "free_requested"
COLUMNS = ("device", "address", "bytes", "block_bytes", "ns", "at_end", "file", "line", "function", "caller")
TABLE = Table(
    columns={
        "device": Column(TEXT, "Device of the memory: `cuda:0` and so on.", tool="torch"),
        "file": Column(
            TEXT, "File of the innermost line of the program that allocated the block; empty where no Python line "
            "did, as in a backward pass.", tool="torch"),
        "function": Column(TEXT, "Function of that line.", tool="torch"),
        "caller": Column(TEXT, "The next line of the program around it, as `file:line`.", tool="torch"),
        "address": Column(
            COUNT, "Address of the block; a row is a block that was allocated at the peak.", tool="torch"),
        "bytes": Column(COUNT, "Bytes that were asked for; those of all rows are the peak.", "byte", "torch"),
        "block_bytes": Column(
            COUNT.or_missing, "Bytes of the block, as the allocator rounds them; empty for a block that was released "
            "later.", "byte", "torch"),
        "ns": Column(
            COUNT.or_missing, "Time of the allocation since recording began; empty for blocks from before.",
            "ns", "torch", CPU),
        "line": Column(COUNT.or_missing, "Number of that line.", tool="torch"),
        "at_end": Column(FLAG, "Whether the block is still allocated when the window has ended.", tool="torch"),
    },
    key=["device", "address"],
)  # fmt: skip
# Files whose frames are not the program's own: of torch, of Python's library, and of profzoo, which calls the program.
OTHERS = re.compile(
    r"/(?:site|dist)-packages/torch/|/lib/python3\.\d+/(?!(?:site|dist)-packages/)|/profzoo/(?:script_)?harness/"
    r"|/profzoo/run\.py$|/models/run\.py$|^<"
)
PACKAGES = ("/site-packages/", "/dist-packages/")
AGAIN = "delete it, and the next run collects it again"


class Frame(TypedDict):
    """A line of a Python stack."""

    filename: str
    line: int
    name: str


class Block(TypedDict):
    """A block at a moment: bytes that were asked for, and of the block; when it was allocated, and by which frames.

    size: None for a block that is not there any more at the end. us: None if that is not recorded.
    """

    requested: int
    size: int | None
    us: int | None
    frames: Sequence[Frame]


Blocks = dict[int, Block]


class _PlainUnpickler(pickle.Unpickler):
    """Reads lists, mappings, texts and numbers, and refuses everything that would call code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which a snapshot of memory does not")


def main(folder: str, copy: str, csv: str) -> None:
    """Copy the snapshot from the folder of further files, and write the table of the blocks at its peak.

    Raises:
        DataError: there is no snapshot, or it is not a snapshot of torch's allocator with a history.
    """
    path = Path(folder) / SNAPSHOT
    if not path.exists():
        raise DataError(f"{folder} holds no {SNAPSHOT}: torch.snapshot records models on a GPU, and no scripts")
    write_csv(tabulate_peak(read_snapshot(path), path), csv)
    shutil.copyfile(path, copy)


def read_snapshot(path: Path) -> Mapping[str, Any]:
    """Read a snapshot without running any code in it.

    Raises:
        DataError: it is damaged, or holds something else.
    """
    try:
        with path.open("rb") as file:
            found = _PlainUnpickler(file).load()
    except (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise DataError(f"{path} is not a snapshot of torch's allocator: {error}: {AGAIN}") from error
    lacking = [key for key in ("segments", "device_traces") if not isinstance(found, dict) or key not in found]
    if lacking:
        raise DataError(f"{path} holds no {lacking[0]}, which torch up to 2.14 writes: {AGAIN}")
    return found


def tabulate_peak(snapshot: Mapping[str, Any], path: str | Path) -> pd.DataFrame:
    """Return one row per block that was allocated when a device's allocated bytes were at their peak, largest first.

    Columns: `address`; `bytes` that were asked for, and `block_bytes` with the allocator's rounding, which is known if
    the block is there at the end (`at_end`); `ns` since recording began; `file`, `line` and `function` of the innermost
    frame of the program, and `caller`, the next one of the program around it, as `file:line`. Blocks from before the
    recording have no time and no line.

    Raises:
        DataError: no allocation was recorded.
    """
    rows = []
    for device, events in enumerate(snapshot["device_traces"]):
        recorded = [event for event in events if event.get("action") in (TAKEN, RETURNED)]
        if recorded:
            peak = _find_peak(_blocks_at_end(snapshot["segments"], device), recorded)
            rows += [_row(device, address, block, recorded[0]["time_us"]) for address, block in peak.items()]
    if not rows:
        raise DataError(f"{path} holds no allocation: torch recorded none on a GPU: {AGAIN}")
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    whole = ["block_bytes", "ns", "line"]
    return table.astype(dict.fromkeys(whole, "Int64")).sort_values(["bytes", "address"], ascending=[False, True])


def _blocks_at_end(segments: Sequence[Mapping[str, Any]], device: int) -> Blocks:
    """Return the blocks that tensors have when the snapshot is taken."""
    found: Blocks = {}
    for segment in segments:
        if segment.get("device", 0) == device:
            for block in segment["blocks"]:
                if block["state"] == ALLOCATED:
                    requested = block.get("requested_size", block["size"])
                    frames = block.get("frames", ())
                    found[block["address"]] = Block(requested=requested, size=block["size"], us=None, frames=frames)
    return found


def _find_peak(at_end: Blocks, events: Sequence[Mapping[str, Any]]) -> Blocks:
    """Return the blocks at the moment at which most bytes were asked for; of several such moments the first."""
    now = _undo(at_end, events)
    total = most = sum(block["requested"] for block in now.values())
    place = 0
    for number, event in enumerate(events, start=1):
        total += event["size"] if event["action"] == TAKEN else -event["size"]
        if total > most:
            most, place = total, number
    for event in events[:place]:
        _apply(now, event)
    # A block that stays until the end is known by its size, too.
    moved = {event["addr"] for event in events[place:]}
    for address, block in now.items():
        later = None if address in moved else at_end.get(address)
        if later:
            block["size"] = later["size"]
            block["frames"] = block["frames"] or later["frames"]
    return now


def _undo(at_end: Blocks, events: Sequence[Mapping[str, Any]]) -> Blocks:
    """Return the blocks before the first event."""
    now: Blocks = {address: block.copy() for address, block in at_end.items()}
    for event in reversed(events):
        if event["action"] == TAKEN:
            now.pop(event["addr"], None)
        else:
            now[event["addr"]] = Block(requested=event["size"], size=None, us=None, frames=())
    for block in now.values():
        block["size"] = None
    return now


def _apply(now: Blocks, event: Mapping[str, Any]) -> None:
    if event["action"] == TAKEN:
        frames = event.get("frames", ())
        now[event["addr"]] = Block(requested=event["size"], size=None, us=event.get("time_us"), frames=frames)
    else:
        now.pop(event["addr"], None)


def _row(device: int, address: int, block: Block, first_us: int) -> tuple[Any, ...]:
    own = [frame for frame in block["frames"] if not OTHERS.search(frame["filename"])]
    shown = own or list(block["frames"][:1])
    file, line, function = (
        (shorten(shown[0]["filename"]), shown[0]["line"], shown[0]["name"]) if shown else ("", None, "")
    )
    caller = f"{shorten(own[1]['filename'])}:{own[1]['line']}" if len(own) > 1 else ""
    ns = None if block["us"] is None else (block["us"] - first_us) * 1000
    at_end = block["size"] is not None
    return (f"cuda:{device}", address, block["requested"], block["size"], ns, at_end, file, line, function, caller)


def shorten(path: str) -> str:
    """Return a path relative to its package or to the working folder, else no more than folder and name.

    >>> shorten("/opt/venv/lib/python3.12/site-packages/timm/models/vit.py"), shorten("/home/someone/work/train.py")
    ('timm/models/vit.py', 'work/train.py')
    """
    for folder in (*PACKAGES, f"{Path.cwd()}/"):
        if folder in path:
            return path.rpartition(folder)[2]
    return str(PurePosixPath(*PurePosixPath(path).parts[-2:]))
