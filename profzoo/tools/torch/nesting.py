"""Finds what encloses each operator of a trace: a module, an autograd node, another operator, or a recomputed
forward pass."""

from dataclasses import dataclass

import numpy as np

from profzoo.range_names import DOMAIN, MODULE
from profzoo.tools.torch.trace import Trace

OF_MODULE = f"{DOMAIN}:{MODULE}:"
ENGINE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"
PLAIN, MARK, NODE, SUM = range(4)


@dataclass(frozen=True)
class Nesting:
    """Of each operator of a trace, by its index there; indices of operators are -1 where there is none.

    parent: the operator that it ran in. module: the range of the module that was called last, unless a node of
    autograd ran within it. node: the node of autograd that it ran in; for the sum of a parameter's gradients, that
    which made the last of them. top: the outermost operator of the call, within module and node. numbered: the last
    one that has a number of autograd's sequence. again: whether it repeats a forward pass within the backward one.
    """

    parent: np.ndarray
    module: np.ndarray
    node: np.ndarray
    top: np.ndarray
    numbered: np.ndarray
    again: np.ndarray


def classify_operators(trace: Trace) -> np.ndarray:
    """Of each operator whether it is none of special meaning, the range of a module, autograd's, or its sum."""
    found = np.array([_kind(text) for text in trace.texts], dtype=np.int8)
    return found[trace.operators["name"]] if len(found) else np.zeros(0, dtype=np.int8)


def _kind(text: str) -> int:
    if text.startswith(OF_MODULE):
        return MARK
    if text.removeprefix(ENGINE) == ACCUMULATE:
        return SUM
    return NODE if text.startswith(ENGINE) else PLAIN


def nest_operators(trace: Trace) -> Nesting:
    """The nesting of a trace's operators, by their threads and times."""
    parents = _parents(trace)
    return Nesting(parents, **_walk(trace, parents))


def exclusive_ns(trace: Trace, parent: np.ndarray) -> np.ndarray:
    """Return the self time of each operator in ns; parent: the index of the enclosing operator."""
    whole = trace.operators["ns"].astype(np.int64)
    inner = parent >= 0
    called = np.bincount(parent[inner], weights=whole[inner], minlength=len(whole)).astype(np.int64)
    return np.maximum(whole - called, 0)


def _parents(trace: Trace) -> np.ndarray:
    """Of each operator the one that it ran in, which comes before it; -1 for none."""
    operators = trace.operators
    start, end, thread = operators["start"].data, (operators["start"] + operators["ns"]).data, operators["thread"].data
    parents = np.full(len(start), -1, dtype=np.int32)
    write = parents.data
    stack: list[int] = []
    for place in range(len(start)):
        began = start[place]
        while stack and (end[stack[-1]] <= began or thread[stack[-1]] != thread[place]):
            stack.pop()
        if stack:
            write[place] = stack[-1]
        stack.append(place)
    return parents


def _walk(trace: Trace, parents: np.ndarray) -> dict[str, np.ndarray]:
    """The other columns of Nesting; every operator comes behind the one that it ran in."""
    found = {name: np.full(len(parents), -1, dtype=np.int32) for name in ("module", "node", "top", "numbered")}
    module, node, top, numbered = (column.data for column in found.values())
    again = np.zeros(len(parents), dtype=np.int8)
    repeated, parent, kind = again.data, parents.data, classify_operators(trace).data
    sequence, forward, thread = (trace.operators[name].data for name in ("sequence", "forward_thread", "thread"))
    # By thread: autograd sums a gradient right after the node that made it.
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
            # Within a node of autograd gradients are off, unless it repeats what a checkpoint did not keep.
            repeated[place] = node[place] >= 0
    return found | {"again": again}
