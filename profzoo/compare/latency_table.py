"""Makes the table of percentiles of the step on each side of a comparison: whether the slowest steps got faster too."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from profzoo.compare import comparison_table, dictionary
from profzoo.io import column_types
from profzoo.io.scripts import write_csv
from profzoo.tables import latency

SIDE = "side"
COLUMNS = [*latency.CELL, SIDE, *(name for name in latency.COLUMNS if name not in latency.CELL)]
LATENCY_TABLE = replace(
    latency.TABLE,
    columns={SIDE: column_types.TEXT, **latency.TABLE.columns},
    key=[SIDE, *latency.KEY],
    about={**latency.TABLE.about, SIDE: dictionary.SIDE},
)


def tabulate_latency(compared: Iterable[comparison_table.ComparedCell]) -> pd.DataFrame:
    """Return the percentiles of the step of each cell and side; the reference side comes first.

    Steps of sides with batches of different sizes hold different work; their percentiles are of a step all the same.
    """
    tables = [
        latency.list_percentiles(side.processes).assign(**cell, **{SIDE: name})
        for cell, sides, _ in compared
        for name, side in sides.items()
    ]
    return pd.concat(tables, ignore_index=True)[COLUMNS] if tables else LATENCY_TABLE.empty()[COLUMNS]


def main(sides: Sequence[str], turns: Sequence[str], alone: Mapping[str, Sequence[str]], csv: str) -> None:
    """Read the measurements of a comparison and write the table; the arguments are those of comparison_table.main."""
    write_csv(tabulate_latency(comparison_table.read_compared(sides, turns, alone)), csv)
