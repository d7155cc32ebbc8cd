"""Computes the costs of operators: of one call, of a trace's calls without nested ones, and of launches."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from profzoo.op_costs import elementwise, layers
from profzoo.op_costs.operator_calls import LISTED, Call, Needed

FORMULAS: dict[str, Callable[[Call], Needed]] = {
    **layers.MATMUL_FORMULAS,
    **layers.CONVOLUTION_FORMULAS,
    **layers.ATTENTION_FORMULAS,
    **layers.FORMULAS,
    **layers.TRANSFORMER_FORMULAS,
    **elementwise.ELEMENTWISE_FORMULAS,
    **elementwise.FORMULAS,
}
_INPUTS = {
    **layers.MATMUL_SIGNATURES,
    **layers.CONVOLUTION_SIGNATURES,
    **layers.ATTENTION_SIGNATURES,
    **layers.SIGNATURES,
    **layers.TRANSFORMER_SIGNATURES,
    **elementwise.ELEMENTWISE_SIGNATURES,
    **elementwise.SIGNATURES,
}
SIGNATURES = {name: inputs.split() for name, inputs in _INPUTS.items()}
COLUMNS = ["needed_product_flop", "needed_other_flop", "needed_bytes"]
INPUTS = ["operator", "dims", "types", "values"]


def operator_cost(
    operator: str,
    dims: Sequence[Any],
    types: Sequence[str],
    values: Sequence[str],
    strides: Sequence[Any] = (),
    listed: str = LISTED,
) -> Needed | None:
    """Return the cost of a call with all nested calls; None without a formula, or if inputs are unknown.

    Args:
        operator: name of the operator, such as `aten::mm`.
        dims, types, values, strides: one entry per input, from the fields `Input Dims`, `Input type`, `Concrete Inputs`
            and `Input Strides` of a torch.profiler trace. Without strides, no tensor is taken for an expanded one.
        listed: type of the tensors in lists, which the trace does not tell.

    >>> operator_cost("aten::mm", [[4, 5], [5, 6]], ["float", "float"], ["", ""])
    Needed(product_flop=240, other_flop=0, bytes=296)
    """
    formula = FORMULAS.get(operator)
    if formula is None:
        return None
    try:
        return formula(Call(operator, SIGNATURES.get(operator, []), dims, types, values, listed, strides))
    except (ValueError, IndexError, TypeError):
        # A trace may have been recorded without shapes, and a formula may not know every kind of input.
        return None


def call_costs(calls: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS of each call: its cost without the cost of nested calls; NaN if unknown.

    These costs may be added up over any rows. A fused operator counts only for its own work.

    Args:
        calls: one row per call, each after its caller. Columns: INPUTS, where all but `operator` are lists or JSON
            texts of lists; `parent`, the position of the calling row, -1 for none.
    """
    wholes = _wholes(calls)
    known = np.flatnonzero(~np.isnan(wholes).any(axis=1))
    own, _ = exclusive_costs(wholes[known], known, calls["parent"].to_numpy())
    wholes[known] = own
    return pd.DataFrame(wholes, index=calls.index, columns=COLUMNS)


def exclusive_costs(wholes: np.ndarray, known: np.ndarray, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each call's cost without nested ones, and the nearest enclosing call whose cost is known.

    Args:
        wholes: shape (known calls, len(COLUMNS)): cost of each call with a known cost, including nested calls.
        known: shape (known calls,): positions of these calls, ascending.
        parents: shape (calls,): position of the caller of each call, -1 for none. Each call stands after its caller.

    Returns: the costs without nested calls, with the shape of `wholes`; and an array of shape (calls,). It holds the
    call's own position if its cost is known, else the position of the nearest caller with a known cost, -1 for none.
    """
    holder = np.full(len(parents), -1, dtype=np.int32)
    holder[known] = known
    # Memory views, because a list of millions of calls would take much memory.
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
    """Return the cost of each call with all nested calls, shape (calls, len(COLUMNS)); NaN if unknown."""
    texts = [[value if isinstance(value, str) else json.dumps(value) for value in calls[name]] for name in INPUTS[1:]]
    found = [_of_text(*call) for call in zip(calls["operator"], *texts, strict=True)]
    return np.array(found, dtype=np.float64).reshape(len(calls), len(COLUMNS))


@cache
def _of_text(operator: str, dims: str, types: str, values: str) -> tuple[float, float, float]:
    if operator not in FORMULAS:
        return (np.nan,) * 3
    found = operator_cost(operator, json.loads(dims or "[]"), json.loads(types or "[]"), json.loads(values or "[]"))
    return (np.nan,) * 3 if found is None else (found.product_flop, found.other_flop, found.bytes)
