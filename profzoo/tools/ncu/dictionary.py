"""What the columns of the tables mean that Nsight Compute's metrics are in."""

import fnmatch
from collections.abc import Mapping

from profzoo.io.columns import COUNT, FRACTION, GPU, NINE_OF_TEN, RATIO, Column
from profzoo.tools.ncu.derived_metrics import ADDITIVE, GPU_TIME, NUMBERS, QUANTITIES

_MEANINGS = {
    "ncu_ns": "GPU time of a launch under ncu, where it runs alone.",
    "dram_bytes": "Bytes read from and written to DRAM.",
    "l2_bytes": "Bytes through the L2 cache.",
    "l1_bytes": "Bytes through the L1 caches.",
    "fp64_flop": "Operations in double precision on SIMT units; a fused multiply-add counts as two.",
    "fp32_flop": "Operations in single precision on SIMT units; a fused multiply-add counts as two.",
    "fp16_flop": "Operations in half precision on SIMT units; a fused multiply-add counts as two.",
    "tensor_bf16_flop": "Operations of tensor cores on bf16.",
    "tensor_fp16_flop": "Operations of tensor cores on fp16.",
    "tensor_fp8_flop": "Operations of tensor cores on fp8; counted in cells whose precision is fp8.",
    "tensor_int8_flop": "Operations of tensor cores on int8; counted in cells whose precision is int8.",
    "tensor_tf32_flop": "Operations of tensor cores on tf32.",
    "tensor_fp64_flop": "Operations of tensor cores on fp64.",
    "occupancy_pct": "Achieved occupancy: resident warps, of the most that an SM can hold.",
    "occupancy_limit_pct": "Theoretical occupancy: warps that could be resident with this launch configuration.",
    "sm_pct": "Throughput of the SMs' busiest unit, of its peak (speed of light).",
    "issue_pct": "Instructions executed, of the most possible.",
    "memory_pct": "Throughput of the memory system's busiest unit, of its peak (speed of light).",
    "dram_pct": "DRAM bandwidth, of its peak.",
    "l2_pct": "L2 cache bandwidth, of its peak.",
    "l2_hit_pct": "Requests that the L2 cache answers (hit rate).",
    "waves": "Waves per SM: blocks of the grid, of the blocks that the GPU holds at once.",
    "multiprocessors": "SMs of the GPU.",
    "registers": "Registers of a thread.",
    "load_needed_sectors": "Sectors of 32 bytes that the bytes would fill which global loads ask for.",
    "store_needed_sectors": "Sectors of 32 bytes that the bytes would fill which global stores write.",
    "load_sectors": "Sectors of 32 bytes that global loads move.",
    "load_requests": "Requests of warps for global loads.",
    "store_sectors": "Sectors of 32 bytes that global stores move.",
    "store_requests": "Requests of warps for global stores.",
    "l2_sectors": "Sectors of 32 bytes that SMs ask the L2 cache for.",
    "bank_conflicts": "Wavefronts of shared memory that bank conflicts cause.",
    "shared_wavefronts": "Wavefronts of shared memory.",
    "local_sectors": "Sectors of 32 bytes to and from local memory (register spills).",
    "warp_cycles": "Cycles from one instruction of a warp to its next.",
    "stall_memory_cycles": "Part of `warp_cycles` stalled on memory beyond L1 (long scoreboard).",
    "stall_shared_cycles": "Part of `warp_cycles` stalled on shared memory (short scoreboard, MIO throttle).",
    "stall_barrier_cycles": "Part of `warp_cycles` stalled at a barrier.",
    "stall_math_cycles": "Part of `warp_cycles` stalled on a busy arithmetic pipe (math pipe throttle).",
}
_OF_A_LAUNCH = " Of the mean launch."


_UNITS_OF_QUANTITIES = {"waves": RATIO, "SM": COUNT, "registers": COUNT}


def _unit(name: str) -> str:
    unit = QUANTITIES[name].unit
    return _UNITS_OF_QUANTITIES.get(unit, unit)


def _quantity(name: str) -> Column:
    means = _MEANINGS[name] + (_OF_A_LAUNCH if name in ADDITIVE and name != "ncu_ns" else "")
    unit = _unit(name)
    return Column(means, unit, "ncu", GPU if unit == "ns" else "", NINE_OF_TEN if unit in ("byte", "flop") else "")


# The quantities that profzoo derives from metrics, of the mean launch of a row.
DERIVED: Mapping[str, Column] = {
    **{name: _quantity(name) for name in QUANTITIES},
    "freedom": Column(
        "Degrees of freedom of the intervals (Student's t); empty where every launch was counted.", COUNT
    ),
}
# Metrics by the names that NVIDIA gives them, where more is known than that.
_UNITS = {
    "*__bytes*.sum": "byte",
    "*__time_duration*": "ns",
    "*.pct": "%",
    "*pct_of_peak*": "%",
    "*_pct": "%",
    "*.ratio": RATIO,
    "*.per_cycle_active": RATIO,
    "*issue_active.sum": "cycles",
    "*__t_sectors*.sum": "sectors",
    "*_requests_*.sum": "requests",
    "*__cycles_*": "cycles",
    "*inst*.sum": "instructions",
}
_LINKS = {
    "nvlink__*": "NVLink between GPUs",
    "c2clink__*": "Link between the GPU and the processor (C2C)",
    "numa__*": "Place of the GPUs among the NUMA nodes of the machine",
}
_METRIC = "Metric of Nsight Compute: `ncu --query-metrics` says what it counts."


def _metric(metric: str) -> Column:
    """A metric that quantities are made of, or brought to one another by."""
    used = [name for name, quantity in QUANTITIES.items() if any(metric in one.factors for one in quantity.sums)]
    units = [unit for pattern, unit in _UNITS.items() if fnmatch.fnmatchcase(metric, pattern)]
    means = f"{_METRIC} In `kernels.csv`: {', '.join(f'`{name}`' for name in used)}." if used else _METRIC
    (unit, *_) = [*units, *map(_unit, used)]
    return Column(means, unit, "ncu", GPU if unit == "ns" else "")


METRICS: Mapping[str, Column] = {
    **{metric: _metric(metric) for metric in sorted(NUMBERS)},
    GPU_TIME: Column(
        "GPU time of the launch under ncu, where it runs alone; by nsys where its trace is the census.",
        "ns",
        "ncu",
        GPU,
    ),
    **{pattern: Column(_METRIC, unit, "ncu", GPU if unit == "ns" else "") for pattern, unit in _UNITS.items()},
    **{
        pattern: Column(f"{what}, as ncu describes it; GPUs without it have no such column.", "see sidecar", "ncu")
        for pattern, what in _LINKS.items()
    },
    "*__*": Column(f"{_METRIC} Its unit is in the sidecar (`units`).", "see sidecar", "ncu"),
}
LAUNCHES: Mapping[str, Column] = {
    "id": Column("Number of the launch in the report, counted from 0 (over all runs of ncu).", tool="ncu"),
    "range": Column("Part of the step (NVTX range) that was open when the kernel was launched.", tool="ncu"),
    "launches": Column("Launches of this configuration in the window, by the census.", COUNT),
    "run": Column("Number of the run of ncu that profiled the launch.", tool="ncu"),
    "launch": Column("Place of the launch in the census of all launches."),
    "as_planned": Column("Whether the profiled launch is the planned one."),
    "stratum": Column("Number of the stratum (set of like launches) that the launch was sampled from."),
    "multiplicity": Column("Launches of the stratum that this one stands for.", COUNT),
    "time_spread": Column("Longest over shortest GPU time of the launches in the stratum.", RATIO, clock=GPU),
    "time_ratio": Column("The same, in tables of earlier versions.", RATIO, clock=GPU),
    **METRICS,
}
COVERAGE: Mapping[str, Column] = {
    "status": Column("`covered` (traced and profiled), `missing` (not profiled) or `extra` (not traced)."),
    "cause": Column("Why ncu did not profile the configuration, or nsys did not trace it; empty where it is covered."),
    "launches": Column("Launches in the window.", COUNT, "nsys"),
    "total_ns": Column("GPU time of the configuration in the window.", "ns", "nsys", GPU),
    "share": Column("Part of the GPU time of all launches.", FRACTION, "nsys", GPU),
    "time_spread": Column(
        "Longest over shortest GPU time among the launches that one profiled launch stands for.", RATIO, clock=GPU
    ),
    "other_launches": Column("Profiled launches that are not the planned ones.", COUNT, "ncu"),
}
# What ncu itself prints, kept as it is.
DETAILS: Mapping[str, Column] = {"*": Column("As `ncu --page details --csv` prints it.", "see the row", "ncu")}
