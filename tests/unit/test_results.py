"""`profzoo.load`, on results that are made of recordings; and the notebooks that use it, with the outputs that they show."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import profzoo
from profzoo import formatting
from profzoo.catalog.csv_files import CSV_FILES
from profzoo.errors import DataError
from profzoo.records import import_graph
from profzoo.results import MissingError, Results
from profzoo.tables import schemas
from profzoo.terminal import run_end
from profzoo.tools import unavailable_tools
from tests import recorded_results
from tests.columns import undescribed
from tests.documentation import pages

NOTEBOOKS = sorted((import_graph.PROJECT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_results.write(tmp_path_factory.mktemp("recorded") / "results")


@pytest.mark.slow
def test_the_page_on_plans_shows_what_is_printed(whole: Path) -> None:
    """Its block of output has the lines about the first cell, after the word that begins the first of them."""
    (first, *_) = run_end.list_largest_gains(whole / "tables/verdicts.csv", whole / "tables/plans.csv")
    said = [("", first.says), ("", f"{run_end.IN_OWN_CODE}{first.recipe}")]
    printed = [*formatting.format_rows(said, 118), formatting.name_line("", first.command)]
    blocks = (block for page in pages.find_pages() for block in pages.read_blocks(page.name, page.read_text()))
    shown = [block.text.splitlines() for block in blocks if block.language == "text" and first.command in block.text]
    assert shown, "\n".join(printed)
    for lines in shown:
        assert [line[formatting.INDENT :] for line in lines] == [line[formatting.INDENT :] for line in printed]


@pytest.fixture
def results(few_results: Path) -> Results:
    return profzoo.load(few_results)


def test_every_table_is_a_typed_frame_with_units_and_meanings(results: Results) -> None:
    made = {"cells", "steps", "kernels", "roofline", "coverage", "trials", "verdicts", "plans", "layers"}
    assert set(results.tables) >= made
    for name in results.tables:
        frame, declared = results.tables[name], CSV_FILES[f"tables/{name}.csv"].table
        assert isinstance(frame, pd.DataFrame) and set(frame.attrs["meanings"]) == set(frame.columns)
        for column, unit in frame.attrs["units"].items():
            kind = declared.kind(column)
            assert unit and kind and (pd.api.types.is_numeric_dtype(frame[column]) or not kind.pattern), (name, column)
    pd.testing.assert_frame_equal(results.kernels, schemas.read_table("kernels", results.folder / "tables/kernels.csv"))
    assert results.units("kernels")["total_ns"] == "ns" and results.meanings("steps")["idle_host_ns"].startswith("Idle")
    assert results.columns("steps").set_index("column").loc["cpu_forward_ns", "clock"] == "cpu"
    assert undescribed(results.folder) == []


def test_a_table_is_read_once_and_when_it_is_asked_for(
    results: Results, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read, real = [], profzoo.results._frame
    monkeypatch.setattr(profzoo.results, "_frame", lambda path, root: read.append(path.name) or real(path, root))
    assert "kernels" in results.tables and len(results.tables) > 8 and "kernels" in repr(results) and not read
    results.kernels["total_ns"] = 0.0
    assert results.tables["kernels"]["total_ns"].sum() > 0 and read == ["kernels.csv"]
    assert "kernels" in dir(results) and not hasattr(results, "_repr_html_") and not hasattr(results, "nothing_such")
    with pytest.raises(AttributeError, match="did you mean 'kernels'"):
        results.kernals  # noqa: B018
    shutil.copytree(results.folder / "tables", tmp_path / "tables")
    path = tmp_path / "tables/steps.csv"
    path.write_text(path.read_text()[:-10])
    with pytest.raises(DataError, match=r"steps\.csv is cut off"):
        profzoo.load(tmp_path).steps  # noqa: B018


def test_a_cell_has_its_plans_the_best_first(results: Results) -> None:
    plans = results.cell("mobilenetv2", "train").plans()
    assert len(plans) > 1 and list(plans["rank"]) == list(range(1, len(plans) + 1))
    assert plans["gain"].dropna().is_monotonic_decreasing and plans["advised"].dtype == bool
    assert results.units("plans") == {"rank": "count", "gain": "ratio", "gain_low": "ratio", "gain_high": "ratio",
                                      "trials": "count", "median_error": "ratio", "covered": "fraction"}  # fmt: skip
    assert len(results.plans) > len(plans)


def test_a_cell_has_its_tables_settings_and_rows(results: Results) -> None:
    cell = results.cell("mobilenetv2", "train")
    made = {"nsys", "nsys-steps", "ncu.launch", "ncu.launch.coverage", "torch.launches", "layer-kernels"}
    assert made <= set(cell.tables)
    assert cell.settings["batch"] == 8 and "time.csv" in cell.sidecars and cell.sidecar("nsys.csv")
    assert cell.tables["nsys"].attrs["units"]["mean_ns"] == "ns" and len(cell.rows("coverage")) == 1
    assert results.cell("mobilenetv2") is cell and "nsys" in repr(cell) and "nsys" in repr(cell.tables)
    assert ("mobilenetv2", "train") in results.all_cells() and len(results.all_cells()) == 6
    verdicts = results.verdicts("bert", "train")
    assert set(verdicts["model"]) == {"bert"} and len(verdicts) == len(results.cell("bert").verdicts()) > 2
    assert "graph" in set(results.cell("bert").trials()["settings"])


def test_steps_of_one_process_and_of_several_are_read(tmp_path: Path) -> None:
    home = tmp_path / "lstm"
    home.mkdir()
    (home / "train.time.csv").write_text("step,wall_ns,gpu_ns,items\n0,5,,4\n")
    (home / "inference.time.csv").write_text("side,process,step,wall_ns,gpu_ns,items\n,0,0,5,4,4\n")
    (home / "train.ncu-rep.json").write_text('{"cell": {"batch": 3}}')
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "train.torch-time.csv").write_text("step,wall_ns,gpu_ns,items\n0,7,,4\n")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "mine.csv").write_text("a,b\n1,x\n")
    found = profzoo.load(tmp_path)
    assert found.cell("lstm").steps["wall_ns"].tolist() == [5]
    assert found.cell("lstm", "inference").steps["process"].tolist() == [0]
    assert found.cell("unet").steps["wall_ns"].tolist() == [7] and found.cell("lstm").settings == {"batch": 3}
    assert found.mine["a"].tolist() == [1] and found.units("mine") == {}
    lacks = r"unet train has no sidecar with its settings: `snakemake .*/unet/train\.time\.csv.*` makes one"
    with pytest.raises(MissingError, match=lacks):
        found.cell("unet").settings  # noqa: B018
    with pytest.raises(MissingError, match=r"has no table verdicts: `snakemake .*tables/verdicts\.csv.*` makes it"):
        found.cell("lstm").verdicts()


def test_without_a_gpu_messages_name_what_runs(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unavailable_tools, "lacks_gpu", lambda: True)
    told = {
        "skew": "on a machine with a GPU, `snakemake results/tables/skew.csv --config gpus=2 tool=torch` makes it",
        "host": "on a machine with a GPU, `snakemake results/tables/host.csv --config tool=nsys` makes it",
        "compare": "`snakemake compare --config candidate=bf16 tool=torch` makes it",
        "latency": "`snakemake results/tables/latency.csv --config tool=torch` makes it",
        "owners": "`snakemake results/tables/owners.csv --config tool=torch` makes it",
    }
    for name, makes in told.items():
        with pytest.raises(MissingError, match=re.escape(f"no table {name}: {makes}")):
            results.tables[name]
    with pytest.raises(MissingError, match=r": on a machine with a GPU, `snakemake \S*/bert/train.nsys.csv` makes it"):
        results.cell("bert").tables["nsys"]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda found: found.tables["kernals"], "there is no table 'kernals' of .*: did you mean 'kernels'\\?"),
        (lambda found: found.tables["host"], "has no table host: `snakemake results/tables/host.csv --config tool=nsys`"),
        (lambda found: found.comparison("bert"), "has no table compare: `snakemake compare --config candidate=bf16` makes"),
        (lambda found: found.cell("brt"), "has no model 'brt': did you mean 'bert'\\?"),
        (lambda found: found.cell("bert", "training"), "has no bert training: did you mean 'train'\\?"),
        (lambda found: found.cell("lstm"), "but no files: `snakemake report --config models=lstm` makes them"),
        (lambda found: found.cell("bert").tables["nsys"], "bert train has no table nsys: `snakemake results/bert/train.nsys.csv`"),
        (lambda found: found.cell("mobilenetv2").sidecar("nsys"), "no sidecar 'nsys': did you mean 'nsys.csv'\\?"),
        (lambda found: found.columns("stepz"), "there is no table 'stepz': did you mean 'steps'\\?"),
        (lambda found: found.units("cellz"), "there is no table 'cellz' of .*: did you mean 'cells'\\?"),
        (lambda found: profzoo.load(found.folder / "none"), "none is not a folder of results: `snakemake report` makes one"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said_in_one_line(results: Results, ask, said: str, monkeypatch) -> None:
    monkeypatch.setattr(unavailable_tools, "lacks_gpu", lambda: False)
    with pytest.raises(DataError, match=said) as error:
        ask(results)
    assert "\n" not in str(error.value)


def test_importing_profzoo_loads_no_library_and_is_no_part_of_a_measured_program() -> None:
    code = "import sys, profzoo; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=import_graph.PROJECT, text=True).split()
    assert "profzoo" in loaded and not {"pandas", "numpy", "profzoo.results"} & set(loaded)
    assert profzoo.__all__ == ["load", "record", "record_step"]
    measured = import_graph.files_of("profzoo/harness/step/step_loop.py")
    assert not [path for path in measured if path.name in ("results.py", "data_dictionary.py", "across.py")]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(
    path: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Commands of messages depend on whether this machine has a GPU.
    monkeypatch.setattr(unavailable_tools, "lacks_gpu", lambda: False)
    printed = recorded_results.run_notebook(path.resolve(), whole, tmp_path)
    cells = recorded_results.code_cells(path)
    for number, (cell, output) in enumerate(zip(cells, printed, strict=True), 1):
        shown = "".join(line for one in cell["outputs"] for line in one["text"])
        assert output == shown and cell["execution_count"] == number
    text = path.read_text()
    assert text.count("## ") == 11 and len(text) < 40_000
    # Of a folder with all tables, no answer is missing but the ones that the last cell asks for.
    assert not any("has no table" in output or "has no rows" in output for output in printed[:-1])
