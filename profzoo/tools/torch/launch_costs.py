"""Computes the cost of the launches of a trace from the inputs of the operators that made them."""

import numpy as np

from profzoo.op_costs.operators import COLUMNS, exclusive_costs, operator_cost
from profzoo.tools.torch.trace import Trace


def known_operator_costs(trace: Trace, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the operators with a known cost, their costs without nested ones, and each operator's nearest of these.

    parents: index of the enclosing operator of each operator, -1 for none.

    Returns: indices of the operators with a known cost, shape (known,); their costs, shape (known, len(COLUMNS)); and
    per operator the index of the nearest one with a known cost, itself included, -1 for none.
    """
    operators = trace.operators
    told = np.flatnonzero(operators["inputs"] >= 0)
    pairs = operators["name"][told].astype(np.int64) * len(trace.inputs) + operators["inputs"][told]
    kinds, places = np.unique(pairs, return_inverse=True)
    found = np.full((len(kinds), len(COLUMNS)), np.nan)
    for place, (name, inputs) in enumerate(divmod(kind, len(trace.inputs)) for kind in kinds.tolist()):
        dims, types, values, _ = trace.inputs[inputs]
        need = operator_cost(trace.texts[name], dims, types, values)
        if need is not None:
            found[place] = need
    sure = ~np.isnan(found[:, 0])[places]
    known = told[sure]
    return known, *exclusive_costs(found[places[sure]], known, parents)


def launch_costs(trace: Trace, parents: np.ndarray, operators: np.ndarray, replays: np.ndarray) -> np.ndarray:
    """Return the cost of each launch, shape (launches, len(COLUMNS)).

    An operator's first launch has the operator's whole cost, and its other launches have 0, so that costs add up. The
    cost is NaN if no enclosing operator has a formula, or if the trace lacks its inputs.

    Args:
        parents: index of the enclosing operator of each operator, -1 for none.
        operators: innermost operator of each launch, in order, -1 for none.
        replays: number of the CUDA graph's replay of each launch, -1 for none; every replay has the cost again.
    """
    known, own, holder = known_operator_costs(trace, parents)
    found = np.full((len(operators), len(COLUMNS)), np.nan)
    if not len(known):
        return found
    held = np.where(operators >= 0, holder[operators], -1).astype(np.int64)
    there = held >= 0
    found[there] = own[np.searchsorted(known, held[there])]
    _, first = np.unique(held * (int(replays.max(initial=0)) + 2) + replays, return_index=True)
    later = np.ones(len(held), dtype=bool)
    later[first] = False
    found[later & there] = 0
    return found
