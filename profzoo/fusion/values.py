"""Finds which call of a step made the tensor that another call reads.

A trace holds shapes and types of tensors, but not which tensor is which. A tensor that is read is taken to be the last
one made with as many elements of its type that nobody has read so far, first of all one with rows as long. If all of
them were read, it is the last one that was read by work which could be fused, such as a residual sum or a
normalisation, because these values are the ones that programs read again. Views change shapes but not the number of
elements; the maker of a part of a larger tensor remains unknown. Forward and backward pass are told apart.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from profzoo.fusion.calls import Call
from profzoo.op_costs.operator_calls import Shape
from profzoo.op_costs.tensor_effects import COPY, PRODUCT, Tensor

NONE = -1
LINEAR = "aten::linear"
SUMS = ("add", "add_")
# So many calls are looked at that a sum's input comes from.
DEEPEST = 12
# A value that was made by so many calls ago is no longer looked for.
OLDEST = 400
# Of values alike, so many are remembered.
REMEMBERED = 16
Key = tuple[int, str]


@dataclass
class _Value:
    maker: int
    shape: Shape
    read: int = 0
    fused: int = 0


class Flow:
    """The calls of a step and what they hand to each other.

    Attributes:
        calls: in order. makers: per call and tensor that it reads the place of its maker, NONE where it is unknown.
        readers: per call the places of the calls that read what it made.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        """Match reads with what was made before."""
        self.calls = calls
        self.makers: list[tuple[int, ...]] = []
        self.readers: list[list[int]] = [[] for _ in calls]
        held: dict[tuple[bool, Key], list[_Value]] = {}
        for call in calls:
            backward = call.direction == "backward"
            taken: set[int] = set()
            known = [held.get((backward, _key(tensor)), []) for tensor in call.reads]
            if LINEAR in call.around and call.kind == PRODUCT:
                # The last input is the weight, or what a change of type made of it.
                turned = call.reads[-1].shape[::-1]
                known[-1] = [one for one in known[-1] if one.shape == turned and calls[one.maker].kind == COPY]
            found: tuple[int, ...] = ()
            for tensor, values in zip(call.reads, known, strict=True):
                found += (_find_maker(call, tensor, values, taken),)
                if call.operator in SUMS:
                    # A residual sum adds something else than what its other input was computed from.
                    taken |= self._origins(found[-1])
            self.makers.append(found)
            for maker in set(found) - {NONE}:
                self.readers[maker].append(call.place)
            for tensor in call.writes:
                values = held.setdefault((backward, _key(tensor)), [])
                values.append(_Value(call.place, tensor.shape))
                del values[:-REMEMBERED]

    def _origins(self, place: int) -> set[int]:
        """Return the calls that a result was computed from element by element, up to one that could not be fused."""
        found: set[int] = set()
        waiting = [place]
        while waiting and len(found) < DEEPEST:
            one = waiting.pop()
            if one != NONE and self.calls[one].fusible:
                size = max((tensor.elements for tensor in self.calls[one].writes), default=0)
                alike = zip(self.calls[one].reads, self.makers[one], strict=True)
                more = {maker for tensor, maker in alike if tensor.elements == size and maker != NONE} - found
                found |= more
                waiting += more
        return found


def _find_maker(call: Call, tensor: Tensor, values: Sequence[_Value], taken: set[int]) -> int:
    """Return the maker of a tensor; taken: makers of the call's other tensors, to which this one is added."""
    if tensor.elements <= 1 or tensor.part:
        return NONE
    known = [one for one in reversed(values) if call.place - one.maker <= OLDEST and one.maker not in taken]
    unread, again = [one for one in known if not one.read], [one for one in known if one.fused]
    alike = [one for one in (*unread, *again) if one.shape[-1:] == tensor.shape[-1:]]
    chosen = next(iter((*alike, *unread, *again, *known)), None)
    if chosen is None:
        return NONE
    chosen.read += 1
    chosen.fused += call.fusible
    taken.add(chosen.maker)
    return chosen.maker


def _key(tensor: Tensor) -> Key:
    return tensor.elements, tensor.kind


def external_bytes(flow: Flow, places: Sequence[int]) -> tuple[float, float]:
    """Return the bytes that calls read from outside and write for others, each tensor once.

    What no call reads is taken to be read later. A tensor of unknown origin is the same as one that another call reads
    with its shape.
    """
    inside = set(places)
    read: dict[object, int] = {}
    written = 0
    for place in places:
        call = flow.calls[place]
        alike: Counter[object] = Counter()
        for tensor, maker in zip(call.reads, flow.makers[place], strict=True):
            if maker not in inside:
                alike[tensor.shape] += 1
                name = maker if maker != NONE else (tensor.shape, tensor.kind, alike[tensor.shape])
                read[name] = max(read.get(name, 0), tensor.bytes)
        readers = flow.readers[place]
        if call.writes and (not readers or not inside.issuperset(readers)):
            written += call.writes[0].bytes
    return float(sum(read.values())), float(written)
