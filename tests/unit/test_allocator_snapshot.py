"""Blocks at the peak of a GPU's memory, from snapshots in the form of torch's allocator (torch.cuda.memory._snapshot)."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

from profzoo.errors import ConfigError, DataError
from profzoo.harness.observers.allocator import SNAPSHOT, start_history, write_snapshot
from profzoo.io import csv_tables as reading
from profzoo.tools.torch import allocator_snapshot

ROUND = 512
PACKAGES = "/opt/venv/lib/python3.12/site-packages"


def frames(*places: tuple[str, int, str]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in places]


class Allocator:
    """Notes allocations and releases as torch's allocator does, with a block of its own for each address."""

    def __init__(self) -> None:
        self.blocks: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.peak = 0

    def take(self, address: int, size: int, stack: list[dict[str, Any]], recorded: bool = True) -> None:
        rounded = -(-size // ROUND) * ROUND
        self.blocks[address] = {"size": rounded, "requested_size": size, "address": address,
                                "state": "active_allocated", "frames": stack if recorded else []}  # fmt: skip
        if recorded:
            self._note("alloc", address, size, frames=stack)
        self.peak = max(self.peak, sum(block["requested_size"] for block in self.blocks.values()))

    def give_back(self, address: int) -> None:
        size = self.blocks.pop(address)["requested_size"]
        # With `context="alloc"` releases have no frames.
        self._note("free_requested", address, size)
        self._note("free_completed", address, size)

    def _note(self, action: str, address: int, size: int, **more: Any) -> None:
        time_us = 1_000_000 + 10 * len(self.events)
        self.events.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": time_us, **more})

    def snapshot(self) -> dict[str, Any]:
        free = {"size": 4096, "requested_size": 0, "address": 1 << 30, "state": "inactive", "frames": []}
        blocks = [*self.blocks.values(), free]
        used = sum(block["size"] for block in self.blocks.values())
        segment = {"device": 0, "address": 0, "total_size": used + 4096, "stream": 0, "segment_type": "large",
                   "allocated_size": used, "active_size": used, "blocks": blocks, "frames": [],
                   "requested_size": used, "segment_pool_id": (0, 0), "is_expandable": False}  # fmt: skip
        return {"segments": [segment], "device_traces": [self.events, []], "allocator_settings": {"roundup": {}},
                "external_annotations": []}  # fmt: skip


@pytest.fixture
def allocator() -> Allocator:
    """Weights from before, activations at line 7, one of them at an address that is used again, and a peak at line 9."""
    made = Allocator()
    model = (f"{Path.cwd()}/models/lstm.py", 7, "forward")
    inner = (f"{PACKAGES}/torch/nn/modules/linear.py", 134, "forward")
    loop = (f"{Path.cwd()}/profzoo/harness/step/step_loop.py", 80, "run_steps")
    train = (f"{Path.cwd()}/train.py", 30, "main")
    made.take(10, 1000, [], recorded=False)
    made.take(20, 5000, frames(inner, model, loop, train))
    made.take(30, 300, frames(inner, model, loop))
    made.give_back(30)
    made.take(30, 7000, frames((f"{PACKAGES}/timm/models/vit.py", 9, "attend"), model))
    made.give_back(20)
    made.give_back(30)
    made.take(40, 600, frames(loop))
    return made


def test_the_blocks_of_a_known_peak(allocator: Allocator) -> None:
    table = allocator_snapshot.tabulate_peak(allocator.snapshot(), "s.pickle")
    assert table["bytes"].sum() == allocator.peak == 13_000
    rows = table[["address", "bytes", "file", "line", "function", "caller", "at_end"]].astype(object)
    assert rows.where(rows.notna(), None).values.tolist() == [
        [30, 7000, "timm/models/vit.py", 9, "attend", "models/lstm.py:7", False],
        [20, 5000, "models/lstm.py", 7, "forward", "train.py:30", False],
        [10, 1000, "", None, "", "", True],
    ]
    assert table["block_bytes"].tolist()[-1] == 1024 and table["block_bytes"].isna().tolist() == [True, True, False]
    assert table["ns"].dropna().tolist() == [40_000, 0]


def test_a_peak_at_the_end_has_whole_blocks_and_lines_of_profzoo_where_there_are_no_others(
    allocator: Allocator,
) -> None:
    allocator.take(50, 20_000, frames((f"{Path.cwd()}/profzoo/harness/step/step_loop.py", 80, "run_steps")))
    table = allocator_snapshot.tabulate_peak(allocator.snapshot(), "s.pickle")
    assert table["bytes"].tolist() == [20_000, 1000, 600] and table["at_end"].all()
    assert table["block_bytes"].tolist() == [20_480, 1024, 1024]
    assert table["file"].tolist()[0] == "profzoo/harness/step/step_loop.py"


def test_both_files_are_written_and_torchs_own_viewer_reads_them(allocator: Allocator, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    with (tmp_path / "more" / SNAPSHOT).open("wb") as file:
        pickle.dump(allocator.snapshot(), file)
    copy, csv = tmp_path / "s.pickle", tmp_path / "s.csv"
    allocator_snapshot.main(str(tmp_path / "more"), str(copy), str(csv))
    read = reading.read(csv, allocator_snapshot.TABLE)
    assert read["bytes"].tolist() == [7000, 5000, 1000] and read["line"].isna().tolist() == [False, False, True]
    with copy.open("rb") as file:
        content = pickle.load(file)
    assert content == allocator.snapshot()
    shown = _memory_viz.trace(content)
    assert "segments: 1" in _memory_viz.segsum(content) and "10 entries" in shown and "= seg_0[40:600.0B]" in shown


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [Path("x")]}))
    with pytest.raises(
        DataError, match=r"s\.pickle is not a snapshot of torch's allocator: it names pathlib\S*, which"
    ):
        allocator_snapshot.read_snapshot(path)
    path.write_bytes(pickle.dumps({"segments": []}))
    with pytest.raises(DataError, match="holds no device_traces"):
        allocator_snapshot.read_snapshot(path)
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[], []]}))
    with pytest.raises(DataError, match="holds no allocation"):
        allocator_snapshot.tabulate_peak(allocator_snapshot.read_snapshot(path), path)
    with pytest.raises(DataError, match=r"holds no snapshot\.pickle: torch\.snapshot records models on a GPU"):
        allocator_snapshot.main(str(tmp_path / "none"), "", "")


def test_a_cpu_has_no_such_allocator(tmp_path: Path) -> None:
    cell: Any = {"model": "lstm", "phase": "train", "profiler": {"snapshot": True}}
    with pytest.raises(ConfigError, match=r"^lstm train: torch\.snapshot records the allocator of a GPU"):
        start_history(cell, torch.device("cpu"))
    start_history({**cell, "profiler": {}}, torch.device("cpu"))
    write_snapshot(tmp_path)
    assert list(tmp_path.iterdir()) == []
