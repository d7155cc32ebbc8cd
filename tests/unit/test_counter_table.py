"""counter_table and counter_lines: counters of two folders of results, from files to what a terminal says."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profzoo import zoo_tables
from profzoo.compare import cli, counter_changes, counter_lines, counter_sides, counter_table
from profzoo.compare.counter_changes import CHANGED, CountedCell
from profzoo.compare.sides import Side
from profzoo.config import configuration
from profzoo.errors import DataError
from profzoo.figures import counter_changes as figure_of_changes
from profzoo.figures import plots
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.kernels import demangle
from profzoo.tables import cell_counters, counters_across
from profzoo.tables.ncu_coverage import KEYS
from profzoo.tools.ncu import export_schema
from profzoo.tools.ncu.raw_page import LEADING
from profzoo.tools.torch import owners
from profzoo.workflow.comparison import Comparison
from profzoo.workflow.selection import Selection
from tests.unit.compared import compared
from tests.unit.test_counter_changes import METRICS, cell_of, planted, recorded
from tests.unit.test_page import rendered

__all__ = ["recorded"]
CELL, LAYER = ("unet", "train"), "layer.7"
SIDES = {"baseline": "plain", "candidate": "bf16"}


@pytest.fixture(autouse=True)
def by_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are told apart by functions, which all names tell."""
    monkeypatch.setattr(demangle, "can_demangle", lambda: False)


def write_side(folder: Path, cell: CountedCell, window: int = 1, owned: bool = True) -> str:
    """Write a cell's launches under ncu, and those of torch with their layers; returns the path of the first."""
    model, phase = CELL
    (folder / model).mkdir(parents=True)
    table = cell.sets[0]
    table = table.assign(stream=7, launches=table.groupby(KEYS)["id"].transform("size"))
    path = folder / model / f"{phase}.ncu.csv"
    write_csv(table[[*LEADING, *(name for name in table if "__" in name)]], path)
    write_json({"cell": {"window": window}}, Path(f"{path}.json"))
    if owned:
        traced = cell.launches.assign(
            step=0, order=range(len(table)), kind="kernel", name=cell.launches["kernel"], stream=7, smem_bytes=2,
            ns=cell.launches["gpu__time_duration.sum"].astype(int), start_ns=0, type="Block", operator="aten::mm",
        )  # fmt: skip
        found = traced.reindex(columns=list(owners.COLUMNS))
        texts = [name for name in owners.TEXTS if name not in traced]
        write_csv(found.assign(**dict.fromkeys(texts, "")), folder / model / f"{phase}.torch.launches.csv")
    return str(path)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory, recorded: pd.DataFrame) -> dict[str, str]:
    """The same cell in two folders; the candidate reads twice as many bytes in one layer."""
    folder = tmp_path_factory.mktemp("counted")
    cell = cell_of(recorded[recorded["cell"] == "bert.inference"])
    more = planted(cell, LAYER, 2)
    return {"plain": write_side(folder / "plain", cell), "bf16": write_side(folder / "bf16", more)}


def one_comparison() -> pd.DataFrame:
    table, _ = compared([CELL])
    return table


@pytest.fixture(scope="module")
def table(paths: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The table of counters of the two folders, as a reader of its file has it."""
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demangle, "can_demangle", lambda: False)
        write_csv(one_comparison(), folder / "compare.csv")
        counter_table.main(
            str(folder / "compare.csv"), {side: [path] for side, path in paths.items()}, str(folder / "counters.csv")
        )
    return reading.read(folder / "counters.csv", counter_changes.COUNTERS_TABLE)


def test_a_planted_layer_is_found_in_files_and_named(table: pd.DataFrame) -> None:
    layers = table[(table["level"] == "layer") & (table["outcome"] == CHANGED)]
    assert layers[["name", "quantity"]].to_numpy().tolist() == [[LAYER, "dram_bytes"]]
    assert set(table["level"]) == set(counter_changes.LEVELS)


def test_totals_of_files_are_those_of_the_launches(table: pd.DataFrame, paths: dict[str, str]) -> None:
    whole = table[table["level"] == "cell"].set_index("quantity")
    for side, name in SIDES.items():
        rows = reading.read(paths[name], export_schema.TABLE)
        expected = rows[METRICS["read"]].sum() + rows[METRICS["write"]].sum()
        assert whole.loc["dram_bytes", f"{side}_value"] == pytest.approx(expected)


def test_the_terminal_names_what_changed(table: pd.DataFrame) -> None:
    (row,) = one_comparison().to_dict("records")
    first, layers, *_ = counter_lines.format_counters(row, table)
    assert "DRAM bytes 626 MB -> 636 MB" in first and first.endswith("(same)")
    assert layers.startswith(f"      changed layer forward {LAYER}: DRAM bytes +")
    assert any("changed layer" in line for line in cli.format_comparison(one_comparison(), None, table))


def test_that_not_all_launches_were_counted_is_said_beside_the_sums(table: pd.DataFrame, tmp_path: Path) -> None:
    """As with a budget, of which the sums would else seem to be of the whole step."""
    partly = table.assign(change=table["change"].where(table["level"] != "cell", counter_changes.NOT_ALL))
    (row,) = one_comparison().to_dict("records")
    said = counter_lines.format_counters(row, partly)
    assert counter_lines.PARTLY in said[1] and not any(counter_lines.PARTLY in line for line in
                                                       counter_lines.format_counters(row, table))  # fmt: skip
    assert counter_changes.NOT_ALL in rendered(tmp_path, ["gemm"], compare=one_comparison(), compare_counters=partly)


def test_the_page_shows_what_changed_or_how_to_collect_it(table: pd.DataFrame, tmp_path: Path) -> None:
    html = rendered(tmp_path, ["gemm"], compare=one_comparison(), compare_counters=table)
    assert 'id="comparison-counters"' in html and LAYER in html
    html = rendered(tmp_path, ["gemm"], compare=one_comparison())
    assert 'id="comparison-counters"' not in html and "Counters: not on both sides" in html
    on_cpu = one_comparison().assign(device="CPU, 2 threads")
    assert "Counters: not on both sides" not in rendered(tmp_path, ["gemm"], compare=on_cpu)


def test_a_cell_without_counters_on_a_side_has_no_rows(paths: dict[str, str]) -> None:
    found = counter_table.tabulate_counters(one_comparison(), {"plain": {CELL: paths["plain"]}})
    assert found.empty and list(found) == list(counter_changes.COLUMNS)


def test_times_alone_are_no_counters(recorded: pd.DataFrame, tmp_path: Path) -> None:
    cell = cell_of(recorded[recorded["cell"] == "bert.inference"])
    path = write_side(tmp_path, cell, owned=False)
    write_csv(pd.read_csv(path, keep_default_na=False).drop(columns=list(METRICS.values())), path)
    assert counter_sides.read_counted_cell(path) is None


def test_sums_are_per_step_and_sample(recorded: pd.DataFrame, tmp_path: Path) -> None:
    path = write_side(tmp_path, cell_of(recorded[recorded["cell"] == "bert.inference"]), window=2, owned=False)
    found = counter_sides.read_counted_cell(path, items=8)
    assert found is not None and found.per == 16 and "module" not in found.launches


def test_a_missing_census_is_said_in_one_line(recorded: pd.DataFrame, tmp_path: Path) -> None:
    path = write_side(tmp_path, cell_of(recorded[recorded["cell"] == "bert.inference"]), owned=False)
    write_json({"cell": {"window": 1}, "census": "train.nsys-launches.csv"}, Path(f"{path}.json"))
    with pytest.raises(DataError, match=r"needs train\.nsys-launches\.csv beside it"):
        counter_sides.read_counted_cell(path)


def test_the_command_says_once_how_to_collect_counters(
    table: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_csv(one_comparison(), tmp_path / "compare.csv")
    write_csv(table, tmp_path / "counters.csv")
    assert cli.main([str(tmp_path / "compare.csv")]) == 0
    assert capsys.readouterr().out.count(counter_lines.NONE) == 1
    assert cli.main([str(tmp_path / "compare.csv"), "--counters", str(tmp_path / "counters.csv")]) == 0
    printed = capsys.readouterr().out
    assert counter_lines.NONE not in printed and LAYER in printed


def test_amounts_are_those_of_the_table(table: pd.DataFrame) -> None:
    assert np.allclose(table["delta"], table["candidate_value"] - table["baseline_value"])
    rows = table[table["level"] == "cell"]
    assert np.allclose(rows["delta_share"], rows["delta"] / rows["baseline_value"])


def test_tables_of_a_cell_and_across_cells_are_written_and_read_as_declared(
    paths: dict[str, str], tmp_path: Path
) -> None:
    for side, path in paths.items():
        (tmp_path / side).mkdir()
        made = {name: str(tmp_path / side / f"train.{name}.csv") for name in cell_counters.TABLES}
        cell_counters.main([path], None, 1, made)
    found = {name: [str(tmp_path / side / f"train.{name}.csv") for side in paths] for name in cell_counters.TABLES}
    across = {name: str(tmp_path / f"{name}.csv") for name in cell_counters.TABLES}
    counters_across.main(found, across)
    chart = zoo_tables.read_table("memory_chart", across["memory_chart"])
    rows = reading.read(paths["plain"], export_schema.TABLE)
    mine = chart[(chart["model"] == "plain") & (chart["link"] == "dram_read")]
    assert mine.loc[mine["level"] == "cell", "bytes"].sum() == pytest.approx(rows[METRICS["read"]].sum())
    assert mine.loc[mine["level"] == "class", "bytes"].sum() == pytest.approx(rows[METRICS["read"]].sum())
    # These launches have no metrics of occupancy, pipes and states, so that their tables have no rows.
    for name in ("occupancy", "pipes", "warp_states"):
        assert zoo_tables.read_table(name, across[name]).empty


def test_the_figure_colours_what_changed_and_marks_the_rest(table: pd.DataFrame, tmp_path: Path) -> None:
    figure = figure_of_changes.draw(one_comparison(), table)
    plots.save_figure(figure, [str(tmp_path / "changes.svg")], "")
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["? +1.5 %", "= +0.0 %"]
    changed = table.assign(outcome=CHANGED, delta=table["baseline_value"] / 4)
    (first, _) = figure_of_changes.draw(one_comparison(), changed).axes[0].texts
    assert first.get_text() == "+25.0 %"
    (said,) = figure_of_changes.draw(one_comparison(), table.iloc[:0]).axes[0].texts
    assert "docs/guides/faster.md" in said.get_text()


@pytest.mark.parametrize(
    ("columns", "counted"),
    [("id,lts__t_bytes.sum", True), ("id,gpu__time_duration.sum", False), (None, False)],
)
def test_a_comparison_looks_for_counters_in_what_exists(
    columns: str | None, counted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only of cells that ncu counted on both sides there is a table, and nothing is profiled for it."""
    monkeypatch.chdir(tmp_path)
    sides = []
    for name in ("before", "after"):
        (tmp_path / name / "unet").mkdir(parents=True)
        if columns is not None:
            (tmp_path / name / "unet/train.ncu.csv").write_text(f"{columns}\n0,1\n")
        sides.append(Side(name, Path(name)))
    known = configuration.normalise_config({"models": [CELL[0]]})
    selection = Selection(known, [CELL], [], {}, sides=sides, compared=[CELL])
    comparison = Comparison(selection)
    assert comparison.is_counted() == counted
    found = comparison.counted_files()
    assert [len(found[side.name]) for side in sides] == [int(counted)] * 2
