"""What the table of plans holds."""

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.plans import dictionary
from profzoo.tables.schemas import CELL

NUMBERS = ("gain", "gain_low", "gain_high", "trials", "median_error", "covered")
COLUMNS = [*CELL, *dictionary.PLANS]
PLANS_TABLE = Table(
    columns={
        name: column_types.or_missing(column_types.NUMBER) if name in NUMBERS else column_types.TEXT for name in COLUMNS
    }
    | {"rank": column_types.COUNT, "advised": column_types.FLAG},
    key=[*CELL, "rank"],
    about=dictionary.PLANS,
)
