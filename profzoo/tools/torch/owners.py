"""Makes the table of owners: the operator, module and direction of each launch."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.op_costs.operators import COLUMNS as NEEDED
from profzoo.range_names import DOMAIN, LAUNCHING, original_name, parse_module_range
from profzoo.tools.communication_kernels import communicates
from profzoo.tools.torch import dictionary, graph_replays, launch_costs
from profzoo.tools.torch.autograd_links import find_forward_operators
from profzoo.tools.torch.host_calls import find_ranges, find_steps, launch_times, launching_calls, look_up
from profzoo.tools.torch.nesting import MARK, Nesting, exclusive_ns, nest_operators
from profzoo.tools.torch.nesting import classify_operators as kinds_of
from profzoo.tools.torch.trace import DEVICE_KINDS, SIZES, Trace
from profzoo.tools.torch.user_ranges import COLUMN as USER_RANGE

OWNERS = ("range", "operator", "shapes", "caller", "module", "type", "direction")
# Owners outside of modules: each part of the step, the step outside its parts, and outside all steps.
PLACES = ("step", *LAUNCHING, "outside")
GRAPH, COMMUNICATION = "graph", "communication"
BACKWARD, FORWARD, RECOMPUTE = "backward", "forward", "recompute"
COLUMNS = ("step", "order", "kind", "name", "stream", *SIZES, "start_ns", "ns", *OWNERS, "call", "sequence", *NEEDED)
TEXTS = ("kind", "name", *OWNERS)
TABLE = Table(
    columns={
        name: column_types.TEXT if name in TEXTS else column_types.or_missing(column_types.COUNT) for name in COLUMNS
    }
    | {"order": column_types.COUNT, "ns": column_types.COUNT, "start_ns": column_types.WHOLE}
    | dict.fromkeys(NEEDED, column_types.or_missing(column_types.AMOUNT)),
    optional={USER_RANGE: column_types.TEXT},
    key=("step", "order"),
    about=dictionary.LAUNCHES,
)
MODULES = Table(
    columns=dict.fromkeys(["module", "type", "inputs"], column_types.TEXT)
    | dict.fromkeys(["calls", "repeated"], column_types.COUNT),
    key=("module", "type"),
    about=dictionary.MODULES,
)
# Of shapes, so many, and what is between them.
SHOWN, MANY = 4, "; "
# How inductor names what it fused.
FUSED = re.compile(r"triton_[a-z]+_fused_(\w+)_\d+")
# Nodes whose operator ran while another's gradient was made anew, one within the other.
DEEPEST = 8


def tabulate_launches(trace: Trace) -> pd.DataFrame:
    """Return one row per launch, in the order of the launching calls.

    Columns (docs/reference/columns.md has all): `step`, from 0, empty outside all steps, and `order` in the step;
    `kind` (kernel, memcpy or memset); `name`, `stream` and launch configuration; `start_ns` and `ns` on the device;
    `range`, the part of the step; `operator`, the innermost one, with `shapes` of its inputs; `caller`, the outermost
    operator within the module or autograd node; `module`, its path, in the backward pass the path of the forward
    operator's module, and `type`; `direction`; `call`, the number of the module's call in the step, from 0; `sequence`,
    autograd's number, which forward and backward pass share; and NEEDED. An operator's first launch has its whole cost,
    so that costs add up; the cost is empty if unknown.

    A launch outside of modules has an owner in parentheses: the part of the step, in the backward pass the part of its
    forward operator; `(communication)`; `(graph)` for a replay without a known capture; `(step)`; `(outside)`.
    """
    launches, called = trace.launches, launch_times(trace)
    order = np.lexsort((launches["start"], called))
    launches, called = {name: column[order] for name, column in launches.items()}, called[order]
    ids, replayed = graph_replays.find_capturing_operators(trace)[order], graph_replays.find_replayed(trace)[order]
    operators = _by_id(trace, ids)
    kernels = set(np.unique(launches["name"]).tolist())
    talking = [number in kernels and communicates(text) for number, text in enumerate(trace.texts)]
    other = np.where(np.array(talking, dtype=bool)[launches["name"]], f"({COMMUNICATION})", "").astype(object)
    other[replayed & (operators < 0)] = f"({GRAPH})"
    made = np.where(replayed & (operators >= 0), _at(trace.operators["start"], operators), called)
    nesting = nest_operators(trace)
    frame = _owned(trace, nesting, operators, called, made, other)
    need = launch_costs.launch_costs(
        trace, nesting.parent, operators, np.where(replayed, launching_calls(trace)[order], -1)
    )
    columns = {
        "kind": pd.Categorical.from_codes(launches["kind"], list(DEVICE_KINDS.values())),
        "name": _texts(launches["name"], trace.texts),
        **{name: _known(launches[name]) for name in ("stream", *SIZES)},
        "start_ns": launches["start"],
        "ns": launches["ns"].astype(np.int64),
        **dict(zip(NEEDED, need.T, strict=True)),
    }
    return frame.assign(**columns)[list(COLUMNS)]


def launching_operators(trace: Trace) -> np.ndarray:
    """Return the operator of each launch, -1 for none, in the order of tabulate_launches."""
    order = np.lexsort((trace.launches["start"], launch_times(trace)))
    return _by_id(trace, graph_replays.find_capturing_operators(trace)[order])


def own_operators(trace: Trace, nesting: Nesting, operators: np.ndarray) -> pd.DataFrame:
    """Return step, order and owner of operators, one row per operator, as tabulate_launches has them of launches.

    operators: their indices; nesting: of nest_operators.
    """
    began = trace.operators["start"][operators]
    return _owned(trace, nesting, operators, began, began, np.full(len(operators), "", dtype=object))


def tabulate_operators(trace: Trace) -> pd.DataFrame:
    """Return the same table for a run on the CPU: one row per operator call, with its self time."""
    nesting = nest_operators(trace)
    operators = np.flatnonzero(kinds_of(trace) != MARK)
    operators = operators[np.argsort(trace.operators["start"][operators], kind="stable")]
    started = trace.operators["start"][operators]
    frame = _owned(trace, nesting, operators, started, started, np.full(len(operators), "", dtype=object))
    columns = {
        "kind": pd.Categorical.from_codes(np.zeros(len(operators), dtype=np.int8), ["operator"]),
        "name": _texts(trace.operators["name"][operators], trace.texts),
        **{name: _known(np.full(len(operators), -1)) for name in ("stream", *SIZES)},
        "start_ns": started,
        "ns": exclusive_ns(trace, nesting.parent)[operators],
        **dict(zip(NEEDED, _needed(trace, nesting)[operators].T, strict=True)),
    }
    return frame.assign(**columns)[list(COLUMNS)]


def _needed(trace: Trace, nesting: Nesting) -> np.ndarray:
    """Return the cost of each operator without nested operators, shape (operators, len(NEEDED)); NaN if unknown."""
    known, own, _ = launch_costs.known_operator_costs(trace, nesting.parent)
    found = np.full((len(nesting.parent), len(NEEDED)), np.nan)
    found[known] = own
    return found


def _owned(
    trace: Trace, nesting: Nesting, operators: np.ndarray, called: np.ndarray, made: np.ndarray, other: np.ndarray
) -> pd.DataFrame:
    """Return step, order and owner of launches; operators: operator of each launch, -1 for none.

    Args:
        called: time of each launching call in ns.
        made: time in ns at which the operator ran; for a replay this is earlier.
        other: owner of each launch that is known otherwise, else empty.
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
    where = np.where(other != "", other, where)
    owner = np.where(other != "", -1, owner)
    direction = np.where(again, RECOMPUTE, np.where(backward, BACKWARD, np.where(owner >= 0, FORWARD, ranges)))
    direction = np.where(other == f"({COMMUNICATION})", COMMUNICATION, direction)
    numbered, top = _at(nesting.numbered, operators), _at(nesting.top, operators)
    names = _at(trace.operators["name"], operators)
    names = np.where(_at(kinds_of(trace), operators, MARK) == MARK, -1, names)
    path, kind = _modules(_at(trace.operators["name"], owner), trace.texts, where)
    return pd.DataFrame(
        {
            "step": _known(steps),
            "order": pd.Series(steps).groupby(steps).cumcount().to_numpy(),
            "range": pd.Categorical.from_codes(open_then, ["", *LAUNCHING]),
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


def tabulate_modules(trace: Trace) -> pd.DataFrame:
    """Return one row per called module, in order of the first call.

    `inputs` lists the distinct shapes of its input tensors. `calls` is the number of calls in the forward pass, and
    `repeated` the number of repeated calls within the backward pass.
    """
    marks = np.flatnonzero(kinds_of(trace) == MARK)
    marks = marks[np.argsort(trace.operators["start"][marks], kind="stable")]
    path, kind = _modules(trace.operators["name"][marks], trace.texts, np.full(len(marks), "", dtype=object))
    frame = pd.DataFrame({"module": path, "type": kind, "again": nest_operators(trace).again[marks] > 0})
    frame["inputs"] = _texts(trace.operators["shapes"][marks], trace.texts)
    grouped = frame.groupby(["module", "type"], observed=True, sort=False)
    inputs = [MANY.join(found["inputs"].unique()[:SHOWN]) for _, found in grouped]
    repeated = grouped["again"].sum().astype("int64").to_numpy()
    table = grouped.size().rename("calls").reset_index().assign(inputs=inputs, repeated=repeated)
    return table.assign(calls=table["calls"] - repeated)[list(MODULES.columns)]


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
    return f"fused {found[1]}" if found else name


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
    marks = np.flatnonzero(kinds_of(trace) == MARK)
    marks = marks[np.argsort(trace.operators["start"][marks], kind="stable")]
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
