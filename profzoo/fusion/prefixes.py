"""Finds generation without a cache: each round computes again, on a longer input, what the round before computed.

A round ends where the next input is chosen from scores. If the products of a round have more rows than those of the
round before, by as many each time, the first rows are the same as before wherever no row depends on those behind it.
With their keys and values kept, a round has to compute the new rows only, which read all keys and values.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import BACKWARD, Chain
from profzoo.fusion.repeated_calls import CHOOSING
from profzoo.fusion.values import Flow
from profzoo.op_costs.tensor_effects import PRODUCT, Tensor

PREFIXES = "repeated prefixes"
# Fewer rounds may be a coincidence.
LEAST = 3
# A round that adds a larger share of rows has mostly new work.
NEW = 0.25
Pair = tuple[Call, Call]


def find_repeated_prefixes(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield the calls of later rounds that work on rows of the rounds before; the new rows remain."""
    free = [call for call in flow.calls if call.place not in taken and call.direction != BACKWARD and not call.updates]
    for name in CHOOSING:
        pairs = _growing_rounds(_rounds(free, name))
        if pairs:
            calls = tuple(now for pair in pairs for before, now in pair if _grows(before, now))
            moved = sum(_left(before, now) for pair in pairs for before, now in pair if _grows(before, now))
            yield Chain(PREFIXES, calls, moved, float(sum(call.count for call in calls)))
            return


def _rounds(calls: Sequence[Call], name: str) -> list[list[Call]]:
    """Return the calls up to each choice by an operator of this name."""
    rounds: list[list[Call]] = [[]]
    for call in calls:
        rounds[-1].append(call)
        if call.operator == name:
            rounds.append([])
    return rounds[:-1]


def _growing_rounds(rounds: Sequence[Sequence[Call]]) -> list[list[Pair]]:
    """Return per round but the first its calls with those of the round before; none unless all grow by as much."""
    if len(rounds) < LEAST:
        return []
    pairs = [_align(*two) for two in pairwise(rounds)]
    added = [_added(own) for own in pairs]
    return pairs if added[0] and all(one == added[0] for one in added) else []


def _align(before: Sequence[Call], now: Sequence[Call]) -> list[Pair]:
    """Return calls of two rounds that correspond to each other, from their ends as far as the operators are alike."""
    found: list[Pair] = []
    for first, second in zip(reversed(before), reversed(now), strict=False):
        if first.module != second.module or len(first.reads) != len(second.reads) or first.kind != second.kind:
            break
        found.append((first, second))
    return found[::-1]


def _added(pairs: Sequence[Pair]) -> tuple[int, ...]:
    """Return the elements that each product with a weight adds; none if most do not grow, or grow by too much."""
    products = [(before, now) for before, now in pairs if now.kind == PRODUCT and len(now.writes[0].shape) == 2]
    grown = [now.writes[0].elements - before.writes[0].elements for before, now in products]
    small = [0 < more <= NEW * now.writes[0].elements for more, (_, now) in zip(grown, products, strict=True)]
    return tuple(grown) if grown and 2 * sum(small) > len(small) else ()


def _grows(before: Call, now: Call) -> bool:
    return any(_new(*two) < two[1].bytes for two in _tensors(before, now))


def _left(before: Call, now: Call) -> float:
    """Return the bytes that a call moves for its new rows: keys and values are read as a whole."""
    attends = now.operator in ("bmm", "baddbmm") or "attention" in now.operator
    whole = set(map(id, now.reads[1:])) if attends else set()
    return float(sum(two[1].bytes if id(two[1]) in whole else _new(*two) for two in _tensors(before, now)))


def _tensors(before: Call, now: Call) -> list[tuple[Tensor, Tensor]]:
    own = zip((*before.reads, *before.writes), (*now.reads, *now.writes), strict=False)
    return [(first, second) for first, second in own if second.elements]


def _new(before: Tensor, now: Tensor) -> int:
    return now.bytes - before.bytes if 0 < before.bytes < now.bytes else now.bytes
