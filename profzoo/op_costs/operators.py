"""Computes the costs of operators: of one call, and of calls without nested ones."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from profzoo.op_costs import elementwise, layers
from profzoo.op_costs.operator_calls import LISTED, Call, Needed

FORMULAS: dict[str, Callable[[Call], Needed]] = {
    **layers.MATMUL_FORMULAS,
    **layers.FORMULAS,
    **elementwise.ELEMENTWISE_FORMULAS,
    **elementwise.FORMULAS,
}
_INPUTS = {
    **layers.MATMUL_SIGNATURES,
    **layers.SIGNATURES,
    **elementwise.ELEMENTWISE_SIGNATURES,
    **elementwise.SIGNATURES,
}
SIGNATURES = {name: inputs.split() for name, inputs in _INPUTS.items()}
COLUMNS = ["needed_product_flop", "needed_other_flop", "needed_bytes"]


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
