"""The tables that figures and the page are made of, read by name."""

from pathlib import Path

import pandas as pd

from profzoo.compare import parts, tabulate
from profzoo.reading import tables as reading
from profzoo.tables import across
from profzoo.trials import tabulate as trials
from profzoo.verdicts import columns as verdicts

TABLES = {
    **across.TABLES,
    "verdicts": verdicts.TABLE,
    "trials": trials.TABLE,
    "compare": tabulate.TABLE,
    "compare_parts": parts.TABLE,
}


def read(name: str, path: str | Path) -> pd.DataFrame:
    """A table by its name; DataError where the file is not what is declared of it."""
    return reading.read(path, TABLES[name])
