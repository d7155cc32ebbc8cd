"""The quantities that tables speak of, each from NVIDIA's metrics: the one place that knows these by name."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from profzoo.errors import DataError

GPU_TIME = "gpu__time_duration.sum"
# Bytes of a sector, the least that caches move.
SECTOR = 32


@dataclass(frozen=True)
class Quantity:
    """A sum of metrics times factors; several sums where GPUs differ, of which the first that was collected counts.

    unit: of the value, in base units. what: one line for readers. A metric is only taken with its full name.
    """

    unit: str
    what: str
    sums: tuple[Mapping[str, float], ...]


def _flops(letter: str) -> tuple[Mapping[str, float], ...]:
    """Additions and multiplications count once, fused ones twice; threads that are switched off do not count."""
    counted = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    return ({counted.format(f"{letter}{name}"): factor for name, factor in (("add", 1), ("mul", 1), ("fma", 2))},)


def _stalled(what: str, *reasons: str) -> Quantity:
    counted = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    return Quantity("cycles", what, ({counted.format(reason): 1 for reason in reasons},))


def _needed(what: str, *ways: str) -> Quantity:
    counted = "smsp__sass_data_bytes_mem_global_op_{}.sum"
    asked_for = f"that what global {what} ask for would fill"
    return Quantity("sectors", asked_for, ({counted.format(way): 1 / SECTOR for way in ways},))


def _moved(unit: str, what: str, way: str) -> Quantity:
    return Quantity(unit, what, ({f"l1tex__t_{unit}_pipe_lsu_mem_global_op_{way}.sum": 1},))


QUANTITIES: dict[str, Quantity] = {
    "ncu_ns": Quantity("ns", "time of a launch under ncu", ({GPU_TIME: 1},)),
    "dram_bytes": Quantity(
        "byte", "read from and written to DRAM", ({"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1},)
    ),
    "l2_bytes": Quantity("byte", "through the L2 cache", ({"lts__t_bytes.sum": 1},)),
    "l1_bytes": Quantity("byte", "through the L1 caches", ({"l1tex__t_bytes.sum": 1},)),
    "fp64_flop": Quantity("flop", "double precision, SIMT", _flops("d")),
    "fp32_flop": Quantity("flop", "single precision, SIMT", _flops("f")),
    "fp16_flop": Quantity("flop", "half precision, SIMT", _flops("h")),
    "tensor_bf16_flop": Quantity("flop", "tensor cores on bf16", ({"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1},)),
    "tensor_fp16_flop": Quantity(
        "flop",
        "tensor cores on fp16",
        (
            {"sm__ops_path_tensor_src_fp16.sum": 1},
            {"sm__ops_path_tensor_src_fp16_dst_fp16.sum": 1, "sm__ops_path_tensor_src_fp16_dst_fp32.sum": 1},
        ),
    ),
    "tensor_tf32_flop": Quantity("flop", "tensor cores on tf32", ({"sm__ops_path_tensor_src_tf32_dst_fp32.sum": 1},)),
    "tensor_fp64_flop": Quantity("flop", "tensor cores on fp64", ({"sm__ops_path_tensor_src_fp64.sum": 1},)),
    "occupancy_pct": Quantity(
        "%", "warps resident, of the most there can be", ({"sm__warps_active.avg.pct_of_peak_sustained_active": 1},)
    ),
    "occupancy_limit_pct": Quantity(
        "%", "warps that could be resident", ({"sm__maximum_warps_per_active_cycle_pct": 1},)
    ),
    "sm_pct": Quantity("%", "busiest unit of the SMs", ({"sm__throughput.avg.pct_of_peak_sustained_elapsed": 1},)),
    "issue_pct": Quantity(
        "%", "instructions, of the most possible", ({"sm__inst_executed.avg.pct_of_peak_sustained_elapsed": 1},)
    ),
    "memory_pct": Quantity(
        "%",
        "busiest unit of the memory system",
        ({"gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 1},),
    ),
    "dram_pct": Quantity(
        "%",
        "DRAM bandwidth",
        (
            {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 1},
            {"dram__throughput.avg.pct_of_peak_sustained_elapsed": 1},
        ),
    ),
    "l2_pct": Quantity("%", "L2 cache bandwidth", ({"lts__t_sectors.avg.pct_of_peak_sustained_elapsed": 1},)),
    "l2_hit_pct": Quantity("%", "requests that L2 answers", ({"lts__t_sector_hit_rate.pct": 1},)),
    "waves": Quantity("waves", "rounds of blocks that an SM runs", ({"launch__waves_per_multiprocessor": 1},)),
    "multiprocessors": Quantity("SM", "of the GPU", ({"launch__sm_count": 1},)),
    "registers": Quantity("registers", "of a thread", ({"launch__registers_per_thread": 1},)),
    # Copies from global to shared memory count among the loads of L1, and have asked for their bytes by themselves.
    "load_needed_sectors": _needed("loads", "ld", "ldgsts"),
    "store_needed_sectors": _needed("stores", "st"),
    "load_sectors": _moved("sectors", "of 32 bytes by global loads", "ld"),
    "load_requests": _moved("requests", "of warps, global loads", "ld"),
    "store_sectors": _moved("sectors", "of 32 bytes by global stores", "st"),
    "store_requests": _moved("requests", "of warps, global stores", "st"),
    "l2_sectors": Quantity("sectors", "of 32 bytes that SMs ask L2 for", ({"lts__t_sectors_srcunit_tex.sum": 1},)),
    "bank_conflicts": Quantity(
        "wavefronts",
        "of shared memory by bank conflicts",
        (
            {"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 1},
            {f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{way}.sum": 1 for way in ("ld", "st")},
        ),
    ),
    "shared_wavefronts": Quantity(
        "wavefronts",
        "of shared memory",
        (
            {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 1},
            {f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{way}.sum": 1 for way in ("ld", "st")},
        ),
    ),
    "local_sectors": Quantity(
        "sectors",
        "of 32 bytes to and from local memory",
        ({f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum": 1 for way in ("ld", "st")},),
    ),
    "warp_cycles": Quantity(
        "cycles",
        "from a warp's instruction to its next",
        ({"smsp__average_warp_latency_per_inst_issued.ratio": 1},),
    ),
    "stall_memory_cycles": _stalled("of these, for memory beyond L1's tags", "long_scoreboard"),
    "stall_shared_cycles": _stalled("of these, for shared memory and its queue", "short_scoreboard", "mio_throttle"),
    "stall_barrier_cycles": _stalled("of these, for other warps of the block", "barrier"),
    "stall_math_cycles": _stalled("of these, for an arithmetic pipe", "math_pipe_throttle"),
}

# Those that tables made before them lack.
LATER = [
    *(name for name in QUANTITIES if name.endswith(("_sectors", "_requests", "_cycles"))),
    *("bank_conflicts", "shared_wavefronts"),
]

# What adds up over launches, unlike percentages.
ADDITIVE = [name for name, quantity in QUANTITIES.items() if quantity.unit in ("ns", "byte", "flop")]


def derive(table: pd.DataFrame) -> pd.DataFrame:
    """The quantities that a table of ncu's metrics holds, a column each, empty where a metric of a sum is.

    Raises:
        DataError: a metric holds what is no number.
    """
    columns = {}
    for name, quantity in QUANTITIES.items():
        chosen = next((parts for parts in quantity.sums if set(parts) <= set(table.columns)), None)
        if chosen is not None:
            numbers = {metric: _numbers(table[metric]) for metric in chosen}
            columns[name] = sum(
                (numbers[metric] * factor for metric, factor in chosen.items()), pd.Series(0.0, table.index)
            )
    return pd.DataFrame(columns, index=table.index)


def _numbers(column: pd.Series) -> pd.Series:
    parsed = pd.to_numeric(column, errors="coerce")
    lost = column[parsed.isna() & column.notna()]
    if len(lost):
        raise DataError(f"{column.name} holds {lost.iloc[0]!r}, which is no number: export the report again")
    return parsed
