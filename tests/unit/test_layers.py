"""Tables of layers and operators: of a run of the known network on the CPU, and of a few launches by hand."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.launches import joined_step
from profzoo.launches.cross_tool import GRID
from profzoo.launches.joined_step import BY, OWNER, Joined
from profzoo.op_costs.operators import COLUMNS as NEEDS
from profzoo.tables import across_cells, layers, schemas
from profzoo.tools.torch import owners
from profzoo.tools.torch import trace as torch_trace
from tests import owned

STEPS = 2


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with launches, modules, layers and operators of two steps."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("layers")
    trace = torch_trace.make_trace(owned.traced(owned.Known()))
    write_csv(owners.tabulate_operators(trace), folder / "launches.csv")
    write_csv(owners.tabulate_modules(trace), folder / "modules.csv")
    write_json({"cell": {"window": STEPS}}, folder / "s.json")
    given = [str(folder / name) for name in ("launches.csv", "modules.csv", "s.json")]
    layers.write_layers(*given, layers.Others(), made_in(folder))
    return folder


def made_in(folder: Path) -> dict[str, str]:
    """The tables that are made of a cell's launches."""
    return {name: str(folder / f"{name}.csv") for name in ("layers", "operators", "kernels", "coverage")}


def test_layers_say_what_they_are_and_how_often_they_ran(files: Path) -> None:
    table = reading.read(files / "layers.csv", layers.TABLE).set_index(["module", "direction"])
    stem = table.loc[("stem.0", "backward")]
    assert stem[["parent", "type", "inputs", "calls"]].tolist() == ["stem", "Linear", "[[11, 19]]", 2]
    assert table.loc[("stem", "forward"), "self_ns"] == 0 < table.loc[("stem", "forward"), "total_ns"]
    assert ("first.0", "recompute") in table.index and ("widen", "recompute") not in table.index
    assert table.loc[("(optimizer)", "optimizer"), "parent"] == "(step)"
    order = [name for name, direction in table.index if direction == "forward"]
    assert order[:6] == ["(step)", "(root)", "stem", "stem.0", "stem.1", "widen"]


def test_operators_say_where_they_are_called_from(files: Path) -> None:
    table = reading.read(files / "operators.csv", layers.OPERATORS_TABLE)
    (one,) = table[(table["operator"] == "aten::addmm") & (table["module"] == "widen")].to_dict("records")
    assert one["shapes"].startswith("[[29], [11, 23], [23, 29]") and one["caller"] == "aten::linear"
    assert one["launches"] == 2 and table["share"].sum() == pytest.approx(1)
    # A bias takes an addition an element of the result.
    assert one["needed_flop"] == 2 * (2 * 11 * 23 * 29 + 11 * 29) and one["needed_share"] == 1
    backward = table[(table["operator"] == "aten::mm") & (table["module"] == "widen")]
    assert set(backward["caller"]) == {"AddmmBackward0"} and backward["launches"].sum() == 4


@pytest.mark.slow
def test_a_run_without_modules_has_its_parts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    events = [event for event in owned.traced(owned.Known()) if "profzoo:module:" not in event["name"]]
    trace = torch_trace.make_trace(events)
    called = layers.sum_by_owner([owners.tabulate_operators(trace)], STEPS)
    table = layers.layers(called, owners.tabulate_modules(trace), STEPS, Joined(pd.DataFrame(), STEPS), {})
    assert set(table["module"]) == {"(step)", "(forward)", "(backward)", "(loss)", "(data)", "(optimizer)"}
    assert table.loc[table["module"] == "(step)", "share"].sum() == pytest.approx(1)


def test_layers_across_cells_are_those_of_each(files: Path, tmp_path: Path) -> None:
    given = [tmp_path / f"known/train.{name}.csv" for name in ("layers", "owners")]
    given[0].parent.mkdir()
    for path, made in zip(given, ("layers", "coverage"), strict=True):
        shutil.copy(files / f"{made}.csv", path)
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("layers", "owners")}
    across_cells.tabulate_layers(*([str(path)] for path in given), outputs)
    table, own = schemas.read_table("layers", outputs["layers"]), reading.read(files / "layers.csv", layers.TABLE)
    assert set(zip(table["model"], table["phase"], strict=True)) == {("known", "train")}
    pd.testing.assert_frame_equal(table[own.columns], own)
    covered = schemas.read_table("owners", outputs["owners"])
    assert covered["module_share"].tolist() == [1] and covered["aligned_share"].isna().all()


NO_COUNTERS = Joined(pd.DataFrame(), 1)
NO_MODULES = pd.DataFrame(columns=["module", "type", "inputs", "calls"])


def owner_rows(*rows: tuple[str, str, str]) -> pd.DataFrame:
    """A row for each operator, module and direction."""
    table = pd.DataFrame(rows, columns=["operator", "module", "direction"])
    return table.assign(shapes="", caller="", type="")[OWNER]


def owned_launches(*rows: tuple[str, str, str, float, float | None]) -> pd.DataFrame:
    """Operator, module, direction, ns, and bytes that are needed, with ten flop of products and one other per byte."""
    needed = pd.Series([row[4] for row in rows], dtype="float64")
    values = {"needed_product_flop": 10 * needed, "needed_other_flop": needed, "needed_bytes": needed}
    table = owner_rows(*(row[:3] for row in rows)).assign(ns=[row[3] for row in rows], **values)
    assert set(NEEDS) == set(values)
    # As the table of owners is read where it is large.
    return table.astype(dict.fromkeys(OWNER, "category"))


def called(*rows: tuple[str, str, str, float], **columns: object) -> pd.DataFrame:
    """Operator, module, direction and ns per step, of one launch each, all of whose needs are known."""
    table = owner_rows(*(row[:3] for row in rows)).assign(launches=1.0, total_ns=[row[3] for row in rows])
    return table.assign(**{"needed_flop": 8.0, "needed_bytes": 2.0, "needed_ns": table["total_ns"], **columns})


TWO_STEPS = [
    ("mm", "head", "forward", 10, 1.0), ("relu", "body.0", "forward", 7, None), ("mm", "head", "forward", 20, 2.0),
    ("mm", "head", "forward", 30, None), ("relu", "body.0", "forward", 5, None), ("mm", "head", "forward", 40, 3.0),
    ("mm", "head", "backward", 9, 4.0),
]  # fmt: skip


@pytest.mark.parametrize("cut", [0, 3])
def test_what_an_owner_called_is_per_step(cut: int) -> None:
    """mm forward: 4 launches of 100 ns in two steps, of which 70 ns have needs, of 6 bytes and 66 flop."""
    parts = (
        [owned_launches(*TWO_STEPS[:cut]), owned_launches(*TWO_STEPS[cut:])] if cut else [owned_launches(*TWO_STEPS)]
    )
    table = layers.sum_by_owner(parts, 2)
    assert table[["operator", "module", "direction"]].to_numpy().tolist() == [
        ["mm", "head", "forward"], ["relu", "body.0", "forward"], ["mm", "head", "backward"],
    ]  # fmt: skip
    assert table["launches"].tolist() == [2, 1, 0.5] and table["total_ns"].tolist() == [50, 6, 4.5]
    assert table["needed_ns"].tolist() == [35, 0, 4.5]
    assert table["needed_bytes"].fillna(-1).tolist() == [3, -1, 2]
    assert table["needed_flop"].fillna(-1).tolist() == [33, -1, 22]


def test_times_of_other_tools_take_the_place_of_torchs() -> None:
    """Over two steps nsys has mm 3 times in 80 ns, of which 7 of 10 have needs, and a kernel that torch has not."""
    by_torch = called(("mm", "head", "forward", 50), ("relu", "body", "forward", 6), ("copy_", "(transfer)", "data", 5),
                      ("add", "body", "forward", 0.5), needed_ns=[35, 6, 0, 0.5])  # fmt: skip
    seen = owner_rows(*[("mm", "head", "forward")] * 3, ("", "(unaligned)", "forward"), ("add", "body", "forward"))
    joined = Joined(seen.assign(ns=[20.0, 20.0, 40.0, 12.0, 6.0]), 2)
    table = layers.apply_other_times(by_torch, joined, by_torch.iloc[[2]]).set_index(["operator", "module"])
    assert table["launches"].to_dict() == {
        ("mm", "head"): 1.5, ("", "(unaligned)"): 0.5, ("copy_", "(transfer)"): 1, ("add", "body"): 0.5,
        ("relu", "body"): 0,
    }  # fmt: skip
    assert table["total_ns"].to_dict() == {
        ("mm", "head"): 40, ("", "(unaligned)"): 6, ("copy_", "(transfer)"): 5, ("add", "body"): 3, ("relu", "body"): 0,
    }  # fmt: skip
    assert table["needed_ns"].to_dict() == {
        ("mm", "head"): 28, ("", "(unaligned)"): 0, ("copy_", "(transfer)"): 0, ("add", "body"): 3,
        ("relu", "body"): 0,
    }  # fmt: skip
    # What is needed is torch's to say, whatever the kernels.
    assert table["needed_flop"].isna().to_dict() == {key: key[1] == "(unaligned)" for key in table.index}


def test_operators_have_shares_of_all_and_of_their_own_time() -> None:
    given = called(("add", "body", "forward", 20), ("mm", "head", "forward", 60), ("mul", "body", "forward", 20),
                   ("fill_", "", "data", 0), needed_ns=[5, 60, 20, 0])  # fmt: skip
    table = layers.operators_table(given, NO_COUNTERS, {})
    assert table["operator"].tolist() == ["mm", "add", "mul", "fill_"] and table.index.tolist() == [0, 1, 2, 3]
    assert table["share"].tolist() == [0.6, 0.2, 0.2, 0]
    assert table["needed_share"].fillna(-1).tolist() == [1, 0.25, 1, -1] and (table["bound"] == "").all()
    assert layers.operators_table(called(("mm", "head", "forward", 1)), NO_COUNTERS, {})["share"].tolist() == [1]


TREE = called(
    ("mm", "body.0", "forward", 10), ("mm", "body.1", "forward", 15), ("add", "body", "forward", 5),
    ("mul", "body", "forward", 1), ("triton_0", "(compiled)", "forward", 20), ("mse", "(loss)", "loss", 9),
    ("mm", "body.0", "backward", 30), ("adam", "(optimizer)", "optimizer", 10),
)  # fmt: skip
ROWS = [
    # Module, parent, direction, launches, self_ns, total_ns, of 100 ns.
    ("(step)", "", "forward", 5, 0, 51), ("(step)", "", "loss", 1, 0, 9), ("(step)", "", "backward", 1, 0, 30),
    ("(step)", "", "optimizer", 1, 0, 10), ("(root)", "(step)", "forward", 5, 0, 51),
    ("(root)", "(step)", "backward", 1, 0, 30), ("body", "(root)", "forward", 4, 6, 31),
    ("body", "(root)", "backward", 1, 0, 30), ("body.1", "body", "forward", 1, 15, 15),
    ("body.0", "body", "forward", 1, 10, 10), ("body.0", "body", "backward", 1, 30, 30),
    ("(compiled)", "(root)", "forward", 1, 20, 20), ("(loss)", "(step)", "loss", 1, 9, 9),
    ("(optimizer)", "(step)", "optimizer", 1, 10, 10),
]  # fmt: skip
MODULES = pd.DataFrame({"module": ["body", "body.1", "body.0", "unused", "body.0"], "type": list("BLMUX"),
                        "inputs": list("bdehx"), "calls": [2, 4, 6, 2, 9]})  # fmt: skip


def test_the_tree_of_a_step() -> None:
    """body.1 is called before body.0, and both before the compiled part; the loss is none of the network's."""
    table = layers.layers(TREE, MODULES, 2, NO_COUNTERS, {})
    columns = ["module", "parent", "direction", "launches", "self_ns", "total_ns"]
    assert list(table[columns].itertuples(index=False, name=None)) == ROWS
    assert table["share"].tolist() == pytest.approx([row[5] / 100 for row in ROWS])
    # Two launches of a module need twice what one does.
    assert table["needed_flop"].tolist() == [8 * row[3] for row in ROWS] and (table["needed_share"] == 1).all()
    first = table.drop_duplicates("module").set_index("module")
    assert first.loc[["body", "body.1", "body.0", "(loss)"], "type"].tolist() == ["B", "L", "M", ""]
    assert first.loc[["body", "body.1", "body.0", "(loss)"], "inputs"].tolist() == ["b", "d", "e", ""]
    assert first["calls"].dropna().to_dict() == {"body": 1, "body.1": 2, "body.0": 3}


def test_parts_of_a_step_come_in_its_order_and_others_last() -> None:
    given = called(*(("k", "(step)", part, 1) for part in ("warm", "optimizer", "backward", "cool", "forward", "data")))
    table = layers.layers(given, NO_MODULES, 1, NO_COUNTERS, {})
    assert table["direction"].tolist() == ["data", "forward", "backward", "optimizer", "cool", "warm"]
    assert table["share"].tolist() == pytest.approx([1 / 6] * 6) and table["calls"].isna().all()


@pytest.mark.parametrize(("off_ns", "wrong"), [(1.0, False), (1.3, True), (-1.3, True), (-1.0, False)])
def test_a_tree_may_be_off_by_a_millionth_of_the_step(tmp_path: Path, off_ns: float, wrong: bool) -> None:
    """Of a step of a million ns that is a nanosecond, which rounding of sums may make."""
    given = called(("mm", "body.0", "forward", 4e5), ("mm", "body.1", "forward", 5e5), ("add", "body", "forward", 1e5))
    table = layers.layers(given, MODULES, 2, NO_COUNTERS, {})
    table.loc[table["module"] == "body.1", ["self_ns", "total_ns"]] += off_ns
    write_csv(table, tmp_path / "layers.csv")
    if not wrong:
        read = reading.read(tmp_path / "layers.csv", layers.TABLE)
        pd.testing.assert_frame_equal(read[["module", "total_ns", "calls"]], table[["module", "total_ns", "calls"]])
        return
    with pytest.raises(DataError, match="body, forward: total_ns is not that of itself and its children"):
        reading.read(tmp_path / "layers.csv", layers.TABLE)


def test_how_much_of_the_time_has_an_owner() -> None:
    """Of 100 ns, 5 have no operator; 15 + 5 + 4 + 3 + 3 are of no module and no named part."""
    given = called(
        ("mm", "head", "forward", 60), ("adam", "(optimizer)", "optimizer", 10), ("add", "(step)", "forward", 10),
        ("add", "(outside)", "backward", 5), ("", "(unaligned)", "forward", 5), ("mul", "(graph)", "forward", 4),
        ("fill_", "(step)", "data", 3), ("copy_", "(step)", "data", 3),
    )  # fmt: skip
    (row,) = layers.make_owner_coverage(given, None).to_dict("records")
    assert (row["launches"], row["total_ns"]) == (8, 100)
    assert row["operator_share"] == pytest.approx(0.95) and row["module_share"] == pytest.approx(0.7)
    assert row["unowned"] == "add 15.0%, no operator 5.0%, mul 4.0%"
    assert np.isnan([row["aligned_launches"], row["aligned_share"], row["nsys_share"]]).all()
    # Operators that all have an owner are not named, also where the column knows of them.
    (row,) = layers.make_owner_coverage(given[:3].astype({"operator": "category"}), None).to_dict("records")
    assert row["unowned"] == "add 12.5%"


def test_how_much_of_the_launches_other_tools_saw() -> None:
    """Three of four launches have a like, of 60 of 100 ns; nsys timed two, of 50 ns."""
    seen = pd.DataFrame({"ns": [10, 20, 30, 40], BY: ["launch", "gap", "launch", ""],
                         "nsys_ns": [10, None, None, 40]})  # fmt: skip
    given = called(("mm", "head", "forward", 1))
    (row,) = layers.make_owner_coverage(given, Joined(seen, 1)).to_dict("records")
    assert (row["aligned_launches"], row["aligned_share"], row["nsys_share"]) == (0.75, 0.6, 0.5)
    assert (row["operator_share"], row["module_share"], row["unowned"]) == (1, 1, "")
    (row,) = layers.make_owner_coverage(given, Joined(seen.drop(columns="nsys_ns"), 1)).to_dict("records")
    assert row["aligned_share"] == 0.6 and np.isnan(row["nsys_share"])
    # Of nothing there is no share.
    (row,) = layers.make_owner_coverage(given.iloc[:0], None).to_dict("records")
    assert (row["launches"], row["operator_share"], row["module_share"]) == (0, 0, 0)


def test_operators_are_read_as_they_were_written(tmp_path: Path) -> None:
    """A shape is text, also where it looks like a number; an operator without needs has none."""
    given = called(("null", "head", "forward", 60), ("mm", "body", "forward", 20), needed_flop=[8.5, np.nan])
    table = layers.operators_table(given.assign(shapes=["[[1]]", "7"]), NO_COUNTERS, {})
    write_csv(table, tmp_path / "operators.csv")
    read = reading.read(tmp_path / "operators.csv", layers.OPERATORS_TABLE)
    assert list(read.columns) == layers.OPERATORS
    assert read[["operator", "shapes", "bound"]].to_numpy().tolist() == [["null", "[[1]]", ""], ["mm", "7", ""]]
    assert read["total_ns"].tolist() == [60, 20] and read["needed_flop"].fillna(-1).tolist() == [8.5, -1]
    assert read["dram_bytes"].isna().all() and read["share"].tolist() == [0.75, 0.25]


def test_kernels_by_owner_have_shares_of_all_time(tmp_path: Path) -> None:
    """Of 100 ns one product takes 60, and two kernels 20 each, which stay in their order."""
    sizes = dict.fromkeys(GRID, 1)
    rows = owner_rows(("add", "body", "forward"), ("mm", "head", "forward"), ("mul", "body", "forward"))
    rows = rows.assign(kind="kernel", name=["b", "void cutlass::gemm<1>()", "a"], ns=[20.0, 60.0, 20.0], **sizes)
    table = layers.make_layer_kernels(joined_step.sum_torch_launches(rows, 1), {})
    assert table[["operator", "class", "share", "total_ns", "bound"]].to_numpy().tolist() == [
        ["mm", "gemm", 0.6, 60, ""], ["add", "other", 0.2, 20, ""], ["mul", "other", 0.2, 20, ""],
    ]  # fmt: skip
    write_csv(table, tmp_path / "kernels.csv")
    read = reading.read(tmp_path / "kernels.csv", layers.LAYER_KERNELS_TABLE)
    assert list(read.columns) == layers.LAYER_KERNELS_COLUMNS and read["mangled"].tolist() == ["", "", ""]
    assert read["grid_x"].tolist() == [1, 1, 1] and read["smem_static_bytes"].isna().all()
    assert read["dram_bytes"].isna().all() and read["mean_ns"].tolist() == [60, 20, 20]
