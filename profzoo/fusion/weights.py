"""Finds changes of a weight's type that every step repeats, and products with one-hot rows, which pick rows only."""

from collections.abc import Iterator

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import BACKWARD, Chain, backward_calls
from profzoo.fusion.values import NONE, Flow
from profzoo.op_costs.tensor_effects import COPY, FILL, OPAQUE, PRODUCT, SCATTER

CASTS, ONE_HOT = "weight casts", "one-hot product"
# Operators whose second input is a weight.
WEIGHED = ("aten::linear", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::addmm")
# A weight is used within so many calls after its type was changed.
SOON = 64
# So many calls make vectors one-hot.
STAGES = 6


def find_weight_casts(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield changes of the type of weights, by module and call; nothing remains of them if the weights are kept so.

    Then the gradients have this type too, and need not be changed back.
    """
    found: dict[tuple[str, int], list[Call]] = {}
    for call in flow.calls:
        if call.place not in taken and call.direction != BACKWARD and _casts_weight(flow, call):
            found.setdefault((call.module, call.instance), []).append(call)
    for calls in found.values():
        yield Chain(CASTS, tuple(calls), 0.0, 0.0)
        sizes = {tensor.elements for call in calls for tensor in call.writes}
        behind = [call for call in backward_calls(flow, calls, taken) if call.operator == "copy_"]
        back = tuple(call for call in behind if call.reads and call.reads[0].elements in sizes)
        if back:
            yield Chain(CASTS, back, 0.0, 0.0)


def _casts_weight(flow: Flow, call: Call) -> bool:
    if call.kind != COPY or call.operator != "copy_" or not call.reads or not call.writes:
        return False
    given, made = call.reads[0], call.writes[0]
    if given.kind != "float" or made.item >= given.item or len(made.shape) < 2:
        return False
    if call.around and call.around[0] in WEIGHED:
        return len(call.outer) > 1 and call.outer[1] == made.shape
    for place in flow.readers[call.place]:
        user = flow.calls[place]
        if place - call.place <= SOON and user.kind in (PRODUCT, OPAQUE) and len(user.reads) > 1:
            weight = user.reads[-1] if user.kind == PRODUCT else user.reads[1]
            known = flow.makers[call.place][0] != NONE
            return not known and len(weight.shape) == len(made.shape) and weight.elements == made.elements
    return False


def find_one_hot_products(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield products of one-hot rows with a matrix; what remains is to read and write the chosen rows."""
    for call in flow.calls:
        if call.kind != PRODUCT or call.place in taken or call.direction == BACKWARD:
            continue
        sides = (_one_hot(flow, maker) for maker in flow.makers[call.place][-2:])
        before = next(filter(None, sides), [])
        if not before or taken & set(before):
            continue
        calls = tuple(flow.calls[place] for place in (*before, call.place))
        rows = sum(tensor.bytes for tensor in call.writes)
        yield Chain(ONE_HOT, calls, 2.0 * rows, 1.0)
        # Of the gradients, only that of the matrix remains.
        behind = tuple(one for one in backward_calls(flow, [call], taken) if one.kind == PRODUCT)
        if behind:
            table = max(one.bytes for one in call.reads[-2:])
            yield Chain(ONE_HOT, behind, float(rows + table), 2.0)


def _one_hot(flow: Flow, maker: int) -> list[int]:
    """Return the calls that make a product's input one-hot: zeros, ones put in, and changes of type and layout."""
    found: list[int] = []
    while maker != NONE and len(found) < STAGES:
        one = flow.calls[maker]
        found.insert(0, maker)
        if one.kind == SCATTER:
            zeros = [place for place in flow.makers[maker] if place != NONE and flow.calls[place].kind == FILL]
            return [*zeros[:1], *found] if "aten::one_hot" in one.around or zeros else []
        maker = flow.makers[maker][0] if one.kind == COPY else NONE
    return []
