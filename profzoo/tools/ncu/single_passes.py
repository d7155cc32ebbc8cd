"""Splits a section set into runs of ncu with one pass each, and joins what these runs counted.

If a launch needs several passes, ncu saves and restores memory between them. That takes several times as long as a
single pass: on an H200, the counters of `survey` take 0.25 s in six passes, and 0.10 s in five runs of one pass. It
also changes what is counted: on an H100, a step of a vision transformer wrote 24 % more bytes to DRAM by six passes
than by one pass of every launch, and 0.5 % more by runs of one pass. The first run counts all but operations. Further
runs count operations of the same launches: arithmetic in one run, products of tensor cores in another. Earlier
reports may know them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from profzoo.tools.ncu.command import METRICS
from profzoo.tools.ncu.known_operations import is_operation

TENSOR = re.compile(r"sm__ops_path_tensor_src_([a-z0-9]+?)(_dst_[a-z0-9]+)?\.sum")
# The type in which a cell of this precision multiplies on tensor cores. In fp32, attention does so in tf32.
PRODUCTS = {"fp32": "tf32", "tf32": "tf32", "bf16": "bf16", "fp16": "fp16"}
# Instructions of tensor cores, which take no pass of their own. The first counts HFMA2 too, which is no product: it
# sets constants in kernels that do not multiply. Counted apart, HFMA2 would take a second pass.
INSTRUCTIONS = tuple(f"sm__inst_executed_pipe_tensor_op_{what}.sum" for what in ("hmma", "gmma", "dmma"))
# The most instructions of the first kind per cycle of an SM, and the most operations of one: m16n8k16 in 8 cycles, on
# four parts of an SM (Hopper). Launches with fewer than this share of the most are not bound by tensor cores. On an
# H200, at 1.7 GHz, 338 launches without products had up to 0.11 of the most, and five with products 0.11 to 0.51. The
# share thus tells what cannot bind a launch, and not which launches have products.
MOST_PER_CYCLE, MOST_OPERATIONS, SHARE = 0.5, 4096, 0.12
# Traffic that changes where memory is restored between passes.
BYTES = re.compile(r"(dram|lts|l1tex)__")
# Cycles of an SM that was active, and the number of SMs.
CYCLES, SMS = "sm__cycles_active.avg", "launch__sm_count"


@dataclass(frozen=True)
class MetricSplit:
    """The metrics of a section set by the runs that count them.

    first: counted for all launches. arithmetic: operations without tensor cores. products: operations of tensor cores
    of the type that the cell computes in. left_out: operations of other types, which follow from the rest.
    """

    first: Sequence[str]
    arithmetic: Sequence[str]
    products: Sequence[str]
    left_out: Sequence[str]


def counts_bytes(metrics: Sequence[str]) -> bool:
    """Return whether some of the metrics count traffic of memory, which several passes of a launch distort.

    >>> counts_bytes(["dram__bytes_write.sum"]), counts_bytes(["gpu__time_duration.sum"])
    (True, False)
    """
    return any(BYTES.match(metric) for metric in metrics)


def split_metrics(metrics: Sequence[str], precision: str) -> MetricSplit | None:
    """Split the metrics of a section set; None if there is nothing to split, or another precision.

    >>> split = split_metrics(["gpu__time_duration.sum", "sm__ops_path_tensor_src_fp16.sum"], "fp16")
    >>> split.first[0], split.products
    ('gpu__time_duration.sum', ['sm__ops_path_tensor_src_fp16.sum'])
    """
    operations = [metric for metric in metrics if is_operation(metric)]
    first = [metric for metric in metrics if metric not in operations]
    if not operations or not first or precision not in PRODUCTS:
        return None
    types = {metric: found[1] for metric in operations if (found := TENSOR.fullmatch(metric))}
    return MetricSplit(
        [*first, *(INSTRUCTIONS if types else ())],
        [metric for metric in operations if metric not in types],
        [metric for metric, kind in types.items() if kind == PRODUCTS[precision]],
        [metric for metric, kind in types.items() if kind != PRODUCTS[precision]],
    )


def join_runs(table: pd.DataFrame, further: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the launches of the first run with the operations that further runs counted for them.

    Both have `launch`, the position in the census. A launch that a further run did not profile stays without.
    """
    joined = table
    for rows in further:
        columns = [column for column in rows if is_operation(column)]
        known = rows.dropna(subset=["launch"]).drop_duplicates("launch").set_index("launch")[columns]
        found = known.reindex(joined["launch"]).set_axis(joined.index)
        joined = joined.assign(**{column: found[column] for column in columns})
    return joined


def asked_products(command: Sequence[str]) -> list[str]:
    """Return the operations of tensor cores that the section set of a command of several runs asks for.

    Each run has metrics of its own; those of the set come last, under the names that the GPU has.
    """
    places = [place for place, word in enumerate(command) if word == METRICS]
    return [name for name in command[places[-1] + 1].split(",") if TENSOR.fullmatch(name)] if places else []


def complete_products(table: pd.DataFrame, metrics: Sequence[str]) -> tuple[pd.DataFrame, pd.Series]:
    """Complete the products of tensor cores that no run counted, where they are certain or cannot bind the launch.

    A launch without instructions of tensor cores has no products. A kernel multiplies in one type, so a launch with
    products of one type has none of another. A launch with few instructions that may be HFMA2 is taken to have none.
    Other launches stay without a value: their products are unknown.

    Args:
        table: launches with INSTRUCTIONS, CYCLES and SMS, as far as the GPU has these.
        metrics: operations of tensor cores that the section set asks for.

    Returns: the launches; and of each the most operations that it may have had beyond these.
    """
    bound = pd.Series(0.0, table.index)
    if not metrics or not {*INSTRUCTIONS, CYCLES, SMS} <= {*table.columns}:
        return table, bound
    either, *certain = (table[name].astype("float64") for name in INSTRUCTIONS)
    rate = either / (table[CYCLES].astype("float64") * table[SMS].astype("float64"))
    few = (sum(certain) == 0) & ((either == 0) | (rate < SHARE * MOST_PER_CYCLE))
    products = table[[name for name in metrics if name in table]].fillna(0).sum(axis=1) > 0
    columns, completed = {}, pd.Series(data=False, index=table.index)
    for name in metrics:
        values = table[name] if name in table else pd.Series(float("nan"), table.index)
        zero = values.isna() & (few | products)
        columns[name] = values.mask(zero, 0)
        completed |= zero & ~products
    return table.assign(**columns), bound.where(~completed, either * MOST_OPERATIONS)
