"""Finds parts of backward passes that compute gradients which nobody uses; nothing of them has to be done."""

from collections.abc import Iterator

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import Chain
from profzoo.fusion.values import Flow

DISCARDED = "discarded gradients"


def find_discarded(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield the calls whose gradients nobody uses, a chain per backward pass."""
    run: list[Call] = []
    for call in flow.calls:
        if call.discarded and call.place not in taken:
            run.append(call)
        elif run:
            yield Chain(DISCARDED, tuple(run), 0.0, 0.0)
            run = []
    if run:
        yield Chain(DISCARDED, tuple(run), 0.0, 0.0)
