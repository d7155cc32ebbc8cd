"""Finds what encloses each operator of a trace: a module, an autograd node, another operator, or a recomputed
forward pass."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from profzoo.range_names import DOMAIN, MODULE
from profzoo.tools.torch.trace import Trace
from profzoo.tools.user_ranges import is_over

OF_MODULE = f"{DOMAIN}:{MODULE}:"
ENGINE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"
PLAIN, MARK, NODE, SUM = range(4)


@dataclass(frozen=True)
class Nesting:
    """What encloses each operator of a trace. Arrays of shape (operators,); indices of operators are -1 for none.

    Attributes:
        parent: the directly enclosing operator.
        module: the range of the innermost module, unless an autograd node lies between.
        node: the enclosing autograd node; for the sum of a parameter's gradients, the node of the last gradient.
        top: the outermost operator within module and node.
        numbered: the innermost enclosing operator with an autograd sequence number.
        again: whether the operator repeats a forward pass within the backward pass.
    """

    parent: np.ndarray
    module: np.ndarray
    node: np.ndarray
    top: np.ndarray
    numbered: np.ndarray
    again: np.ndarray


def classify_operators(trace: Trace) -> np.ndarray:
    """Return the class of each operator: ordinary, range of a module, autograd node, or sum of gradients."""
    found = np.array([_kind(text) for text in trace.texts], dtype=np.int8)
    return found[trace.operators["name"]] if len(found) else np.zeros(0, dtype=np.int8)


def _kind(text: str) -> int:
    if text.startswith(OF_MODULE):
        return MARK
    if text.removeprefix(ENGINE) == ACCUMULATE:
        return SUM
    return NODE if text.startswith(ENGINE) else PLAIN


def nest_operators(trace: Trace) -> Nesting:
    """Find what encloses each operator of a trace, from threads and times; of a trace it is found once."""
    if trace not in _known:
        parents = _parents(trace)
        _known[trace] = Nesting(parents, **_walk(trace, parents))
    return _known[trace]


# What was found, as long as the trace is kept.
_known: WeakKeyDictionary[Trace, Nesting] = WeakKeyDictionary()


def exclusive_ns(trace: Trace, parent: np.ndarray) -> np.ndarray:
    """Return the self time of each operator in ns; parent: the index of the enclosing operator."""
    whole = trace.operators["ns"].astype(np.int64)
    inner = parent >= 0
    called = np.bincount(parent[inner], weights=whole[inner], minlength=len(whole)).astype(np.int64)
    return np.maximum(whole - called, 0)


def _parents(trace: Trace) -> np.ndarray:
    """Return the index of the directly enclosing operator of each operator, which comes before it; -1 for none."""
    operators = trace.operators
    start, end, thread = operators["start"].data, (operators["start"] + operators["ns"]).data, operators["thread"].data
    parents = np.full(len(start), -1, dtype=np.int32)
    write = parents.data
    stack: list[int] = []
    for place in range(len(start)):
        began = start[place]
        while stack and (is_over(began, end[place], end[stack[-1]]) or thread[stack[-1]] != thread[place]):
            stack.pop()
        if stack:
            write[place] = stack[-1]
        stack.append(place)
    return parents


def _walk(trace: Trace, parents: np.ndarray) -> dict[str, np.ndarray]:
    """Return the other arrays of Nesting, in one pass, because each operator comes after the enclosing one."""
    found = {name: np.full(len(parents), -1, dtype=np.int32) for name in ("module", "node", "top", "numbered")}
    module, node, top, numbered = (column.data for column in found.values())
    again = np.zeros(len(parents), dtype=np.int8)
    repeated, parent, kind = again.data, parents.data, classify_operators(trace).data
    sequence, forward, thread = (trace.operators[name].data for name in ("sequence", "forward_thread", "thread"))
    # The last node of each thread: autograd adds up a gradient right after the node that computed it.
    last: dict[int, int] = {}
    for place in range(len(parents)):
        within, what = parent[place], kind[place]
        top[place] = place
        if forward[place] > 0:
            node[place] = numbered[place] = place
            if what == NODE:
                last[thread[place]] = place
            continue
        if what == SUM:
            node[place] = numbered[place] = last.get(thread[place], -1)
            continue
        if within >= 0:
            module[place], node[place], repeated[place] = module[within], node[within], repeated[within]
            numbered[place] = numbered[within]
            if kind[within] == PLAIN:
                top[place] = top[within]
        if what == MARK:
            module[place] = place
            repeated[place] = node[place] >= 0
        elif sequence[place] >= 0:
            numbered[place] = place
            # Within an autograd node, gradients are off unless a checkpoint repeats a forward pass.
            repeated[place] = node[place] >= 0
    return found | {"again": again}
