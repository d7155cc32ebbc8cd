"""What each operator of a trace ran in: a module, a node of autograd, another operator, a forward pass made again."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from profzoo.range_names import DOMAIN, MODULE
from profzoo.tools.torch.trace import Trace

OF_MODULE = f"{DOMAIN}:{MODULE}:"
ENGINE = "autograd::engine::evaluate_function: "
ACCUMULATE = "torch::autograd::AccumulateGrad"
PLAIN, MARK, NODE, SUM = range(4)
NESTED = ("module", "node", "top", "numbered", "again", "self_ns")


@dataclass(frozen=True)
class Nesting:
    """Of each operator of a trace, by its index there; indices of operators are -1 where there is none.

    module: the range of the module that was called last, unless a node of autograd ran within it. node: the node of
    autograd that it ran in; for the sum of a parameter's gradients, that which made the last of them. top: the
    outermost operator of the call, within module and node. numbered: the last one that has a number of autograd's
    sequence. again: whether it repeats a forward pass within the backward one. self_ns: its time without what it calls.
    """

    module: np.ndarray
    node: np.ndarray
    top: np.ndarray
    numbered: np.ndarray
    again: np.ndarray
    self_ns: np.ndarray


def kinds(trace: Trace) -> np.ndarray:
    """Of each operator whether it is none of special meaning, the range of a module, autograd's, or its sum."""
    found = np.array([_kind(text) for text in trace.texts], dtype=np.int8)
    return found[trace.operators["name"]] if len(found) else np.zeros(0, dtype=np.int8)


def _kind(text: str) -> int:
    if text.startswith(OF_MODULE):
        return MARK
    if text.removeprefix(ENGINE) == ACCUMULATE:
        return SUM
    return NODE if text.startswith(ENGINE) else PLAIN


def nest(trace: Trace) -> Nesting:
    """The nesting of a trace's operators, by their threads and times."""
    operators = trace.operators
    order = np.lexsort((-operators["end"], operators["start"], operators["thread"]))
    columns = {name: operators[name][order] for name in ("start", "end", "thread", "sequence", "forward_thread")}
    nested = _walk(columns | {"kind": kinds(trace)[order]}, _parents(columns))
    found = {}
    for name, values in nested.items():
        if name not in ("again", "self_ns"):
            # From places in that order to indices of the trace, of which the last stands for none.
            values = np.append(order, -1)[values]
        found[name] = np.empty_like(values)
        found[name][order] = values
    return Nesting(**found)


def _parents(columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Of each operator, in order of threads and times, the place of the one that it ran in; -1 for none."""
    start, end, thread = (columns[name].data for name in ("start", "end", "thread"))
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


def _walk(columns: Mapping[str, np.ndarray], parents: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of Nesting, by places; every operator comes behind the one that it ran in."""
    count = len(parents)
    found = {name: np.full(count, -1, dtype=np.int32) for name in ("module", "node", "top", "numbered")}
    module, node, top, numbered = (column.data for column in found.values())
    again = np.zeros(count, dtype=np.int8)
    repeated = again.data
    kind, sequence, forward, thread, parent = (
        column.data
        for column in (columns["kind"], columns["sequence"], columns["forward_thread"], columns["thread"], parents)
    )
    # By thread: autograd sums a gradient right after the node that made it.
    last: dict[int, int] = {}
    for place in range(count):
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
    own = columns["end"] - columns["start"]
    inner = np.bincount(parents[parents >= 0], weights=own[parents >= 0], minlength=count).astype(np.int64)
    return found | {"again": again, "self_ns": np.maximum(own - inner, 0)}
