"""Finds known functions that are written out: of rows and elements, attention, losses, casts of weights, fp64."""

from collections.abc import Iterator, Sequence

from profzoo.fusion.calls import NONE, Call, Flow
from profzoo.fusion.chains import BACKWARD, Chain, backward_calls, connected_parts, fusible_runs
from profzoo.op_costs.tensor_effects import (
    COPY,
    FILL,
    FLOATING,
    GATHER,
    OPAQUE,
    POINTWISE,
    PRODUCT,
    REDUCTION,
    SCATTER,
    Tensor,
    kind_of,
)

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


# Finds attention that is written out: a product that makes scores, their softmax, and a product with the result.

ATTENTION = "attention"
PRODUCTS = ("bmm", "baddbmm")
TORCHS = "scaled_dot_product_attention"
# Between the two products are scaling, masks, casts and dropout, and the making of masks.
WITHIN = 40
# The backward pass of a fused kernel computes the scores again: five products instead of four.
AGAIN = 5 / 4
# A fused kernel leaves out the blocks of scores that a causal mask covers: with it, it is 1.7 to 1.8 times as fast (Dao
# 2023, FlashAttention-2, arXiv:2307.08691, section 3.1).
CAUSAL = 1.7
MASKING = ("masked_fill", "masked_fill_", "where")
BOOL = "bool"


def find_attention(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield written-out attention, forward and backward; what remains are its inputs, its result, and the products."""
    for group in find_softmax_groups(flow, taken):
        calls = _around(flow, group, taken)
        if not calls:
            continue
        first, last = (call for call in (_product(calls), _product(calls[::-1])) if call)
        inputs = [*_inputs(first), _weighted(last, flow.calls[group[-1]].writes[0].elements)]
        moved = sum(tensor.bytes for tensor in inputs) + sum(tensor.bytes for tensor in last.writes)
        saved = CAUSAL if any(map(masks_square, calls)) else 1.0
        products = sum(call.ns for call in calls if call.kind == PRODUCT) / saved
        yield Chain(ATTENTION, calls, moved, 1.0, products)
        behind = backward_calls(flow, calls, taken)
        if any(call.operator in PRODUCTS for call in behind):
            products = sum(call.ns for call in behind if call.kind == PRODUCT) / saved
            # Inputs, result and its gradient are read; gradients of the inputs are written.
            moved = 2 * moved + sum(tensor.bytes for tensor in last.writes)
            yield Chain(ATTENTION, behind, moved, 1.0, AGAIN * products)


def _product(calls: tuple[Call, ...]) -> Call | None:
    return next((call for call in calls if call.operator in PRODUCTS), None)


def masks_square(call: Call) -> bool:
    """Return whether a call masks scores by one square of flags for all samples and heads, as causal attention does.

    A mask of padding differs between samples.
    """
    squares = [one for one in call.reads if one.kind == BOOL and len(one.shape) >= 2]
    return call.operator in MASKING and any(
        one.shape[-1] == one.shape[-2] > 1 and one.elements == one.shape[-1] ** 2 for one in squares
    )


def _inputs(call: Call) -> tuple:
    return call.reads[-2:]


def _weighted(call: Call, scores: int) -> Tensor:
    """Return the input of a product that is not the scores, which may be on either side."""
    left, right = _inputs(call)
    return right if left.elements == scores else left


def _around(flow: Flow, group: list[int], taken: frozenset[int]) -> tuple[Call, ...]:
    """Return the calls from the product that makes scores to the one that reads their softmax; none without both."""
    scores = flow.calls[group[-1]].writes[0].elements
    if any(TORCHS in name for name in flow.calls[group[0]].around):
        # torch's own function, which has no fused kernel for these inputs.
        return ()
    first = _search(flow, range(group[0] - 1, max(group[0] - WITHIN, -1), -1), scores, made=True)
    last = _search(flow, range(group[-1] + 1, min(group[-1] + WITHIN, len(flow.calls))), scores, made=False)
    if first is None or last is None:
        return ()
    places = [place for place in range(first, last + 1) if place not in taken]
    calls = [flow.calls[place] for place in places if flow.calls[place].fusible or place in (first, last)]
    # A product copies inputs first whose layout it cannot read.
    place = first - 1
    while place >= 0 and place not in taken and flow.calls[place].kind == COPY and _of_product(flow.calls[place]):
        calls.insert(0, flow.calls[place])
        place -= 1
    return tuple(calls)


def _of_product(call: Call) -> bool:
    return bool({"aten::matmul", "aten::einsum"} & set(call.around))


def _search(flow: Flow, places: range, scores: int, made: bool) -> int | None:
    """Return the nearest product that made the scores or reads them; None if another product comes first."""
    for place in places:
        call = flow.calls[place]
        if call.operator in PRODUCTS:
            sizes = [one.elements for one in (call.writes if made else _inputs(call))]
            return place if scores in sizes else None
        if call.kind == PRODUCT:
            return None
    return None


# Finds losses over classes that are written out: logarithms of a softmax, from which each row's target is picked.
#
# torch.nn.functional.cross_entropy computes them with a log-softmax and a loss of the picked values, which keep one
# matrix as large as the scores. Its backward pass fills a gradient with zeros and reads it with the kept matrix.

LOSS = "cross-entropy"
# With fewer classes, a softmax is more likely to weigh something than to be a loss.
CLASSES = 64
PARTS = ("_log_softmax", "_softmax", "logsumexp", "exp", "log")
PICKING = ("one_hot", "scatter", "scatter_", "eq")
# By cross_entropy: log-softmax, loss and mean; zeros, gradient of the picked values, and of the log-softmax.
FORWARD_LAUNCHES, BACKWARD_LAUNCHES = 2.0, 3.0
FORWARD_MATRICES, BACKWARD_MATRICES = 1, 4
# With smoothed targets, the log-softmax is summed; backward, the gradients of both parts are added up.
SMOOTHED_FORWARD, SMOOTHED_BACKWARD = 1, 2


def find_losses(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield written-out losses over classes, forward and backward."""
    for run in fusible_runs(flow, taken, _joins):
        for places in connected_parts(flow, run):
            calls = [flow.calls[place] for place in places]
            scores = _scores(calls)
            if scores is None:
                continue
            # A change of type before the loss stays.
            first = next(
                (call for call in calls if call.kind == COPY and call.writes[0].elements == scores.elements), None
            )
            read = scores.bytes if first is None else first.effects.bytes + first.writes[0].bytes
            smoothed = any(_smooths(call, scores.elements) for call in calls)
            matrices = FORWARD_MATRICES + SMOOTHED_FORWARD * smoothed
            yield Chain(LOSS, tuple(calls), read + matrices * scores.bytes, FORWARD_LAUNCHES + smoothed)
            behind = backward_calls(flow, calls, taken)
            if behind:
                matrices = BACKWARD_MATRICES + SMOOTHED_BACKWARD * smoothed
                moved = matrices * scores.bytes + (first.effects.bytes if first else 0)
                yield Chain(LOSS, behind, moved, BACKWARD_LAUNCHES + smoothed + bool(first))


def _joins(call: Call) -> bool:
    small = call.kind == OPAQUE and kind_of(f"aten::{call.operator}") is None
    return call.direction != BACKWARD and (call.fusible or call.kind == SCATTER or small)


def _scores(calls: Sequence[Call]) -> Tensor | None:
    """Return the scores that a loss turns into one number per row or one in all; None if these calls are not a loss."""
    if any(call.operator.startswith("nll_loss") or "aten::cross_entropy_loss" in call.around for call in calls):
        return None
    main = next((call for call in calls if call.operator in PARTS and call.reads), None)
    if main is None or len(main.reads[0].shape) < 2 or main.reads[0].shape[-1] < CLASSES:
        return None
    scores, names = main.reads[0], {call.operator for call in calls}
    sums = main.operator in ("_log_softmax", "_softmax", "logsumexp") or {"exp", "sum", "log"} <= names
    rows = scores.elements // scores.shape[-1]
    picks = any(_picks(call, scores.elements) for call in calls)
    ends = [call.writes[0].elements for call in calls if call.writes][-1:]
    return scores if sums and picks and ends and ends[0] <= rows else None


def _picks(call: Call, size: int) -> bool:
    if call.kind == GATHER:
        return call.reads[0].elements == size
    return call.operator in PICKING and bool(call.writes) and call.writes[0].elements == size


def _smooths(call: Call, size: int) -> bool:
    """Return whether a call gives every class a share of the target."""
    filled = call.kind == FILL and call.operator == "fill_" and call.writes[0].elements == size
    return filled and call.values[1:2] not in ((), ("0",), ("0.",))


# Finds work in fp64 that began where an fp64 tensor met a narrower one, by which the result became fp64 too.
#
# A program that casts to fp64, or all of whose numbers are fp64 from the beginning, asks for fp64; nothing is said of
# it.

# Where fp64 enters, and the work that follows from it.
ENTRY, DOUBLE = "start of double precision", "double precision"
WIDE = ("double", "c10::complex<double>")


def find_double(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield work in fp64, a chain per module, call and direction; of the first such calls, the ones where it enters."""
    first = next((call for call in flow.calls if _makes_wide(call)), None)
    if first is None or not _enters(first):
        return
    entry = first.place
    groups: dict[tuple[str, int, str], list[Call]] = {}
    for call in flow.calls[entry:]:
        if call.place not in taken and _is_wide(call):
            groups.setdefault((call.module, call.instance, call.direction), []).append(call)
    for calls in groups.values():
        pattern = ENTRY if calls[0].place == entry else DOUBLE
        yield _narrowed(pattern, calls)


def _narrowed(pattern: str, calls: list[Call]) -> Chain:
    """Return the chain of calls that would work on half of the bytes; changes to fp64 and back need not be done."""
    casts = [call for call in calls if _is_cast(call)]
    rest = [call for call in calls if not _is_cast(call)]
    products = sum(call.ns for call in rest if call.kind == PRODUCT)
    moved = sum(_halved(call) for call in rest)
    launches = sum(call.count for call in rest)
    return Chain(pattern, tuple(sorted((*rest, *casts), key=lambda call: call.place)), moved, launches,
                 kept_ns=products, narrowed=True)  # fmt: skip


def _halved(call: Call) -> float:
    tensors = (*call.reads, *call.writes)
    return float(sum(one.bytes / (2 if one.kind in WIDE else 1) for one in tensors))


def _is_wide(call: Call) -> bool:
    return any(one.kind in WIDE and one.elements > 1 for one in (*call.reads, *call.writes))


def _is_cast(call: Call) -> bool:
    """Return whether a call changes a tensor's type to fp64 or back."""
    kinds = {one.kind in WIDE for one in (*call.reads[:1], *call.writes[:1]) if one.elements > 1}
    return call.kind == COPY and call.operator == "copy_" and len(kinds) > 1


def _enters(call: Call) -> bool:
    """Return whether a call that makes fp64 reads both fp64 and something narrower that is floating-point."""
    kinds = {one.kind in WIDE for one in call.reads if one.elements > 1 and one.kind in FLOATING}
    return len(kinds) > 1


def _makes_wide(call: Call) -> bool:
    return any(one.kind in WIDE and one.elements > 1 for one in call.writes)


# Finds changes of a weight's type that every step repeats, and products with one-hot rows, which pick rows only.

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
