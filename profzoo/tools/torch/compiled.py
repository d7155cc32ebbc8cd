"""Finds the operators, modules and source lines of kernels that torch.compile made, and divides their amounts.

A kernel of Inductor often computes several operators, whose times nobody can measure apart. A kernel of a single
operator has all of its time there, which is exact. That of any other is divided by the number of elements that each
operator works on: the most that one of its tensors has.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from profzoo.io.columns import AMOUNT, GPU, TEXT, Column
from profzoo.range_names import COMPILED, GRAPH_CALL, ROOT, common_path
from profzoo.tools.torch.nesting import Nesting
from profzoo.tools.torch.trace import Trace

# Column of a launch with what its kernel consists of: a JSON list of operator, module, type, line and share of each
# part. A single operator that was called as itself is left empty, as the launch names it.
PARTS = "parts"
# Columns that dividing adds.
LINES, DIVIDED, DIVIDED_LAYERS = "lines", "divided", "divided_layers"
# Of rows that were added up, the part of their time that was divided.
DIVIDED_SHARE = "divided_share"
BETWEEN = "; "
COLUMNS: Mapping[str, Column] = {
    DIVIDED_SHARE: Column(
        AMOUNT.or_missing, "Part of the time (of a layer: of `self_ns`) that is a share of a compiled kernel, divided "
        "by the elements that its operators work on; the rest is exact.", "fraction", clock=GPU),
    LINES: Column(TEXT, "Source lines of the operator in compiled code, as `file:line`.", tool="torch"),
}  # fmt: skip
# What a part has of its own.
OF_PART = ("operator", "shapes", "caller", "module", "type")


@dataclass(frozen=True)
class Root:
    """A module through which a compiled function finds others.

    path: None if it is unknown. alone: whether the network has one module of the class.
    """

    path: str | None
    kind: str
    alone: bool


@dataclass(frozen=True)
class Module:
    """A module in a compiled graph, by root (its number, -1 for none) and the path from there.

    calls: how often the graph calls it in a forward pass.
    """

    root: int
    path: str
    kind: str
    calls: int


@dataclass(frozen=True)
class Part:
    """What a kernel computes of one operator; module: its number in the graph."""

    operator: str
    module: int
    line: str
    elements: int


@dataclass(frozen=True)
class Graph:
    """A compiled graph; kernels: its calls of kernels and operators in their order, each with what it computes."""

    roots: Sequence[Root]
    modules: Sequence[Module]
    kernels: Sequence[tuple[str, Sequence[Part]]]

    def place(self, number: int, module: str, kind: str) -> tuple[str, str]:
        """Return path and class of a module of the graph, by its number.

        A graph may serve several modules of one class, such as blocks that are compiled one by one. So its modules lie
        in that from which it was called, if this is of the class; else in the one module of the class.

        Args:
            number: of the module.
            module, kind: path and class of the module's range in which the graph was called; empty for none.
        """
        one = self.modules[number]
        within = COMPILED in (module, module.rpartition(".")[2])
        called = module.removesuffix(COMPILED).removesuffix(".") if within else "" if module == ROOT else module
        if one.root < 0:
            # The function has no module but the one that calls it.
            return (called or ROOT, kind) if within and not self.roots else (module, kind)
        root = self.roots[one.root]
        if kind and kind == root.kind:
            path = called
        elif root.path is not None and root.alone:
            path = root.path
        else:
            return module, kind
        return ".".join(filter(None, (path, one.path))) or ROOT, one.kind


def read_graphs(given: Mapping[str, Any]) -> dict[str, Graph]:
    """Return the compiled graphs that a trace holds, by name; none if it holds them in another form."""
    try:
        return {
            name: Graph(
                [Root(*root) for root in graph["roots"]],
                [Module(*module) for module in graph["modules"]],
                [(kernel, [Part(*part) for part in parts]) for kernel, parts in graph["kernels"]],
            )
            for name, graph in given.items()
        }
    except (KeyError, TypeError, ValueError):
        return {}


@dataclass(frozen=True)
class Kernels:
    """The kernels behind the operators of a trace.

    Attributes:
        calls: graph and number of a kernel in it; each once.
        of_operator: index of the call of each operator, -1 for none, shape (operators,).
        runs: the operators that ran first in each run of a graph, with the graph.
    """

    calls: Sequence[tuple[Graph, int]]
    of_operator: np.ndarray
    runs: Sequence[tuple[Graph, int]]


def find_kernels(trace: Trace, nesting: Nesting) -> Kernels:
    """Return the kernel of a compiled graph to which each operator belongs.

    In a run of a graph the calls of one name follow one another as in the generated code. Where a run has more or fewer
    of a name than the code, none of them is told.
    """
    found = np.full(len(nesting.parent), -1, dtype=np.int64)
    graphs = read_graphs(trace.compiled)
    calls: list[tuple[Graph, int]] = []
    numbers: dict[tuple[str, int], int] = {}
    runs = []
    for name, operators in _runs(trace, nesting, graphs):
        runs.append((graphs[name], int(operators[0])))
        called = [_plain(trace.texts[code]) for code in trace.operators["name"][operators]]
        for operator, kernel in _paired(called, [kernel for kernel, _ in graphs[name].kernels]):
            if (name, kernel) not in numbers:
                numbers[name, kernel] = len(calls)
                calls.append((graphs[name], kernel))
            found[operators[operator]] = numbers[name, kernel]
    if calls:
        # Every operator comes after the enclosing one.
        for place in np.flatnonzero(nesting.parent >= 0):
            if found[place] < 0:
                found[place] = found[nesting.parent[place]]
    return Kernels(calls, found, runs)


def _runs(trace: Trace, nesting: Nesting, graphs: Mapping[str, Graph]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield for each run of a known graph its name, and its outermost operators in their order."""
    names = {code: text.removeprefix(GRAPH_CALL).rstrip(" #") for code, text in enumerate(trace.texts)
             if graphs and text.startswith(GRAPH_CALL)}  # fmt: skip
    operators, ranges = trace.operators, trace.ranges
    for call in np.flatnonzero(np.isin(ranges["name"], [code for code, name in names.items() if name in graphs])):
        begin, thread = ranges["start"][call], ranges["thread"][call]
        end = begin + int(ranges["ns"][call])
        own = np.flatnonzero(operators["thread"] == thread)
        first, last = np.searchsorted(operators["start"][own], (begin, end))
        own = own[first:last]
        above = nesting.parent[own]
        outermost = own[(above < 0) | (operators["start"][above] < begin)]
        if len(outermost):
            yield names[int(ranges["name"][call])], outermost


def _plain(name: str) -> str:
    """Return the name of a kernel as the generated code has it; kernels on a CPU are called by graph."""
    graph, _, rest = name.partition("_cpp_")
    return f"cpp_{rest}" if rest and graph.startswith("graph_") else name


def _paired(called: Sequence[str], kernels: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield position among the operators and among the kernels of those that belong together.

    >>> [*_paired(["mm", "empty", "add", "mm"], ["mm", "add", "mm"])], [*_paired(["mm"], ["mm", "mm"])]
    ([(0, 0), (3, 2), (2, 1)], [])
    """
    for name in dict.fromkeys(kernels):
        own = [[place for place, one in enumerate(names) if one == name] for names in (called, kernels)]
        if len(own[0]) == len(own[1]):
            yield from zip(*own, strict=True)


def describe_parts(call: tuple[Graph, int], module: str, kind: str, fused: bool) -> tuple[str, str, str]:
    """Return path and class of the module that holds all of a kernel, and its parts as PARTS has them.

    Args:
        call: a graph, and the kernel's number in it.
        module, kind: as for Graph.place.
        fused: whether the launch's own operator is the kernel instead of one that Inductor calls.
    """
    graph, kernel = call
    parts = graph.kernels[kernel][1]
    if not parts:
        return module, kind, ""
    places = [graph.place(part.module, module, kind) for part in parts]
    whole = sum(part.elements for part in parts)
    shares = [part.elements / whole if whole else 1 / len(parts) for part in parts]
    named = fused or len(parts) > 1
    written = [
        [part.operator if named else "", *place, part.line, share]
        for part, place, share in zip(parts, places, shares, strict=True)
    ]
    paths = {path for path, _ in places}
    # What cannot be told belongs to the module from which the graph was called, as do parts of several networks.
    alike = len(paths) == 1 or all(path == ROOT or not path.startswith("(") for path in paths)
    holder = (paths.pop() if len(paths) == 1 else common_path([*paths])) if alike else module
    known = dict([*(graph.place(number, module, kind) for number in range(len(graph.modules))), *places])
    return holder, known.get(holder, ""), json.dumps(written, separators=(",", ":"))


def count_calls(kernels: Kernels, modules: Sequence[str], kinds: Sequence[str]) -> pd.DataFrame:
    """Return a row per module that compiled graphs call in forward passes: `module`, `type` and `calls`.

    modules, kinds: path and class of the module's range around each run of a graph.
    """
    calls: Counter[tuple[str, str]] = Counter()
    for (graph, _), *where in zip(kernels.runs, modules, kinds, strict=True):
        for number, one in enumerate(graph.modules):
            if one.calls:
                calls[graph.place(number, *where)] += one.calls
    return pd.DataFrame([(*place, count) for place, count in calls.items()], columns=["module", "type", "calls"])


# Divides amounts of launches among the parts of their kernels.


def divide_parts(rows: pd.DataFrame, amounts: Sequence[str]) -> pd.DataFrame:
    """Return the rows with each amount divided among the parts of compiled kernels; the amounts' sums stay the same.

    A part has its own operator, module and class; its caller is the kernel. Without the column PARTS, rows stay as they
    are. Else it is replaced by LINES, the part's source line, and by DIVIDED and DIVIDED_LAYERS: whether its amounts
    were divided among several operators, and among several modules.
    """
    if PARTS not in rows:
        return rows
    texts = rows[PARTS].astype("object").fillna("")
    compiled = (texts != "").to_numpy()
    plain = rows.drop(columns=PARTS).astype(dict.fromkeys(OF_PART, "object"))
    known = {text: _read_parts(text) for text in texts[compiled].unique()}
    counts = [len(known[text]) for text in texts[compiled]]
    whole = plain[compiled].loc[plain.index[compiled].repeat(counts)] if compiled.any() else plain[compiled]
    if compiled.any():
        parts = pd.concat([known[text] for text in texts[compiled]], ignore_index=True).set_index(whole.index)
        named = parts["operator"] != ""
        whole = whole.assign(
            operator=parts["operator"].where(named, whole["operator"]),
            caller=whole["operator"].where(named, whole["caller"]),
            shapes=whole["shapes"].where(~named, ""),
            **{name: parts[name] for name in ("module", "type", LINES, DIVIDED, DIVIDED_LAYERS)},
            **{name: whole[name] * parts["share"] for name in amounts},
        )
    rest = plain[~compiled].assign(**{LINES: "", DIVIDED: False, DIVIDED_LAYERS: False})
    return pd.concat([rest, whole], ignore_index=True) if compiled.any() else rest


def _read_parts(text: str) -> pd.DataFrame:
    parts = pd.DataFrame(json.loads(text), columns=["operator", "module", "type", LINES, "share"], dtype="object")
    operators, modules = (len(parts[names].drop_duplicates()) > 1 for names in (["operator", "module"], ["module"]))
    return parts.assign(**{DIVIDED: operators, DIVIDED_LAYERS: modules}).astype({"share": "float64"})


def describe_divided(rows: pd.DataFrame, by: Sequence[str], column: str) -> pd.DataFrame:
    """Return COLUMNS by group of the rows of divide_parts; column: DIVIDED or DIVIDED_LAYERS."""
    marked = rows["total_ns"].where(rows[column].astype(bool), 0.0)
    grouped = rows.astype(dict.fromkeys(by, "object")).assign(**{DIVIDED_SHARE: marked}).groupby([*by], sort=False)
    whole, divided = grouped["total_ns"].sum(), grouped[DIVIDED_SHARE].sum()
    lines = grouped[LINES].agg(lambda own: BETWEEN.join(sorted(set(own) - {""})))
    return pd.DataFrame({DIVIDED_SHARE: divided / whole.where(whole > 0), LINES: lines}).reset_index()
