"""What torch.profiler records on a real GPU, of a model whose memory and types are known, through snakemake itself."""

import json
import pickle
from pathlib import Path

import pandas as pd
import pytest
from torch.cuda import _memory_viz

from profzoo.io import csv_tables as reading
from profzoo.tools.torch import allocator_snapshot, cycles, export, memory_over_time, owners
from profzoo.tools.torch.memory_over_time import HELD as PARTS
from tests.gpu import allocating
from tests.gpu.allocating import HELD, SHORT
from tests.gpu.running import run_snakemake

CYCLES, WINDOW = 2, 2
ENDINGS = ("torch.csv", "torch.dtypes.csv", "torch-memory.csv", "torch-memory.png", "torch.cycles.csv",
           "torch-snapshot.csv", "tensorboard")  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the cell, with all that one job of torch.profiler leaves."""
    folder = tmp_path_factory.mktemp("results")
    asked = f"torch={{memory: true, snapshot: true, tensorboard: true, repeat: {CYCLES}, window: {WINDOW}}}"
    settings = ["models={allocating: {module: tests.gpu.allocating}}", f"pathvars={{results: {folder}}}", asked]
    targets = [f"{folder}/allocating/inference.{ending}" for ending in ENDINGS]
    run_snakemake(*targets, "--config", *settings)
    return folder / "allocating"


@pytest.fixture(scope="module")
def peak_bytes(home: Path) -> int:
    """torch.cuda.max_memory_allocated() of the process."""
    return json.loads((home / "inference.trace.json.gz.json").read_text())["peak_memory_bytes"]


def test_memory_over_the_steps_is_that_of_the_allocator(home: Path, peak_bytes: int) -> None:
    table = reading.read(home / "inference.torch-memory.csv", memory_over_time.TABLE)
    print(table.drop(columns=["device"]).head(40).to_string(), peak_bytes)
    assert table["allocated_bytes"].max() == pytest.approx(peak_bytes, rel=0.02)
    assert table[[f"{part}_bytes" for part in PARTS]].sum(axis=1).tolist() == table["allocated_bytes"].tolist()
    assert (table["reserved_bytes"] >= table["allocated_bytes"]).all()
    peaks = memory_over_time.find_peaks(table)
    assert len(peaks) >= 1 and (peaks["bytes"] == SHORT).all() and (peaks["range"] == "forward").all()
    assert (peaks["forward_bytes"] >= HELD + SHORT).all()


def test_blocks_at_the_peak_have_their_lines(home: Path, peak_bytes: int) -> None:
    table = reading.read(home / "inference.torch-snapshot.csv", allocator_snapshot.TABLE)
    print(table.head(10).to_string(), peak_bytes)
    assert table["bytes"].sum() == pytest.approx(peak_bytes, rel=0.02)
    source = Path(allocating.__file__).read_text().splitlines()
    lines = {size: source.index(next(line for line in source if f"torch.empty({size}," in line)) + 1
             for size in ("HELD", "SHORT")}  # fmt: skip
    for size, name in ((SHORT, "SHORT"), (HELD, "HELD")):
        (row,) = table[table["bytes"] == size].to_dict("records")
        assert (row["file"], row["line"]) == ("tests/gpu/allocating.py", lines[name]) and not row["at_end"]
        # Some versions of Python name the class, too.
        assert row["function"].endswith("forward")
    with (home / "inference.torch-snapshot.pickle").open("rb") as file:
        content = pickle.load(file)
    assert "segments" in _memory_viz.segsum(content) and _memory_viz.trace(content)


def test_types_and_casts_are_those_of_the_model(home: Path) -> None:
    table = reading.read(home / "inference.torch.dtypes.csv", export.TABLE)
    print(table.head(20).to_string())
    products = table[table["operator"] == "aten::mm"].set_index("dtypes")
    assert set(products.index) == {"float32", "bfloat16"} and products["calls"].nunique() == 1
    assert (products["device_ns"] > 0).all()
    cast = table[table["cast"] == "float32 -> bfloat16"]
    assert cast["launches"].tolist() == [products["calls"].iloc[0]] and (cast["device_ns"] > 0).all()
    launches = reading.read(home / "inference.torch.launches.csv", owners.TABLE)
    assert table["device_ns"].sum() == launches.loc[launches["step"].notna(), "ns"].sum()


def test_cycles_have_equal_steps(home: Path) -> None:
    table = reading.read(home / "inference.torch.cycles.csv", cycles.TABLE)
    assert sorted(table["cycle"].unique()) == list(range(CYCLES))
    products = table[(table["kind"] == "operator") & (table["name"] == "aten::mm")]
    assert products["count"].tolist() == [2 * WINDOW] * CYCLES
    kernels = table[table["kind"] == "kernel"]
    each = kernels["count"].groupby(kernels["cycle"]).sum() / kernels.groupby("cycle")["steps"].first()
    assert each.nunique() == 1
    differences = reading.read(home / "inference.torch.cycle-differences.csv", cycles.DIFFERENCES)
    print(differences.head(20).to_string())
    assert (differences.loc[differences["kind"] == "kernel", "cycles"] == CYCLES).all()


def test_files_to_look_at_are_there(home: Path) -> None:
    assert len(list((home / "inference.tensorboard").glob("*.pt.trace.json.gz"))) == CYCLES
    assert (home / "inference.torch-memory.png").stat().st_size > 10_000
    assert isinstance(pd.read_csv(home / "inference.torch.csv"), pd.DataFrame)
