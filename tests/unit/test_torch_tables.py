"""Tables of torch.profiler's operators, by hand, and of their types of inputs, of a known program and a recording."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from profzoo import tools
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv
from profzoo.range_names import make_torch_name
from profzoo.tools.torch import activity, export, owners, tables, trace
from profzoo.tools.torch import tables as torch_tables
from profzoo.tools.torch import trace as torch_trace
from tests.conftest import DATA
from tests.unit.test_torch_trace import called, of, part, ran


def test_operators_of_another_version_are_refused(tmp_path: Path) -> None:
    write_csv(OPERATORS.rename(columns={"self_cpu_ns": "self_cpu_time_total"}), tmp_path / "o.csv")
    with pytest.raises(DataError, match=r"o\.csv has no column self_cpu_ns: another version made it, .* collects both"):
        reading.read(tmp_path / "o.csv", torch_tables.OPERATORS)


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


OPERATORS = pd.DataFrame(
    [
        ("CPU", "aten::mm", 4, 70, 90, 30, 50, 200),
        ("CPU", "aten::relu", 2, 80, 80, 10, 10, 0),
        ("CPU", "profzoo:forward", 2, 5, 150, 0, 60, 0),
        ("CPU", "profzoo:module:a:Linear", 2, 5, 100, 0, 40, 0),
        ("CPU", "ProfilerStep*", 2, 5, 300, 0, 0, 0),
        ("CPU", "cudaLaunchKernel", 3, 6, 6, 0, 0, 0),
        ("CPU", "cuLaunchKernel", 1, 6, 6, 0, 0, 0),
        ("CPU", "cudnn_rnn", 1, 2, 2, 0, 0, 0),
        ("CUDA", "k", 2, 0, 0, 9, 9, 0),
    ],
    columns=["device", "name", "count", "self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns", "flops"],
).assign(shapes="", stack="", **dict.fromkeys(tables.MEMORY, 7))


def tidied(gpu: bool = True, memory: bool = False, lacking: bool = False) -> pd.DataFrame:
    """The table of those operators and of three launches, two of them alike in the forward pass."""
    trace = of(part("forward", 0, 10), called(1, 1), called(2, 2), called(20, 3),
               ran("k", 50, 2, 1), ran("k", 60, 3, 2), ran("k", 70, 4, 3))  # fmt: skip
    return tables.tidy_operators(OPERATORS, trace, {"memory": memory}, gpu, lacking)


def test_the_table_of_a_gpu_by_hand() -> None:
    table = tidied()
    found = table[["kind", "name", "range", "count", "self_cpu_ns", "cpu_ns", "self_device_ns", "device_ns", "flops"]]
    assert found.fillna(-1).to_numpy().tolist() == [
        # By kind, and by the device's own time, then by the CPU's own.
        ["kernel", "k", "forward", 2, -1, -1, 5000, 5000, -1],
        ["kernel", "k", "", 1, -1, -1, 4000, 4000, -1],
        ["operator", "aten::mm", "", 4, 70, 90, 30, 50, 200],
        ["operator", "aten::relu", "", 2, 80, 80, 10, 10, -1],
        ["operator", "cudnn_rnn", "", 1, 2, 2, 0, 0, -1],
        # The launches of a range are those of its time.
        ["range", "forward", "", 2, 5, 150, -1, 5000, -1],
        ["runtime", "cuLaunchKernel", "", 1, 6, 6, 0, 0, -1],
        ["runtime", "cudaLaunchKernel", "", 3, 6, 6, 0, 0, -1],
    ]  # fmt: skip
    assert table[list(tables.MEMORY)].isna().all(axis=None)
    assert tidied(memory=True).loc[2, list(tables.MEMORY)].tolist() == [7] * 4


def test_without_steps_operators_have_no_time_on_the_device() -> None:
    table = tidied(lacking=True).set_index("kind")
    assert table.loc["operator", "device_ns"].isna().all() and table.loc["runtime", "self_device_ns"].isna().all()
    assert table.loc["kernel", "device_ns"].tolist() == [5000, 4000] and table.loc["range", "device_ns"] == 5000
    assert table.loc["operator", "cpu_ns"].tolist() == [80, 90, 2]


def test_what_the_table_says_of_kernels_and_parts() -> None:
    on_gpu, facts = tidied(), {"device_type": "cuda"}
    assert activity.summarise_kernels(on_gpu, facts)["ns"].tolist() == [5000, 4000]
    assert activity.summarise_ranges(on_gpu, facts) == ("gpu", {"": (4000, 1), "forward": (5000, 2)})
    on_cpu, facts = tidied(gpu=False), {"device_type": "cpu"}
    own = activity.summarise_kernels(on_cpu, facts)
    # The own time, not that with what is called, which would count the product twice.
    assert dict(zip(own["name"], own["ns"], strict=True)) == {"aten::relu": 80, "aten::mm": 70, "cudnn_rnn": 2}
    assert activity.summarise_ranges(on_cpu, facts) == ("cpu", {"forward": (150, None)})
    assert not tools.activities()["torch"].summarise_cell(on_gpu, facts)


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
    table = export.tabulate_dtypes(traced, gpu=False).set_index(["operator", "dtypes"])
    calls = table["calls"].groupby(level=[0, 1]).sum()
    assert calls["aten::mm", "float32"] == calls["aten::mm", "bfloat16"] == STEPS
    casts = table.groupby("cast")["calls"].sum().drop("").to_dict()
    assert casts == {"float32 -> bfloat16": 2 * STEPS, "float32 -> float64": CASTS * STEPS}
    cast = table[table["cast"] == "float32 -> float64"]
    assert cast["caller"].tolist() == ["aten::to"] and cast["launches"].isna().all()


def test_host_times_add_up_to_those_of_the_table_of_launches(traced: trace.Trace) -> None:
    table, calls = export.tabulate_dtypes(traced, gpu=False), owners.tabulate_operators(traced)
    inside = calls[calls["step"].notna()]
    assert table["self_cpu_ns"].sum() == inside["ns"].sum() > 0
    assert table["calls"].sum() == len(inside) and table["share"].sum() == pytest.approx(1)


def test_gpu_times_of_a_recording_add_up_to_its_kernels(tmp_path: Path) -> None:
    recording = DATA / "torch/train.trace.json.gz"
    table = export.tabulate_dtypes(trace.read_trace(recording), gpu=True)
    events = json.loads(gzip.decompress(recording.read_bytes()))["traceEvents"]
    ran = [one["dur"] for one in events if one.get("cat") in trace.DEVICE_KINDS]
    assert table["launches"].sum() == len(ran)
    assert table["device_ns"].sum() == pytest.approx(sum(ran) * 1000, abs=len(ran))
    products = table[table["operator"].isin(["aten::addmm", "aten::mm"])]
    assert set(products["dtypes"]) == {"float32"}
    write_csv(table, tmp_path / "d.csv")
    read = reading.read(tmp_path / "d.csv", export.TABLE)
    pd.testing.assert_series_equal(read["device_ns"], table["device_ns"].astype("int64"))
