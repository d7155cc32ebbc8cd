"""The tables that figures and the page are made of, read by name."""

from pathlib import Path

import pandas as pd

from profzoo.reading import tables as reading
from profzoo.tables import across
from profzoo.verdicts import columns as verdicts

TABLES = {**across.TABLES, "verdicts": verdicts.TABLE}


def read(name: str, path: str | Path) -> pd.DataFrame:
    """A table by its name; DataError where the file is not what is declared of it."""
    return reading.read(path, TABLES[name])
