"""Makes the table of percentiles of step times across cells."""

from collections.abc import Sequence

import pandas as pd

from profzoo.io.scripts import write_csv
from profzoo.statistics import process_repeats
from profzoo.tables import baseline_steps
from profzoo.tables.latency import COLUMNS, TABLE, list_percentiles


def make_latency(timed: baseline_steps.Timed) -> pd.DataFrame:
    """Return the percentiles of the steps of each cell; timed: the unprofiled baselines."""
    tables = [
        list_percentiles(process_repeats.processes(steps)).assign(**cell) for cell, steps, _ in timed if len(steps)
    ]
    return pd.concat(tables, ignore_index=True)[COLUMNS] if tables else TABLE.empty()


def main(time: Sequence[str], sidecars: Sequence[str], csv: str) -> None:
    """Read the unprofiled baselines of all cells, in the order of their sidecars; write the table."""
    write_csv(make_latency(baseline_steps.read(time, sidecars)), csv)
