"""Finds the forward operator of each autograd node, by autograd's sequence numbers."""

import numpy as np

from profzoo.tools.torch.host_calls import look_up
from profzoo.tools.torch.trace import Trace


def find_forward_operators(trace: Trace) -> np.ndarray:
    """Return, per operator, the index of its forward operator if it is an autograd node; -1 for other operators.

    Each thread of the forward pass counts a sequence number up for each node. A node has the number from when it was
    made, and an operator the number from when it began. Of the operators with the node's number, the last one made it.
    """
    operators = trace.operators
    nodes = np.flatnonzero(operators["forward_thread"] > 0)
    forward = np.flatnonzero((operators["forward_thread"] == 0) & (operators["sequence"] >= 0))
    # Descending by start, so that the last of those alike comes first.
    order = np.lexsort((-operators["start"][forward], operators["sequence"][forward], operators["thread"][forward]))
    forward = forward[order]
    # A thread and a number in one; what is beyond is no number of a sequence.
    span = int(operators["sequence"].max(initial=0)) + 1
    keys = operators["thread"][forward].astype(np.int64) * span + operators["sequence"][forward]
    threads = _threads(trace, nodes)
    found = np.full(len(operators["start"]), -1, dtype=np.int32)
    found[nodes] = look_up(threads * span + operators["sequence"][nodes], keys, forward)
    return found


def _threads(trace: Trace, nodes: np.ndarray) -> np.ndarray:
    """Return the thread of the forward pass of each autograd node, as an index of the trace's threads.

    Autograd numbers threads in its own way. Only the trace's links from operators to their backward operators show
    which thread a number stands for.
    """
    operators, links = trace.operators, trace.links
    forward = (operators["forward_thread"] == 0) & (operators["sequence"] >= 0)
    counts = np.bincount(operators["thread"][forward]) if forward.any() else np.zeros(1)
    _, numbers = np.unique(operators["forward_thread"][nodes], return_inverse=True)
    # A number without any link stands for the thread with the most forward operators.
    threads = np.full(int(numbers.max(initial=0)) + 1, int(counts.argmax()), dtype=np.int64)
    order = np.argsort(operators["start"][nodes], kind="stable")
    begins, ends = (np.flatnonzero(links["forward"] == which) for which in (1, 0))
    begins = begins[np.argsort(links["id"][begins], kind="stable")]
    begin = look_up(links["id"][ends], links["id"][begins], begins)
    node = look_up(links["start"][ends], operators["start"][nodes[order]], order)
    known = (begin >= 0) & (node >= 0)
    pairs = np.stack([numbers[node[known]], links["thread"][begin[known]]])
    pairs, votes = np.unique(pairs, axis=1, return_counts=True)
    # The pair with the most votes is assigned last, so it stays.
    for index in np.argsort(votes, kind="stable"):
        threads[pairs[0, index]] = pairs[1, index]
    return threads[numbers]
