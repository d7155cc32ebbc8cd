"""The data dictionary of real results: every column of every CSV that the workflow makes is described."""

import csv
import io
import json
import shutil

from profzoo import csv_files, data_dictionary
from tests.columns import undescribed
from tests.workflow.project import Project


def test_every_column_of_results_is_described(built: Project) -> None:
    results = built.root / "results"
    assert undescribed(results) == []
    rows = list(csv.DictReader(io.StringIO(built.read("results/tables/columns.csv"))))
    assert rows == data_dictionary.tabulate_columns().to_dict("records")


def test_every_column_of_counters_is_described(ncu_built: Project) -> None:
    assert list((ncu_built.root / "results").rglob("*.ncu.roofline.csv"))
    assert undescribed(ncu_built.root / "results") == []


def test_all_tables_are_written_as_json_and_removed_again(built: Project) -> None:
    """By `all` with `export`; an older table that cannot be read is left out, and named."""
    built.write("results/lstm/train.sample.csv", "step\n")
    told = built.snakemake("-j1", "all", "--config", "export=json").stderr
    assert "left out of tables.json" in told and "train.sample.csv" in told
    assert "tables  results/tables.json/" in told
    tables = {path for path in built.files() if path.endswith(".csv") and csv_files.find_file(path)}
    # Snakemake leaves a file of its own in each folder that it makes.
    converted = {path for path in built.files() if path.startswith("tables.json/") and path.endswith(".json")}
    assert converted == {f"tables.json/{path.removesuffix('csv')}json" for path in tables - {"lstm/train.sample.csv"}}
    (step, *_) = json.loads(built.read("results/tables.json/lstm/train.time.json"))["data"]
    first = next(csv.DictReader(io.StringIO(built.read("results/lstm/train.time.csv"))))
    assert step["wall_ns"] == int(first["wall_ns"])
    assert built.dry("all", "--config", "export=json") == []
    shutil.rmtree(built.root / "results/tables.json")
    built.snakemake("results/tables.json", "--config", "collect=false")
    assert converted <= built.files()
    built.snakemake("clean")
    assert not {path for path in built.files() if path.startswith("tables.json/")}
