"""Computes the cost of the launches of a trace from the inputs of the operators that made them."""

import numpy as np

from profzoo.op_costs.operators import COLUMNS, exclusive_costs, operator_cost
from profzoo.tools.torch.trace import Trace


def known_operator_costs(trace: Trace, parents: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (indices of operators with a known cost, their exclusive costs (n, COLUMNS), and for every operator the
    nearest enclosing known one, itself included, -1 for none).

    parents: the operator that each ran in.
    """
    operators = trace.operators
    told = np.flatnonzero(operators["inputs"] >= 0)
    pairs = operators["name"][told].astype(np.int64) * len(trace.inputs) + operators["inputs"][told]
    kinds, places = np.unique(pairs, return_inverse=True)
    found = np.full((len(kinds), len(COLUMNS)), np.nan)
    for place, (name, inputs) in enumerate(divmod(kind, len(trace.inputs)) for kind in kinds.tolist()):
        need = operator_cost(trace.texts[name], *trace.inputs[inputs])
        if need is not None:
            found[place] = need
    sure = ~np.isnan(found[:, 0])[places]
    known = told[sure]
    return known, *exclusive_costs(found[places[sure]], known, parents)


def launch_costs(trace: Trace, parents: np.ndarray, operators: np.ndarray, replays: np.ndarray) -> np.ndarray:
    """Return the cost of each launch, shape (launches, COLUMNS): an operator's first launch has its whole cost, its
    other launches 0.

    Args:
        operators: by launch, in order, the innermost operator that made it, -1 for none. replays: by launch, which
            replay of a graph it is of, -1 for none: each of these needs it all again.

    So they add up. NaN where no operator around the launch has a formula, or its inputs are not told.
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
