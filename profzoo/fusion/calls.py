"""Lists the operators of one traced step that do work: what they read and write, their layer, their launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.fusion import gradients
from profzoo.op_costs.tensor_effects import ATEN, FUSIBLE, LISTS, OPAQUE, Effects, Tensor, call_effects, kind_of
from profzoo.range_names import DOMAIN, original_name, parse_module_range
from profzoo.tools.torch import nesting as nests
from profzoo.tools.torch import owners
from profzoo.tools.torch.nesting import Nesting
from profzoo.tools.torch.trace import Trace

# Longest list of operators around one, from the module or the node of autograd on.
DEEPEST = 16
# Work of which nothing is known, or that no kernel does: copies between host and GPU, by their names.
NOTHING = Effects(OPAQUE, (), ())
CROSSING = r"HtoD|DtoH|Host"
# How torch calls the range of an optimizer's step.
OPTIMIZER = "Optimizer.step#"


@dataclass(frozen=True)
class Call:
    """One call of an operator that does work by itself.

    Attributes:
        place: position in the step, in the order of launching.
        operator: its name without `aten::`.
        effects: what kind of work it does, and the tensors that it reads and writes.
        values: its other inputs as texts, one per input.
        around: names of the operators that called it, the outermost first, from the module or autograd's node on.
        outer: shapes of the inputs of the outermost of these, or of itself.
        module, type, instance: path and class of the module, and the number of the module's call in the step.
        direction: of the layer, such as `forward`; range: part of the step.
        sequence: autograd's number, which forward and backward pass share; -1 for none.
        updates: whether it ran in the `step` of one of torch's optimizers.
        ns: GPU time of its launches; on a CPU its own time.
        launches: positions of its launches in the step; on a CPU none.
        began: when it began, in ns of the trace's clock.
        discarded: whether it computes gradients that nobody uses.
    """

    place: int
    operator: str
    effects: Effects
    values: tuple[str, ...]
    around: tuple[str, ...]
    outer: tuple[tuple[int, ...], ...]
    module: str
    type: str
    instance: int
    direction: str
    range: str
    sequence: int
    updates: bool
    ns: float
    launches: tuple[int, ...]
    began: int = 0
    discarded: bool = False

    @property
    def fusible(self) -> bool:
        """Return whether a fused kernel could do this work together with what is before or behind it."""
        return self.effects.kind in FUSIBLE

    @property
    def kind(self) -> str:
        """Return the kind of its work."""
        return self.effects.kind

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """Return the tensors that it reads."""
        return self.effects.reads

    @property
    def writes(self) -> tuple[Tensor, ...]:
        """Return the tensors that it writes."""
        return self.effects.writes

    @property
    def count(self) -> int:
        """Return the number of its launches, at least one: on a CPU a call is one."""
        return max(len(self.launches), 1)


@dataclass(frozen=True)
class TracedStep:
    """One step of a trace.

    Attributes:
        calls: operators that do work, in order.
        launches: rows of the table of owners of this step's launches; empty on a CPU.
        sources: lines of the `forward` of classes of modules, by name; types: classes of modules, by path.
        gpu: whether the step launched kernels.
    """

    calls: Sequence[Call]
    launches: pd.DataFrame
    sources: Mapping[str, Sequence[str]]
    types: Mapping[str, str]
    gpu: bool


def read_step(trace: Trace) -> TracedStep:
    """Return the first step of a trace that has the most frequent number of launches, or on a CPU of operators."""
    nesting = nests.nest_operators(trace)
    kinds = np.array([_works(text) for text in trace.texts], dtype=bool)
    works = kinds[trace.operators["name"]] if len(kinds) else np.zeros(0, dtype=bool)
    outermost = _outermost(works, nesting.parent)
    gpu = bool(len(trace.launches["start"]))
    launches, operators = pd.DataFrame(), np.flatnonzero(outermost == np.arange(len(outermost)))
    if gpu:
        launches, operators = owners.tabulate_launches(trace), owners.launching_operators(trace)
        rows = np.flatnonzero(_typical(launches["step"]))
        launches, operators = launches.iloc[rows].reset_index(drop=True), operators[rows]
        groups = _groups(operators, outermost, launches)
    else:
        operators = operators[np.argsort(trace.operators["start"][operators], kind="stable")]
        frame = owners.own_operators(trace, nesting, operators)
        groups = {int(one): [] for one in operators[np.flatnonzero(_typical(frame["step"]))]}
    calls = mark_discarded(_calls(trace, nesting, groups, launches), trace, nesting)
    return TracedStep(calls, launches, trace.sources, _types(trace.texts), gpu)


def mark_discarded(calls: Sequence[Call], trace: Trace, nesting: Nesting) -> list[Call]:
    """Return calls of a step with those marked that compute gradients which nobody uses."""
    first, last = (end((call.began for call in calls if call.began), default=0) for end in (min, max))
    updates = _updates(calls, trace, first, last)
    forward = [call.began for call in calls if call.direction == "forward"]
    stored = gradients.list_stored(trace, nesting, first, last) if updates else []
    unused = gradients.find_unused_times(stored, updates, forward)
    return [
        replace(call, discarded=True)
        if call.direction == "backward" and any(begin < call.began < end for begin, end in unused)
        else call
        for call in calls
    ]


def _updates(calls: Sequence[Call], trace: Trace, first: int, last: int) -> list[gradients.Update]:
    """Return the updates by optimizers between two times (ns)."""
    found = []
    for begin, end in zip(*_optimizer_ranges(trace), strict=True):
        own = [call for call in calls if call.updates and begin <= call.began <= end]
        if not first <= begin <= last:
            continue
        if not own or any(call.kind == LISTS and not call.writes for call in own) or not own[-1].writes:
            found.append(gradients.Update(int(begin), None, None))
            continue
        # The last operation is the one on the parameters.
        final = [call for call in own if call.operator == own[-1].operator]
        written, parameters = ([one.shape for call in some for one in call.writes] for some in (own, final))
        found.append(gradients.Update(int(begin), set(written), parameters))
    return found


def _types(texts: Sequence[str]) -> dict[str, str]:
    """Return the class of each module by its path, from the names of ranges."""
    marks = (original_name(text).removeprefix(f"{DOMAIN}:") for text in texts if text.startswith(nests.OF_MODULE))
    return dict(map(parse_module_range, marks))


def _works(text: str) -> bool:
    return kind_of(text) is not None


def _outermost(works: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Return per operator the outermost operator around it that does work, itself included; -1 for none."""
    found = np.full(len(parents), -1, dtype=np.int64)
    inner, above = found.data, parents.data
    for place in range(len(parents)):
        held = inner[above[place]] if above[place] >= 0 else -1
        inner[place] = held if held >= 0 else place if works[place] else -1
    return found


def _typical(steps: pd.Series) -> np.ndarray:
    """Return flags of the rows of the first step with the most frequent number of rows; of all without steps."""
    sizes = steps.dropna().groupby(steps.dropna()).size()
    if sizes.empty:
        return np.ones(len(steps), dtype=bool)
    chosen = sizes[sizes == sizes.mode().iloc[-1]].index[0]
    return np.asarray((steps == chosen).fillna(False), dtype=bool)


def _groups(operators: np.ndarray, outermost: np.ndarray, launches: pd.DataFrame) -> dict[int, list[int]]:
    """Return the launches of each operator that does work, in order; a launch of no known operator stands alone."""
    groups: dict[int, list[int]] = {}
    for launch, operator in enumerate(operators.tolist()):
        held = int(outermost[operator]) if operator >= 0 else -1
        groups.setdefault(held if held >= 0 else operator if operator >= 0 else -launch - 2, []).append(launch)
    return groups


def _calls(trace: Trace, nesting: Nesting, groups: dict[int, list[int]], launches: pd.DataFrame) -> list[Call]:
    known = np.array([one for one in groups if one >= 0], dtype=np.int64)
    frame = owners.own_operators(trace, nesting, known)
    columns = {name: frame[name].astype(object).tolist() for name in ("module", "type", "direction", "range")}
    numbers = {name: frame[name].fillna(-1).astype(int).tolist() for name in ("call", "sequence")}
    of = {int(one): row for row, one in enumerate(known)}
    ns = launches["ns"].to_numpy(dtype=float) if len(launches) else np.zeros(0)
    updating = _updating(trace, known)
    crossing = launches["name"].astype(str).str.contains(CROSSING).to_numpy() if len(launches) else np.zeros(0, bool)
    own, kinds = nests.exclusive_ns(trace, nesting.parent), nests.classify_operators(trace)
    found = []
    for place, (operator, mine) in enumerate(groups.items()):
        if operator < 0:
            found.append(_unknown(place, mine, float(ns[mine].sum())))
            continue
        row = of[operator]
        name, around, outer = trace.texts[trace.operators["name"][operator]], *_around(trace, nesting, kinds, operator)
        inputs = trace.operators["inputs"][operator]
        dims, types, values, strides = trace.inputs[inputs] if inputs >= 0 else ((), (), (), ())
        found.append(
            Call(
                place=place,
                operator=name.removeprefix(ATEN),
                effects=NOTHING if crossing[mine].any() else call_effects(name, dims, types, values, strides),
                values=tuple(map(str, values)),
                around=around,
                outer=outer,
                module=str(columns["module"][row]),
                type=str(columns["type"][row]),
                direction=str(columns["direction"][row]),
                range=str(columns["range"][row]),
                instance=numbers["call"][row],
                sequence=numbers["sequence"][row],
                updates=bool(updating[row]),
                ns=float(ns[mine].sum()) if mine else float(own[operator]),
                launches=tuple(mine),
                began=int(trace.operators["start"][operator]),
            )
        )
    return found


def _unknown(place: int, mine: Sequence[int], ns: float) -> Call:
    return Call(place, "", NOTHING, (), (), (), "", "", -1, "", "", -1, False, ns, tuple(mine))


def _updating(trace: Trace, known: np.ndarray) -> np.ndarray:
    """Return flags of the operators that began while an optimizer's `step` ran."""
    starts, ends = _optimizer_ranges(trace)
    began = trace.operators["start"][known]
    last = np.searchsorted(starts, began, side="right") - 1
    return (last >= 0) & (began < np.append(ends, -1)[last])


def _optimizer_ranges(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Return begin and end of each `step` of an optimizer of torch."""
    chosen = np.array([text.startswith(OPTIMIZER) for text in trace.texts] + [False])
    ranges = np.flatnonzero(chosen[trace.ranges["name"]])
    ranges = ranges[np.argsort(trace.ranges["start"][ranges], kind="stable")]
    starts = trace.ranges["start"][ranges]
    return starts, np.maximum.accumulate(starts + trace.ranges["ns"][ranges])


def _around(
    trace: Trace, nesting: Nesting, kinds: np.ndarray, operator: int
) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Return the names of the operators around one within its module or node, and the outermost one's input shapes."""
    names: list[str] = []
    outermost, above = operator, int(nesting.parent[operator])
    while above >= 0 and kinds[above] not in (nests.MARK, nests.NODE, nests.SUM) and len(names) < DEEPEST:
        names.append(trace.texts[trace.operators["name"][above]])
        outermost, above = above, int(nesting.parent[above])
    return tuple(reversed(names)), gradients.parse_shapes(trace.texts[trace.operators["shapes"][outermost]])
