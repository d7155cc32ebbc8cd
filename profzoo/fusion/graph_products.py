"""Finds products with a large square matrix that no call made and nobody trains, such as the adjacency of a graph.

Of a graph's adjacency nearly everything is zero. A trace does not show how much: the number of neighbours is taken
from the public graphs of Hu et al. 2020 (Open Graph Benchmark, arXiv:2005.00687, table of statistics), whose means
are 14 to 597 neighbours, and 29 in the middle.
"""

from collections.abc import Iterator

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import BACKWARD, Chain
from profzoo.fusion.values import NONE, Flow
from profzoo.op_costs.tensor_effects import PRODUCT

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
