"""Tidying of torch.profiler's table and trace, on a recording of an H200."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import trace as torch_trace
from tests.conftest import DATA

OPTIONS = {"memory": False}


@pytest.fixture(scope="module")
def inputs(recording) -> tuple[pd.DataFrame, torch_trace.Trace]:
    """The recorder's table and the trace."""
    operators = pd.read_csv(recording("torch/train.torch-operators.csv"), keep_default_na=False)
    return operators, torch_trace.read_trace(DATA / "torch/train.trace.json.gz")


@pytest.fixture(scope="module")
def events() -> list[dict]:
    """The trace's events."""
    with gzip.open(DATA / "torch/train.trace.json.gz") as file:
        return json.load(file)["traceEvents"]


def test_kernels_of_three_steps_with_their_ranges(inputs) -> None:
    table = torch_tables.tidy_operators(*inputs, OPTIONS, gpu=True)
    kernels = table[table["kind"] == "kernel"].groupby("range")["count"].sum().to_dict()
    assert kernels == {"backward": 63, "forward": 18, "loss": 6, "optimizer": 21}


def test_device_time_of_a_range_is_that_of_its_launches(inputs) -> None:
    table = torch_tables.tidy_operators(*inputs, OPTIONS, gpu=True)
    launched = table[table["kind"].isin(["kernel", "memcpy", "memset"])].groupby("range")["device_ns"].sum()
    ranges = table[table["kind"] == "range"].set_index("name")["device_ns"]
    for name in ("forward", "backward", "optimizer"):
        assert ranges[name] == launched[name] > 0


def test_times_are_in_ns(inputs, events) -> None:
    operators, trace = inputs
    table = torch_tables.tidy_operators(operators, trace, OPTIONS, gpu=True)
    # On the CPU, the trace has the same ranges in µs, each time that they were open.
    opened = [e["dur"] for e in events if e.get("cat") == "user_annotation" and e["name"] == "profzoo:forward"]
    found = table.loc[(table["kind"] == "range") & (table["name"] == "forward"), "cpu_ns"].item()
    assert len(opened) == 3 and found == pytest.approx(sum(opened) * 1000, abs=3)
    ours = (operators["name"] == "profzoo:forward") & (operators["device"] == "CPU")
    assert found == operators.loc[ours, "cpu_ns"].item()
    durations = [event["dur"] for event in events if event.get("cat") == "kernel"]
    assert table.loc[table["kind"] == "kernel", "device_ns"].sum() == pytest.approx(sum(durations) * 1000, abs=100)


def test_what_was_not_measured_is_empty(inputs) -> None:
    table = torch_tables.tidy_operators(*inputs, OPTIONS, gpu=True)
    assert table[list(torch_tables.MEMORY)].isna().all(axis=None)
    assert not (table["flops"] == 0).any()
    on_cpu = torch_tables.tidy_operators(*inputs, OPTIONS, gpu=False)
    assert on_cpu[["self_device_ns", "device_ns"]].isna().all(axis=None)


def test_memory_is_kept_where_it_was_measured(inputs) -> None:
    assert torch_tables.tidy_operators(*inputs, {"memory": True}, gpu=True)["cpu_memory_bytes"].notna().any()


def test_operators_of_another_version_are_refused(inputs, tmp_path: Path) -> None:
    write_csv(inputs[0].rename(columns={"self_cpu_ns": "self_cpu_time_total"}), tmp_path / "o.csv")
    with pytest.raises(DataError, match=r"o\.csv has no column self_cpu_ns: another version made it, .* collects both"):
        reading.read(tmp_path / "o.csv", torch_tables.OPERATORS)


def test_a_launch_with_two_calls_is_of_the_first(events) -> None:
    first = torch_tables.device_events(torch_trace.make_trace(events))
    calls = [e for e in events if e.get("cat") == "cuda_runtime" and "correlation" in e.get("args", {})]
    # The driver's call inside each, with the same ID, which may end in another range's time.
    inner = [{**call, "cat": "cuda_driver", "ts": call["ts"] + 1e6} for call in calls]
    for several in (events + inner, inner + events):
        found = torch_tables.device_events(torch_trace.make_trace(several))
        pd.testing.assert_frame_equal(found, first, check_categorical=False)


def test_other_files_are_refused(tmp_path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_text(json.dumps({}))
    with pytest.raises(DataError, match=r"trace\.json\.gz is no trace"):
        torch_trace.read_trace(path)


def test_copies_that_a_graph_makes_by_kernels_are_copies() -> None:
    """As nsys tells them: CUPTI calls them kernels, recorded of a captured step of MobileNetV2 on an H100."""
    shape = {"grid": [3136, 1, 1], "block": [256, 1, 1], "stream": 7, "correlation": 163, "shared memory": 0}
    names = ["memcpy128", "memcpy32_post", "memset32", "void memcpy128_of_mine<float>(float*)"]
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": 10.0 * place, "dur": 1.0, "args": shape}
        for place, name in enumerate(names)
    ]
    found = torch_tables.device_events(torch_trace.make_trace(events))
    assert found["kind"].tolist() == ["memcpy", "memcpy", "memset", "kernel"] and found["name"].tolist() == names
