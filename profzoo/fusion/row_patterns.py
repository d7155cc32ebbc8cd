"""Finds written-out functions of rows and of elements: softmax, normalisations, activations, rotary embeddings."""

from collections.abc import Iterator, Sequence

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import BACKWARD, Chain, backward_calls
from profzoo.fusion.values import NONE, Flow
from profzoo.op_costs.tensor_effects import COPY, POINTWISE, REDUCTION

SOFTMAX, LAYER_NORM, RMS_NORM, GELU, SILU, ROTARY = (
    "softmax", "layer norm", "RMS norm", "GELU", "SiLU", "rotary embedding"
)  # fmt: skip
LARGEST = ("max", "amax")
ROOTS = ("rsqrt", "rsqrt_", "sqrt", "sqrt_", "std")
SCALING = ("mul", "mul_", "div", "div_")
# Weight, bias, and a change of type follow a normalisation.
BEHIND = 4
# Both products of a rotation are so near to where its halves are put beside each other.
NEAR = 8


def find_row_patterns(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield the chains of all patterns of this module, forward and backward."""
    found = [(SOFTMAX, group) for group in find_softmax_groups(flow, taken) if len(group) > 1]
    for call in flow.calls:
        if call.place in taken or call.direction == BACKWARD or call.updates or not call.writes:
            continue
        pattern, group = _pattern_at(flow, call)
        if group and not taken & set(group):
            found.append((pattern, group))
    for pattern, group in found:
        yield from _both_passes(flow, pattern, sorted(set(group)), taken)


def _pattern_at(flow: Flow, call: Call) -> tuple[str, list[int]]:
    if call.operator in ROOTS:
        return _normalisation(flow, call)
    if call.operator in ("tanh", "erf"):
        return GELU, _gelu(flow, call)
    if call.operator == "sigmoid":
        return SILU, _silu(flow, call)
    return ROTARY, _rotary(flow, call) if call.operator == "neg" else []


def _both_passes(flow: Flow, pattern: str, group: Sequence[int], taken: frozenset[int]) -> Iterator[Chain]:
    calls = tuple(flow.calls[place] for place in group)
    if sum(call.count for call in calls) < 2:
        return
    size = max(tensor.elements for call in calls for tensor in call.writes)
    read = next((one.bytes for call in calls for one in call.reads if one.elements == size), 0)
    written = next((one.bytes for call in calls[::-1] for one in call.writes if one.elements == size), 0)
    yield Chain(pattern, calls, float(read + written))
    behind = backward_calls(flow, calls, taken)
    if behind:
        # Input and gradient are read, and a gradient is written. A normalisation adds up gradients of its weights too.
        launches = 2.0 if pattern in (LAYER_NORM, RMS_NORM) else 1.0
        yield Chain(pattern, behind, float(2 * read + written), launches)


def find_softmax_groups(flow: Flow, taken: frozenset[int]) -> list[list[int]]:
    """Return the places of each softmax of the forward pass: one call, or those that a written-out one consists of."""
    groups = []
    for call in flow.calls:
        if call.place in taken or call.direction == BACKWARD or not call.writes:
            continue
        if call.operator == "_softmax":
            groups.append([call.place])
        elif call.operator in ("exp", "exp_"):
            group = _written_softmax(flow, call)
            if group and not taken & set(group):
                groups.append(group)
    return groups


def _written_softmax(flow: Flow, call: Call) -> list[int]:
    """Return an exponential with the sum of rows and the quotient behind it, and the maximum of rows before it."""
    size = call.writes[0].elements
    sums = [place for place in flow.readers[call.place] if _reduces(flow.calls[place], ("sum",), size)]
    divided = [
        place
        for place in flow.readers[call.place]
        if flow.calls[place].operator in ("div", "div_") and set(sums) & set(_above(flow, place, size))
    ]
    if not sums or not divided:
        return []
    before = [place for place in flow.makers[call.place] if place != NONE and flow.calls[place].operator == "sub"]
    largest = [
        maker
        for place in before
        for maker in flow.makers[place]
        if maker != NONE and _reduces(flow.calls[maker], LARGEST, size)
    ]
    return sorted({*largest, *(before if largest else []), call.place, *sums, *divided[:1]})


def _above(flow: Flow, place: int, size: int) -> Iterator[int]:
    """Yield the makers of a call, and those of small ones among them, such as of a sum with a number added."""
    for maker in flow.makers[place]:
        if maker != NONE:
            yield maker
            call = flow.calls[maker]
            if call.kind == POINTWISE and call.writes and call.writes[0].elements < size:
                yield from _above(flow, maker, size)


def _reduces(call: Call, operators: Sequence[str], size: int) -> bool:
    made = call.writes[0].elements if call.writes else 0
    return call.operator in operators and call.reads[0].elements == size and 1 < made < size


def _normalisation(flow: Flow, root: Call) -> tuple[str, list[int]]:
    """Return the kind of a normalisation around a root of means of squares, and its places; none if it is no such."""
    up, waiting = set[int](), [root.place]
    sizes: set[int] = set()
    while waiting:
        call = flow.calls[waiting.pop()]
        up.add(call.place)
        if call.kind == REDUCTION and call.reads[0].elements > call.writes[0].elements:
            sizes.add(call.reads[0].elements)
            waiting += [place for place in _squared(flow, call) if place not in up]
        elif call.writes[0].elements <= root.writes[0].elements:
            waiting += [place for place in flow.makers[call.place] if place != NONE and place not in up]
    if len(sizes) != 1:
        return RMS_NORM, []
    (size,) = sizes
    down = _scaled(flow, root, size)
    if not down:
        return RMS_NORM, []
    group = up | set(down)
    centred = [
        place
        for place in group
        if flow.calls[place].operator in ("sub", "sub_", "var", "var_mean", "std") and _full(flow.calls[place], size)
    ]
    means = {maker for place in centred for maker in flow.makers[place] if maker != NONE and _mean(flow, maker, size)}
    return (LAYER_NORM if centred else RMS_NORM), sorted(group | means)


def _full(call: Call, size: int) -> bool:
    return bool(call.reads) and call.reads[0].elements == size


def _mean(flow: Flow, place: int, size: int) -> bool:
    return _reduces(flow.calls[place], ("mean", "sum"), size)


def _squared(flow: Flow, call: Call) -> Iterator[int]:
    """Yield what a sum of squares is made of: the square, and the difference from the mean or change of type before."""
    allowed = [("pow", "pow_", "mul", "square", "abs", "sub", "copy_"), ("sub", "copy_"), ("copy_",)]
    place = call.place
    for operators in allowed:
        size = flow.calls[place].reads[0].elements
        makers = [one for one in flow.makers[place] if one != NONE and flow.calls[one].operator in operators]
        full = [one for one in makers if flow.calls[one].writes[0].elements == size]
        if not full:
            return
        place = full[0]
        yield place


def _scaled(flow: Flow, root: Call, size: int) -> list[int]:
    """Return the calls that scale rows by the root's value, and what follows: weight, bias, and a change of type."""
    found: list[int] = []
    waiting = list(flow.readers[root.place])
    while waiting and not found:
        call = flow.calls[waiting.pop(0)]
        if call.operator in SCALING and call.writes[0].elements == size:
            found.append(call.place)
        elif call.kind == POINTWISE and call.writes[0].elements <= root.writes[0].elements:
            waiting += flow.readers[call.place]
            found = []
    for _ in range(BEHIND):
        if not found:
            return []
        after = [place for place in flow.readers[found[-1]] if _finishes(flow.calls[place], size)]
        if len(flow.readers[found[-1]]) != 1 or not after:
            break
        found.append(after[0])
    small = [place for place in flow.makers[found[0]] if place != NONE and flow.calls[place].writes[0].elements < size]
    return [*found, *(place for place in small if place > root.place)]


def _finishes(call: Call, size: int) -> bool:
    if not call.writes or call.writes[0].elements != size:
        return False
    others = [one for one in call.reads if one.elements != size]
    return call.kind == COPY or (call.operator in ("mul", "mul_", "add", "add_") and len(others) == 1)


def _gelu(flow: Flow, call: Call) -> list[int]:
    """Return the calls around tanh or erf that make a GELU: its argument before it, one more, and a product behind."""
    size = call.writes[0].elements
    up = _walk_up(flow, call.place, size, ("mul", "pow", "add", "div"))
    least = 1 if call.operator == "erf" else 3
    more = next((one for one in flow.readers[call.place] if flow.calls[one].operator in ("add", "add_")), None)
    if len(up) < least or more is None or flow.calls[more].writes[0].elements != size:
        return []
    if len([one for one in flow.calls[more].reads if one.elements == size]) != 1:
        return []
    down, place = [more], more
    for _ in range(2):
        after = [one for one in flow.readers[place] if flow.calls[one].operator in SCALING]
        if not after:
            break
        place = after[0]
        down.append(place)
    if len(down) < 2:
        return []
    half = [
        maker
        for one in down
        for maker in flow.makers[one]
        if maker != NONE and flow.calls[maker].operator in SCALING and min(up) - 3 <= maker <= max(down)
    ]
    return sorted({*up, call.place, *down, *half})


def _walk_up(flow: Flow, place: int, size: int, operators: Sequence[str]) -> list[int]:
    found, waiting = set[int](), [place]
    while waiting and len(found) < 8:
        for maker in flow.makers[waiting.pop()]:
            known = maker != NONE and flow.calls[maker].operator in operators
            if known and flow.calls[maker].writes[0].elements == size and maker not in found:
                # A sum of two tensors is not part of the argument.
                others = [one for one in flow.calls[maker].reads if one.elements == size]
                if not (flow.calls[maker].operator == "add" and len(others) > 1 and not found):
                    found.add(maker)
                    waiting.append(maker)
    return sorted(found)


def _silu(flow: Flow, call: Call) -> list[int]:
    for place in flow.readers[call.place]:
        product = flow.calls[place]
        both = len([one for one in product.reads if one.elements == call.writes[0].elements]) == 2
        same = set(flow.makers[place]) - {call.place} == set(flow.makers[call.place]) != {NONE}
        if product.operator in ("mul", "mul_") and both and same:
            return [call.place, place]
    return []


def _rotary(flow: Flow, call: Call) -> list[int]:
    """Return the calls of a rotation: half of a tensor negated, put beside the other half, scaled, and added."""
    joined = next((place for place in flow.readers[call.place] if flow.calls[place].operator == "cat"), None)
    if joined is None:
        return []
    size = flow.calls[joined].writes[0].elements
    after = [one for one in flow.calls[max(joined - NEAR, 0) : joined + NEAR] if one.fusible and one.writes]
    own = [one for one in after if one.writes[0].elements == size and one.module == call.module]
    added = next((one.place for one in own if one.place > joined and one.operator in ("add", "add_")), None)
    scaled = [one.place for one in own if one.operator == "mul" and added is not None and one.place < added]
    return sorted({call.place, joined, *scaled[-2:], added}) if added is not None and len(scaled) >= 2 else []
