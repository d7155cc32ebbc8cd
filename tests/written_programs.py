"""Programs written row by row, so that the start of each call and each operation can be computed by hand."""

from typing import Any

import numpy as np
import pandas as pd

from profzoo.tools.nsys.launches import PACKS
from profzoo.what_if import blocking_calls
from profzoo.what_if.program import BEGIN, CALL, END, Program

BEGINS, ENDS = {"kind": BEGIN}, {"kind": END}
OF_HOST = {
    "kind": CALL, "gap": 0.0, "overlaps": False, "own": 0.0, "wait": blocking_calls.NOTHING, "target": -1, "tail": 0.0,
    "input": 0.0, "library": 0.0, "part": 0, "allocates": False, "copies": False, "waited": 0.0, "start": 0, "end": 0,
}  # fmt: skip
OF_GPU = {
    "stream": 7, "ns": 0.0, "latency": 0.0, "gap": 0.0, "dep": -1, "dep_gap": 0.0, "room": 1024, "gone": False,
    "kind": 0, "node": False, "talking": False, "crossing": False, "start": 0, "end": 0, **dict.fromkeys(PACKS, 0),
}  # fmt: skip


def program(host: list[dict[str, Any]], gpu: list[dict[str, Any]], after: float = 0.0) -> Program:
    """Return the program of these rows; missing values are 0 or empty. `host` of an operation is the row of its call."""
    calls = pd.DataFrame([OF_HOST | row for row in host])
    work = pd.DataFrame([{**OF_GPU, **row} for row in gpu], columns=["host", *OF_GPU]).astype({"host": np.int64})
    calls["step"] = np.cumsum(calls["kind"] == BEGIN) - 1
    calls["launches"] = np.bincount(work["host"], minlength=len(calls)) > 0
    return Program(7 << 24, calls, work, after, {})


def call(gap: float = 0.0, own: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return a row for a call: its duration on the CPU, and the gap after the call before it."""
    return {"gap": gap, "own": own, **more}


def kernel(host: int, ns: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return a row for the operation that the call in the given row launches."""
    return {"host": host, "ns": ns, **more}
