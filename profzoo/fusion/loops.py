"""Finds loops over parts that could be computed together: experts of a mixture, and heads of an attention.

Modules of a list that a module calls one after the other are experts if it picks rows between the calls, and heads if
each computes an attention and their results are put beside each other. Layers of a stack are called in the same way,
without either. In one call of a module, operators are a loop over experts if they find and multiply rows several times,
and a repeated sequence of them is a loop over heads if it has two products and a softmax; loops over time steps have
neither.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from profzoo.fusion.calls import NONE, Call, Flow
from profzoo.fusion.chains import BACKWARD, Chain, backward_calls
from profzoo.op_costs.tensor_effects import COPY, GATHER, OPAQUE, PRODUCT, SCATTER
from profzoo.range_names import FORWARD

EXPERTS, HEADS = "loop over experts", "loop over heads"
# Fewer repetitions are not worth a batched kernel.
LEAST = 4
LONGEST = 48
PICKING = (GATHER, SCATTER)
# What finds the rows of an expert.
FINDING = "nonzero"


def find_loops(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield loops over experts and over heads, forward and backward."""
    for pattern, calls, times in (*_lists(flow, taken), *_repeated(flow, taken)):
        yield _batched(pattern, calls, times)
        if behind := backward_calls(flow, calls, taken):
            yield _batched(pattern, _with_between(flow, behind, taken), times)


def _with_between(flow: Flow, behind: Sequence[Call], taken: frozenset[int]) -> Sequence[Call]:
    """Return the backward pass of a loop with what runs between its calls, if these are most of what runs there.

    Weights that are picked for each repetition get their gradients by operators that no sequence number ties to the
    loop: zeros for the weights of all repetitions, and sums of them.
    """
    inside = flow.calls[behind[0].place : behind[-1].place + 1]
    free = [call for call in inside if call.place not in taken and call.direction == BACKWARD]
    return free if len(free) <= 2 * len(behind) else behind


def _batched(pattern: str, calls: Sequence[Call], times: int) -> Chain:
    """Return the chain of a loop: batched, it moves and computes as much, in fewer launches by the number of times."""
    moved = sum(call.effects.bytes for call in calls)
    launches = sum(call.count for call in calls) / times
    return Chain(pattern, tuple(calls), float(moved), launches, flop=float(sum(map(product_flop, calls))))


def product_flop(call: Call) -> int:
    """Return the operations of a matrix product; 0 of other calls."""
    if call.kind != PRODUCT or len(call.reads) < 2 or not call.writes:
        return 0
    return 2 * call.writes[0].elements * call.reads[-2].shape[-1]


def _lists(flow: Flow, taken: frozenset[int]) -> Iterator[tuple[str, list[Call], int]]:
    """Yield pattern, calls and number of the members of lists of modules that are experts or heads."""
    lists: dict[str, dict[int, list[Call]]] = {}
    for call in flow.calls:
        if call.place not in taken and call.direction != BACKWARD and not call.updates:
            for path, number in _numbered(call.module):
                lists.setdefault(path, {}).setdefault(number, []).append(call)
    for path, members in lists.items():
        if len(members) < LEAST:
            continue
        first, last = (edge(call.place for own in members.values() for call in own) for edge in (min, max))
        owners = {path, path.rpartition(".")[0] or "(root)"}
        between = [call for call in flow.calls[max(first - 4, 0) : last + 4] if call.module in owners]
        picks = [call for call in between if call.kind in PICKING and call.place not in taken]
        joined = [call for call in between if call.place > last and _joins(call, len(members))]
        if not _alike(list(members.values())):
            continue
        inside = [call for own in members.values() for call in own]
        here = [call for call in between if first <= call.place <= last and call.place not in taken]
        if len(picks) >= len(members) // 2:
            yield EXPERTS, _ordered((*inside, *here, *picks)), len(members)
        elif joined and all(any(map(_attends, own)) for own in members.values()):
            yield HEADS, _ordered((*inside, *here)), len(members)


def _ordered(calls: Iterable[Call]) -> list[Call]:
    return sorted({call.place: call for call in calls}.values(), key=_place)


def _joins(call: Call, number: int) -> bool:
    """Return whether a call puts so many tensors beside each other."""
    return call.operator == "cat" and len(call.reads) == number


def _attends(call: Call) -> bool:
    return call.operator == "_softmax" or "attention" in call.operator


def _place(call: Call) -> int:
    return call.place


def _numbered(module: str) -> list[tuple[str, int]]:
    """Return the paths of the lists of modules that a module is in, and which one of each it is or belongs to.

    >>> _numbered("blocks.2.experts.11.up"), _numbered("head")
    ([('blocks', 2), ('blocks.2.experts', 11)], [])
    """
    parts = module.split(".")
    return [(".".join(parts[:place]), int(part)) for place, part in enumerate(parts) if part.isdigit() and place]


def _alike(members: Sequence[Sequence[Call]]) -> bool:
    """Return whether most members run the same operators."""
    kinds = [tuple(call.operator for call in own) for own in members]
    return max(map(kinds.count, kinds)) * 2 >= len(kinds) and any(call.kind == PRODUCT for call in members[0])


def _repeated(flow: Flow, taken: frozenset[int]) -> Iterator[tuple[str, list[Call], int]]:
    """Yield pattern, calls and number of the repetitions of operators in one call of a module."""
    own: dict[tuple[str, int], list[Call]] = {}
    for call in flow.calls:
        if call.place not in taken and call.direction != BACKWARD and not call.updates:
            own.setdefault((call.module, call.instance), []).append(call)
    for calls in own.values():
        begin, period, times = longest_repetition([call.operator for call in calls])
        body = calls[begin : begin + period]
        products = sum(call.kind == PRODUCT for call in body)
        whole = calls[begin : begin + period * times]
        if times >= LEAST and products == 2 and sum(map(_attends, body)) == 1:
            yield HEADS, whole, times
        elif (rounds := _rounds_of_experts(calls))[1] >= LEAST:
            yield EXPERTS, *rounds


def _rounds_of_experts(calls: Sequence[Call]) -> tuple[list[Call], int]:
    """Return the calls from the first search for rows to the last product's result, and after how many one multiplies.

    An expert that no row chose has no product.
    """
    found = [place for place, call in enumerate(calls) if call.operator == FINDING]
    rounds = [calls[begin:end] for begin, end in pairwise([*found, len(calls)])]
    busy = [any(call.kind == PRODUCT for call in own) for own in rounds]
    if not any(busy):
        return [], 0
    # What finds the rows of an expert compares numbers first.
    begin = max(found[0] - 1, 0)
    last = max(place for place, call in enumerate(calls) if call.kind in (PRODUCT, SCATTER) and place > begin)
    return list(calls[begin : last + 1]), sum(busy)


def longest_repetition(names: Sequence[str]) -> tuple[int, int, int]:
    """Return begin, length and number of the repetitions of a sequence that cover most of some names.

    >>> longest_repetition(["x", "a", "b", "a", "b", "a", "b", "y"])
    (1, 2, 3)
    """
    best = (0, 0, 0)
    for period in range(1, min(LONGEST, len(names) // 2) + 1):
        run = 0
        for place in range(len(names) - period):
            run = run + 1 if names[place] == names[place + period] else 0
            times = run // period + 1
            if times > 1 and times * period > best[1] * best[2]:
                best = (place + 1 - run, period, times)
    return best


# Finds a module that one step calls many times on small inputs: small batches, or steps of a recurrence.
#
# Calls count as independent of each other if each works on something that was there before the first of them, and as a
# recurrence if the module is a recurrent cell, or computes products with sigmoid and tanh. A loop in which the next
# input is chosen from the last output, as when text is generated, is neither.

BATCHES, TIMES = "loop over small batches", "loop over time steps"
# Fewer repetitions are not worth a change.
LEAST_CALLS = 6
# Operators that choose the next input, in a loop that generates something.
CHOOSING = ("argmax", "topk", "sort", "multinomial", "nonzero")
CELL = "_cell"
# Kinds of work that compute nothing.
MOVING = (COPY, GATHER)


def find_repeated_calls(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield calls of a module that could be one call, and recurrences, forward and backward."""
    found: set[int] = set()
    for instances in _instances(flow, taken).values():
        if len(instances) < LEAST_CALLS or not _alike_calls(instances) or found & {call.place for call in instances[0]}:
            continue
        calls = [call for own in instances for call in own]
        between = flow.calls[calls[0].place : calls[-1].place]
        if any(call.operator in CHOOSING for call in between):
            continue
        recurrent = _is_recurrent(instances[0])
        if recurrent or not _depends(flow, instances):
            found |= {call.place for call in calls}
            yield from _chains(flow, calls, len(instances), recurrent, taken)
    for calls, times in _call_loops(flow, taken | found):
        yield from _chains(flow, calls, times, True, taken)


def _instances(flow: Flow, taken: frozenset[int]) -> Mapping[str, list[list[Call]]]:
    """Return the forward calls of each module with all that is in it, by call of the module; outer modules first."""
    found: dict[str, dict[int, list[Call]]] = {}
    for call in flow.calls:
        if call.place not in taken and call.direction in FORWARD and not call.updates:
            found.setdefault(call.module, {}).setdefault(call.instance, []).append(call)
    whole: dict[str, list[list[Call]]] = {}
    for module in sorted({outer for inner in found for outer in _around(inner)}, key=lambda one: one.count(".")):
        inside = [calls for inner, calls in found.items() if module in _around(inner)]
        numbers = set(inside[0])
        # What is called another number of times is called by itself, too.
        if all(set(calls) == numbers for calls in inside):
            whole[module] = [sorted((call for calls in inside for call in calls[number]), key=_call_place)
                             for number in sorted(numbers)]  # fmt: skip
    return whole


def _call_place(call: Call) -> int:
    return call.place


@lru_cache(maxsize=1 << 14)
def _around(module: str) -> tuple[str, ...]:
    """Return the paths of a module and of those around it, but for the whole network.

    >>> _around("blocks.0.up"), _around("(root)")
    (('blocks', 'blocks.0', 'blocks.0.up'), ('(root)',))
    """
    parts = module.split(".")
    return tuple(".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _alike_calls(instances: Sequence[Sequence[Call]]) -> bool:
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
    """Return the maker of an operator's input that is not a weight; of a product this is the last but one."""
    makers = flow.makers[call.place]
    return set(makers[-2:-1] if call.kind == PRODUCT else makers[:1]) - {NONE}


def _call_loops(flow: Flow, taken: frozenset[int]) -> Iterator[tuple[list[Call], int]]:
    """Yield the recurrences that run in one call of the network or of a module, operator by operator."""
    forward = [call for call in flow.calls if call.direction in FORWARD and not call.updates]
    free = [call for call in forward if call.place not in taken]
    modules = sorted({outer for call in free for outer in _around(call.module)}, key=lambda one: one.count("."))
    found: set[int] = set()
    for module in (None, *modules):
        calls = [call for call in free if module is None or module in _around(call.module)]
        for own, times in _repetitions(calls):
            if _is_recurrent(own[: len(own) // times]) and not found & set(map(_call_place, own)):
                found |= set(map(_call_place, own))
                yield own, times


def _repetitions(calls: list[Call]) -> Iterator[tuple[list[Call], int]]:
    """Yield all repetitions of operators in some calls, as layers have one each: the longest, and those around it."""
    begin, period, times = longest_repetition([call.operator for call in calls])
    if times < LEAST_CALLS:
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
