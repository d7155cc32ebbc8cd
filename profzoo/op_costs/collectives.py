"""Names collective operations, and gives the bytes by which their bandwidths are computed.

Both bandwidths are those of NVIDIA's nccl-tests (doc/PERFORMANCE.md there): the algorithm bandwidth is the size of the
operation over its time; the bus bandwidth multiplies it by a factor, so that it can be compared with the speed of the
link, whatever the operation and the number of processes. The size is that of the whole buffer: what an all-gather
leaves on each process, and what a reduce-scatter starts from.
"""

import math
import re

# Names that torch, NCCL and gloo have for each operation contain one of these, without underscores.
KINDS = ("reduce_scatter", "all_reduce", "all_gather", "all_to_all", "broadcast", "barrier", "scatter", "gather",
         "send", "recv", "reduce")  # fmt: skip
# Operations between two processes of a group, which the others know nothing of.
PAIRWISE = ("send", "recv")
# Operations after which each process has received from every other: all of them end together.
TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
# Bytes of an element, by the names of torch's types in traces, in lower case and without a prefix such as `c10::`.
ELEMENT_BYTES = {
    "double": 8, "long": 8, "long int": 8, "complexfloat": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2,
    "short": 2, "byte": 1, "char": 1, "signed char": 1, "unsigned char": 1, "bool": 1, "complexdouble": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip


def collective_kind(name: str) -> str:
    """Return the operation of a name in a trace; a name of none is returned as it is.

    >>> [collective_kind(name) for name in ("_allgather_base", "gloo:all_reduce", "reduce_scatter_tensor_coalesced")]
    ['all_gather', 'all_reduce', 'reduce_scatter']
    """
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for kind in KINDS if kind.replace("_", "") in plain), name)


def element_bytes(dtype: str) -> int | None:
    """Return the bytes of an element of this type; None for an unknown type.

    >>> element_bytes("Float"), element_bytes("c10::BFloat16"), element_bytes("?")
    (4, 2, None)
    """
    return ELEMENT_BYTES.get(dtype.rpartition("::")[2].strip().lower())


def bus_factor(kind: str, processes: int) -> float:
    """Return bus bandwidth over algorithm bandwidth of an operation; nan for one of which it is not defined.

    >>> bus_factor("all_reduce", 4), bus_factor("all_gather", 4), bus_factor("broadcast", 4)
    (1.5, 0.75, 1.0)
    """
    if processes < 2 or kind == "barrier" or kind not in KINDS:
        return math.nan
    if kind == "all_reduce":
        return 2 * (processes - 1) / processes
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (processes - 1) / processes
    return 1.0
