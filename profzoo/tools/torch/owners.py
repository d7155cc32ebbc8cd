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
# What is no module's: in a part of the step, in none of them, and in no step.
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

    Columns: `step`, counted from 0 and empty outside of all, and `order` in it; `kind`: kernel, memcpy or memset;
    `name`; `stream`; grid, block and its shared memory; `start_ns` and `ns` on the device; `range`: the part of the
    step; `operator`: the innermost one, with the `shapes` of its inputs, and its `caller`, the outermost one within
    module or node of autograd; `module`: path, of the backward pass that of the forward one; its `type`; `direction`:
    forward, backward, recompute, or the part of the step; which `call` of the module in the step it is, counted from 0;
    `sequence`: autograd's number, which forward and backward share; and what it needs, as NEEDED, with the first launch
    of an operator, so that it adds up, empty where it is not known.

    A launch of no module has an owner in parentheses instead: the part of the step, or of the forward pass that it is
    the backward of; `(communication)`; `(graph)` for a replay whose capture is not known; `(step)`; `(outside)`.
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
    """(operators, NEEDED) what each needs but for what it calls, NaN where that is not known."""
    known, own, _ = launch_costs.known_operator_costs(trace, nesting.parent)
    found = np.full((len(nesting.parent), len(NEEDED)), np.nan)
    found[known] = own
    return found


def _owned(
    trace: Trace, nesting: Nesting, operators: np.ndarray, called: np.ndarray, made: np.ndarray, other: np.ndarray
) -> pd.DataFrame:
    """Step, order and owner of what was called at these times by these operators (-1: none).

    made: when the operators ran, which of replays is earlier; other: owners that are told otherwise, else nothing.
    """
    places = _places(made, trace)
    node, again = _at(nesting.node, operators), _at(nesting.again, operators, 0) > 0
    owner, origin = _owner(nesting, find_forward_operators(trace), operators)
    ranges, backward = np.array(PLACES, dtype=object)[places], node >= 0
    # Of what is the backward of no module: where the forward was.
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

    `inputs` are the shapes of the tensors that it was called with, each once; `calls` in the forward pass, `repeated`
    ones again within the backward pass.
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
    """The operators of these IDs; -1 for none."""
    order = np.argsort(trace.operators["external"], kind="stable")
    return look_up(np.where(ids > 0, ids, -2), trace.operators["external"][order], order)


def _places(times: np.ndarray, trace: Trace) -> np.ndarray:
    """Of each moment, the index in PLACES of where it was."""
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
    """The range of the module that operators belong to, and the operator of the forward pass that tells so."""
    owner, origin = _at(nesting.module, operators), operators
    for _ in range(DEEPEST):
        # What ran in a node of autograd, and in no module there, is of the module of the node's forward.
        node = np.where(owner < 0, _at(nesting.node, origin), -1)
        origin = np.where(node >= 0, _at(forward, node), origin)
        owner = np.where(node >= 0, _at(nesting.module, origin), owner)
    return owner, origin


def _calls(trace: Trace, nesting: Nesting) -> np.ndarray:
    """Of each operator that is a module's range, which call of the module in the step it is, in forward and again."""
    marks = np.flatnonzero(kinds_of(trace) == MARK)
    marks = marks[np.argsort(trace.operators["start"][marks], kind="stable")]
    steps = find_steps(trace.operators["start"][marks], trace)
    keys = [trace.operators["name"][marks], steps, nesting.again[marks]]
    found = np.full(len(trace.operators["start"]), -1, dtype=np.int64)
    found[marks] = pd.Series(0, index=range(len(marks))).groupby(keys).cumcount().to_numpy()
    return found


def _modules(codes: np.ndarray, texts: Sequence[str], where: np.ndarray) -> tuple[pd.Categorical, pd.Categorical]:
    """Paths and types by the names of modules' ranges; where there is none (-1) what stands in for the path."""
    chosen, places = np.unique(codes, return_inverse=True)
    pairs = [
        parse_module_range(original_name(texts[code].removeprefix(f"{DOMAIN}:"))) if code >= 0 else ("", "")
        for code in chosen
    ]
    paths, types = (np.array([pair[index] for pair in pairs], dtype=object)[places] for index in (0, 1))
    return pd.Categorical(np.where(codes >= 0, paths, where)), pd.Categorical(types)


def _at(values: np.ndarray, indices: np.ndarray, none: int = -1) -> np.ndarray:
    """The values at indices, of which -1 has none."""
    # Without a copy of them all, of which there may be many more than indices.
    return np.where(indices >= 0, values[indices], none) if len(values) else np.full(len(indices), none)


def _texts(codes: np.ndarray, texts: Sequence[str], changed: Callable[[str], str] = str) -> pd.Categorical:
    """Texts by codes, of which -1 is nothing; one copy of each, as there may be millions of long ones."""
    chosen, places = np.unique(codes, return_inverse=True)
    names = pd.Index([changed(texts[code]) if code >= 0 else "" for code in chosen], dtype=object)
    unique, first = names.factorize()[::-1]
    return pd.Categorical.from_codes(first[places] if len(codes) else [], list(unique))


def _known(values: np.ndarray) -> pd.arrays.IntegerArray:
    """Whole numbers, of which negative ones are missing."""
    return pd.arrays.IntegerArray(values if values.dtype == np.int32 else values.astype(np.int64), values < 0)
