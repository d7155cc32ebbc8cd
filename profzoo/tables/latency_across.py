"""Makes the table of percentiles across cells: of the times of steps, and of the tokens that they generate."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from profzoo.io.scripts import write_csv
from profzoo.statistics import process_repeats
from profzoo.tables import baseline_steps
from profzoo.tables.latency import COLUMNS, FIRST_TOKEN, STEP, TABLE, TOKEN, list_percentiles
from profzoo.tools.time.tables import read_token_times


def make_latency(timed: baseline_steps.Timed) -> pd.DataFrame:
    """Return the percentiles of the steps of each cell, and of the tokens that it generates.

    timed: the unprofiled baselines.
    """
    tables = [
        list_percentiles(times, of).assign(**cell)
        for cell, steps, _ in timed
        for of, times in _list_times(steps).items()
    ]
    return pd.concat(tables, ignore_index=True)[COLUMNS] if tables else TABLE.empty()


def _list_times(steps: pd.DataFrame) -> dict[str, list[np.ndarray]]:
    """Return the times in ns of steps and tokens, one array per process; of steps in steady state alone."""
    if not len(steps):
        return {}
    settled = process_repeats.processes(steps)
    groups = [own for _, own in steps.groupby("process")] if "process" in steps else [steps]
    tokens = [read_token_times(own)[-len(times) :] for own, times in zip(groups, settled, strict=True)]
    first = [own[:, :1].ravel() for own in tokens]
    further = [own[:, 1:].ravel() for own in tokens]
    of_tokens = {of: [times[~np.isnan(times)] for times in own] for of, own in ((FIRST_TOKEN, first), (TOKEN, further))}
    return {STEP: settled} | {of: times for of, times in of_tokens.items() if all(map(len, times))}


def main(time: Sequence[str], sidecars: Sequence[str], csv: str) -> None:
    """Read the unprofiled baselines of all cells, in the order of their sidecars; write the table."""
    write_csv(make_latency(baseline_steps.read(time, sidecars)), csv)
