"""Finds when a backward pass computes gradients that nobody uses, by where autograd stores them and what is updated.

Autograd stores a parameter's gradient in a node of its own, AccumulateGrad, right after the node that computed it. If
the parameter had no gradient it takes the new one as it is; otherwise it adds up. A gradient is unused if

- no optimizer updates a parameter of its shape in the whole step, although there are optimizers, or
- its network has no part in the updates that follow the backward pass, and the next backward pass finds no gradient
  there: it was forgotten in between.

What runs in a backward pass after its last gradient that may be used leads to unused gradients only. What runs before
may be needed for later ones and is not counted.
"""

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from profzoo.op_costs.operator_calls import Shape
from profzoo.tools.torch import owners
from profzoo.tools.torch.nesting import ACCUMULATE, Nesting
from profzoo.tools.torch.trace import Trace

# How operators are named by which autograd adds a gradient to an earlier one.
ADDING = ("aten::add", "aten::add_")
# Networks that only training needs have paths that begin so.
OTHERS = "(others)."


@dataclass(frozen=True)
class Update:
    """A step of an optimizer: when it began, in ns; the shapes of all that it writes, and of its parameters.

    A trace does not tell the shapes of long lists of tensors; both are then None.
    """

    began: int
    written: Collection[Shape] | None
    parameters: Sequence[Shape] | None


@dataclass(frozen=True)
class Stored:
    """A gradient that autograd has stored.

    Attributes:
        began: when, in ns. module, shape: of its parameter. fresh: whether the parameter had none before.
    """

    began: int
    module: str
    shape: Shape
    fresh: bool

    @property
    def key(self) -> tuple[str, Shape]:
        """Return what stands for the parameter."""
        return self.module, self.shape

    @property
    def network(self) -> str:
        """Return the name of a network that only training needs; empty for the network itself."""
        first = self.module.removeprefix(OTHERS).partition(".")[0]
        # Networks of a script beside the first one go by their class.
        return first if self.module.startswith(OTHERS) or first[:1].isupper() else ""


def find_unused_times(
    stored: Sequence[Stored], updates: Sequence[Update], forward: Sequence[int]
) -> list[tuple[int, int]]:
    """Return begin and end, in ns, of the times in which a step computes gradients that nobody uses.

    Args:
        stored: the step's gradients, in order.
        updates: of optimizers in the step; without any nothing is said, as a later step may use the gradients.
        forward: when operators of the forward pass began, which tell backward passes apart.

    >>> stored = [Stored(1, "head", (8, 2), True), Stored(3, "body", (8, 8), True), Stored(5, "body", (8, 4), True)]
    >>> find_unused_times(stored, [Update(9, {(8, 2)}, [(8, 2)])], [0])
    [(1, 5)]
    """
    if not updates:
        return []
    # Where the trace does not tell what is updated, it may be everything.
    unknown = any(one.written is None for one in updates)
    used = {shape for one in updates for shape in one.written or ()}
    passes = _passes(stored, sorted({*forward, *(one.began for one in updates)}))
    found = []
    for place, own in enumerate(passes):
        # The step after this one begins as this one does.
        following = passes[(place + 1) % len(passes)]
        until = following[0].began if place + 1 < len(passes) else np.inf
        after = [one.parameters for one in updates if own[-1].began < one.began < until]
        updated = Counter(shape for shapes in after for shape in shapes or ())
        known = bool(updated) and None not in after and len(passes) > 1
        forgotten = _forgotten(own, following, updated) if known else set()
        useful = [one.began for one in own if (unknown or one.shape in used) and one.key not in forgotten]
        if useful and own[-1].began > useful[-1]:
            found.append((useful[-1], own[-1].began))
    return found


def _passes(stored: Sequence[Stored], marks: Sequence[int]) -> list[list[Stored]]:
    """Return the gradients of each backward pass; marks: when other work began."""
    groups: dict[int, list[Stored]] = {}
    for one in stored:
        groups.setdefault(int(np.searchsorted(marks, one.began)), []).append(one)
    return [groups[key] for key in sorted(groups)]


def _forgotten(own: Sequence[Stored], following: Sequence[Stored], updated: Counter[Shape]) -> set[tuple[str, Shape]]:
    """Return the parameters of networks that are not updated after a backward pass and have no gradient in the next."""
    fresh: dict[tuple[str, Shape], bool] = {}
    for one in following:
        fresh.setdefault(one.key, one.fresh)
    found: set[tuple[str, Shape]] = set()
    for network in {one.network for one in own}:
        mine = [one for one in own if one.network == network]
        if Counter(one.shape for one in mine) - updated and all(fresh.get(one.key, False) for one in mine):
            found |= {one.key for one in mine}
    return found


def list_stored(trace: Trace, nesting: Nesting, first: int, last: int) -> list[Stored]:
    """Return the gradients that autograd stores between two times (ns), in order."""
    places = _named(trace, (ACCUMULATE,))
    began = trace.operators["start"][places]
    places = places[(began >= first) & (began <= last)]
    places = places[np.argsort(trace.operators["start"][places], kind="stable")]
    modules = owners.own_operators(trace, nesting, places)["module"].astype(str)
    added = set(nesting.parent[_named(trace, ADDING)].tolist())
    found = []
    for place, module in zip(places.tolist(), modules, strict=True):
        shapes = parse_shapes(trace.texts[trace.operators["shapes"][place]])
        if shapes:
            found.append(Stored(int(trace.operators["start"][place]), module, shapes[0], place not in added))
    return found


def _named(trace: Trace, names: Sequence[str]) -> np.ndarray:
    """Return the indices of the operators with one of these names."""
    chosen = np.array([text in names for text in trace.texts] + [False])
    return np.flatnonzero(chosen[trace.operators["name"]])


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Return shapes from their text in a trace; a list of tensors has none.

    >>> parse_shapes("[[4, 8], [], [[2], [3]]]")
    ((4, 8), (), ())
    """
    if not text:
        return ()
    found = json.loads(text)
    return tuple(tuple(one) if all(type(size) is int for size in one) else () for one in found)
