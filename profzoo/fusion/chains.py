"""Says what a chain is, and finds all chains of a step: known patterns first, then what else could be fused."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from profzoo.fusion.calls import NONE, Call, Flow, external_bytes
from profzoo.op_costs.tensor_effects import FILL, NORM

BACKWARD = "backward"
# A chain of no known pattern.
OTHER = "elementwise chain"


@dataclass(frozen=True)
class Chain:
    """Calls that fewer kernels could do together.

    Attributes:
        pattern: what they compute, OTHER if that is not known.
        calls: the calls, in order.
        fused_bytes: bytes that remain when they are fused.
        fused_launches: kernels that remain, 0 if nothing has to be done at all.
        kept_ns: time of matrix products among them, which fusing does not shorten.
        flop: operations of these products if a batched kernel replaces many small ones, else 0.
        narrowed: whether the calls remain, in single instead of double precision.
        bytes_between: least and most bytes that may remain, if a trace does not show how many.
    """

    pattern: str
    calls: tuple[Call, ...]
    fused_bytes: float
    fused_launches: float = 1.0
    kept_ns: float = 0.0
    flop: float = 0.0
    narrowed: bool = False
    bytes_between: tuple[float, float] | None = None

    @property
    def bytes(self) -> int:
        """Return the bytes that the calls read and write now."""
        return sum(call.effects.bytes for call in self.calls)

    @property
    def launches(self) -> int:
        """Return the number of launches now."""
        return sum(call.count for call in self.calls)

    @property
    def ns(self) -> float:
        """Return the GPU time of the calls now."""
        return sum(call.ns for call in self.calls)


# Of a step and the places that other chains have taken, the chains of one or more patterns.
Finder = Callable[[Flow, frozenset[int]], Iterable[Chain]]


def find_chains(flow: Flow, finders: Sequence[Finder]) -> list[Chain]:
    """Return the chains of a step; a call is in one chain at most, the one of the first finder that takes it."""
    taken: set[int] = set()
    found: list[Chain] = []
    for finder in (*finders, find_others):
        for chain in finder(flow, frozenset(taken)):
            places = {call.place for call in chain.calls}
            if not places & taken:
                taken |= places
                found.append(chain)
    return sorted(found, key=lambda chain: chain.calls[0].place)


def find_others(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield chains of no known pattern: calls in a row, with no matrix product between, that hand on what they make."""
    for run in fusible_runs(flow, taken):
        for places in connected_parts(flow, run):
            calls = tuple(flow.calls[place] for place in places)
            if len(places) < 2 or sum(call.count for call in calls) < 2:
                continue
            again = sum(call.reads[0].bytes for call in calls if reads_twice(call))
            more = sum(reads_twice(call) for call in calls)
            chain = Chain(OTHER, calls, sum(external_bytes(flow, places)) + again, 1.0 + more)
            if chain.fused_bytes < chain.bytes and chain.fused_launches <= chain.launches:
                yield chain


def reads_twice(call: Call) -> bool:
    """Return whether a normalisation reads its input again: for statistics of the batch, or gradients of weights."""
    batch = "batch_norm" in call.operator and call.values[5:6] == ("True",)
    return call.kind == NORM and (batch or call.operator.endswith("backward"))


def fusible_runs(
    flow: Flow, taken: frozenset[int], joins: Callable[[Call], bool] = lambda call: call.fusible
) -> Iterator[list[int]]:
    """Yield places of calls in a row that could be fused: of one part of the step, and with nothing else between.

    joins: whether a call may be part of a run.
    """
    run: list[int] = []
    for call in flow.calls:
        fits = joins(call) and call.place not in taken
        if run and (not fits or _place_of(flow.calls[run[-1]]) != _place_of(call)):
            yield run
            run = []
        if fits:
            run.append(call.place)
    if run:
        yield run


def _place_of(call: Call) -> tuple[str, bool]:
    return call.range, call.direction == BACKWARD


def connected_parts(flow: Flow, run: Sequence[int]) -> list[list[int]]:
    """Return the parts of a run whose calls read from each other, each in order; a fill is part of what reads it."""
    inside, part = set(run), {place: place for place in run}

    def root(place: int) -> int:
        while part[place] != place:
            place = part[place]
        return place

    for place in run:
        for maker in flow.makers[place]:
            if maker != NONE and maker in inside:
                part[root(place)] = root(maker)
    groups: dict[int, list[int]] = {}
    for place in run:
        groups.setdefault(root(place), []).append(place)
    return [places for places in groups.values() if any(flow.calls[place].kind != FILL for place in places)]


def backward_calls(flow: Flow, forward: Sequence[Call], taken: frozenset[int]) -> tuple[Call, ...]:
    """Return the calls of the backward pass that belong to these calls, with sums of gradients between them."""
    numbers = {call.sequence for call in forward if call.sequence >= 0}
    mine = [
        call
        for call in flow.calls
        if call.direction == BACKWARD and call.sequence in numbers and call.place not in taken
    ]
    if not mine:
        return ()
    sizes = {tensor.elements for call in mine for tensor in call.writes}
    between = [
        call
        for call in flow.calls[mine[0].place : mine[-1].place]
        if call.sequence < 0
        and call.operator in ("add", "add_")
        and call.place not in taken
        and call.writes
        and call.writes[0].elements in sizes
    ]
    return tuple(sorted((*mine, *between), key=lambda call: call.place))
