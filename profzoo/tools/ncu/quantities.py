"""Defines the quantities in tables by NVIDIA's metrics; only this module knows metric names."""

from collections.abc import Collection, Sequence

from profzoo.tools.ncu.quantity import Kind, Quantity, Sum

GPU_TIME = "gpu__time_duration.sum"
# Bytes per sector, the smallest unit that caches transfer.
SECTOR = 32


def _one(metric: str, factor: float = 1) -> tuple[Sum, ...]:
    return (Sum({metric: factor}),)


def _flops(letter: str) -> tuple[Sum, ...]:
    """Return the sums of operations: additions and multiplications count once, fused multiply-adds twice.

    Predicated-off threads do not count.
    """
    counted = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    factors = {counted.format(f"{letter}{name}"): factor for name, factor in (("add", 1), ("mul", 1), ("fma", 2))}
    if letter != "f":
        return (Sum(factors),)
    # GPUs since Blackwell have instructions for two numbers at once.
    packed = {counted.format(f"f{name}2"): factor for name, factor in (("add", 2), ("mul", 2), ("fma", 4))}
    return Sum(factors | packed, since=10), Sum(factors)


def _tensor(source: str, *results: str, since: float = 8) -> tuple[Sum, ...]:
    """Return the sums of tensor-core operations: by type of the result, or on Hopper by type of the source alone.

    GPUs before Ampere count only instructions, whose number of operations depends on the GPU and on the shape.
    """
    counted = "sm__ops_path_tensor_src_{}.sum"
    by_result = {counted.format(f"{source}_dst_{result}"): 1.0 for result in results}
    return (
        Sum({counted.format(source): 1.0}, since=9),
        Sum(by_result, since=since, before=9),
        Sum(by_result, since=10),
    )


def _stalled(what: str, *reasons: str) -> Quantity:
    counted = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    by_instruction = "smsp__average_warp_latency_issue_stalled_{}.ratio"
    sums = tuple(Sum({name.format(reason): 1 for reason in reasons}) for name in (counted, by_instruction))
    return Quantity("cycles", what, sums, Kind.RATIO, ISSUED)


def _needed(what: str, *ways: str) -> Quantity:
    counted = "smsp__sass_data_bytes_mem_global_op_{}.sum"
    # GPUs before Ampere have no asynchronous copy from global to shared memory (LDGSTS).
    sums = [Sum({counted.format(way): 1 / SECTOR for way in ways}, since=8 if "ldgsts" in ways else 0)]
    if "ldgsts" in ways:
        sums.append(Sum({counted.format(way): 1 / SECTOR for way in ways if way != "ldgsts"}, before=8))
    return Quantity("sectors", f"that what global {what} ask for would fill", tuple(sums))


def _moved(unit: str, what: str, way: str) -> Quantity:
    return Quantity(unit, what, _one(f"l1tex__t_{unit}_pipe_lsu_mem_global_op_{way}.sum"))


def _either(whole: str) -> tuple[Sum, ...]:
    """Return a metric, or else the sum of its loads and stores."""
    parts = {f"{whole.removesuffix('.sum')}_op_{way}.sum": 1.0 for way in ("ld", "st")}
    return (*_one(whole), Sum(parts))


def _of_time(what: str, *metrics: str) -> Quantity:
    return Quantity("%", what, tuple(Sum({metric: 1}) for metric in metrics), Kind.OF_TIME)


# Metrics in proportion to the issued instructions, and to the cycles in which an SM had a warp. One part of an SM may
# have no warp while another has one, so that cycles of SMs, and times, only approximate those of the parts.
ISSUED = (
    ("smsp__inst_issued.sum",),
    ("smsp__issue_active.sum",),
    ("smsp__inst_executed.sum",),
    ("smsp__issue_active.avg.per_cycle_active", "smsp__cycles_active.avg"),
    ("smsp__issue_active.avg.per_cycle_active", "sm__cycles_active.avg"),
    ("smsp__issue_active.avg.per_cycle_active", GPU_TIME),
)
ACTIVE = (("sm__cycles_active.avg",), ("sm__cycles_active.sum",), ("smsp__cycles_active.avg",))

QUANTITIES: dict[str, Quantity] = {
    "ncu_ns": Quantity("ns", "time of a launch under ncu", (Sum({GPU_TIME: 1}), *_one("gpu__time_duration.avg"))),
    "dram_bytes": Quantity(
        "byte",
        "read from and written to DRAM",
        (
            Sum({"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1}, before=12),
            Sum({"dram__bytes_op_read.sum": 1, "dram__bytes_op_write.sum": 1}, since=12),
            *_one("dram__bytes.sum"),
        ),
    ),
    "l2_bytes": Quantity(
        "byte", "through the L2 cache", (*_one("lts__t_bytes.sum"), *_one("lts__t_sectors.sum", SECTOR))
    ),
    "l1_bytes": Quantity(
        "byte", "through the L1 caches", (*_one("l1tex__t_bytes.sum"), *_one("l1tex__t_sectors.sum", SECTOR))
    ),
    "fp64_flop": Quantity("flop", "double precision, SIMT", _flops("d")),
    "fp32_flop": Quantity("flop", "single precision, SIMT", _flops("f")),
    "fp16_flop": Quantity("flop", "half precision, SIMT", _flops("h")),
    "tensor_bf16_flop": Quantity(
        "flop", "tensor cores on bf16", (Sum({"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1}, since=8),)
    ),
    "tensor_fp16_flop": Quantity("flop", "tensor cores on fp16", _tensor("fp16", "fp16", "fp32")),
    "tensor_tf32_flop": Quantity(
        "flop", "tensor cores on tf32", (Sum({"sm__ops_path_tensor_src_tf32_dst_fp32.sum": 1}, since=8),)
    ),
    "tensor_fp8_flop": Quantity(
        "flop", "tensor cores on fp8", (Sum({"sm__ops_path_tensor_src_fp8.sum": 1}, since=8.9, before=10),)
    ),
    "tensor_int8_flop": Quantity(
        "flop", "tensor cores on int8", (Sum({"sm__ops_path_tensor_src_int8.sum": 1}, since=8),)
    ),
    "tensor_fp64_flop": Quantity("flop", "tensor cores on fp64", _tensor("fp64", "fp64")),
    "occupancy_pct": Quantity(
        "%",
        "warps resident, of the most there can be",
        _one("sm__warps_active.avg.pct_of_peak_sustained_active"),
        Kind.RATIO,
        ACTIVE,
    ),
    "occupancy_limit_pct": Quantity(
        "%", "warps that could be resident", _one("sm__maximum_warps_per_active_cycle_pct"), Kind.RATIO, ACTIVE
    ),
    "sm_pct": _of_time("busiest unit of the SMs", "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    "issue_pct": _of_time(
        "instructions, of the most possible",
        "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
        "smsp__inst_executed.avg.pct_of_peak_sustained_elapsed",
    ),
    "memory_pct": _of_time(
        "busiest unit of the memory system", "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
    ),
    "dram_pct": _of_time(
        "DRAM bandwidth",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_pct": _of_time("L2 cache bandwidth", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed"),
    "l2_hit_pct": Quantity(
        "%",
        "requests that L2 answers",
        _one("lts__t_sector_hit_rate.pct"),
        Kind.RATIO,
        (("lts__t_sectors.sum",), ("lts__t_bytes.sum",), ("lts__t_sectors_srcunit_tex.sum",)),
    ),
    "waves": Quantity(
        "waves", "rounds of blocks that an SM runs", _one("launch__waves_per_multiprocessor"), Kind.OF_LAUNCH
    ),
    "multiprocessors": Quantity("SM", "of the GPU", _one("launch__sm_count"), Kind.OF_LAUNCH),
    "registers": Quantity("registers", "of a thread", _one("launch__registers_per_thread"), Kind.OF_LAUNCH),
    # L1 counts copies from global to shared memory among its loads, but their requested bytes are a separate metric.
    "load_needed_sectors": _needed("loads", "ld", "ldgsts"),
    "store_needed_sectors": _needed("stores", "st"),
    "load_sectors": _moved("sectors", "of 32 bytes by global loads", "ld"),
    "load_requests": _moved("requests", "of warps, global loads", "ld"),
    "store_sectors": _moved("sectors", "of 32 bytes by global stores", "st"),
    "store_requests": _moved("requests", "of warps, global stores", "st"),
    "l2_sectors": Quantity("sectors", "of 32 bytes that SMs ask L2 for", _one("lts__t_sectors_srcunit_tex.sum")),
    "bank_conflicts": Quantity(
        "wavefronts",
        "of shared memory by bank conflicts",
        _either("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    ),
    "shared_wavefronts": Quantity(
        "wavefronts", "of shared memory", _either("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    ),
    "local_sectors": Quantity(
        "sectors",
        "of 32 bytes to and from local memory",
        (Sum({f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum": 1 for way in ("ld", "st")}),),
    ),
    "warp_cycles": Quantity(
        "cycles",
        "from a warp's instruction to its next",
        (
            *_one("smsp__average_warp_latency_per_inst_issued.ratio"),
            *_one("smsp__average_warps_active_per_issue_active.ratio"),
        ),
        Kind.RATIO,
        ISSUED,
    ),
    "stall_memory_cycles": _stalled("of these, for memory beyond L1's tags", "long_scoreboard"),
    "stall_shared_cycles": _stalled("of these, for shared memory and its queue", "short_scoreboard", "mio_throttle"),
    "stall_barrier_cycles": _stalled("of these, for other warps of the block", "barrier"),
    "stall_math_cycles": _stalled("of these, for an arithmetic pipe", "math_pipe_throttle"),
}

# Counts of products in 8 bits, by the precision of cells that have them; those of other cells are not counted.
EIGHT_BITS = {f"tensor_{precision}_flop": precision for precision in ("fp8", "int8")}
# Quantities that older tables lack.
LATER = [
    *(name for name in QUANTITIES if name.endswith(("_sectors", "_requests", "_cycles"))),
    *("bank_conflicts", "shared_wavefronts", *EIGHT_BITS),
]

# Quantities that add up over launches; the others are means, weighted by their kind.
ADDITIVE = [name for name, quantity in QUANTITIES.items() if quantity.kind is Kind.SUM]
OF_LAUNCH = [name for name, quantity in QUANTITIES.items() if quantity.kind is Kind.OF_LAUNCH]
# Metrics from which quantities are derived; their values are numbers in every table.
NUMBERS = {name for quantity in QUANTITIES.values() for one in quantity.sums for name in one.factors} | {
    name for quantity in QUANTITIES.values() for product in quantity.per for name in product
}


def metrics_to_ask(names: Sequence[str], capability: float) -> list[str]:
    """Return the metrics to request from ncu on a GPU of this compute capability, replacing names of other GPUs.

    >>> metrics_to_ask(["gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"], 12.0)
    ['gpu__time_duration.sum', 'dram__bytes_op_read.sum', 'dram__bytes_op_write.sum']
    """
    found: list[str] = []
    for name in names:
        sums = next((one.sums for one in QUANTITIES.values() if any(name in part.factors for part in one.sums)), ())
        anywhere = not sums or any(name in one.factors and not one.limited for one in sums)
        fitting = [one.factors for one in sums if one.limited and one.on(capability)]
        found += [name] if anywhere else []
        found += [metric for factors in fitting if name in factors or not anywhere for metric in factors]
    return list(dict.fromkeys(found))


def add_eight_bit_metrics(names: Sequence[str], precision: str) -> list[str]:
    """Return the metrics to request in a cell of this precision: beside those of tensor cores, its products in 8 bits.

    >>> add_eight_bit_metrics(["sm__ops_path_tensor_src_fp16.sum"], "int8")
    ['sm__ops_path_tensor_src_fp16.sum', 'sm__ops_path_tensor_src_int8.sum']
    >>> add_eight_bit_metrics(["dram__bytes_read.sum"], "int8"), add_eight_bit_metrics(["sm__ops_path_tensor"], "bf16")
    (['dram__bytes_read.sum'], ['sm__ops_path_tensor'])
    """
    if not any(name.startswith("sm__ops_path_tensor_") for name in names):
        return list(names)
    more = [name for quantity, format_ in EIGHT_BITS.items() if format_ == precision
            for one in QUANTITIES[quantity].sums for name in one.factors]  # fmt: skip
    return list(dict.fromkeys([*names, *more]))


def has_metric(name: str, columns: Collection[str]) -> bool:
    """Return whether these columns contain a metric, or other metrics for its quantity on other GPUs.

    >>> has_metric("dram__bytes_read.sum", ["dram__bytes_op_read.sum", "dram__bytes_op_write.sum"])
    True
    """
    if any(column.startswith(name) for column in columns):
        return True
    sums = [one.sums for one in QUANTITIES.values() if any(name in part.factors for part in one.sums)]
    return any(set(part.factors) <= set(columns) for parts in sums for part in parts)
