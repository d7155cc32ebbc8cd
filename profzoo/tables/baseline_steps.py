"""Reads the unprofiled baseline: steps of one process or several, with their sidecars."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import csv_tables as reading
from profzoo.io import sidecars as fact
from profzoo.tables import cell_tables
from profzoo.tools.time.tables import REPEATED
from profzoo.tools.time.tables import TABLE as STEPS

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

Timed = list[tuple[Mapping[str, str], pd.DataFrame, "Sidecar"]]
# Of sidecars.
OF_RUN: fact.Needs = {
    **dict.fromkeys(["device", "started"], fact.TEXT),
    **dict.fromkeys(["parameters", "batch", "peak_rss_bytes", "items"], fact.COUNT),
    "cell": {"workload": fact.TEXT, "precision": fact.TEXT},
    "steps": fact.SEVERAL,
    "step_ns": fact.POSITIVE,
    "peak_memory_bytes": fact.or_null(fact.COUNT),
    "loss": fact.or_null(fact.NUMBER),
}


def read(tables: Sequence[str], sidecars: Sequence[str]) -> Timed:
    """Return the baseline tables, each with its cell and sidecar.

    Raises:
        DataError: a table lacks steps.
    """
    found: Timed = []
    for path, sidecar in zip(tables, sidecars, strict=True):
        facts = read_facts(sidecar, OF_RUN)
        cell_tables.check_sidecars(sidecar, facts)
        steps = reading.read(path, REPEATED if "processes" in facts else STEPS)
        if len(steps) != facts["steps"]:
            raise DataError(f"{path} has {len(steps)} steps, but its sidecar says {facts['steps']}: {reading.AGAIN}")
        found.append((cell_tables.cell_of(path), steps, facts))
    return found
