"""All cycles of torch.profiler's schedule: what the recorder keeps, their tables, and TensorBoard's layout."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.profiler import record_function

from profzoo.config import configuration
from profzoo.errors import ConfigError, DataError
from profzoo.harness.observers import recorders
from profzoo.io import csv_tables as reading
from profzoo.range_names import make_torch_name
from profzoo.tools.torch import cycles, export

OPTIONS = {"wait": 1, "warmup": 1, "repeat": 3, "modules": False, "shapes": True, "memory": False, "flops": False,
           "stacks": False}  # fmt: skip
WINDOW = 2
# Products in each step of a cycle, by which the cycles differ.
PRODUCTS = (1, 2, 4)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cell whose steps make one product in the first cycle, two in the second, and four in the last."""
    home = tmp_path_factory.mktemp("cycles") / "known"
    home.mkdir()
    files = home / "train.torch-operators.csv", home / "train.trace.json.gz"
    recorder = recorders.TorchProfiler(torch.device("cpu"), OPTIONS, WINDOW, *files, home / "train.torch-more")
    matrix = torch.ones(64, 64)
    recorder.start()
    for products in PRODUCTS:
        for _ in range(OPTIONS["wait"] + OPTIONS["warmup"] + WINDOW):
            with record_function(make_torch_name("step")), record_function(make_torch_name("forward")):
                for _ in range(products):
                    torch.mm(matrix, matrix)
            recorder.step(1)
    recorder.stop()
    profiler = {"memory": False, "repeat": 3}
    facts = {"cell": {"profiler": profiler, "window": WINDOW}, "device_type": "cpu", "steps": recorder.steps,
             "started": "2026-11-26T05:00:00+00:00"}  # fmt: skip
    (home / "train.trace.json.gz.json").write_text(json.dumps(facts))
    return home


@pytest.fixture(scope="module")
def made(home: Path) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    said: list[str] = []
    outputs = {"csv": str(home / "c.csv"), "differences": str(home / "d.csv")}
    names = ("train.torch-operators.csv", "train.trace.json.gz", "train.trace.json.gz.json", "train.torch-more")
    cycles.main(*(str(home / name) for name in names), outputs, said.append)
    return reading.read(outputs["csv"], cycles.TABLE), reading.read(outputs["differences"], cycles.DIFFERENCES), said


def test_each_cycle_has_its_steps_and_products(home: Path, made: Any) -> None:
    table, _, said = made
    assert not said and json.loads((home / "train.trace.json.gz.json").read_text())["steps"] == 3 * WINDOW
    assert table.groupby("cycle")["steps"].unique().str[0].tolist() == [WINDOW] * 3
    products = table[(table["name"] == "aten::mm") & (table["kind"] == "operator")].set_index("cycle")["count"]
    assert products.tolist() == [products * WINDOW for products in PRODUCTS]
    steps = table[(table["kind"] == "range") & (table["name"] == "step")]
    assert steps["count"].tolist() == [WINDOW] * 3


def test_differences_are_those_of_the_products(made: Any) -> None:
    table, differences, _ = made
    row = differences.set_index(["kind", "name"]).loc[("operator", "aten::mm")]
    assert (row["least_count_per_step"], row["most_count_per_step"]) == (1, 4)
    assert row["count_per_step"] == pytest.approx(7 / 3) and row["cycles"] == 3
    own = table[table["name"] == "aten::mm"]["self_cpu_ns"] / WINDOW
    assert row["ns_per_step"] == pytest.approx(own.mean()) and row["most_ns_per_step"] == own.max()
    assert row["spread"] == pytest.approx((own.max() - own.min()) / own.mean())


def test_what_a_cycle_lacks_counts_as_nothing() -> None:
    one = {"kind": "kernel", "name": "k", "range": "forward", "steps": 2, "self_cpu_ns": None, "cpu_ns": None,
           "self_device_ns": 8.0, "device_ns": 8.0, "count": 4}  # fmt: skip
    other = {**one, "name": "other", "device_ns": 2.0}
    rows = pd.DataFrame([{**one, "cycle": 0}, {**other, "cycle": 0}, {**other, "cycle": 1}])
    found = cycles.compare_cycles(rows).set_index("name")
    assert found.index.tolist() == ["k", "other"]
    assert found.loc["k", ["cycles", "ns_per_step", "least_ns_per_step", "most_ns_per_step"]].tolist() == [1, 2, 0, 4]
    assert found.loc["other", "spread"] == 0 and found.loc["k", "spread"] == 2


def test_a_missing_cycle_is_named(home: Path, tmp_path: Path) -> None:
    names = ("train.torch-operators.csv", "train.trace.json.gz", "train.trace.json.gz.json")
    with pytest.raises(DataError, match=r"^cycle 0 of 3 has no .*cycle-0\.operators\.csv: collect the trace again$"):
        cycles.main(*(str(home / name) for name in names), str(tmp_path), {"csv": "", "differences": ""})
    with pytest.raises(DataError, match=r"^there is no .*cycle-0\.trace\.json\.gz: collect"):
        export.write_tensorboard(*(str(home / name) for name in names[1:]), [str(tmp_path)], str(tmp_path / "b"))


def test_tensorboard_finds_one_worker_with_all_cycles(home: Path, tmp_path: Path) -> None:
    files = (str(home / "train.trace.json.gz"), str(home / "train.trace.json.gz.json"))
    export.write_tensorboard(*files, [str(home / "train.torch-more")], str(tmp_path / "logs"))
    written = sorted((tmp_path / "logs").iterdir())
    # The pattern by which the plugin (torch_tb_profiler) takes names apart: worker, and time of the cycle.
    parts = [re.fullmatch(r"(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?", path.name) for path in written]
    assert [part[1] for part in parts if part] == ["known_train"] * 3
    assert len({part[2] for part in parts if part}) == 3
    for path, products in zip(written, PRODUCTS, strict=True):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        names = [event["name"] for event in events if event.get("ph") == "X"]
        assert names.count("aten::mm") == products * WINDOW
        assert sum(name.startswith("ProfilerStep#") for name in names) >= WINDOW


def test_counters_are_refused_as_torch_is_built_without_them() -> None:
    line = (
        r"^torch\.counters = \['dram__bytes_read\.sum'\]: torch \S+ is built without CUPTI's range profiler, .*\.set$"
    )
    with pytest.raises(ConfigError, match=line):
        configuration.normalise_config({"torch": {"counters": ["dram__bytes_read.sum"]}})
