"""Layers with times of nsys and counters of ncu, by recordings of one cell under three tools."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.kernels import kernel_classes
from profzoo.launches import joined_step
from profzoo.launches.joined_step import OWNER
from profzoo.tables import layers, user_ranges
from profzoo.tables.layers import Others
from profzoo.tables.user_ranges import OfTorch
from profzoo.tools.ncu import export_schema
from profzoo.tools.ncu.raw_page import CONFIGURATION, function_name
from profzoo.tools.nsys.events import launches
from profzoo.tools.torch import owners as torch_owners
from profzoo.tools.torch.compiled import PARTS, divide_parts
from tests.conftest import DATA
from tests.unit.test_user_ranges import PUSH_POP, annotate, of_nsys

FLOP = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
PEAKS = {"dram": 4e12, "l2": 8e12, "fp32": 5e13, "tf32": 4e14}
NEEDS = ("needed_product_flop", "needed_other_flop", "needed_bytes")


@pytest.fixture(autouse=True)
def by_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are told apart by functions, which all names tell."""
    monkeypatch.setattr(kernel_classes, "can_demangle", lambda: False)


@pytest.fixture(scope="module")
def by_torch() -> pd.DataFrame:
    """Two steps of MobileNetV2's training, in layers of 40 launches each, and a copy beside them."""
    table = pd.read_csv(DATA / "launches/mobilenetv2.train.torch.csv.gz").rename(columns={"kernel": "name"})
    place = table.groupby("step").cumcount()
    table = table.assign(
        order=place, kind="kernel", caller="", type="Block", module="stage" + (place // 120).astype(str) + "."
        + (place // 40).astype(str), direction=np.where(place < 240, "forward", "backward"), **dict.fromkeys(NEEDS, 8.0),
    )  # fmt: skip
    copies = (
        table.groupby("step")
        .head(1)
        .assign(
            kind="memcpy", name="Memcpy HtoD", operator="aten::copy_", module="(transfer)", direction="transfer", ns=500
        )
    )
    return pd.concat([table, copies], ignore_index=True)


@pytest.fixture(scope="module")
def by_ncu() -> pd.DataFrame:
    """A step of the same, every launch of which was counted."""
    table = pd.read_csv(DATA / "launches/mobilenetv2.train.ncu.csv.gz")
    places = np.arange(len(table))
    zero = [name.replace("ffma", one) for name in [FLOP] for one in ("fadd", "fmul")]
    tensor = [f"sm__ops_path_tensor_src_{kind}.sum" for kind in ("bf16_dst_fp32", "fp16", "tf32_dst_fp32", "fp64")]
    return table.assign(
        mangled="", function=table["kernel"].map(function_name), launches=1,
        **{"dram__bytes_read.sum": places * 1000, "dram__bytes_write.sum": 24, "lts__t_bytes.sum": places * 3000,
           "launch__sm_count": 132, FLOP: places % 7 * 10**6, **dict.fromkeys([*zero, *tensor], 0)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def by_nsys(recording) -> pd.DataFrame:
    """Ten steps of the same under nsys."""
    return launches.read_step_launches(recording("nsys/train.sqlite"))


def tree(called: pd.DataFrame, joined: joined_step.Joined, steps: int = 2) -> pd.DataFrame:
    none = pd.DataFrame(columns=list(torch_owners.MODULES.columns))
    return layers.layers(called, none, steps, joined, PEAKS).set_index(layers.NODE)


def timed(by_torch: pd.DataFrame, joined: joined_step.Joined) -> pd.DataFrame:
    """What owners called, with times of another tool but for copies."""
    copies = layers.sum_by_owner([joined_step.select_copies(by_torch)], 2)
    return layers.apply_other_times(layers.sum_by_owner([by_torch], 2), joined, copies)


def test_compiled_kernels_are_divided_with_what_was_counted(
    by_torch: pd.DataFrame, by_ncu: pd.DataFrame, by_nsys: pd.DataFrame
) -> None:
    """Kernels of a layer count a quarter in one module within it and the rest in another, with times and counters."""
    parts = json.dumps(
        [["aten::add", "stage0.1.a", "A", "a.py:1", 0.25], ["aten::mul", "stage0.1.b", "B", "a.py:2", 0.75]]
    )
    mine = by_torch["module"].eq("stage0.1")
    noted = by_torch.assign(**{PARTS: np.where(mine, parts, "")})
    found = []
    for given in (by_torch, noted):
        joined = joined_step.join_ncu_launches(by_ncu, 1, [by_ncu], given, by_nsys)
        called = divide_parts(timed(given, joined), layers.SUMS)
        found.append((tree(called, joined), layers.operators_table(called, joined, PEAKS)))
    (whole, before), (table, operators) = found
    columns = ["launches", "total_ns", "dram_bytes", "simt_flop", "share", "counted_share"]
    for node in (("(step)", "forward"), ("stage0", "forward"), ("stage0.1", "forward"), ("(root)", "backward")):
        np.testing.assert_allclose(table.loc[node, columns].astype(float), whole.loc[node, columns].astype(float))
    held = whole.loc[("stage0.1", "forward"), ["launches", "total_ns", "dram_bytes"]].astype(float)
    for name, share in (("a", 0.25), ("b", 0.75)):
        np.testing.assert_allclose(table.loc[(f"stage0.1.{name}", "forward"), held.index].astype(float), share * held)
    assert (
        table.loc[("stage0.1.a", "forward"), "divided_share"] == 1
        and table.loc[("stage0.1", "forward"), "self_ns"] == 0
    )
    np.testing.assert_allclose(operators[columns[:4]].sum(), before[columns[:4]].sum())
    assert set(operators.loc[operators["module"].eq("stage0.1.b"), "lines"]) == {"a.py:2"}


def test_layers_have_times_of_nsys_and_counters_of_ncu(
    by_torch: pd.DataFrame, by_ncu: pd.DataFrame, by_nsys: pd.DataFrame
) -> None:
    joined = joined_step.join_ncu_launches(by_ncu, 1, [by_ncu], by_torch, by_nsys)
    called = timed(by_torch, joined)
    table = tree(called, joined)
    counted = by_ncu["dram__bytes_read.sum"] + by_ncu["dram__bytes_write.sum"]
    forward = table.loc[("(step)", "forward")]
    assert forward["launches"] == 240 and forward["dram_bytes"] == pytest.approx(counted[:240].sum())
    assert forward["simt_flop"] == pytest.approx(2 * by_ncu[FLOP][:240].sum()) and forward["counted_share"] == 1
    # What was counted is not an estimate.
    assert table[["dram_bytes_low", "efficiency_high"]].isna().all(axis=None)
    # The third layer of the first stage, and what holds it.
    one = table.loc[("stage0.2", "forward")]
    assert one["dram_bytes"] == pytest.approx(counted[80:120].sum()) and one["bound"] in ("dram", "l2", "simt")
    stage = table.xs("forward", level="direction")
    below = stage[stage["parent"] == "stage0"]
    for name in ("launches", "total_ns", "dram_bytes", "simt_flop", "needed_flop"):
        assert below[name].sum() == pytest.approx(stage.loc["stage0", name])
    # All that nsys saw, and the copy that torch alone did.
    steps = table.xs("(step)")
    assert steps["total_ns"].sum() == pytest.approx(by_nsys["ns"].sum() / 10 + 500)
    assert steps["needed_flop"].sum() == 476 * 16 and steps["share"].sum() == pytest.approx(1)
    covered = layers.make_owner_coverage(called, joined).iloc[0]
    assert covered[["operator_share", "module_share", "aligned_share", "nsys_share"]].tolist() == [1, 1, 1, 1]
    kernels = layers.make_layer_kernels(joined_step.kernels(joined), PEAKS)
    assert (kernels["multiprocessors"] == 132).all()
    assert kernels["launches"].sum() == 475 and kernels["dram_bytes"].mul(kernels["launches"]).sum() == counted.sum()
    assert kernels["bound"].ne("").all() and kernels["total_ns"].is_monotonic_decreasing


def test_counters_of_a_sample_have_intervals(by_torch: pd.DataFrame, by_ncu: pd.DataFrame) -> None:
    """Of each launch configuration one launch."""
    counts = by_ncu.groupby(joined_step.CONFIGURATION, sort=False)["id"].transform("size")
    first = ~by_ncu.duplicated(joined_step.CONFIGURATION)
    sample = by_ncu.assign(multiplicity=counts.astype(float), launch=by_ncu["id"])[first].assign(**{FLOP: 10**6})
    joined = joined_step.join_ncu_launches(by_ncu, 1, [sample], by_torch, None)
    table = tree(layers.sum_by_owner([by_torch], 2), joined).loc[("(root)", "forward")]
    assert table["simt_flop"] == pytest.approx(240 * 2 * 10**6)
    assert table["dram_bytes_low"] < table["dram_bytes"] < table["dram_bytes_high"]
    assert table["efficiency_low"] < table["efficiency"] < table["efficiency_high"]


def test_launches_that_torch_has_not_are_told_apart(by_torch: pd.DataFrame, by_ncu: pd.DataFrame) -> None:
    """Between two layers ncu's run has a kernel of its own."""
    other = by_ncu.iloc[[40]].assign(kernel="another_kernel", function="another_kernel")
    window = pd.concat([by_ncu[:40], other, by_ncu[40:]], ignore_index=True).assign(id=range(476))
    joined = joined_step.join_ncu_launches(window, 1, [window], by_torch, None)
    assert joined.launches.loc[40, [*OWNER]].tolist() == ["", "", "", joined_step.UNALIGNED, "", "forward"]
    called = timed(by_torch, joined)
    covered = layers.make_owner_coverage(called, joined).iloc[0]
    assert covered["aligned_launches"] == 475 / 476 and covered["unowned"].startswith("no operator")
    assert ("(unaligned)", "forward") in tree(called, joined).index


def counted(by_ncu: pd.DataFrame, folder: Path) -> dict[str, str]:
    """A census of one step's launches, and what ncu counted of each."""
    columns = [name for name in export_schema.CENSUS.columns if name in by_ncu]
    alike = by_ncu.groupby(CONFIGURATION, dropna=False)["id"].transform("size")
    for name, table in (("census", by_ncu[columns].assign(launches=alike)), ("set", by_ncu.assign(launches=alike))):
        write_csv(table, folder / f"{name}.csv")
    return {"census": str(folder / "census.csv"), "sets": [str(folder / "set.csv")], "steps": 1}


def write_peaks(folder: Path) -> str:
    units = {name: "byte/s" if name in ("dram", "l2") else "flop/s" for name in PEAKS}
    table = pd.DataFrame({"peak": [*PEAKS], "rate": [*PEAKS.values()], "unit": [*units.values()], "how": "by hand"})
    write_csv(table, folder / "peaks.csv")
    return str(folder / "peaks.csv")


def test_counters_of_ncu_belong_to_the_ranges_of_their_launches(
    recording: Callable, tmp_path: Path, by_ncu: pd.DataFrame
) -> None:
    """Halves of each recorded step: the counters of both and of the rest are those of all launches."""
    path = tmp_path / "t.sqlite"
    path.write_bytes(recording("nsys/train.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as database:
        steps = database.execute(
            "SELECT start, end, globalTid FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id "
            "WHERE coalesce(text, value) = 'profzoo_step'"
        ).fetchall()
    rows = []
    for begin, end, thread in steps:
        middle = (begin + end) // 2
        rows += [(begin + 1, middle, thread, "early", PUSH_POP, 0), (middle, end - 1, thread, "late", PUSH_POP, 0)]
    table = of_nsys(annotate(path, rows), **counted(by_ncu, tmp_path), peaks=write_peaks(tmp_path)).set_index("range")
    traffic = table["dram_bytes"].fillna(0)
    assert traffic["early"] > 0 < traffic["late"] and table.loc["(step)", "counted_share"] == pytest.approx(1)
    rest = traffic.reindex(["early", "late", "(other)", "(unaligned)"]).fillna(0).sum()
    assert traffic["(step)"] == pytest.approx(rest)
    whole = (by_ncu["dram__bytes_read.sum"] + by_ncu["dram__bytes_write.sum"]).sum()
    assert traffic["(step)"] == pytest.approx(whole) and table.loc["early", "bound"] in ("dram", "l2", "simt", "tensor")


def test_ranges_of_torch_have_times_of_nsys(recording: Callable, tmp_path: Path, by_torch: pd.DataFrame) -> None:
    path = recording("nsys/train.sqlite")
    known = pd.DataFrame({"range": ["(step)", "a", "a > b"], "parent": ["", "", "a"], "calls": 2.0, "cpu_ns": 10.0})
    own = np.select([by_torch["order"] < 100, by_torch["order"] < 300], ["a > b", "a"], "")
    files = OfTorch(*(str(tmp_path / name) for name in ("launches.csv", "ranges.csv", "s.json")))
    full = by_torch.assign(
        stream=7, smem_bytes=pd.NA, start_ns=0, queued_ns=0, range="forward", call=pd.NA, sequence=pd.NA
    )
    write_csv(full[[*torch_owners.COLUMNS]].assign(user_range=own), files.launches)
    write_csv(known, files.ranges)
    write_json({"cell": {"window": 2}, "capture": "window"}, files.sidecar)
    csv = str(tmp_path / "r.csv")
    user_ranges.write_user_ranges(files, Others(nsys=str(path), sidecar=files.sidecar), csv)
    table = reading.read(csv, user_ranges.TABLE).set_index("range")
    assert set(table["tool"]) == {"nsys"} and set(table["api"]) == {"record_function"}
    by_step = launches.read_step_launches(path)
    assert table.loc["(step)", "launches"] == by_step.groupby("step").size().mode()[0]
    assert table.loc["(step)", "total_ns"] == pytest.approx(by_step["ns"].sum() / 10, rel=0.02)
    outermost = table[table["parent"] == "(step)"]
    assert outermost["total_ns"].sum() == pytest.approx(table.loc["(step)", "total_ns"])
    assert table.loc["a > b", "launches"] == pytest.approx(100, abs=3)
    # Without nsys they are torch's own.
    user_ranges.write_user_ranges(files, Others(), csv)
    table = reading.read(csv, user_ranges.TABLE).set_index("range")
    kernels = by_torch[by_torch["kind"] == "kernel"]
    assert set(table["tool"]) == {"torch"} and table.loc["a > b", "launches"] == 100
    assert table.loc["(step)", "total_ns"] == kernels["ns"].sum() / 2


@pytest.mark.slow
def test_a_window_of_several_steps_is_per_step(by_torch: pd.DataFrame, by_ncu: pd.DataFrame) -> None:
    window = pd.concat([by_ncu, by_ncu], ignore_index=True).assign(id=range(950))
    joined = joined_step.join_ncu_launches(window, 2, [window], by_torch, None)
    assert (joined.launches["module"] != joined_step.UNALIGNED).all()
    found = joined_step.totals(joined, ["direction"]).set_index("direction")
    assert found["launches"].tolist() == [240, 235]
    assert found.loc["forward", "total_ns"] == by_ncu["gpu__time_duration.sum"][:240].sum()
