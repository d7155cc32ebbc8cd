"""Makes the table of owners: the operator, module and direction of each launch."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from profzoo.io.columns import AMOUNT, COUNT, GPU, TEXT, WHOLE, Column
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.op_costs.operator_calls import ITEM_BYTES, LISTED, find_listed_type
from profzoo.op_costs.operators import COLUMNS as NEEDED
from profzoo.op_costs.operators import exclusive_costs, operator_cost
from profzoo.range_names import DOMAIN, GENERATING, original_name, parse_module_range
from profzoo.range_names import LAUNCHING as RANGE_NAMES_LAUNCHING
from profzoo.tools.kernel_signature import communicates
from profzoo.tools.torch import compiled
from profzoo.tools.torch.nesting import MARK, Nesting, exclusive_ns, nest_operators
from profzoo.tools.torch.nesting import classify_operators as kinds_of
from profzoo.tools.torch.trace import (
    DEVICE_KINDS,
    SIZES,
    Trace,
    find_ranges,
    find_steps,
    launch_times,
    launching_calls,
    look_up,
)

# Finds the forward operator of each autograd node, by autograd's sequence numbers.


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
    # A thread and a number in one; what is beyond is not a number of a sequence.
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


# Finds the operators behind launches of a CUDA graph: those that were captured, in order, or that replay the graph.

REPLAYS = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")
BEGIN, END = "StreamBeginCapture", "StreamEndCapture"
# Calls that add a node to a graph during its capture.
LAUNCHING = ("LaunchKernel", "LaunchCooperativeKernel", "ModuleLaunchKernel", "ModuleLaunchCooperativeKernel",
             "ExtLaunchKernel", "ExtModuleLaunchKernel", "Memcpy", "Memset")  # fmt: skip
API = re.compile("cuda|cu|hip")


def find_replayed(trace: Trace) -> np.ndarray:
    """Return, per launch, whether a CUDA graph made it; all launches of a graph share one launching call."""
    made = np.array([text.startswith(REPLAYS) for text in trace.texts] + [False])
    return made[np.append(trace.calls["name"], -1)[launching_calls(trace)]]


def find_capturing_operators(trace: Trace) -> np.ndarray:
    """Return the ID of the operator behind each launch, for a replay the captured operator; -1 if unknown.

    For that, the trace must contain the capture, or single launches of the same kernels in the same order. Otherwise it
    is the operator that replays the graph, such as `CompiledFunction`.
    """
    launches, calls = trace.launches, launching_calls(trace)
    found = launches["external"].astype(np.int64)
    by_graph = np.flatnonzero(find_replayed(trace))
    if not len(by_graph):
        return found
    found[by_graph] = _replaying_operators(trace, calls[by_graph])
    captured = find_captures(trace)
    eager = np.setdiff1d(np.arange(len(found)), by_graph)
    eager = eager[np.lexsort((launches["start"][eager], trace.calls["start"][calls[eager]]))]
    by_graph = by_graph[np.lexsort((launches["start"][by_graph], trace.calls["start"][calls[by_graph]]))]
    for group in np.split(by_graph, np.flatnonzero(np.diff(calls[by_graph])) + 1):
        called = trace.calls["start"][calls[group[0]]]
        fitting = [ids for began, _, ids in captured if began < called and len(ids) == len(group)]
        if fitting:
            # A graph that is captured several times is replayed from the last capture.
            found[group] = fitting[-1]
        elif (place := _place(launches["name"][eager], launches["name"][group])) >= 0:
            found[group] = launches["external"][eager[place : place + len(group)]]
    return found


def _replaying_operators(trace: Trace, calls: np.ndarray) -> np.ndarray:
    """Return the ID of the operator in which each of these calls was made; -1 for none.

    A replay outside of operators may bear the ID of one that was over long before, so that times are compared too.
    """
    operators, ids, made = trace.operators, trace.calls["external"][calls], trace.calls["start"][calls]
    at = _by_id(trace, ids)
    begin = np.append(operators["start"], 0)[at]
    end = begin + np.append(operators["ns"].astype(np.int64), -1)[at]
    return np.where((at >= 0) & (begin <= made) & (made <= end), ids, -1).astype(np.int64)


def find_captures(trace: Trace) -> list[tuple[int, int, np.ndarray]]:
    """Return for each capture its begin and end in ns, and the IDs of the operators that made its nodes, in order."""
    calls, texts = trace.calls, [API.sub("", text, count=1) if API.match(text) else text for text in trace.texts]
    order = np.argsort(calls["start"], kind="stable")
    begun: int | None = None
    found = []
    # Calls are matched by ID, which a runtime call may share with the driver's call inside it.
    ids: dict[int, int] = {}
    for index in order[np.isin(calls["name"][order], _named(texts))]:
        name = texts[calls["name"][index]]
        if name.startswith(BEGIN):
            begun, ids = int(calls["start"][index]), {}
        elif name.startswith(END) and begun is not None:
            found.append((begun, int(calls["start"][index]), np.array([*ids.values()], dtype=np.int64)))
            begun = None
        elif begun is not None and name.startswith(LAUNCHING):
            ids.setdefault(int(calls["correlation"][index]), int(calls["external"][index]))
    return found


def _named(texts: list[str]) -> list[int]:
    return [code for code, text in enumerate(texts) if text.startswith((BEGIN, END, *LAUNCHING))]


def _place(names: np.ndarray, wanted: np.ndarray) -> int:
    """Return the index at which the wanted sequence begins in another; -1 if it does not occur."""
    last = len(names) - len(wanted)
    for place in np.flatnonzero(names[: last + 1] == wanted[0]) if last >= 0 else ():
        if np.array_equal(names[place : place + len(wanted)], wanted):
            return int(place)
    return -1


# Computes the cost of the launches of a trace from the inputs of the operators that made them.

TYPES = tuple(ITEM_BYTES)


def known_operator_costs(
    trace: Trace, parents: np.ndarray, listed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the operators with a known cost, their costs without nested ones, and each operator's nearest of these.

    parents: index of the enclosing operator of each operator, -1 for none. listed: type of the tensors in the lists of
    each operator, as an index of TYPES; without it, they take four bytes.

    Returns: indices of the operators with a known cost, shape (known,); their costs, shape (known, len(COLUMNS)); and
    per operator the index of the nearest one with a known cost, itself included, -1 for none.
    """
    operators = trace.operators
    told = np.flatnonzero(operators["inputs"] >= 0)
    of_lists = np.full(len(told), TYPES.index(LISTED)) if listed is None else listed[told]
    rows = np.stack([operators["name"][told], operators["inputs"][told], of_lists], axis=1)
    kinds, places = np.unique(rows, axis=0, return_inverse=True)
    found = np.full((len(kinds), len(NEEDED)), np.nan)
    for place, (name, inputs, kind) in enumerate(kinds.tolist()):
        dims, types, values, strides = trace.inputs[inputs]
        need = operator_cost(trace.texts[name], dims, types, values, strides, TYPES[kind])
        if need is not None:
            found[place] = need
    sure = ~np.isnan(found[:, 0])[places]
    known = told[sure]
    return known, *exclusive_costs(found[places[sure]], known, parents)


def launch_costs(
    trace: Trace, parents: np.ndarray, operators: np.ndarray, replays: np.ndarray, names: np.ndarray
) -> np.ndarray:
    """Return the cost of each launch, shape (launches, len(COLUMNS)).

    An operator's first launch has the operator's whole cost, and its other launches have 0, so that costs add up. The
    cost is NaN if no enclosing operator has a formula, or if the trace lacks its inputs.

    Args:
        parents: index of the enclosing operator of each operator, -1 for none.
        operators: innermost operator of each launch, in order, -1 for none.
        replays: number of the CUDA graph's replay of each launch, -1 for none; every replay has the cost again.
        names: what each launch runs, as an index of the trace's texts.
    """
    types = {name: TYPES.index(find_listed_type(trace.texts[name])) for name in np.unique(names)}
    listed = np.full(len(parents), TYPES.index(LISTED))
    listed[operators[operators >= 0]] = [types[name] for name in names[operators >= 0]]
    known, own, holder = known_operator_costs(trace, parents, listed)
    found = np.full((len(operators), len(NEEDED)), np.nan)
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


OWNERS = ("range", "operator", "shapes", "caller", "module", "type", "direction")
# Owners outside of modules: each part of the step, the step outside its parts, and outside all steps.
PLACES = ("step", *RANGE_NAMES_LAUNCHING, "outside")
GRAPH, COMMUNICATION = "graph", "communication"
BACKWARD, FORWARD, RECOMPUTE = "backward", "forward", "recompute"
TEXTS = ("kind", "name", *OWNERS)
TABLE = Table(
    columns={
        "step": Column(
            COUNT.or_missing, "Number of the step in the trace, counted from 0; empty outside all steps.",
            tool="torch"),
        "order": Column(COUNT, "Place of the launch within its step, in the order of launching.", tool="torch"),
        "kind": Column(TEXT, "`kernel`, `memcpy` or `memset`; on a CPU `operator`.", tool="torch"),
        "name": Column(TEXT, "Name of the kernel or copy; on a CPU of the operator.", tool="torch"),
        **shared("stream", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", kind=COUNT.or_missing),
        "smem_bytes": Column(COUNT.or_missing, "Shared memory of a block.", "byte", "torch"),
        "start_ns": Column(WHOLE, "When it began, on the clock of the trace.", "ns", "torch", GPU),
        "ns": Column(COUNT, "GPU time of the launch; on a CPU the operator's own host time.", "ns", "torch", GPU),
        "queued_ns": Column(
            WHOLE.or_missing, "From the launching call to the begin on the GPU: how far the host was ahead. Empty "
            "where no call is known, and on a CPU.", "ns", "torch", GPU),
        "range": Column(TEXT, "Part of the step (NVTX range) that was open at the launch.", tool="torch"),
        **shared("operator", "shapes", "caller", "module", "type", "direction"),
        "call": Column(
            COUNT.or_missing, "Which call of the module within the step launched it, counted from 0.", tool="torch"),
        "sequence": Column(
            COUNT.or_missing, "Autograd's sequence number, which an operator and its backward pass share.",
            tool="torch"),
        "needed_product_flop": Column(
            AMOUNT.or_missing, "Operations of matrix products that the operator needs by its shapes.", "flop", "torch"),
        "needed_other_flop": Column(
            AMOUNT.or_missing, "Other operations that the operator needs by its shapes.", "flop", "torch"),
        "needed_bytes": Column(
            AMOUNT.or_missing, "Bytes that the operator needs to read and write once by its shapes; all needs are "
            "with its first launch.", "byte", "torch"),
    },
    optional={
        "user_range": Column(
            TEXT, "Innermost range of the program's own (`record_function`) that was open at the launch, behind "
            "those around it; empty outside all.", tool="torch"),
        compiled.PARTS: Column(
            TEXT, "Of a kernel that torch.compile made, what it consists of: a JSON list of operator, module, type, "
            "line and share of each part; shares add up to 1. Empty for other launches.", tool="torch"),
    },
    key=("step", "order"),
)  # fmt: skip
COLUMNS = tuple(TABLE.columns)
MODULES = Table(
    columns={
        **shared("module", "type", "inputs"),
        "calls": Column(COUNT, "Calls of the module in the forward pass, in all traced steps.", "count", "torch"),
        "repeated": Column(
            COUNT, "Calls of the module that activation checkpointing repeats in the backward pass.", "count", "torch"),
    },
    key=("module", "type"),
)  # fmt: skip
# Of shapes, so many, and what is between them.
SHOWN, MANY = 4, "; "
# How tables name what Inductor fused, and how Inductor does.
OF_FUSED = "fused "
FUSED = re.compile(r"(?:triton_[a-z]+|(?:graph_\d+_)?cpp)_fused_(\w+)_\d+")
PARTS_OF_OWNER = ("module_of_parts", "type_of_parts", "told_parts")
# Nodes whose operator ran while another's gradient was made anew, one within the other.
DEEPEST = 8


def tabulate_launches(trace: Trace) -> pd.DataFrame:
    """Return one row per launch, in the order of the launching calls.

    Columns (docs/reference/columns.md has all): `step`, from 0, empty outside all steps, and `order` in the step;
    `kind` (kernel, memcpy or memset); `name`, `stream` and launch configuration; `start_ns` and `ns` on the device,
    `queued_ns` before; `range`, the part of the step; `operator`, the innermost one, with `shapes` of its inputs;
    `caller`, the outermost operator within the module or autograd node; `module`, its path, in the backward pass the
    path of the forward operator's module, and `type`; `direction`; `call`, the number of the module's call in the step,
    from 0; `sequence`, autograd's number, which forward and backward pass share; and NEEDED. An operator's first launch
    has its whole cost, so that costs add up; the cost is empty if unknown.

    A launch outside of modules has an owner in parentheses: the part of the step, in the backward pass the part of its
    forward operator; `(communication)`; `(graph)` for a replay without a known capture; `(step)`; `(outside)`.
    """
    launches, called = trace.launches, launch_times(trace)
    order = np.lexsort((launches["start"], called))
    launches, called = {name: column[order] for name, column in launches.items()}, called[order]
    ids, replayed = find_capturing_operators(trace)[order], find_replayed(trace)[order]
    operators = _by_id(trace, ids)
    kernels = set(np.unique(launches["name"]).tolist())
    talking = [number in kernels and communicates(text) for number, text in enumerate(trace.texts)]
    other = np.where(np.array(talking, dtype=bool)[launches["name"]], f"({COMMUNICATION})", "").astype(object)
    other[replayed & (operators < 0)] = f"({GRAPH})"
    began = _at(trace.operators["start"], operators)
    made = np.where(replayed & (operators >= 0), began, called)
    # What was captured ran before the replay; where that is unknown, the operator is the one that replays.
    replaying = replayed & (operators >= 0) & (called <= began + _at(trace.operators["ns"].astype(np.int64), operators))
    nesting = nest_operators(trace)
    frame = _owned(trace, nesting, operators, called, made, other, np.where(replaying, f"({GRAPH})", ""))
    replays = np.where(replayed, launching_calls(trace)[order], -1)
    need = launch_costs(trace, nesting.parent, operators, replays, launches["name"])
    columns = {
        "kind": pd.Categorical.from_codes(launches["kind"], list(DEVICE_KINDS.values())),
        "name": _texts(launches["name"], trace.texts),
        **{name: _known(launches[name]) for name in ("stream", *SIZES)},
        "start_ns": launches["start"],
        "ns": launches["ns"].astype(np.int64),
        "queued_ns": pd.arrays.IntegerArray((launches["start"] - called).astype(np.int64), called < 0),
        **dict(zip(NEEDED, need.T, strict=True)),
    }
    return frame.assign(**columns)[[*COLUMNS, *(name for name in TABLE.optional if name in frame)]]


def launching_operators(trace: Trace) -> np.ndarray:
    """Return the operator of each launch, -1 for none, in the order of tabulate_launches."""
    order = np.lexsort((trace.launches["start"], launch_times(trace)))
    return _by_id(trace, find_capturing_operators(trace)[order])


def own_operators(trace: Trace, nesting: Nesting, operators: np.ndarray) -> pd.DataFrame:
    """Return step, order and owner of operators, one row per operator, as tabulate_launches has them of launches.

    operators: their indices; nesting: of nest_operators.
    """
    began = trace.operators["start"][operators]
    return _owned(trace, nesting, operators, began, began, np.full(len(operators), "", dtype=object))


def tabulate_operators(trace: Trace) -> pd.DataFrame:
    """Return the same table for a run on the CPU: one row per operator call, with its self time."""
    nesting = nest_operators(trace)
    operators = order_by_start(trace, kinds_of(trace) != MARK)
    frame = own_operators(trace, nesting, operators)
    columns = {
        "kind": pd.Categorical.from_codes(np.zeros(len(operators), dtype=np.int8), ["operator"]),
        "name": _texts(trace.operators["name"][operators], trace.texts),
        **{name: _known(np.full(len(operators), -1)) for name in ("stream", *SIZES)},
        "start_ns": trace.operators["start"][operators],
        "ns": exclusive_ns(trace, nesting.parent)[operators],
        "queued_ns": _known(np.full(len(operators), -1)),
        **dict(zip(NEEDED, _needed(trace, nesting)[operators].T, strict=True)),
    }
    return frame.assign(**columns)[[*COLUMNS, *(name for name in TABLE.optional if name in frame)]]


def order_by_start(trace: Trace, chosen: np.ndarray) -> np.ndarray:
    """Return the indices of chosen operators by start; chosen: one flag per operator."""
    indices = np.flatnonzero(chosen)
    return indices[np.argsort(trace.operators["start"][indices], kind="stable")]


def _needed(trace: Trace, nesting: Nesting) -> np.ndarray:
    """Return the cost of each operator without nested operators, shape (operators, len(NEEDED)); NaN if unknown."""
    known, own, _ = known_operator_costs(trace, nesting.parent)
    found = np.full((len(nesting.parent), len(NEEDED)), np.nan)
    found[known] = own
    return found


def _owned(
    trace: Trace,
    nesting: Nesting,
    operators: np.ndarray,
    called: np.ndarray,
    made: np.ndarray,
    other: np.ndarray,
    outside: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return step, order and owner of launches; operators: operator of each launch, -1 for none.

    Args:
        called: time of each launching call in ns.
        made: time in ns at which the operator ran; for a replay this is earlier.
        other: owner of each launch that is known otherwise, else empty.
        outside: owner of each launch that counts where its operator is in no module, else empty.
    """
    places = _places(made, trace)
    node, again = _at(nesting.node, operators), _at(nesting.again, operators, 0) > 0
    owner, origin = _owner(nesting, find_forward_operators(trace), operators)
    ranges, backward = np.array(PLACES, dtype=object)[places], node >= 0
    # Backward work of no module belongs to the part of the step in which its forward operator ran.
    began = _at(trace.operators["start"], np.where(backward, origin, -1))
    steps, open_then = find_steps(called, trace), find_ranges(called, trace)
    stands = np.array([f"({name})" for name in PLACES], dtype=object)
    where = stands[np.where(began >= 0, _places(began, trace), places)]
    where = np.where(other != "", other, where if outside is None else np.where(outside != "", outside, where))
    owner = np.where(other != "", -1, owner)
    plain = (owner >= 0) & ~np.isin(ranges, GENERATING)
    direction = np.where(again, RECOMPUTE, np.where(backward, BACKWARD, np.where(plain, FORWARD, ranges)))
    direction = np.where(other == f"({COMMUNICATION})", COMMUNICATION, direction)
    numbered, top = _at(nesting.numbered, operators), _at(nesting.top, operators)
    names = np.where(_at(kinds_of(trace), operators, MARK) == MARK, -1, _at(trace.operators["name"], operators))
    path, kind = _modules(_at(trace.operators["name"], owner), trace.texts, where)
    frame = pd.DataFrame(
        {
            "step": _known(steps),
            "order": pd.Series(steps).groupby(steps).cumcount().to_numpy(),
            "range": pd.Categorical.from_codes(open_then, ["", *RANGE_NAMES_LAUNCHING]),
            "operator": _texts(names, trace.texts, fused_name),
            "shapes": _texts(np.where(names >= 0, _at(trace.operators["shapes"], operators), -1), trace.texts),
            "caller": _texts(np.where(names >= 0, _at(trace.operators["name"], top), -1), trace.texts, fused_name),
            "module": path,
            "type": kind,
            "direction": pd.Categorical(direction),
            "call": _known(_at(_calls(trace, nesting), owner)),
            "sequence": _known(_at(trace.operators["sequence"], numbered)),
        }
    )
    return _with_parts(frame, trace, nesting, operators)


def _with_parts(frame: pd.DataFrame, trace: Trace, nesting: Nesting, operators: np.ndarray) -> pd.DataFrame:
    """Return launches with the modules and parts of kernels that torch.compile made, if the trace tells them."""
    kernels = compiled.find_kernels(trace, nesting)
    if not kernels.calls:
        return frame
    calls = _at(kernels.of_operator, operators)
    keys = frame[["module", "type", "operator"]].astype("object").assign(call=calls)
    distinct = keys[calls >= 0].drop_duplicates()
    told = [
        compiled.describe_parts(kernels.calls[call], module, kind, operator.startswith(OF_FUSED))
        for module, kind, operator, call in distinct.itertuples(index=False)
    ]
    named = distinct.assign(**dict(zip(PARTS_OF_OWNER, zip(*told, strict=True), strict=True)))
    found = keys.merge(named, on=[*keys.columns], how="left")
    for name, column in zip(("module", "type", compiled.PARTS), PARTS_OF_OWNER, strict=True):
        before = keys.get(name, "")
        frame[name] = pd.Categorical(np.where(calls >= 0, found[column], before))
    return frame


def tabulate_modules(trace: Trace) -> pd.DataFrame:
    """Return one row per called module, in order of the first call.

    `inputs` lists the distinct shapes of its input tensors. `calls` is the number of calls in the forward pass, and
    `repeated` the number of repeated calls within the backward pass.
    """
    marks = order_by_start(trace, kinds_of(trace) == MARK)
    path, kind = _modules(trace.operators["name"][marks], trace.texts, np.full(len(marks), "", dtype=object))
    frame = pd.DataFrame({"module": path, "type": kind, "again": nest_operators(trace).again[marks] > 0})
    frame["inputs"] = _texts(trace.operators["shapes"][marks], trace.texts)
    grouped = frame.groupby(["module", "type"], observed=True, sort=False)
    inputs = [MANY.join(found["inputs"].unique()[:SHOWN]) for _, found in grouped]
    repeated = grouped["again"].sum().astype("int64").to_numpy()
    table = grouped.size().rename("calls").reset_index().assign(inputs=inputs, repeated=repeated)
    table = table.assign(calls=table["calls"] - repeated)
    within = _compiled_calls(trace)
    within = within[~within["module"].isin(table["module"])].assign(inputs="", repeated=0)
    return pd.concat([table.astype({"module": "object", "type": "object"}), within], ignore_index=True)[
        list(MODULES.columns)
    ]


def _compiled_calls(trace: Trace) -> pd.DataFrame:
    """Return the calls of modules within compiled code, which open no ranges; shapes of their inputs are not known."""
    nesting = nest_operators(trace)
    kernels = compiled.find_kernels(trace, nesting)
    runs = np.array([operator for _, operator in kernels.runs], dtype=np.int64)
    owner, _ = _owner(nesting, find_forward_operators(trace), runs)
    names = _modules(_at(trace.operators["name"], owner), trace.texts, np.full(len(runs), "", dtype=object))
    return compiled.count_calls(kernels, *(list(column) for column in names))


def _by_id(trace: Trace, ids: np.ndarray) -> np.ndarray:
    """Return the indices of the operators with these IDs; -1 for none."""
    order = np.argsort(trace.operators["external"], kind="stable")
    return look_up(np.where(ids > 0, ids, -2), trace.operators["external"][order], order)


def _places(times: np.ndarray, trace: Trace) -> np.ndarray:
    """Return the index in PLACES of each time (ns)."""
    parts = find_ranges(times, trace)
    return np.where((parts == 0) & (find_steps(times, trace) < 0), len(PLACES) - 1, parts)


def fused_name(name: str) -> str:
    """Return an operator's name; for an operator fused by inductor, the names of the operators in it.

    >>> fused_name("triton_poi_fused_add_relu_3"), fused_name("aten::add")
    ('fused add_relu', 'aten::add')
    """
    found = FUSED.fullmatch(name)
    return f"{OF_FUSED}{found[1]}" if found else name


def _owner(nesting: Nesting, forward: np.ndarray, operators: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the module's range to which each operator belongs, and the forward operator from which this follows."""
    owner, origin = _at(nesting.module, operators), operators
    for _ in range(DEEPEST):
        # An operator in an autograd node, and in no module there, belongs to the module of the node's forward operator.
        node = np.where(owner < 0, _at(nesting.node, origin), -1)
        origin = np.where(node >= 0, _at(forward, node), origin)
        owner = np.where(node >= 0, _at(nesting.module, origin), owner)
    return owner, origin


def _calls(trace: Trace, nesting: Nesting) -> np.ndarray:
    """Return, per operator that is a module's range, the number of the module's call in the step, from 0.

    Calls of the forward pass and repeated calls are counted separately.
    """
    marks = order_by_start(trace, kinds_of(trace) == MARK)
    steps = find_steps(trace.operators["start"][marks], trace)
    keys = [trace.operators["name"][marks], steps, nesting.again[marks]]
    found = np.full(len(trace.operators["start"]), -1, dtype=np.int64)
    found[marks] = pd.Series(0, index=range(len(marks))).groupby(keys).cumcount().to_numpy()
    return found


def _modules(codes: np.ndarray, texts: Sequence[str], where: np.ndarray) -> tuple[pd.Categorical, pd.Categorical]:
    """Return paths and types of modules from the names of their ranges; `where` is the path if there is none (-1)."""
    chosen, places = np.unique(codes, return_inverse=True)
    pairs = [
        parse_module_range(original_name(texts[code].removeprefix(f"{DOMAIN}:"))) if code >= 0 else ("", "")
        for code in chosen
    ]
    paths, types = (np.array([pair[index] for pair in pairs], dtype=object)[places] for index in (0, 1))
    return pd.Categorical(np.where(codes >= 0, paths, where)), pd.Categorical(types)


def _at(values: np.ndarray, indices: np.ndarray, none: int = -1) -> np.ndarray:
    """Return the values at these indices; `none` for an index of -1."""
    # Avoids a copy of all values, which may be many more than the indices.
    return np.where(indices >= 0, values[indices], none) if len(values) else np.full(len(indices), none)


def _texts(codes: np.ndarray, texts: Sequence[str], changed: Callable[[str], str] = str) -> pd.Categorical:
    """Return texts by code as a categorical column, empty for -1, because there may be millions of long texts."""
    chosen, places = np.unique(codes, return_inverse=True)
    names = pd.Index([changed(texts[code]) if code >= 0 else "" for code in chosen], dtype=object)
    unique, first = names.factorize()[::-1]
    return pd.Categorical.from_codes(first[places] if len(codes) else [], list(unique))


def _known(values: np.ndarray) -> pd.arrays.IntegerArray:
    """Return an integer column in which negative numbers are missing values."""
    return pd.arrays.IntegerArray(values if values.dtype == np.int32 else values.astype(np.int64), values < 0)
