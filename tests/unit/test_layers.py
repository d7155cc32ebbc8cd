"""Tables of layers and operators, of a run of the known network on the CPU."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.launches.joined_step import Joined
from profzoo.tables import layer_sums, layers, layers_across, schemas
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
    layer_sums.main(*given, layer_sums.Others(), made_in(folder))
    return folder


def made_in(folder: Path) -> dict[str, str]:
    """The tables that are made of a cell's launches."""
    return {name: str(folder / f"{name}.csv") for name in ("layers", "operators", "kernels", "coverage")}


def test_the_tree_adds_up_to_all_that_ran(files: Path) -> None:
    launches = reading.read(files / "launches.csv", owners.TABLE)
    table = reading.read(files / "layers.csv", layers.TABLE)
    root = table[table["module"] == "(step)"]
    assert root["total_ns"].sum() == launches["ns"].sum() / STEPS and root["launches"].sum() == len(launches) / STEPS
    assert root["share"].sum() == pytest.approx(1) and table["self_ns"].sum() == launches["ns"].sum() / STEPS
    needed = launches[["needed_product_flop", "needed_other_flop"]].sum().sum() / STEPS
    assert root["needed_flop"].sum() == pytest.approx(needed) and (root["needed_share"] <= 1).all()
    for (name, direction), rows in table[table["parent"] != ""].groupby(["parent", "direction"]):
        above = table[(table["module"] == name) & (table["direction"] == direction)].iloc[0]
        assert above["total_ns"] == above["self_ns"] + rows["total_ns"].sum()
    assert set(table["parent"]) - {""} <= set(table["module"])


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


def test_the_same_of_a_table_in_parts(files: Path) -> None:
    parts = reading.parts(files / "launches.csv", owners.TABLE, count=100)
    some = layers.sum_by_owner(parts, STEPS).sort_values(layers.OWNER, ignore_index=True)
    whole = layers.sum_by_owner([reading.read(files / "launches.csv", owners.TABLE)], STEPS)
    pd.testing.assert_frame_equal(some, whole.sort_values(layers.OWNER, ignore_index=True))


def test_a_tree_that_lacks_rows_is_refused(files: Path, tmp_path: Path) -> None:
    table = pd.read_csv(files / "layers.csv", keep_default_na=False)
    write_csv(table[table["module"] != "widen"], tmp_path / "layers.csv")
    with pytest.raises(DataError, match=r"\(root\), (forward|backward): total_ns is not that of itself and its childr"):
        reading.read(tmp_path / "layers.csv", layers.TABLE)


def test_a_run_without_modules_has_its_parts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    events = [event for event in owned.traced(owned.Known()) if "profzoo:module:" not in event["name"]]
    trace = torch_trace.make_trace(events)
    called = layers.sum_by_owner([owners.tabulate_operators(trace)], STEPS)
    table = layers.layers(called, owners.tabulate_modules(trace), STEPS, Joined(pd.DataFrame(), STEPS), {})
    assert set(table["module"]) == {"(step)", "(forward)", "(backward)", "(loss)", "(data)", "(optimizer)"}
    assert table.loc[table["module"] == "(step)", "share"].sum() == pytest.approx(1)


def test_layers_across_cells_are_those_of_each(files: Path, tmp_path: Path) -> None:
    folder = tmp_path / "known"
    folder.mkdir()
    shutil.copy(files / "layers.csv", folder / "train.layers.csv")
    shutil.copy(files / "coverage.csv", folder / "train.owners.csv")
    outputs = {name: str(tmp_path / f"{name}.csv") for name in ("layers", "owners")}
    layers_across.main([str(folder / "train.layers.csv")], [str(folder / "train.owners.csv")], outputs)
    table, own = schemas.read_table("layers", outputs["layers"]), reading.read(files / "layers.csv", layers.TABLE)
    assert set(zip(table["model"], table["phase"], strict=True)) == {("known", "train")}
    pd.testing.assert_frame_equal(table[own.columns], own)
    assert table.loc[table["module"] == "shared", "calls"].tolist() == [4, 4]
    assert table.loc[table["module"] == "(step)", "calls"].isna().all()
    covered = schemas.read_table("owners", outputs["owners"])
    assert covered["module_share"].tolist() == [1] and covered["aligned_share"].isna().all()
