"""counter_table and counter_lines: counters of two folders of results, from files to what a terminal says."""

from pathlib import Path

import pandas as pd
import pytest

from profzoo.catalog import csv_files
from profzoo.compare import cli, counter_changes
from profzoo.compare.counter_changes import CHANGED, CountedCell
from profzoo.compare.sides import Side
from profzoo.config import configuration
from profzoo.errors import DataError
from profzoo.figures import counter_changes as figure_of_changes
from profzoo.figures import plots
from profzoo.io import csv_tables as reading
from profzoo.io.scripts import write_csv, write_json
from profzoo.kernels import kernel_classes
from profzoo.tables import across_cells, cell_counters
from profzoo.tables.kernel_table import KEYS
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


@pytest.fixture(autouse=True)
def by_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are told apart by functions, which all names tell."""
    monkeypatch.setattr(kernel_classes, "can_demangle", lambda: False)


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
        patch.setattr(kernel_classes, "can_demangle", lambda: False)
        write_csv(one_comparison(), folder / "compare.csv")
        counter_changes.write_counter_table(
            str(folder / "compare.csv"), {side: [path] for side, path in paths.items()}, str(folder / "counters.csv")
        )
    return reading.read(folder / "counters.csv", counter_changes.COUNTERS_TABLE)


def test_a_planted_layer_is_found_in_files_and_named(table: pd.DataFrame) -> None:
    layers = table[(table["level"] == "layer") & (table["outcome"] == CHANGED)]
    assert layers[["name", "quantity"]].to_numpy().tolist() == [[LAYER, "dram_bytes"]]
    assert set(table["level"]) == set(counter_changes.LEVELS)


def test_totals_of_files_are_those_of_the_launches(table: pd.DataFrame, paths: dict[str, str]) -> None:
    whole = table[table["level"] == "cell"].set_index("quantity").loc["dram_bytes"]
    sums = [
        reading.read(path, export_schema.TABLE)[[METRICS["read"], METRICS["write"]]].sum().sum()
        for path in paths.values()
    ]
    assert whole[["baseline_value", "candidate_value"]].tolist() == pytest.approx(sums)
    assert (whole["delta"], whole["delta_share"]) == pytest.approx((sums[1] - sums[0], sums[1] / sums[0] - 1))


def test_the_terminal_names_what_changed(table: pd.DataFrame) -> None:
    (row,) = one_comparison().to_dict("records")
    first, layers, *_ = counter_changes.format_counters(row, table)
    assert "DRAM bytes 626 MB -> 636 MB" in first and first.endswith("(same)")
    assert layers.startswith(f"      changed layer forward {LAYER}: DRAM bytes +")
    assert any("changed layer" in line for line in cli.format_comparison(one_comparison(), None, table))


def test_that_not_all_launches_were_counted_is_said_beside_the_sums(table: pd.DataFrame) -> None:
    """As with a budget, of which the sums would else seem to be of the whole step."""
    partly = table.assign(change=table["change"].where(table["level"] != "cell", counter_changes.NOT_ALL))
    (row,) = one_comparison().to_dict("records")
    assert counter_changes.PARTLY in counter_changes.format_counters(row, partly)[1]
    assert counter_changes.PARTLY not in "".join(counter_changes.format_counters(row, table))


def test_the_page_shows_what_changed_or_how_to_collect_it(table: pd.DataFrame, tmp_path: Path) -> None:
    partly = table.assign(change=table["change"].where(table["level"] != "cell", counter_changes.NOT_ALL))
    html = rendered(tmp_path, ["gemm"], compare=one_comparison(), compare_counters=partly)
    assert 'id="comparison-counters"' in html and LAYER in html and counter_changes.NOT_ALL in html
    html = rendered(tmp_path, ["gemm"], compare=one_comparison())
    assert 'id="comparison-counters"' not in html and "Counters: not on both sides" in html


def test_a_cell_without_counters_on_a_side_has_no_rows(paths: dict[str, str]) -> None:
    found = counter_changes.tabulate_counters(one_comparison(), {"plain": {CELL: paths["plain"]}})
    assert found.empty and list(found) == list(counter_changes.COLUMNS)


@pytest.fixture
def alone(recorded: pd.DataFrame, tmp_path: Path) -> str:
    """A cell's launches under ncu, of a window of two steps, without those of torch."""
    return write_side(tmp_path, cell_of(recorded[recorded["cell"] == "bert.inference"]), window=2, owned=False)


def test_times_alone_are_no_counters(alone: str) -> None:
    write_csv(pd.read_csv(alone, keep_default_na=False).drop(columns=list(METRICS.values())), Path(alone))
    assert counter_changes.read_counted_cell(alone) is None


def test_sums_are_per_step_and_sample(alone: str) -> None:
    found = counter_changes.read_counted_cell(alone, items=8)
    assert found is not None and found.per == 16 and "module" not in found.launches


def test_a_missing_census_is_said_in_one_line(alone: str) -> None:
    write_json({"cell": {"window": 1}, "census": "train.nsys-launches.csv"}, Path(f"{alone}.json"))
    with pytest.raises(DataError, match=r"needs train\.nsys-launches\.csv beside it"):
        counter_changes.read_counted_cell(alone)


def test_tables_of_a_cell_and_across_cells_are_written_and_read_as_declared(
    paths: dict[str, str], tmp_path: Path
) -> None:
    for side, path in paths.items():
        (tmp_path / side).mkdir()
        made = {name: str(tmp_path / side / f"train.{name}.csv") for name in cell_counters.TABLES}
        cell_counters.main([path], None, 1, made)
    found = {name: [str(tmp_path / side / f"train.{name}.csv") for side in paths] for name in cell_counters.TABLES}
    across = {name: str(tmp_path / f"{name}.csv") for name in cell_counters.TABLES}
    across_cells.tabulate_counters(found, across)
    chart = csv_files.read_table("memory_chart", across["memory_chart"])
    rows = reading.read(paths["plain"], export_schema.TABLE)
    mine = chart[(chart["model"] == "plain") & (chart["link"] == "dram_read")]
    for level in ("cell", "class"):
        assert mine.loc[mine["level"] == level, "bytes"].sum() == pytest.approx(rows[METRICS["read"]].sum())
    # These launches have no metrics of occupancy, pipes and states, so that their tables have no rows.
    for name in ("occupancy", "pipes", "warp_states"):
        assert csv_files.read_table(name, across[name]).empty


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


@pytest.mark.parametrize("columns", ["id,lts__t_bytes.sum", "id,gpu__time_duration.sum", None])
def test_a_comparison_looks_for_counters_in_what_exists(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only of cells that ncu counted on both sides there is a table, and nothing is profiled for it."""
    monkeypatch.chdir(tmp_path)
    sides = [Side(name, Path(name)) for name in ("before", "after")]
    for side in sides:
        (tmp_path / side.name / "unet").mkdir(parents=True)
        if columns is not None:
            (tmp_path / side.name / "unet/train.ncu.csv").write_text(f"{columns}\n0,1\n")
    known = configuration.normalise_config({"models": [CELL[0]]})
    comparison = Comparison(Selection(known, [CELL], [], {}, sides=sides, compared=[CELL]))
    counted = "lts" in (columns or "")
    assert comparison.is_counted() == counted
    assert [len(comparison.counted_files()[side.name]) for side in sides] == [int(counted)] * 2
