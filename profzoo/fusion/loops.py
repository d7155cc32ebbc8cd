"""Finds loops over parts that could be computed together: experts of a mixture, and heads of an attention.

Modules of a list that a module calls one after the other are experts if it picks rows between the calls, and heads if
each computes an attention and their results are put beside each other. Layers of a stack are called in the same way,
without either. In one call of a module, operators are a loop over experts if they find and multiply rows several times,
and a repeated sequence of them is a loop over heads if it has two products and a softmax; loops over time steps have
neither.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import BACKWARD, Chain, backward_calls
from profzoo.fusion.values import Flow
from profzoo.op_costs.tensor_effects import GATHER, PRODUCT, SCATTER

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
