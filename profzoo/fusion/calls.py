"""Lists the operators of one traced step that do work: what they read and write, their layer, their launches."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from profzoo.op_costs.operator_calls import LISTED, Shape, find_listed_type
from profzoo.op_costs.tensor_effects import (
    ATEN,
    COPY,
    FUSIBLE,
    LISTS,
    OPAQUE,
    PRODUCT,
    Effects,
    Tensor,
    call_effects,
    kind_of,
)
from profzoo.range_names import DOMAIN, FORWARD, original_name, parse_module_range
from profzoo.tools.nsys.events.intervals import find_open
from profzoo.tools.torch import nesting as nests
from profzoo.tools.torch import owners
from profzoo.tools.torch.nesting import ACCUMULATE, Nesting
from profzoo.tools.torch.trace import Trace

# Finds when a backward pass computes gradients that nobody uses, by where autograd stores them and what is updated.
#
# Autograd stores a parameter's gradient in a node of its own, AccumulateGrad, right after the node that computed it. If
# the parameter had no gradient it takes the new one as it is; otherwise it adds up. A gradient is unused if
#
# - no optimizer updates a parameter of its shape in the whole step, although there are optimizers, or
# - its network has no part in the updates that follow the backward pass, and the next backward pass finds no gradient
#   there: it was forgotten in between.
#
# What runs in a backward pass after its last gradient that may be used leads to unused gradients only. What runs before
# may be needed for later ones and is not counted.

# How operators are named by which autograd adds a gradient to an earlier one.
ADDING = ("aten::add", "aten::add_")
# Networks that only training needs have paths that begin so.
OTHERS = "(others)."


@dataclass(frozen=True)
class Update:
    """A step of an optimizer: when it began, in ns; the shapes of all that it writes, and of its parameters.

    A trace does not tell the shapes of long lists of tensors; both are then None.
    """

    began: int
    written: Collection[Shape] | None
    parameters: Sequence[Shape] | None


@dataclass(frozen=True)
class Stored:
    """A gradient that autograd has stored.

    Attributes:
        began: when, in ns. module, shape: of its parameter. fresh: whether the parameter had none before.
    """

    began: int
    module: str
    shape: Shape
    fresh: bool

    @property
    def key(self) -> tuple[str, Shape]:
        """Return what stands for the parameter."""
        return self.module, self.shape

    @property
    def network(self) -> str:
        """Return the name of a network that only training needs; empty for the network itself."""
        first = self.module.removeprefix(OTHERS).partition(".")[0]
        # Networks of a script beside the first one go by their class.
        return first if self.module.startswith(OTHERS) or first[:1].isupper() else ""


def find_unused_times(
    stored: Sequence[Stored], updates: Sequence[Update], forward: Sequence[int]
) -> list[tuple[int, int]]:
    """Return begin and end, in ns, of the times in which a step computes gradients that nobody uses.

    Args:
        stored: the step's gradients, in order.
        updates: of optimizers in the step; without any nothing is said, as a later step may use the gradients.
        forward: when operators of the forward pass began, which tell backward passes apart.

    >>> stored = [Stored(1, "head", (8, 2), True), Stored(3, "body", (8, 8), True), Stored(5, "body", (8, 4), True)]
    >>> find_unused_times(stored, [Update(9, {(8, 2)}, [(8, 2)])], [0])
    [(1, 5)]
    """
    if not updates:
        return []
    # Where the trace does not tell what is updated, it may be everything.
    unknown = any(one.written is None for one in updates)
    used = {shape for one in updates for shape in one.written or ()}
    passes = _passes(stored, sorted({*forward, *(one.began for one in updates)}))
    found = []
    for place, own in enumerate(passes):
        # The step after this one begins as this one does.
        following = passes[(place + 1) % len(passes)]
        until = following[0].began if place + 1 < len(passes) else np.inf
        after = [one.parameters for one in updates if own[-1].began < one.began < until]
        updated = Counter(shape for shapes in after for shape in shapes or ())
        known = bool(updated) and None not in after and len(passes) > 1
        forgotten = _forgotten(own, following, updated) if known else set()
        useful = [one.began for one in own if (unknown or one.shape in used) and one.key not in forgotten]
        if useful and own[-1].began > useful[-1]:
            found.append((useful[-1], own[-1].began))
    return found


def _passes(stored: Sequence[Stored], marks: Sequence[int]) -> list[list[Stored]]:
    """Return the gradients of each backward pass; marks: when other work began."""
    groups: dict[int, list[Stored]] = {}
    for one in stored:
        groups.setdefault(int(np.searchsorted(marks, one.began)), []).append(one)
    return [groups[key] for key in sorted(groups)]


def _forgotten(own: Sequence[Stored], following: Sequence[Stored], updated: Counter[Shape]) -> set[tuple[str, Shape]]:
    """Return the parameters of networks that are not updated after a backward pass and have no gradient in the next."""
    fresh: dict[tuple[str, Shape], bool] = {}
    for one in following:
        fresh.setdefault(one.key, one.fresh)
    found: set[tuple[str, Shape]] = set()
    for network in {one.network for one in own}:
        mine = [one for one in own if one.network == network]
        if Counter(one.shape for one in mine) - updated and all(fresh.get(one.key, False) for one in mine):
            found |= {one.key for one in mine}
    return found


def list_stored(trace: Trace, nesting: Nesting, first: int, last: int) -> list[Stored]:
    """Return the gradients that autograd stores between two times (ns), in order."""
    places = _named(trace, (ACCUMULATE,))
    began = trace.operators["start"][places]
    places = places[(began >= first) & (began <= last)]
    places = places[np.argsort(trace.operators["start"][places], kind="stable")]
    modules = owners.own_operators(trace, nesting, places)["module"].astype(str)
    added = set(nesting.parent[_named(trace, ADDING)].tolist())
    found = []
    for place, module in zip(places.tolist(), modules, strict=True):
        shapes = parse_shapes(trace.texts[trace.operators["shapes"][place]])
        if shapes:
            found.append(Stored(int(trace.operators["start"][place]), module, shapes[0], place not in added))
    return found


def _named(trace: Trace, names: Sequence[str]) -> np.ndarray:
    """Return the indices of the operators with one of these names."""
    chosen = np.array([text in names for text in trace.texts] + [False])
    return np.flatnonzero(chosen[trace.operators["name"]])


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Return shapes from their text in a trace; a list of tensors has none.

    >>> parse_shapes("[[4, 8], [], [[2], [3]]]")
    ((4, 8), (), ())
    """
    if not text:
        return ()
    found = json.loads(text)
    return tuple(tuple(one) if all(type(size) is int for size in one) else () for one in found)


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

    @cached_property
    def flow(self) -> "Flow":
        """What the calls hand to each other."""
        return Flow(self.calls)


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
    forward = [call.began for call in calls if call.direction in FORWARD]
    stored = list_stored(trace, nesting, first, last) if updates else []
    unused = find_unused_times(stored, updates, forward)
    return [
        replace(call, discarded=True)
        if call.direction == "backward" and any(begin < call.began < end for begin, end in unused)
        else call
        for call in calls
    ]


def _updates(calls: Sequence[Call], trace: Trace, first: int, last: int) -> list[Update]:
    """Return the updates by optimizers between two times (ns)."""
    found = []
    for begin, end in zip(*_optimizer_ranges(trace), strict=True):
        own = [call for call in calls if call.updates and begin <= call.began <= end]
        if not first <= begin <= last:
            continue
        if not own or any(call.kind == LISTS and not call.writes for call in own) or not own[-1].writes:
            found.append(Update(int(begin), None, None))
            continue
        # The last operation is the one on the parameters.
        final = [call for call in own if call.operator == own[-1].operator]
        written, parameters = ([one.shape for call in some for one in call.writes] for some in (own, final))
        found.append(Update(int(begin), set(written), parameters))
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
    names = launches["name"].astype(str) if len(launches) else pd.Series(dtype=str)
    crossing = names.str.contains(CROSSING).to_numpy(dtype=bool)
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
        listed = find_listed_type(names[mine[0]]) if len(mine) else LISTED
        found.append(
            Call(
                place=place,
                operator=name.removeprefix(ATEN),
                effects=NOTHING if crossing[mine].any() else call_effects(name, dims, types, values, strides, listed),
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
    return find_open(began, starts, ends) >= 0


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
    return tuple(reversed(names)), parse_shapes(trace.texts[trace.operators["shapes"][outermost]])


# Finds which call of a step made the tensor that another call reads.
#
# A trace holds shapes and types of tensors, but not which tensor is which. A tensor that is read is taken to be the
# last one made with as many elements of its type that nobody has read so far, first of all one with rows as long. If
# all of them were read, it is the last one that was read by work which could be fused, such as a residual sum or a
# normalisation, because these values are the ones that programs read again. Views change shapes but not the number of
# elements; the maker of a part of a larger tensor remains unknown. Forward and backward pass are told apart.

NONE = -1
LINEAR = "aten::linear"
SUMS = ("add", "add_")
# So many calls are looked at that a sum's input comes from.
DEEPEST_VALUE = 12
# A value that was made by so many calls ago is no longer looked for.
OLDEST = 400
# Of values alike, so many are remembered.
REMEMBERED = 16
Key = tuple[int, str]


@dataclass
class _Value:
    maker: int
    shape: Shape
    read: int = 0
    fused: int = 0


class Flow:
    """The calls of a step and what they hand to each other.

    Attributes:
        calls: in order. makers: per call and tensor that it reads the place of its maker, NONE where it is unknown.
        readers: per call the places of the calls that read what it made.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        """Match reads with what was made before."""
        self.calls = calls
        self.makers: list[tuple[int, ...]] = []
        self.readers: list[list[int]] = [[] for _ in calls]
        held: dict[tuple[bool, Key], list[_Value]] = {}
        for call in calls:
            backward = call.direction == "backward"
            taken: set[int] = set()
            known = [held.get((backward, _key(tensor)), []) for tensor in call.reads]
            if LINEAR in call.around and call.kind == PRODUCT:
                # The last input is the weight, or what a change of type made of it.
                turned = call.reads[-1].shape[::-1]
                known[-1] = [one for one in known[-1] if one.shape == turned and calls[one.maker].kind == COPY]
            found: tuple[int, ...] = ()
            for tensor, values in zip(call.reads, known, strict=True):
                found += (_find_maker(call, tensor, values, taken),)
                if call.operator in SUMS:
                    # A residual sum adds something else than what its other input was computed from.
                    taken |= self._origins(found[-1])
            self.makers.append(found)
            for maker in set(found) - {NONE}:
                self.readers[maker].append(call.place)
            for tensor in call.writes:
                values = held.setdefault((backward, _key(tensor)), [])
                values.append(_Value(call.place, tensor.shape))
                del values[:-REMEMBERED]

    def _origins(self, place: int) -> set[int]:
        """Return the calls that a result was computed from element by element, up to one that could not be fused."""
        found: set[int] = set()
        waiting = [place]
        while waiting and len(found) < DEEPEST_VALUE:
            one = waiting.pop()
            if one != NONE and self.calls[one].fusible:
                size = max((tensor.elements for tensor in self.calls[one].writes), default=0)
                alike = zip(self.calls[one].reads, self.makers[one], strict=True)
                more = {maker for tensor, maker in alike if tensor.elements == size and maker != NONE} - found
                found |= more
                waiting += more
        return found


def _find_maker(call: Call, tensor: Tensor, values: Sequence[_Value], taken: set[int]) -> int:
    """Return the maker of a tensor; taken: makers of the call's other tensors, to which this one is added."""
    if tensor.elements <= 1 or tensor.part:
        return NONE
    known = [one for one in reversed(values) if call.place - one.maker <= OLDEST and one.maker not in taken]
    unread, again = [one for one in known if not one.read], [one for one in known if one.fused]
    alike = [one for one in (*unread, *again) if one.shape[-1:] == tensor.shape[-1:]]
    chosen = next(iter((*alike, *unread, *again, *known)), None)
    if chosen is None:
        return NONE
    chosen.read += 1
    chosen.fused += call.fusible
    taken.add(chosen.maker)
    return chosen.maker


def _key(tensor: Tensor) -> Key:
    return tensor.elements, tensor.kind


def external_bytes(flow: Flow, places: Sequence[int]) -> tuple[float, float]:
    """Return the bytes that calls read from outside and write for others, each tensor once.

    What no call reads is taken to be read later. A tensor of unknown origin is the same as one that another call reads
    with its shape and type.
    """
    inside = set(places)
    read: dict[object, int] = {}
    written = 0
    for place in places:
        call = flow.calls[place]
        alike: Counter[object] = Counter()
        for tensor, maker in zip(call.reads, flow.makers[place], strict=True):
            if maker not in inside:
                own = tensor.shape, tensor.kind
                alike[own] += 1
                name = maker if maker != NONE else (own, alike[own])
                read[name] = max(read.get(name, 0), tensor.bytes)
        readers = flow.readers[place]
        if call.writes and (not readers or not inside.issuperset(readers)):
            written += call.writes[0].bytes
    return float(sum(read.values())), float(written)
