"""Lists the calls of operators in a torch.profiler trace, each after the call that made it."""

import json

import numpy as np
import pandas as pd

from profzoo.json_types import JsonObject
from profzoo.op_costs.operators import COLUMNS, exclusive_costs, operator_cost

FIELDS = {"dims": "Input Dims", "types": "Input type", "values": "Concrete Inputs"}


def list_calls(events: list[JsonObject]) -> pd.DataFrame:
    """Return one row per call of an operator, by thread and then by time.

    events: `traceEvents` of the trace.

    Columns: `operator`; FIELDS, as JSON texts; `parent`, the position of the calling row, -1 for none; `call`, the
    trace's number of the call (`External id`), to which kernels refer; `start` in us.
    """
    chosen = [event for event in events if event.get("cat") == "cpu_op"]
    chosen.sort(key=lambda event: (event["tid"], event["ts"], -event["dur"]))
    arguments = [event.get("args", {}) for event in chosen]
    table = pd.DataFrame({"operator": [event["name"] for event in chosen]}, dtype="str")
    for name, field in FIELDS.items():
        table[name] = pd.array([json.dumps(own.get(field, [])) for own in arguments], dtype="str")
    table["parent"] = _parents(chosen)
    table["call"] = np.array([own.get("External id", -1) for own in arguments], dtype=np.int64)
    table["start"] = np.array([event["ts"] for event in chosen], dtype=np.float64)
    return table


def needed_by_calls(calls: pd.DataFrame) -> pd.DataFrame:
    """Return what each call of list_calls needs without nested ones; NaN if that is unknown."""
    fields = zip(*(calls[name].map(json.loads) for name in FIELDS), strict=True)
    found = (operator_cost(name, *own) for name, own in zip(calls["operator"], fields, strict=True))
    wholes = np.array([(np.nan,) * 3 if one is None else one for one in found])
    known = np.flatnonzero(~np.isnan(wholes[:, 0]))
    wholes[known], _ = exclusive_costs(wholes[known], known, calls["parent"].to_numpy())
    return pd.DataFrame(wholes, columns=COLUMNS)


def _parents(ordered: list[JsonObject]) -> np.ndarray:
    parents = np.full(len(ordered), -1)
    # Positions of the calls that are still running, the innermost last.
    running: list[int] = []
    for place, event in enumerate(ordered):
        while running and not _within(event, ordered[running[-1]]):
            running.pop()
        if running:
            parents[place] = running[-1]
        running.append(place)
    return parents


def _within(event: JsonObject, other: JsonObject) -> bool:
    return event["tid"] == other["tid"] and event["ts"] < other["ts"] + other["dur"]
