"""Memory over the traced steps: of a program with known allocations, and of events as a GPU's allocator reports them."""

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from profzoo.errors import DataError
from profzoo.figures import memory_over_time as figure
from profzoo.range_names import make_torch_name
from profzoo.tools.torch import memory_over_time, trace
from profzoo.tools.torch.memory_over_time import HELD

STEPS, KEPT, SHORT, EARLY = 3, 1 << 20, 1 << 18, 1 << 19
ITEM = 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of steps that keep one tensor of the forward pass each, and release one of the backward pass at once."""
    kept: list[Any] = []
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        early: Any = torch.empty(EARLY)
        for step in range(STEPS):
            with record_function(make_torch_name("step")):
                with record_function(make_torch_name("forward")):
                    kept.append(torch.zeros(KEPT))
                with record_function(make_torch_name("backward")):
                    short = torch.empty(SHORT)
                    del short
                    early = None if step == 1 else early
    path = tmp_path_factory.mktemp("memory") / "trace.json"
    profiler.export_chrome_trace(str(path))
    return path


@pytest.fixture(scope="module")
def table(path: Path) -> pd.DataFrame:
    return memory_over_time.tabulate_memory(trace.read_trace(path), "cpu")


def test_bytes_parts_and_peaks_of_a_known_program(table: pd.DataFrame) -> None:
    found = table[["step", "range", "bytes", "allocated_bytes"]].astype({"step": int}).values.tolist()
    before = EARLY * ITEM
    expected = []
    for step in range(STEPS):
        before += KEPT * ITEM
        expected += [[step, "forward", KEPT * ITEM, before], [step, "backward", SHORT * ITEM, before + SHORT * ITEM],
                     [step, "backward", -SHORT * ITEM, before]]  # fmt: skip
        if step == 1:
            before -= EARLY * ITEM
            expected.append([step, "backward", -EARLY * ITEM, before])
    assert found == expected
    assert table["operator"].iloc[0] == "aten::zeros" and table["reserved_bytes"].isna().all()
    # Parts add up to what the allocator reports.
    parts = table[[f"{part}_bytes" for part in HELD]]
    assert parts.sum(axis=1).tolist() == table["allocated_bytes"].tolist()
    assert table["forward_bytes"].iloc[-1] == STEPS * KEPT * ITEM and table["backward_bytes"].iloc[-1] == 0
    assert table["earlier_bytes"].tolist() == [EARLY * ITEM] * 6 + [0] * (len(table) - 6)
    assert table["allocated_bytes"].diff().iloc[1:].tolist() == table["bytes"].iloc[1:].tolist()
    peaks = memory_over_time.find_peaks(table)
    assert peaks["range"].tolist() == ["backward"] * STEPS
    most = [(EARLY * (step < 2) + KEPT * (step + 1) + SHORT) * ITEM for step in range(STEPS)]
    assert peaks["allocated_bytes"].tolist() == most


def moved(ts: float, size: int, allocated: int, reserved: int, address: int, kind: int = 1) -> dict[str, Any]:
    """Return an event as torch.profiler writes it for a GPU; other keys, which it has too, are not read."""
    args = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": size, "Device Id": 0,
            "Device Type": kind, "Addr": address, "Ev Idx": 7}  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts,
            "args": args}  # fmt: skip


def ranged(name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": make_torch_name(name), "tid": 1, "ts": ts, "dur": dur}


def test_a_gpu_has_reserved_memory_and_its_own_addresses() -> None:
    events = [ranged("step", 10, 90), ranged("forward", 20, 30), moved(25, 512, 1536, 4096, 64),
              moved(26, 100, 100, 0, 64, kind=0), moved(60, -512, 1024, 4096, 64)]  # fmt: skip
    table = memory_over_time.tabulate_memory(trace.make_trace(events), "cuda")
    assert table["allocated_bytes"].tolist() == [1536, 1024] and table["reserved_bytes"].tolist() == [4096, 4096]
    assert table["earlier_bytes"].tolist() == [1024, 1024] and table["forward_bytes"].tolist() == [512, 0]
    assert table["device"].unique().tolist() == ["cuda:0"] and table["ns"].tolist() == [15_000, 50_000]


def test_the_table_and_the_figure_are_written(path: Path, tmp_path: Path) -> None:
    home = tmp_path / "known"
    home.mkdir()
    sidecar, csv = home / "train.trace.json.gz.json", home / "train.torch-memory.csv"
    facts = {"device_type": "cpu", "device": "CPU, 2 threads", "started": "2026-11-26T05:00:00+00:00"}
    sidecar.write_text(json.dumps(facts))
    memory_over_time.main(str(path), str(sidecar), str(csv))
    figure.main(str(csv), str(sidecar), [str(home / "m.svg")], 150)
    drawn = (home / "m.svg").read_text()
    assert "known train: memory by the part" in drawn and "peak 14 MB" in drawn and ">earlier<" in drawn
    assert "reserved" not in drawn


def test_parts_too_thin_to_be_seen_are_not_in_the_legend(table: pd.DataFrame) -> None:
    axis = figure.draw(table.assign(loss_bytes=8), "known train").axes[0]
    assert {text.get_text() for text in axis.get_legend().get_texts()} == {"earlier", "forward", "backward"}
    plt.close("all")


def test_a_trace_without_memory_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [ranged("step", 1, 2)]}))
    (tmp_path / "s.json").write_text(json.dumps({"device_type": "cpu"}))
    with pytest.raises(DataError, match=r"t\.json holds no event of memory: set torch\.memory to true"):
        memory_over_time.main(*(str(tmp_path / name) for name in ("t.json", "s.json", "m.csv")))
