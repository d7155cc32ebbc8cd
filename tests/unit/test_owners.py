"""Owners of operators and launches: of a network where they are known, and of recordings of an H100."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from profzoo.io import chrome_trace
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from tests import owned, slow
from tests.conftest import DATA

RECORDED = slow.first(["bert", "mobilenetv2", "unet"])


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    """Two steps of the known network."""
    torch.manual_seed(0)
    return owned.traced(owned.Known())


def held_against_shapes(table: pd.DataFrame) -> None:
    """That nearly all of what is known is so, of each layer in both directions, and of checkpoints again."""
    right = owned.expected(table)
    known = table[right.notna()]
    assert len(known) > 900
    assert (known["module"].astype(str) == right.dropna()).mean() >= 0.99
    found = set(zip(known["module"], known["direction"], strict=True))
    layers = {*owned.OF_PAIR.values(), *owned.OF_NAME.values(), "head"}
    assert found >= {(layer, direction) for layer in layers for direction in ("forward", "backward")}
    assert {layer for layer, direction in found if direction == "recompute"} == {
        "first.0", "first.1", "second.0", "second.1"
    }  # fmt: skip


def test_operators_belong_to_their_layers(called: pd.DataFrame) -> None:
    held_against_shapes(called)
    assert called["step"].dropna().unique().tolist() == [0, 1]
    # Of a step with two batches, a module that is called twice for each.
    assert set(called.loc[called["module"] == "shared", "call"]) == {0, 1, 2, 3}
    assert set(called.loc[called["module"] == "widen", "call"]) == {0, 1}


@pytest.fixture(scope="module")
def called(events: list[dict[str, Any]]) -> pd.DataFrame:
    """The operators of the known network."""
    return owners.tabulate_operators(torch_trace.make_trace(events))


def test_what_is_of_no_module_is_of_the_part_of_the_step(called: pd.DataFrame) -> None:
    others = called[called["module"].str.startswith("(")]
    found = set(zip(others["module"], others["direction"], strict=True))
    assert found >= {("(optimizer)", "optimizer"), ("(data)", "data"), ("(loss)", "loss"), ("(loss)", "backward")}
    # Functions of the network itself are of its root.
    assert set(others.loc[others["caller"] == "aten::unsqueeze", "module"]) == {"(root)"}
    assert set(called.loc[called["operator"] == "aten::mse_loss", "module"]) == {"(loss)"}


def test_gradients_are_summed_up_in_the_module_of_the_parameter(called: pd.DataFrame) -> None:
    sums = called[called["operator"] == "torch::autograd::AccumulateGrad"]
    right = owned.expected(sums).dropna()
    assert len(right) >= 9 * 4 and (sums.loc[right.index, "module"].astype(str) == right).all()
    assert set(sums["direction"]) == {"backward"}


def test_modules_are_counted_with_their_inputs(events: list[dict[str, Any]]) -> None:
    table = owners.tabulate_modules(torch_trace.make_trace(events)).set_index("module")
    assert table["calls"].to_dict()["shared"] == 8 and "again" not in table.index
    assert table.loc["second.0", ["calls", "repeated"]].tolist() == [4, 4]
    assert table.loc["stem.0", ["type", "inputs"]].tolist() == ["Linear", "[[11, 19]]"]
    assert table.loc["(root)", "type"] == "Known"
    # Its forward was called past the hooks, and its operators are the block's.
    assert "block.past" not in table.index


def planted(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events, with a launch at the beginning of each operator, which the device carries out later."""
    operators = [event for event in events if event.get("cat") == "cpu_op" and "profzoo:" not in event["name"]]
    made = list(events)
    for number, one in enumerate(sorted(operators, key=lambda event: event["ts"])):
        ids = {"External id": one["args"]["External id"], "correlation": 10**6 + number}
        at = one["ts"]
        made.append(
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": one["tid"], "ts": at, "dur": 0, "args": ids}
        )
        sizes = {"grid": [number, 1, 1], "block": [32, 1, 1], "stream": 7, "device": 0}
        kernel = {"cat": "kernel", "name": f"k{number}", "tid": 7, "ts": at + 5000, "dur": 2, "args": ids | sizes}
        made.append(kernel)
    return made


def test_launches_belong_to_the_operators_that_made_them(
    events: list[dict[str, Any]], called: pd.DataFrame, tmp_path: Path
) -> None:
    table = owners.tabulate_launches(torch_trace.make_trace(planted(events)))
    assert len(table) == len(called) and (table["ns"] == 2000).all()
    held_against_shapes(table)
    keys = ["operator", "shapes", "module", "direction", "sequence"]
    whose = Counter(map(tuple, called[keys].astype(str).to_numpy()))
    assert Counter(map(tuple, table[keys].astype(str).to_numpy())) == whose
    for _, rows in table.groupby("step"):
        # As the host made them, whatever the device made of it.
        assert rows["order"].tolist() == list(range(len(rows))) and rows["grid_x"].is_monotonic_increasing
    write_csv(table, tmp_path / "launches.csv")
    again = pd.concat(reading.parts(tmp_path / "launches.csv", owners.TABLE, count=300), ignore_index=True)
    assert again["module"].tolist() == table["module"].tolist() and again["ns"].sum() == table["ns"].sum()


@pytest.fixture(scope="module", params=RECORDED)
def recorded(request: pytest.FixtureRequest) -> torch_trace.Trace:
    """One of three steps of a training on an H100, without ranges of modules."""
    return torch_trace.read_trace(DATA / f"torch/{request.param}.train.trace.json.gz")


def test_every_launch_of_a_recording_has_its_operator(recorded: torch_trace.Trace) -> None:
    table = owners.tabulate_launches(recorded)
    kernels = table[table["kind"] == "kernel"]
    assert len(kernels) > 300 and (kernels["operator"] != "").all()
    assert table["step"].notna().all() and table["order"].tolist() == list(range(len(table)))
    assert set(table["module"]) <= {"(forward)", "(loss)", "(optimizer)", "(transfer)", "(backward)"}
    # All that runs in autograd's thread is backward, and only what begins it is of no forward pass.
    assert set(table.loc[table["range"] == "backward", "direction"]) == {"backward"}
    assert (table["module"] == "(backward)").sum() == 1


def test_collectives_are_communication(events: list[dict[str, Any]]) -> None:
    made = [{**event, "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"} if event.get("name") == "k9" else event
            for event in planted(events)]  # fmt: skip
    table = owners.tabulate_launches(torch_trace.make_trace(made))
    found = table[table["name"].str.startswith("nccl")]
    assert found[["module", "direction"]].to_numpy().tolist() == [["(communication)", "communication"]]


def test_names_of_kernels_tell_what_was_fused() -> None:
    names = (
        "triton_per_fused__native_batch_norm_legit_relu_12",
        "graph_0_cpp_fused_add_0",
        "triton_red_fused_sum_1",
        "mine_0",
    )
    assert [owners.fused_name(name) for name in names] == [
        "fused _native_batch_norm_legit_relu", "fused add", "fused sum", "mine_0"
    ]  # fmt: skip


def test_a_trace_is_read_alike_in_small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATA / "torch/train.trace.json.gz"
    with gzip.open(path, "rt") as file:
        direct = torch_trace.make_trace(json.load(file)["traceEvents"])
    whole = torch_trace.read_trace(path)
    monkeypatch.setattr(chrome_trace, "CHUNK", 997)
    for found in (torch_trace.read_trace(path), direct):
        assert found.texts == whole.texts
        for kind in torch_trace.COLUMNS:
            for name, column in getattr(whole, kind).items():
                assert np.array_equal(column, getattr(found, kind)[name])
