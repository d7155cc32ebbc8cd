"""What the table of verdicts holds."""

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tables.schemas import CELL
from profzoo.verdicts import dictionary

COLUMNS = [
    *CELL, "level", "class", "function", "module", "direction", "rank", "verdict", "metric", "value", "threshold",
    "share", "share_low", "share_high", "evidence", "cured", "gain", "gain_low", "gain_high", "limit", "method",
    "trials", "median_error", "slowed_down", "covered", "score", "next_step", "settings", "by", "source",
]  # fmt: skip
NUMBERS = (
    "value", "threshold", "share", "share_low", "share_high", "cured", "gain", "gain_low", "gain_high", "limit",
    "trials", "median_error", "slowed_down", "covered",
)  # fmt: skip
VERDICTS_TABLE = Table(
    columns={
        name: column_types.or_missing(column_types.NUMBER) if name in NUMBERS else column_types.TEXT for name in COLUMNS
    }
    | {"rank": column_types.COUNT},
    about=dictionary.VERDICTS,
)
