"""Tidying of torch.profiler's table and trace, on a recording of an H200."""

import json

import pandas as pd
import pytest

from tests.conftest import DATA
from workflow.scripts.lib import torch_tables
from workflow.scripts.lib.files import DataError

OPTIONS = {"memory": False}


@pytest.fixture(scope="module")
def inputs(recording) -> tuple[pd.DataFrame, list[dict]]:
    """The recorder's table and the trace's events."""
    operators = pd.read_csv(recording("torch/train.torch-operators.csv"), keep_default_na=False)
    return operators, torch_tables.read_trace(DATA / "torch/train.trace.json.gz")


def test_kernels_of_three_steps_with_their_ranges(inputs) -> None:
    table = torch_tables.tidy(*inputs, OPTIONS, gpu=True)
    kernels = table[table["kind"] == "kernel"].groupby("range")["count"].sum().to_dict()
    assert kernels == {"backward": 63, "forward": 18, "loss": 6, "optimizer": 21}


def test_device_time_of_a_range_is_that_of_its_launches(inputs) -> None:
    table = torch_tables.tidy(*inputs, OPTIONS, gpu=True)
    launched = table[table["kind"].isin(["kernel", "memcpy", "memset"])].groupby("range")["device_ns"].sum()
    ranges = table[table["kind"] == "range"].set_index("name")["device_ns"]
    for name in ("forward", "backward", "optimizer"):
        assert ranges[name] == launched[name] > 0


def test_times_are_in_ns(inputs) -> None:
    operators, trace = inputs
    table = torch_tables.tidy(operators, trace, OPTIONS, gpu=True)
    forward = operators.loc[operators["name"] == "profzoo:forward", "cpu_time_total"]
    assert table.loc[(table["kind"] == "range") & (table["name"] == "forward"), "cpu_ns"].item() == round(
        forward.iloc[0] * 1000
    )
    durations = [event["dur"] for event in trace if event.get("cat") == "kernel"]
    assert table.loc[table["kind"] == "kernel", "device_ns"].sum() == pytest.approx(sum(durations) * 1000, abs=100)


def test_what_was_not_measured_is_empty(inputs) -> None:
    table = torch_tables.tidy(*inputs, OPTIONS, gpu=True)
    assert table[list(torch_tables.MEMORY)].isna().all(axis=None)
    assert not (table["flops"] == 0).any()
    on_cpu = torch_tables.tidy(*inputs, OPTIONS, gpu=False)
    assert on_cpu[["self_device_ns", "device_ns"]].isna().all(axis=None)


def test_memory_is_kept_where_it_was_measured(inputs) -> None:
    assert torch_tables.tidy(*inputs, {"memory": True}, gpu=True)["cpu_memory_bytes"].notna().any()


def test_other_files_are_refused(tmp_path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_text(json.dumps({}))
    with pytest.raises(DataError, match=r"trace\.json\.gz is no trace"):
        torch_tables.read_trace(path)
