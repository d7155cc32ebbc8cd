"""Finds a module that one step calls many times on small inputs: small batches, or steps of a recurrence.

Calls count as independent of each other if each works on something that was there before the first of them, and as a
recurrence if the module is a recurrent cell, or computes products with sigmoid and tanh. A loop in which the next input
is chosen from the last output, as when text is generated, is neither.
"""

from collections.abc import Iterator, Mapping, Sequence

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import Chain, backward_calls
from profzoo.fusion.loops import longest_repetition, product_flop
from profzoo.fusion.values import NONE, Flow
from profzoo.op_costs.tensor_effects import COPY, GATHER, OPAQUE, PRODUCT

BATCHES, TIMES = "loop over small batches", "loop over time steps"
# Fewer repetitions are not worth a change.
LEAST = 6
# Operators that choose the next input, in a loop that generates something.
CHOOSING = ("argmax", "topk", "sort", "multinomial", "nonzero")
CELL = "_cell"
# Kinds of work that compute nothing.
MOVING = (COPY, GATHER)


def find_repeated_calls(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield calls of a module that could be one call, and recurrences, forward and backward."""
    found: set[int] = set()
    for instances in _instances(flow, taken).values():
        if len(instances) < LEAST or not _alike(instances) or found & {call.place for call in instances[0]}:
            continue
        calls = [call for own in instances for call in own]
        between = flow.calls[calls[0].place : calls[-1].place]
        if any(call.operator in CHOOSING for call in between):
            continue
        recurrent = _is_recurrent(instances[0])
        if recurrent or not _depends(flow, instances):
            found |= {call.place for call in calls}
            yield from _chains(flow, calls, len(instances), recurrent, taken)
    for calls, times in _loops(flow, taken | found):
        yield from _chains(flow, calls, times, True, taken)


def _instances(flow: Flow, taken: frozenset[int]) -> Mapping[str, list[list[Call]]]:
    """Return the forward calls of each module with all that is in it, by call of the module; outer modules first."""
    found: dict[str, dict[int, list[Call]]] = {}
    for call in flow.calls:
        if call.place not in taken and call.direction == "forward" and not call.updates:
            found.setdefault(call.module, {}).setdefault(call.instance, []).append(call)
    whole: dict[str, list[list[Call]]] = {}
    for module in sorted({outer for inner in found for outer in _around(inner)}, key=lambda one: one.count(".")):
        inside = [calls for inner, calls in found.items() if module in _around(inner)]
        numbers = set(inside[0])
        # What is called another number of times is called by itself, too.
        if all(set(calls) == numbers for calls in inside):
            whole[module] = [sorted((call for calls in inside for call in calls[number]), key=_place)
                             for number in sorted(numbers)]  # fmt: skip
    return whole


def _place(call: Call) -> int:
    return call.place


def _around(module: str) -> list[str]:
    """Return the paths of a module and of those around it, but for the whole network.

    >>> _around("blocks.0.up"), _around("(root)")
    (['blocks', 'blocks.0', 'blocks.0.up'], ['(root)'])
    """
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _alike(instances: Sequence[Sequence[Call]]) -> bool:
    """Return whether the calls run the same operators on the same shapes, with a product among them."""
    kinds = {tuple((call.operator, call.outer) for call in own) for own in instances[1:]}
    busy = any(call.kind == PRODUCT or (call.kind == OPAQUE and len(call.reads) > 1) for call in instances[0])
    return len(kinds) == 1 and busy


def _is_recurrent(calls: Sequence[Call]) -> bool:
    names = {call.operator for call in calls}
    gates = any(name.startswith("sigmoid") for name in names) and any(name.startswith("tanh") for name in names)
    return (gates and any(call.kind == PRODUCT for call in calls)) or any(CELL in name for name in names)


def _depends(flow: Flow, instances: Sequence[Sequence[Call]]) -> bool:
    """Return whether a call may work on what was computed since the first call began.

    Its first operator has to work on something older instead, which may have been copied or gathered in between.
    """
    first = instances[0][0].place
    for own in instances[1:]:
        waiting = _data_maker(flow, own[0])
        while recent := {place for place in waiting if place > first}:
            if any(flow.calls[place].kind not in MOVING for place in recent):
                return True
            waiting = {maker for place in recent for maker in flow.makers[place]} - {NONE}
    return False


def _data_maker(flow: Flow, call: Call) -> set[int]:
    """Return the maker of an operator's input that is no weight; of a product this is the last but one."""
    makers = flow.makers[call.place]
    return set(makers[-2:-1] if call.kind == PRODUCT else makers[:1]) - {NONE}


def _loops(flow: Flow, taken: frozenset[int]) -> Iterator[tuple[list[Call], int]]:
    """Yield the recurrences that run in one call of the network or of a module, operator by operator."""
    forward = [call for call in flow.calls if call.direction == "forward" and not call.updates]
    free = [call for call in forward if call.place not in taken]
    modules = sorted({outer for call in free for outer in _around(call.module)}, key=lambda one: one.count("."))
    found: set[int] = set()
    for module in (None, *modules):
        calls = [call for call in free if module is None or module in _around(call.module)]
        for own, times in _repetitions(calls):
            if _is_recurrent(own[: len(own) // times]) and not found & set(map(_place, own)):
                found |= set(map(_place, own))
                yield own, times


def _repetitions(calls: list[Call]) -> Iterator[tuple[list[Call], int]]:
    """Yield all repetitions of operators in some calls, as layers have one each: the longest, and those around it."""
    begin, period, times = longest_repetition([call.operator for call in calls])
    if times < LEAST:
        return
    end = begin + period * times
    yield calls[begin:end], times
    yield from _repetitions(calls[:begin])
    yield from _repetitions(calls[end:])


def _chains(flow: Flow, calls: Sequence[Call], times: int, recurrent: bool, taken: frozenset[int]) -> Iterator[Chain]:
    for own in (tuple(calls), backward_calls(flow, calls, taken)):
        if not own:
            continue
        launches = sum(call.count for call in own)
        # A recurrence keeps a kernel per time step, as each needs what the one before has made.
        left = float(times) if recurrent else launches / times
        pattern = TIMES if recurrent else BATCHES
        moved = sum(call.effects.bytes for call in own)
        if left < launches:
            yield Chain(pattern, own, float(moved), left, flop=float(sum(map(product_flop, own))))
