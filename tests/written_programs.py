"""Programs written row by row, so that the start of each call and each operation can be computed by hand."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pandas as pd

from profzoo.fusion.calls import Call, Flow
from profzoo.op_costs.operator_calls import ITEM_BYTES
from profzoo.op_costs.tensor_effects import Effects, Tensor, kind_of
from profzoo.tools.nsys.events.launches import PACKS
from profzoo.what_if import dependencies
from profzoo.what_if.program import BEGIN, CALL, END, Program

BEGINS, ENDS = {"kind": BEGIN}, {"kind": END}
OF_HOST = {
    "kind": CALL, "gap": 0.0, "overlaps": False, "own": 0.0, "wait": dependencies.NOTHING, "target": -1, "tail": 0.0,
    "input": 0.0, "data": 0.0, "library": 0.0, "part": 0, "allocates": False, "copies": False, "waited": 0.0, "start": 0, "end": 0,
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


def tensor(shape: Sequence[int], kind: str = "float", **more: Any) -> Tensor:
    """Return a tensor that stores all of its elements."""
    return Tensor(tuple(shape), ITEM_BYTES[kind], kind, prod(shape))._replace(**more)


def work(
    operator: str, reads: Sequence[Any] = (), writes: Sequence[Any] = (), *, kind: str | None = None, **more: Any
) -> Call:
    """Return a call of one launch and 8 ns that reads and writes tensors, floats where a shape stands for one.

    kind: of its work; by its operator if None.
    """
    given, made = (tuple(one if isinstance(one, Tensor) else tensor(one) for one in some) for some in (reads, writes))
    effects = Effects(kind or kind_of(f"aten::{operator}") or "pointwise", given, made)
    fields: dict[str, Any] = {
        "place": 0, "operator": operator, "effects": effects, "values": (), "around": (), "outer": (), "module": "",
        "type": "", "instance": 0, "direction": "forward", "range": "", "sequence": 0, "updates": False, "ns": 8.0,
        "launches": (1,),
    }  # fmt: skip
    return Call(**fields | more)


def make_flow(*calls: Sequence[Any]) -> Flow:
    """Return the flow of calls in order: each as inputs of `work`, with other fields in a dictionary behind them.

    The number of autograd is the place, unless it is given.
    """
    made = []
    for place, (operator, reads, writes, *fields) in enumerate(calls):
        made.append(
            work(operator, reads, writes, **{"place": place, "sequence": place, **(fields[0] if fields else {})})
        )
    return Flow(made)
