"""Declares the columns of the tables across the zoo and the commands that make them, and reads tables by name."""

from pathlib import Path

import pandas as pd

from profzoo.compare import comparison_table, contributions, counter_changes, latency_table
from profzoo.io import csv_tables as reading
from profzoo.plans import table_columns as plans
from profzoo.tables import schemas
from profzoo.tools.ncu.chart_sets import CHARTS, SET_OF, SET_OF_ALL
from profzoo.trials import trial_table as trials
from profzoo.verdicts import fusion_table, wait_table
from profzoo.verdicts import table_columns as verdicts

TABLES = {
    **schemas.TABLES,
    "verdicts": verdicts.VERDICTS_TABLE,
    "plans": plans.PLANS_TABLE,
    "waits": wait_table.WAITS_TABLE,
    "fusion": fusion_table.FUSION_TABLE,
    "trials": trials.TRIALS_TABLE,
    "compare": comparison_table.COMPARISON_TABLE,
    "compare_parts": contributions.PARTS_TABLE,
    "compare_counters": counter_changes.COUNTERS_TABLE,
    "compare_latency": latency_table.LATENCY_TABLE,
}

# Commands for tables that the default configuration does not make.
COMMANDS = {
    "ranks": "snakemake report --config gpus=2 tool=nsys",
    **{name: f"snakemake results/tables/{name}.csv --config gpus=2 tool=torch" for name in ("collectives", "skew")},
    **{name: f"snakemake results/tables/{name}.csv --config tool=nsys" for name in ("replay", "host")},
    **{name: f"snakemake results/tables/{name}.csv --config tool=torch" for name in ("layers", "owners")},
    "fusion": "snakemake results/tables/fusion.csv --config tool=nsys,torch",
    "roofline": "snakemake report --config tool=ncu,nsys ncu='{set: roofline}'",
    **{
        name: f"snakemake report --config tool=ncu,nsys ncu='{{set: {SET_OF.get(name, SET_OF_ALL)}}}'"
        for name in CHARTS
    },
    **dict.fromkeys(
        ("compare", "compare_parts", "compare_counters", "compare_latency"),
        "snakemake compare --config candidate=bf16",
    ),
    "trials": "snakemake trials",
}


def read_table(name: str, path: str | Path) -> pd.DataFrame:
    """Read a table by its name; raises DataError if the file does not match the table's declaration."""
    return reading.read(path, TABLES[name])
