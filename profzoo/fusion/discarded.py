"""Finds parts of backward passes that compute gradients which nobody uses; nothing of them has to be done."""

from collections.abc import Iterator

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import Chain
from profzoo.fusion.values import Flow

DISCARDED = "discarded gradients"


def find_discarded(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield the calls whose gradients nobody uses, a chain per module and call of it."""
    groups: dict[tuple[str, int], list[Call]] = {}
    for call in flow.calls:
        if call.discarded and call.place not in taken:
            groups.setdefault((call.module, call.instance), []).append(call)
    for calls in groups.values():
        yield Chain(DISCARDED, tuple(calls), 0.0, 0.0)
