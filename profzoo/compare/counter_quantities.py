"""Defines the counters that a comparison compares: bytes, operations, hit rates and occupancy."""

import itertools
from collections.abc import Collection, Mapping, Sequence

from profzoo.tools.ncu.quantities import EIGHT_BITS, L1_HIT, L2_HIT, MEMORY, QUANTITIES, Quantity, Sum

SIMT = ("fp64_flop", "fp32_flop", "fp16_flop")
TENSOR = ("tensor_bf16_flop", "tensor_fp16_flop", "tensor_tf32_flop")
# Operations that only some section sets, or cells of some precisions, count.
MORE_TENSOR = ("tensor_fp8_flop", "tensor_int8_flop", "tensor_fp64_flop")
EIGHT_BIT_METRICS = {metric for name in EIGHT_BITS for one in QUANTITIES[name].sums for metric in one.factors}
PERCENT = "%"


def _together(names: Sequence[str]) -> tuple[Sum, ...]:
    """Return the sums that add up several quantities: every choice of the metrics by which a GPU has each of them."""
    choices = itertools.product(*(QUANTITIES[name].sums for name in names))
    return tuple(Sum({metric: factor for one in parts for metric, factor in one.factors.items()}) for parts in choices)


def _with_others(names: Sequence[str], others: Sequence[str]) -> tuple[Sum, ...]:
    """Return the sums of quantities and of as many others as were collected: those with the most come first."""
    several = (chosen for count in range(len(others), -1, -1) for chosen in itertools.combinations(others, count))
    return tuple(one for chosen in several for one in _together([*names, *chosen]))


COMPARED: Mapping[str, Quantity] = {
    "dram_bytes": QUANTITIES["dram_bytes"],
    "l2_bytes": QUANTITIES["l2_bytes"],
    "simt_flop": Quantity("flop", "of SIMT units, of all precisions", _together(SIMT)),
    "tensor_flop": Quantity("flop", "of tensor cores, of all types", _with_others(TENSOR, MORE_TENSOR)),
    L1_HIT: MEMORY[L1_HIT],
    L2_HIT: QUANTITIES[L2_HIT],
    "occupancy_pct": QUANTITIES["occupancy_pct"],
}


def are_counted(columns: Collection[str]) -> bool:
    """Return whether a table of ncu's launches with these columns has any of the compared counters.

    >>> are_counted(["id", "lts__t_bytes.sum"]), are_counted(["id", "gpu__time_duration.sum"])
    (True, False)
    """
    return any(set(one.factors) <= set(columns) for quantity in COMPARED.values() for one in quantity.sums)


# For readers.
WORDS: Mapping[str, str] = {
    "dram_bytes": "DRAM bytes",
    "l2_bytes": "L2 bytes",
    "simt_flop": "SIMT operations",
    "tensor_flop": "tensor operations",
    L1_HIT: "L1 hit rate",
    L2_HIT: "L2 hit rate",
    "occupancy_pct": "occupancy",
}
