"""Says in a sentence how long most steps of a cell take, and how long the slowest ones."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pandas as pd

from profzoo import formatting

# Percentiles that are named, and how.
NAMED = {50.0: "half", 90.0: "90 %", 95.0: "95 %", 99.0: "99 %"}
# Other names of those that cannot be told.
MISSING = {50.0: "the median"}


def describe_latency(rows: pd.DataFrame) -> str:
    """Return the percentiles of a cell's steps and tokens with intervals, and how many steps the missing ones need.

    rows: the cell's rows of the table `latency`; without rows the text is empty.

    >>> rows = pd.DataFrame({"percentile": [50.0, 99.0], "ns": [1.05e6, float("nan")], "low_ns": 1e6, "high_ns": 1.1e6})
    >>> describe_latency(rows.assign(of="step", steps=19, processes=1, needed_steps=[0, 777]))
    'Of 19 steps of one process, half take at most 1.05 ms (1 to 1.1 ms). More steps are needed for 99 % (about 780).'
    """
    named = rows[rows["percentile"].isin([*NAMED])].sort_values("percentile")
    return " ".join(_describe(own.to_dict("records"), of) for of, own in named.groupby("of", sort=False))


def _describe(named: Sequence[Mapping[Hashable, Any]], of: str) -> str:
    """Return the sentences on the named percentiles of steps or tokens; of: which of them."""
    processes = named[0]["processes"]
    begin = f"Of {named[0]['steps']:,} {of}s of {'one process' if processes == 1 else f'{processes} processes'}, "
    times = [
        f"{NAMED[row['percentile']]} take at most {formatting.duration(row['ns'])} "
        f"({formatting.span(row['low_ns'], row['high_ns'])})"
        for row in named
        if not row["needed_steps"]
    ]
    missing = [
        f"{MISSING.get(row['percentile'], NAMED[row['percentile']])} (about {formatting.estimate(row['needed_steps'])})"
        for row in named
        if row["needed_steps"]
    ]
    said = f"{begin}{', '.join(times)}." if times else ""
    lacking = f"More {of}s are needed for {', '.join(missing)}." if missing else ""
    return " ".join(filter(None, (said, lacking)))
