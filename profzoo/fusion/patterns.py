"""Lists the known patterns in the order in which they are looked for: what contains others comes first."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil

from profzoo.fusion import chains, loops, row_patterns
from profzoo.fusion.calls import NONE, Call, Flow
from profzoo.fusion.chains import BACKWARD, Chain, backward_calls
from profzoo.fusion.loops import CHOOSING
from profzoo.op_costs.tensor_effects import COPY, LISTS, POINTWISE, PRODUCT, Tensor

# Finds changes of type that autocast makes around operators, of what is not a weight.

CASTS = "autocast casts"
NARROW = ("c10::Half", "c10::BFloat16")
# How a change of type is called, by autocast within the operator that needs it.
CHANGE = "aten::to"
OF_CAST = "aten::_to_copy"


def find_autocast_casts(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield casts between fp32 and a narrow type within other operators, by module and call, and those of gradients."""
    found: dict[tuple[str, int], list[Call]] = {}
    for call in flow.calls:
        if call.place not in taken and call.direction != BACKWARD and _is_inserted(call):
            found.setdefault((call.module, call.instance), []).append(call)
    for calls in found.values():
        yield Chain(CASTS, tuple(calls), 0.0, 0.0)
        behind = tuple(call for call in backward_calls(flow, calls, taken) if call.operator == "copy_")
        if behind:
            yield Chain(CASTS, behind, 0.0, 0.0)


def _is_inserted(call: Call) -> bool:
    """Return whether an operator that is not a change of type by itself has changed the type of its input."""
    if call.operator != "copy_" or call.kind != COPY or OF_CAST not in call.around:
        return False
    kinds = {one.kind for one in (*call.reads[:1], *call.writes[:1])}
    mixed = "float" in kinds and bool(kinds & set(NARROW))
    return mixed and call.around[0] not in (CHANGE, OF_CAST)


# Finds parts of backward passes that compute gradients which nobody uses; nothing of them has to be done.

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


# Finds what activation checkpointing computes again in the backward pass; nothing of it is left if it is kept.

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


# Finds products with a large square matrix that no call made and nobody trains, such as the adjacency of a graph.
#
# Of a graph's adjacency nearly everything is zero. A trace does not show how much: the number of neighbours is taken
# from the public graphs of Hu et al. 2020 (Open Graph Benchmark, arXiv:2005.00687, table of statistics), whose means
# are 14 to 597 neighbours, and 29 in the middle.

GRAPH = "dense graph product"
# Fewer vertices need no sparse product.
VERTICES = 2048
FEW, USUAL, MANY = 13.7, 29.1, 597.0
# A neighbour's number.
NUMBER = 8


def find_graph_products(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield products from the left with such a matrix; what remains is to read each vertex's neighbours, and write."""
    free = [call for call in flow.calls if call.place not in taken]
    made = {one.shape[-2:] for call in free for one in call.writes}
    sizes = {
        call.reads[-2].shape[-1]
        for call in free
        if call.direction != BACKWARD and _is_square(call) and flow.makers[call.place][-2] == NONE
    }
    for call in free:
        if _is_square(call) and (size := call.reads[-2].shape[-1]) in sizes and (size, size) not in made:
            few, usual, many = (_sparse_bytes(call, number) for number in (FEW, USUAL, MANY))
            yield Chain(GRAPH, (call,), usual, 1.0, bytes_between=(few, many))


def _is_square(call: Call) -> bool:
    """Return whether a call multiplies one large square matrix with a narrower one on its right."""
    if call.kind != PRODUCT or len(call.reads) < 2 or not call.writes:
        return False
    left, right = call.reads[-2:]
    size = left.shape[-1]
    return size >= VERTICES and left.elements == size**2 == left.shape[-2] * size and right.shape[-1] < size


def _sparse_bytes(call: Call, neighbours: float) -> float:
    """Return the bytes of a sparse product: the matrix's numbers, a row of the right side for each, and the result."""
    left, right = call.reads[-2:]
    entries = neighbours * left.shape[-1]
    return entries * (NUMBER + left.item + right.shape[-1] * right.item) + sum(one.bytes for one in call.writes)


# Finds generation without a cache: each round computes again, on a longer input, what the round before computed.
#
# A round ends where the next input is chosen from scores. If the products of a round have more rows than those of the
# round before, by as many each time, the first rows are the same as before wherever no row depends on those behind it.
# With their keys and values kept, a round has to compute the new rows only, which read all keys and values.

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
    whole = set(map(id, now.reads[1:])) if _attends(now) else set()
    return float(sum(two[1].bytes if id(two[1]) in whole else _new(*two) for two in _tensors(before, now)))


def _attends(call: Call) -> bool:
    return call.operator in ("bmm", "baddbmm") or "attention" in call.operator


def _tensors(before: Call, now: Call) -> list[tuple[Tensor, Tensor]]:
    own = zip((*before.reads, *before.writes), (*now.reads, *now.writes), strict=False)
    return [(first, second) for first, second in own if second.elements]


def _new(before: Tensor, now: Tensor) -> int:
    return now.bytes - before.bytes if 0 < before.bytes < now.bytes else now.bytes


# Finds keys and values that are copied as a whole to put new ones behind them; the new ones have to be written.
#
# Others put together what a call of a module has just made, such as the parts of a key, or a picture and its text. Then
# the large part is no older than the call, or all that is put together asks as well.

COPIED = "copied cache"


def find_copied_caches(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield such copies by module: an old tensor and little else, put together for attention in the same module."""
    read: dict[str, set[int]] = {}
    for call in filter(_attends, flow.calls):
        asks = call.reads[0].elements
        read.setdefault(call.module, set()).update(one.elements for one in call.reads[1:] if one.elements > asks)
    found: dict[str, list[Call]] = {}
    longer: set[int] = set()
    # Per module the number of its call, and the place of the last work of the call before.
    begun: dict[str, tuple[int, int]] = {}
    last: dict[str, int] = {}
    for call in flow.calls:
        number, before = begun.get(call.module, (call.instance, NONE))
        if number != call.instance:
            before = last[call.module]
        begun[call.module], last[call.module] = (call.instance, before), call.place
        if call.operator == "cat" and call.place not in taken and call.direction != BACKWARD and _is_longer(call):
            size, maker = call.writes[0].elements, flow.makers[call.place][0]
            # Keys and values may be one tensor, or be repeated for several queries.
            if any(not size % other or not other % size for other in read.get(call.module, ())):
                own = maker > before and f"{flow.calls[maker].module}.".startswith(f"{call.module}.")
                if maker in longer or not own:
                    found.setdefault(call.module, []).append(call)
                longer.add(call.place)
    if sum(map(len, found.values())) >= LEAST:
        for calls in found.values():
            new = sum(one.bytes for call in calls for one in call.reads[1:])
            yield Chain(COPIED, tuple(calls), 2.0 * new, float(sum(call.count for call in calls)))


def _is_longer(call: Call) -> bool:
    new = sum(one.elements for one in call.reads[1:])
    return len(call.writes) == 1 and 0 < new <= NEW * call.writes[0].elements


# Finds updates of weights one tensor at a time, or one operation at a time for all tensors: optimizers, averages.
#
# torch's optimizers take `foreach`, by which an operation updates all tensors at once, and `fused`, by which one kernel
# does the whole update.

LOOPED, FOREACH, AVERAGE, NORMS = (
    "looped optimizer",
    "foreach optimizer",
    "looped weight average",
    "looped gradient norms",
)
# So many operations of one tensor are a loop over tensors.
LEAST_UPDATES = 16
NORM = ("norm", "linalg_vector_norm")
AVERAGING = ("mul_", "add_", "lerp_", "copy_", "mul", "add", "sub", "sub_")
# Where programs look after their weights.
OUTSIDE = ("optimizer", "step")
# Tensors and elements that one kernel of a fused update takes (multi_tensor_apply.cuh: lists of up to 36 tensors of
# four kinds; 320 blocks of 65,536 elements).
TENSORS, ELEMENTS = 36, 320 * 65_536
# Tensors read and written by element of a weight. Adam: weight, gradient and two means; the gradient is only read.
ADAM, MOMENTUM, PLAIN, AVERAGED = 7, 5, 3, 3


def find_updates(flow: Flow, taken: frozenset[int]) -> Iterator[Chain]:
    """Yield the optimizer's operations, weight averages, and norms of gradients that are taken one by one."""
    free = [call for call in flow.calls if call.place not in taken and call.direction != BACKWARD]
    own = [call for call in free if call.updates or call.direction == "optimizer"]
    stepping = [call for call in own if call.updates]
    yield from _optimizer(stepping or own)
    others = [call for call in free if not call.updates and call.direction in OUTSIDE and stepping]
    averaging = [call for call in others if call.operator in AVERAGING and _is_large(call)]
    if len(averaging) >= LEAST_UPDATES:
        size = _bytes_of(averaging, _updating(averaging))
        yield Chain(AVERAGE, tuple(averaging), AVERAGED * size, _launches(averaging, _updating(averaging)))
    norms = [call for call in others if call.operator in NORM]
    if len(norms) >= LEAST_UPDATES:
        yield Chain(NORMS, tuple(norms), float(sum(call.reads[0].bytes for call in norms)), ceil(len(norms) / TENSORS))


def _is_large(call: Call) -> bool:
    return call.kind == POINTWISE and bool(call.writes) and call.writes[0].elements > 1


def _optimizer(calls: Sequence[Call]) -> Iterator[Chain]:
    single = [call for call in calls if call.kind == POINTWISE and call.writes]
    lists = [call for call in calls if call.kind == LISTS and not call.operator.startswith("_fused")]
    for pattern, own in ((LOOPED, single), (FOREACH, lists)):
        if sum(call.count for call in own) < (LEAST_UPDATES if pattern == LOOPED else 2) or not own:
            continue
        last = _updating(own)
        size = _bytes_of(own, last)
        times = ADAM if _any(own, "addcdiv") else MOMENTUM if _any(own, "mul_") else PLAIN
        chain = Chain(pattern, tuple(own), times * size, _launches(own, last))
        if size and chain.fused_bytes < chain.bytes:
            yield chain


def _any(calls: Sequence[Call], part: str) -> bool:
    return any(part in call.operator for call in calls)


def _updating(calls: Sequence[Call]) -> str:
    """Return the operator that changes the weights: the last one of an update."""
    return next((call.operator for call in calls[::-1] if call.operator.endswith("_")), calls[-1].operator)


def _bytes_of(calls: Sequence[Call], operator: str) -> float:
    return float(sum(tensor.bytes for call in calls if call.operator == operator for tensor in call.writes))


def _launches(calls: Sequence[Call], operator: str) -> float:
    written = [tensor for call in calls if call.operator == operator for tensor in call.writes]
    return float(max(ceil(len(written) / TENSORS), ceil(sum(one.elements for one in written) / ELEMENTS), 1))


FINDERS: tuple[chains.Finder, ...] = (
    find_discarded,
    find_recomputed,
    find_repeated_prefixes,
    find_copied_caches,
    row_patterns.find_double,
    find_updates,
    loops.find_loops,
    loops.find_repeated_calls,
    row_patterns.find_attention,
    row_patterns.find_losses,
    row_patterns.find_one_hot_products,
    find_graph_products,
    row_patterns.find_weight_casts,
    find_autocast_casts,
    row_patterns.find_row_patterns,
)
# Patterns by the share of the step that a rule about chains looks at.
PATTERNS_OF_SHARE: Mapping[str, tuple[str, ...]] = {
    "discarded_gradients": (DISCARDED,),
    "recomputed": (RECOMPUTED,),
    "prefixes": (PREFIXES,),
    "copied_cache": (COPIED,),
    "graph_products": (GRAPH,),
    "double_precision": (row_patterns.ENTRY, row_patterns.DOUBLE),
    "small_batches": (loops.BATCHES,),
    "time_steps": (loops.TIMES,),
    "autocast_casts": (CASTS,),
    "attention": (row_patterns.ATTENTION,),
    "loss": (row_patterns.LOSS,),
    "softmax": (row_patterns.SOFTMAX,),
    "normalisation": (row_patterns.LAYER_NORM, row_patterns.RMS_NORM),
    "activation": (row_patterns.GELU, row_patterns.SILU),
    "rotary": (row_patterns.ROTARY,),
    "experts": (loops.EXPERTS,),
    "heads": (loops.HEADS,),
    "weight_casts": (row_patterns.CASTS,),
    "one_hot": (row_patterns.ONE_HOT,),
    "optimizer_loop": (LOOPED,),
    "optimizer_foreach": (FOREACH,),
    "weight_average": (AVERAGE,),
    "gradient_norms": (NORMS,),
    "elementwise": (chains.OTHER,),
}
