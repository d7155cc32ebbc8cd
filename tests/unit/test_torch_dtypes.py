"""Time of operators by the types of their inputs, of a program whose casts are known and of a recording of an H200."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.range_names import make_torch_name
from profzoo.tools.torch import dtypes, owners, trace
from tests.conftest import DATA

CASTS, STEPS = 5, 2


def run_step(values: torch.Tensor, matrix: torch.Tensor) -> None:
    """Run one product in each of two types, and so many casts from float32 to float64."""
    torch.mm(matrix, matrix)
    torch.mm(matrix.to(torch.bfloat16), matrix.to(torch.bfloat16))
    for _ in range(CASTS):
        values.to(torch.float64)
    values.clone()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> trace.Trace:
    path = tmp_path_factory.mktemp("dtypes") / "trace.json"
    values, matrix = torch.ones(1000), torch.ones(64, 64)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run_step(values, matrix)
        for _ in range(STEPS):
            with record_function(make_torch_name("step")):
                run_step(values, matrix)
    profiler.export_chrome_trace(str(path))
    return trace.read_trace(path)


def test_products_and_casts_of_a_known_program(traced: trace.Trace) -> None:
    table = dtypes.tabulate_dtypes(traced, gpu=False).set_index(["operator", "dtypes"])
    calls = table["calls"].groupby(level=[0, 1]).sum()
    assert calls["aten::mm", "float32"] == calls["aten::mm", "bfloat16"] == STEPS
    casts = table.groupby("cast")["calls"].sum().drop("").to_dict()
    assert casts == {"float32 -> bfloat16": 2 * STEPS, "float32 -> float64": CASTS * STEPS}
    cast = table[table["cast"] == "float32 -> float64"]
    assert cast["caller"].tolist() == ["aten::to"] and cast["launches"].isna().all()


def test_host_times_add_up_to_those_of_the_table_of_launches(traced: trace.Trace) -> None:
    table, calls = dtypes.tabulate_dtypes(traced, gpu=False), owners.tabulate_operators(traced)
    inside = calls[calls["step"].notna()]
    assert table["self_cpu_ns"].sum() == inside["ns"].sum() > 0
    assert table["calls"].sum() == len(inside) and table["share"].sum() == pytest.approx(1)


def test_gpu_times_of_a_recording_add_up_to_its_kernels(tmp_path: Path) -> None:
    recording = DATA / "torch/train.trace.json.gz"
    table = dtypes.tabulate_dtypes(trace.read_trace(recording), gpu=True)
    events = json.loads(gzip.decompress(recording.read_bytes()))["traceEvents"]
    ran = [one["dur"] for one in events if one.get("cat") in trace.DEVICE_KINDS]
    assert table["launches"].sum() == len(ran)
    assert table["device_ns"].sum() == pytest.approx(sum(ran) * 1000, abs=len(ran))
    products = table[table["operator"].isin(["aten::addmm", "aten::mm"])]
    assert set(products["dtypes"]) == {"float32"}
    write_csv(table, tmp_path / "d.csv")
    read = reading.read(tmp_path / "d.csv", dtypes.TABLE)
    pd.testing.assert_series_equal(read["device_ns"], table["device_ns"].astype("int64"))


def test_a_trace_without_types_has_operators_without_types() -> None:
    table = dtypes.tabulate_dtypes(trace.read_trace(DATA / "torch/unet.train.trace.json.gz"), gpu=True)
    assert set(table["cast"]) == {""} and table["device_ns"].sum() > 0
