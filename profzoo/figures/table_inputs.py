"""The tables that figures and the page are made of, read by name."""

from pathlib import Path

import pandas as pd

from profzoo.compare import comparison_table, contributions
from profzoo.io import csv_tables as reading
from profzoo.tables import schemas
from profzoo.trials import trial_table as trials
from profzoo.verdicts import table_columns as verdicts

TABLES = {
    **schemas.TABLES,
    "verdicts": verdicts.VERDICTS_TABLE,
    "trials": trials.TRIALS_TABLE,
    "compare": comparison_table.COMPARISON_TABLE,
    "compare_parts": contributions.PARTS_TABLE,
}


def read_table(name: str, path: str | Path) -> pd.DataFrame:
    """A table by its name; DataError where the file is not what is declared of it."""
    return reading.read(path, TABLES[name])
