"""Finds what activation checkpointing computes again in the backward pass; nothing of it is left if it is kept."""

from collections.abc import Iterator

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import Chain
from profzoo.fusion.values import Flow

RECOMPUTED = "recomputed activations"
RECOMPUTE = "recompute"


def find_recomputed(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield the calls that run again, a chain per checkpoint."""
    run: list[Call] = []
    for call in (*flow.calls, None):
        if call and call.direction == RECOMPUTE and call.place not in taken:
            run.append(call)
        elif run:
            yield Chain(RECOMPUTED, tuple(run), 0.0, 0.0)
            run = []
