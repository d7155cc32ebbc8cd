"""Finds work in fp64 that began where an fp64 tensor met a narrower one, by which the result became fp64 too.

A program that casts to fp64, or all of whose numbers are fp64 from the beginning, asks for fp64; nothing is said of it.
"""

from collections.abc import Iterator

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import Chain
from profzoo.fusion.values import Flow
from profzoo.op_costs.tensor_effects import COPY, FLOATING, PRODUCT

# Where fp64 enters, and the work that follows from it.
ENTRY, DOUBLE = "start of double precision", "double precision"
WIDE = ("double", "c10::complex<double>")


def find_double(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield work in fp64, a chain per module, call and direction; of the first such calls, the ones where it enters."""
    first = next((call for call in flow.calls if _makes_wide(call)), None)
    if first is None or not _enters(first):
        return
    entry = first.place
    groups: dict[tuple[str, int, str], list[Call]] = {}
    for call in flow.calls[entry:]:
        if call.place not in taken and _is_wide(call):
            groups.setdefault((call.module, call.instance, call.direction), []).append(call)
    for calls in groups.values():
        pattern = ENTRY if calls[0].place == entry else DOUBLE
        yield _narrowed(pattern, calls)


def _narrowed(pattern: str, calls: list[Call]) -> Chain:
    """Return the chain of calls that would work on half of the bytes; changes to fp64 and back need not be done."""
    casts = [call for call in calls if _is_cast(call)]
    rest = [call for call in calls if not _is_cast(call)]
    products = sum(call.ns for call in rest if call.kind == PRODUCT)
    moved = sum(_halved(call) for call in rest)
    launches = sum(call.count for call in rest)
    return Chain(pattern, tuple(sorted((*rest, *casts), key=lambda call: call.place)), moved, launches,
                 kept_ns=products, narrowed=True)  # fmt: skip


def _halved(call: Call) -> float:
    tensors = (*call.reads, *call.writes)
    return float(sum(one.bytes / (2 if one.kind in WIDE else 1) for one in tensors))


def _is_wide(call: Call) -> bool:
    return any(one.kind in WIDE and one.elements > 1 for one in (*call.reads, *call.writes))


def _is_cast(call: Call) -> bool:
    """Return whether a call changes a tensor's type to fp64 or back."""
    kinds = {one.kind in WIDE for one in (*call.reads[:1], *call.writes[:1]) if one.elements > 1}
    return call.kind == COPY and call.operator == "copy_" and len(kinds) > 1


def _enters(call: Call) -> bool:
    """Return whether a call that makes fp64 reads both fp64 and something narrower that is floating-point."""
    kinds = {one.kind in WIDE for one in call.reads if one.elements > 1 and one.kind in FLOATING}
    return len(kinds) > 1


def _makes_wide(call: Call) -> bool:
    return any(one.kind in WIDE and one.elements > 1 for one in call.writes)
