"""The data dictionary of real results: every column of every CSV that the workflow makes is described."""

import csv
import io

from profzoo import data_dictionary
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
