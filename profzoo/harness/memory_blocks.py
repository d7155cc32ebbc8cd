"""Follows memory blocks through a traced step: how much each range holds, by purpose."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profzoo.range_names import DOMAIN

# Purposes of memory. Weights are parameters and buffers. Workspace is memory that an operator frees before it ends, or
# that the optimizer allocates for its step. Other memory was there before the step and has none of these purposes.
HELD = ("weights", "optimizer", "gradients", "inputs", "activations", "workspace", "other")
MEMORY = "[memory]"
# Operators that allocate memory for their calling operator.
ALLOCATING = ("aten::empty", "aten::new_empty", "aten::resize_")


@dataclass
class MemoryBlock:
    """Memory that was allocated at an address in the step, from one event to another; None if it is not freed."""

    address: int
    size: int
    begin: int
    end: int | None = None
    held: str = "activations"


@dataclass(frozen=True)
class KnownAddresses:
    """Addresses of tensors with a known purpose, noted after the n-th range of a name; n counts from 0."""

    held: str
    after: str
    number: int
    addresses: Collection[int]


Event = Mapping[str, Any]


def memory_rows(
    events: Sequence[Event], device_type: int, before: Mapping[str, int], known: Sequence[KnownAddresses]
) -> list[dict]:
    """One row per range of the step, in order: bytes held at its start and end, its peak, and the peak by purpose.

    Args:
        events: `traceEvents` of a trace with memory events and the project's ranges.
        device_type: device of the allocations to count, as the trace numbers it: 0 for the CPU, 1 for a GPU.
        before: bytes held when the step began, by purpose.
        known: addresses of blocks whose purpose is known.
    """
    moves = sorted(
        (one for one in events if one["name"] == MEMORY and one["args"]["Device Type"] == device_type),
        key=lambda one: (one["ts"], one["args"].get("Ev Idx", 0)),
    )
    spans = _ranges(events)
    blocks, freed = _blocks(moves)
    _classify(blocks, moves, spans, events, known)
    return _followed(moves, spans, blocks, freed, before)


def _ranges(events: Sequence[Event]) -> list[Event]:
    """Ranges of the project, sorted by start; an enclosing range precedes the ranges inside it."""
    found = [one for one in events if one["name"].startswith(f"{DOMAIN}:") and one.get("cat") == "user_annotation"]
    return sorted(found, key=lambda one: (one["ts"], -one["dur"]))


def _blocks(moves: Sequence[Event]) -> tuple[list[MemoryBlock], dict[int, int]]:
    """Blocks allocated in the step; and, by index of the freeing event, sizes of blocks from before the step."""
    alive: dict[int, MemoryBlock] = {}
    found: list[MemoryBlock] = []
    earlier: dict[int, int] = {}
    for index, move in enumerate(moves):
        address, size = move["args"]["Addr"], move["args"]["Bytes"]
        if size > 0:
            alive[address] = MemoryBlock(address, size, index)
            found.append(alive[address])
        elif address in alive:
            alive.pop(address).end = index
        else:
            earlier[index] = -size
    return found, earlier


def _classify(
    blocks: Sequence[MemoryBlock],
    moves: Sequence[Event],
    spans: Sequence[Event],
    events: Sequence[Event],
    known: Sequence[KnownAddresses],
) -> None:
    """Assign each block the purpose that it is held for."""
    until = _ends_of_operators(moves, events)
    optimizing = [span for span in spans if span["name"] == f"{DOMAIN}:optimizer"]
    for block in blocks:
        begin, last = moves[block.begin]["ts"], until[block.begin]
        given_back = block.end is not None and last is not None and moves[block.end]["ts"] <= last
        if given_back or any(_within(begin, span) for span in optimizing):
            block.held = "workspace"
    for one in known:
        named = [span for span in spans if span["name"] == f"{DOMAIN}:{one.after}"]
        moment = named[one.number]["ts"] + named[one.number]["dur"]
        for block in blocks:
            there = moves[block.begin]["ts"] <= moment and (block.end is None or moves[block.end]["ts"] > moment)
            if there and block.address in one.addresses:
                block.held = one.held


def _ends_of_operators(moves: Sequence[Event], events: Sequence[Event]) -> list[float | None]:
    """For each memory event the end time of the operator around it; None outside of any operator."""
    operators: dict[object, list[Event]] = {}
    for one in sorted(events, key=lambda one: (one.get("ts", 0), -one.get("dur", 0))):
        if one.get("cat") == "cpu_op":
            operators.setdefault(one["tid"], []).append(one)
    open_now: dict[object, list[Event]] = {thread: [] for thread in operators}
    following = {thread: iter(found) for thread, found in operators.items()}
    waiting = {thread: next(found, None) for thread, found in following.items()}
    ends: list[float | None] = []
    for move in moves:
        thread, stack = move["tid"], open_now.get(move["tid"], [])
        while (coming := waiting.get(thread)) is not None and coming["ts"] <= move["ts"]:
            stack.append(coming)
            waiting[thread] = next(following[thread], None)
        stack[:] = [one for one in stack if _within(move["ts"], one)]
        owners = (one for one in reversed(stack) if not one["name"].startswith(ALLOCATING))
        owner = next(owners, None)
        ends.append(owner["ts"] + owner["dur"] if owner else None)
    return ends


def _within(moment: float, span: Event) -> bool:
    return span["ts"] <= moment <= span["ts"] + span["dur"]


def _followed(
    moves: Sequence[Event],
    spans: Sequence[Event],
    blocks: Sequence[MemoryBlock],
    freed: Mapping[int, int],
    before: Mapping[str, int],
) -> list[dict]:
    """Compute the rows by replaying the memory events in order."""
    changes: list[tuple[str, int]] = [("other", 0)] * len(moves)
    for block in blocks:
        changes[block.begin] = (block.held, block.size)
        if block.end is not None:
            changes[block.end] = (block.held, -block.size)
    for index, size in freed.items():
        changes[index] = ("other", -size)
    found = []
    for order, span in enumerate(spans):
        states = list(_states(moves, changes, span, before))
        totals = [sum(state.values()) for state in states]
        most = states[totals.index(max(totals))]
        sizes = {"begin_bytes": totals[0], "peak_bytes": max(totals), "end_bytes": totals[-1]}
        name = span["name"].removeprefix(f"{DOMAIN}:")
        found.append({"order": order, "range": name, **sizes, **{f"{held}_bytes": most[held] for held in HELD}})
    return found


def _states(
    moves: Sequence[Event], changes: Sequence[tuple[str, int]], span: Event, before: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Yield the held bytes by purpose at the start of a range and after each event in it."""
    state = {held: before.get(held, 0) for held in HELD}
    begun = False
    for move, (held, size) in zip(moves, changes, strict=True):
        if not begun and move["ts"] >= span["ts"]:
            begun = True
            yield dict(state)
        if move["ts"] > span["ts"] + span["dur"]:
            return
        state[held] += size
        if begun:
            yield dict(state)
    if not begun:
        yield dict(state)
