"""Computes the costs of operators: of one call, of a trace's calls without nested ones, and of launches."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from profzoo.op_costs import attention, convolutions, elementwise, matmul, recurrent, transformer_layers
from profzoo.op_costs.operator_calls import Call, Needed

SUBJECTS = (matmul, convolutions, attention, recurrent, transformer_layers, elementwise)
FORMULAS: dict[str, Callable[[Call], Needed]] = {
    name: formula for subject in SUBJECTS for name, formula in subject.FORMULAS.items()
}
SIGNATURES = {name: inputs.split() for subject in SUBJECTS for name, inputs in subject.SIGNATURES.items()}
COLUMNS = ["needed_product_flop", "needed_other_flop", "needed_bytes"]
INPUTS = ["operator", "dims", "types", "values"]


def operator_cost(operator: str, dims: Sequence[Any], types: Sequence[str], values: Sequence[str]) -> Needed | None:
    """Return the cost of a call with all nested calls; None without a formula, or where inputs are unknown.

    Args:
        operator: its name, as `aten::mm`; dims, types, values: of its inputs as torch.profiler's trace has them, under
            `Input Dims`, `Input type` and `Concrete Inputs`.

    >>> operator_cost("aten::mm", [[4, 5], [5, 6]], ["float", "float"], ["", ""])
    Needed(product_flop=240, other_flop=0, bytes=296)
    """
    formula = FORMULAS.get(operator)
    if formula is None:
        return None
    try:
        return formula(Call(operator, SIGNATURES.get(operator, []), dims, types, values))
    except (ValueError, IndexError, TypeError):
        # A trace has no shapes where it was told to record none, and inputs may be of kinds that formulas do not know.
        return None


def call_costs(calls: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS of each call: its cost without that of nested calls; empty where it is unknown.

    Args:
        calls: INPUTS, of which all but `operator` are lists, or texts of them in JSON; `parent`, the position of the
            row that called it, -1 where none did; each stands behind its own.

    So they may be added up over any rows, and a fused operator counts for what it does by itself.
    """
    wholes = _wholes(calls)
    known = np.flatnonzero(~np.isnan(wholes).any(axis=1))
    own, _ = exclusive_costs(wholes[known], known, calls["parent"].to_numpy())
    wholes[known] = own
    return pd.DataFrame(wholes, index=calls.index, columns=COLUMNS)


def exclusive_costs(wholes: np.ndarray, known: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each call's cost without nested ones, and the nearest enclosing call whose cost is known.

    Args:
        wholes: (known, COLUMNS) what those calls need with all that they call of which that is known; known: their
            positions, ascending; parents: of all calls, the position of the one that called it, -1 where none did; each
            stands behind its own.

    Returns: the shape of wholes; and by call the position of itself where it is known, else of the nearest known one
    above, -1 where there is none.
    """
    holder = np.full(len(parents), -1, dtype=np.int32)
    holder[known] = known
    # Without making a list of them, as there may be millions.
    held, above = holder.data, parents.data
    for place in range(len(parents)):
        if held[place] < 0 <= above[place]:
            held[place] = held[above[place]]
    callers = np.where(parents[known] >= 0, holder[parents[known]], -1)
    called = np.flatnonzero(callers >= 0)
    own = wholes.copy()
    np.subtract.at(own, np.searchsorted(known, callers[called]), wholes[called])
    return np.maximum(own, 0), holder


def _wholes(calls: pd.DataFrame) -> np.ndarray:
    """Return (calls, COLUMNS): the cost of each with all nested calls, NaN where it is unknown."""
    texts = [[value if isinstance(value, str) else json.dumps(value) for value in calls[name]] for name in INPUTS[1:]]
    found = [_of_text(*call) for call in zip(calls["operator"], *texts, strict=True)]
    return np.array(found, dtype=np.float64).reshape(len(calls), len(COLUMNS))


@cache
def _of_text(operator: str, dims: str, types: str, values: str) -> tuple[float, float, float]:
    if operator not in FORMULAS:
        return (np.nan,) * 3
    found = operator_cost(operator, json.loads(dims or "[]"), json.loads(types or "[]"), json.loads(values or "[]"))
    return (np.nan,) * 3 if found is None else (found.product_flop, found.other_flop, found.bytes)
