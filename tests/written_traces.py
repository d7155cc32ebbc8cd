"""Calls and GPU operations of a trace, written row by row, in the form that what-if simulations read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from profzoo.what_if.trace_events import Events

CALL = {"name": "cudaLaunchKernel_v7000", "copies": False, "syncs": False, "step": 0, "waited": 0.0}
OPERATION = {"stream": 7, "kind": 0, "crossing": False, "node": False}
WAIT = ["correlation", "kind", "stream", "event", "record"]
RECORD = ["correlation", "stream", "event", "record"]


def calls(rows: Sequence[tuple[float, float] | tuple[float, float, dict[str, Any]]]) -> pd.DataFrame:
    """Return one row per call: start, end and further values. The correlation is ten times the row's number."""
    found = [CALL | {"start": row[0], "end": row[1], "correlation": 10 * place, **(row[2] if len(row) > 2 else {})}
             for place, row in enumerate(rows)]  # fmt: skip
    return pd.DataFrame(found)


def work(rows: Sequence[tuple[int, float, float] | tuple[int, float, float, dict[str, Any]]]) -> pd.DataFrame:
    """Return one row per operation: the row of its call, start, end and further values."""
    found = [OPERATION | {"host": row[0], "start": row[1], "end": row[2], **(row[3] if len(row) > 3 else {})}
             for row in rows]  # fmt: skip
    return pd.DataFrame(found)


def events(waits: Sequence[tuple[int, ...]] = (), records: Sequence[tuple[int, ...]] = ()) -> Events:
    """Return a trace's rows of waits (WAIT) and of recorded events (RECORD)."""
    none = pd.DataFrame()
    return Events(
        7 << 24, none, none, none, none, pd.DataFrame([*waits], columns=WAIT), pd.DataFrame([*records], columns=RECORD),
        np.zeros((0, 2), dtype=np.int64), {},
    )  # fmt: skip
