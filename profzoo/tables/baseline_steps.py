"""Reads the unprofiled baseline: steps of one process or several, with their sidecars."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json
from profzoo.tables import cell_tables
from profzoo.tools.time.tables import REPEATED
from profzoo.tools.time.tables import TABLE as STEPS

Timed = list[tuple[Mapping[str, str], pd.DataFrame, Mapping[str, Any]]]
# Of sidecars.
OF_RUN: fact.Needs = {
    **dict.fromkeys(["device", "started"], fact.TEXT),
    # Of what was made elsewhere, these are not known.
    **dict.fromkeys(["parameters", "batch", "peak_rss_bytes", "items"], fact.or_null(fact.COUNT)),
    "cell": {"workload": fact.TEXT, "precision": fact.TEXT},
    "steps": fact.SEVERAL,
    "step_ns": fact.POSITIVE,
    "peak_memory_bytes": fact.or_null(fact.COUNT),
    "loss": fact.or_null(fact.NUMBER),
}


def read(tables: Sequence[str], sidecars: Sequence[str]) -> Timed:
    """Return the baseline tables with cell and sidecar of each; DataError where steps are missing."""
    found: Timed = []
    for path, sidecar in zip(tables, sidecars, strict=True):
        facts: Mapping[str, Any] = read_json(sidecar, OF_RUN)
        cell_tables.check_sidecars(sidecar, facts)
        steps = reading.read(path, REPEATED if "processes" in facts else STEPS)
        if len(steps) != facts["steps"]:
            raise DataError(f"{path} has {len(steps)} steps, and its sidecar says {facts['steps']}: {reading.AGAIN}")
        found.append((cell_tables.cell_of(path), steps, facts))
    return found
