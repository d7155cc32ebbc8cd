"""Defines the quantities in tables by NVIDIA's metrics; only this module knows metric names."""

import enum
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profzoo.io.columns import GPU, NINE_OF_TEN, NUMBER, Column

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet


class Kind(enum.Enum):
    """States how to combine the values of several launches.

    SUM: values add up. RATIO: a quotient of two additive metrics; the mean is weighted by the second one. OF_TIME: a
    share of the elapsed time; the mean is weighted by time. OF_LAUNCH: equal in all launches of a configuration, and
    meaningless over several configurations.
    """

    SUM = enum.auto()
    RATIO = enum.auto()
    OF_TIME = enum.auto()
    OF_LAUNCH = enum.auto()


@dataclass(frozen=True)
class Sum:
    """A sum of metrics, each times a factor.

    Attributes:
        factors: factor by full name of the metric.
        since, before: the metrics are known to exist on GPUs from compute capability `since` to below `before`.
    """

    factors: Mapping[str, float]
    since: float = 0.0
    before: float = math.inf

    @property
    def limited(self) -> bool:
        """Return whether some GPUs are known to lack the metrics."""
        return self.since > 0 or self.before < math.inf

    def on(self, capability: float) -> bool:
        """Return whether GPUs of a compute capability have the metrics, as far as is known."""
        return self.since <= capability < self.before


@dataclass(frozen=True)
class Quantity:
    """A quantity of a launch, and how to derive it from ncu's metrics.

    Attributes:
        unit: base unit of the value.
        means: its meaning.
        sums: sums of metrics that give the value on different GPUs or from different sections; the first one that was
            collected counts.
        kind: how the values of several launches are combined.
        per: weights of a ratio: metrics whose product is in proportion to its denominator. The first product whose
            metrics were all collected counts; without any, launches are weighted by time.
    """

    unit: str
    means: str
    sums: tuple[Sum, ...]
    kind: Kind = Kind.SUM
    per: tuple[Sequence[str], ...] = ()


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
    return Quantity("sectors", f"Sectors of 32 bytes that the bytes would fill which global {what}.", tuple(sums))


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
    "ncu_ns": Quantity(
        "ns",
        "GPU time of a launch under ncu, where it runs alone.",
        (Sum({GPU_TIME: 1}), *_one("gpu__time_duration.avg")),
    ),
    "dram_bytes": Quantity(
        "byte",
        "Bytes read from and written to DRAM.",
        (
            Sum({"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1}, before=12),
            Sum({"dram__bytes_op_read.sum": 1, "dram__bytes_op_write.sum": 1}, since=12),
            *_one("dram__bytes.sum"),
        ),
    ),
    "l2_bytes": Quantity(
        "byte", "Bytes through the L2 cache.", (*_one("lts__t_bytes.sum"), *_one("lts__t_sectors.sum", SECTOR))
    ),
    "l1_bytes": Quantity(
        "byte", "Bytes through the L1 caches.", (*_one("l1tex__t_bytes.sum"), *_one("l1tex__t_sectors.sum", SECTOR))
    ),
    "fp64_flop": Quantity(
        "flop", "Operations in double precision on SIMT units; a fused multiply-add counts as two.", _flops("d")
    ),
    "fp32_flop": Quantity(
        "flop", "Operations in single precision on SIMT units; a fused multiply-add counts as two.", _flops("f")
    ),
    "fp16_flop": Quantity(
        "flop", "Operations in half precision on SIMT units; a fused multiply-add counts as two.", _flops("h")
    ),
    "tensor_bf16_flop": Quantity(
        "flop", "Operations of tensor cores on bf16.", (Sum({"sm__ops_path_tensor_src_bf16_dst_fp32.sum": 1}, since=8),)
    ),
    "tensor_fp16_flop": Quantity("flop", "Operations of tensor cores on fp16.", _tensor("fp16", "fp16", "fp32")),
    "tensor_tf32_flop": Quantity(
        "flop", "Operations of tensor cores on tf32.", (Sum({"sm__ops_path_tensor_src_tf32_dst_fp32.sum": 1}, since=8),)
    ),
    "tensor_fp8_flop": Quantity(
        "flop",
        "Operations of tensor cores on fp8; counted in cells whose precision is fp8.",
        (Sum({"sm__ops_path_tensor_src_fp8.sum": 1}, since=8.9, before=10),),
    ),
    "tensor_int8_flop": Quantity(
        "flop",
        "Operations of tensor cores on int8; counted in cells whose precision is int8.",
        (Sum({"sm__ops_path_tensor_src_int8.sum": 1}, since=8),),
    ),
    "tensor_fp64_flop": Quantity("flop", "Operations of tensor cores on fp64.", _tensor("fp64", "fp64")),
    "occupancy_pct": Quantity(
        "%",
        "Achieved occupancy: resident warps, of the most that an SM can hold.",
        _one("sm__warps_active.avg.pct_of_peak_sustained_active"),
        Kind.RATIO,
        ACTIVE,
    ),
    "occupancy_limit_pct": Quantity(
        "%",
        "Theoretical occupancy: warps that could be resident with this launch configuration.",
        _one("sm__maximum_warps_per_active_cycle_pct"),
        Kind.RATIO,
        ACTIVE,
    ),
    "sm_pct": _of_time(
        "Throughput of the SMs' busiest unit, of its peak (speed of light).",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "issue_pct": _of_time(
        "Instructions executed, of the most possible.",
        "sm__inst_executed.avg.pct_of_peak_sustained_elapsed",
        "smsp__inst_executed.avg.pct_of_peak_sustained_elapsed",
    ),
    "memory_pct": _of_time(
        "Throughput of the memory system's busiest unit, of its peak (speed of light).",
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "dram_pct": _of_time(
        "DRAM bandwidth, of its peak.",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "l2_pct": _of_time("L2 cache bandwidth, of its peak.", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed"),
    "l2_hit_pct": Quantity(
        "%",
        "Requests that the L2 cache answers (hit rate).",
        _one("lts__t_sector_hit_rate.pct"),
        Kind.RATIO,
        (("lts__t_sectors.sum",), ("lts__t_bytes.sum",), ("lts__t_sectors_srcunit_tex.sum",)),
    ),
    "waves": Quantity(
        "waves",
        "Waves per SM: blocks of the grid, of the blocks that the GPU holds at once.",
        _one("launch__waves_per_multiprocessor"),
        Kind.OF_LAUNCH,
    ),
    "multiprocessors": Quantity("SM", "SMs of the GPU.", _one("launch__sm_count"), Kind.OF_LAUNCH),
    "registers": Quantity("registers", "Registers of a thread.", _one("launch__registers_per_thread"), Kind.OF_LAUNCH),
    # L1 counts copies from global to shared memory among its loads, but their requested bytes are a separate metric.
    "load_needed_sectors": _needed("loads ask for", "ld", "ldgsts"),
    "store_needed_sectors": _needed("stores write", "st"),
    "load_sectors": _moved("sectors", "Sectors of 32 bytes that global loads move.", "ld"),
    "load_requests": _moved("requests", "Requests of warps for global loads.", "ld"),
    "store_sectors": _moved("sectors", "Sectors of 32 bytes that global stores move.", "st"),
    "store_requests": _moved("requests", "Requests of warps for global stores.", "st"),
    "l2_sectors": Quantity(
        "sectors", "Sectors of 32 bytes that SMs ask the L2 cache for.", _one("lts__t_sectors_srcunit_tex.sum")
    ),
    "bank_conflicts": Quantity(
        "wavefronts",
        "Wavefronts of shared memory that bank conflicts cause.",
        _either("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    ),
    "shared_wavefronts": Quantity(
        "wavefronts", "Wavefronts of shared memory.", _either("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    ),
    "local_sectors": Quantity(
        "sectors",
        "Sectors of 32 bytes to and from local memory (register spills).",
        (Sum({f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum": 1 for way in ("ld", "st")}),),
    ),
    "warp_cycles": Quantity(
        "cycles",
        "Cycles from one instruction of a warp to its next.",
        (
            *_one("smsp__average_warp_latency_per_inst_issued.ratio"),
            *_one("smsp__average_warps_active_per_issue_active.ratio"),
        ),
        Kind.RATIO,
        ISSUED,
    ),
    "stall_memory_cycles": _stalled(
        "Part of `warp_cycles` stalled on memory beyond L1 (long scoreboard).", "long_scoreboard"
    ),
    "stall_shared_cycles": _stalled(
        "Part of `warp_cycles` stalled on shared memory (short scoreboard, MIO throttle).",
        "short_scoreboard",
        "mio_throttle",
    ),
    "stall_barrier_cycles": _stalled("Part of `warp_cycles` stalled at a barrier.", "barrier"),
    "stall_math_cycles": _stalled(
        "Part of `warp_cycles` stalled on a busy arithmetic pipe (math pipe throttle).", "math_pipe_throttle"
    ),
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


def _declare(name: str) -> Column:
    """Return the column of a quantity of the mean launch of a row."""
    quantity = QUANTITIES[name]
    unit = {"waves": "ratio", "SM": "count", "registers": "count"}.get(quantity.unit, quantity.unit)
    means = quantity.means + (" Of the mean launch." if name in ADDITIVE and name != "ncu_ns" else "")
    interval = NINE_OF_TEN if unit in ("byte", "flop") else ""
    return Column(NUMBER.or_missing, means, unit, "ncu", GPU if unit == "ns" else "", interval)


COLUMNS: Mapping[str, Column] = {name: _declare(name) for name in QUANTITIES}
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


# Defines what the memory chart, the pipe utilisation and the warp states are made of, by NVIDIA's metrics.

SM, L1, SHARED, L2, DRAM, HOST = UNITS = ("SM", "L1", "shared memory", "L2", "DRAM", "host")
# Bytes that one wavefront of shared memory can move.
WAVEFRONT = 128
# Ends of the names of quantities about a link: its share of the peak, and its bytes by another counter.
PEAK, OTHERWISE = "_peak_pct", "_otherwise"
L1_HIT, L2_HIT = "l1_hit_pct", "l2_hit_pct"


@dataclass(frozen=True)
class Link:
    """A way of bytes between two parts of the memory system.

    Attributes:
        source, target: the parts (UNITS), by the direction in which the bytes move.
        bytes: sums of metrics that give the bytes; the first one that was collected counts.
        peak: metrics that give the share of the peak bandwidth in %.
        otherwise: sums that give the same bytes by counters of another unit, as a check.
        total: whether bytes of both directions are together, so that it is drawn only where the directions are unknown.
    """

    source: str
    target: str
    bytes: tuple[Sum, ...]
    peak: tuple[str, ...] = ()
    otherwise: tuple[Sum, ...] = ()
    total: bool = False


def _sums(*names: str, factor: float = 1) -> tuple[Sum, ...]:
    return tuple(Sum({name: factor}) for name in names)


def _of_sectors(*names: str) -> tuple[Sum, ...]:
    return _sums(*names, factor=SECTOR)


def _of_peak(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}.pct_of_peak_sustained_elapsed" for name in names)


def _l1(space: str, way: str) -> tuple[Sum, ...]:
    of = f"pipe_lsu_mem_{space}_op_{way}.sum"
    return (*_sums(f"l1tex__t_bytes_{of}"), *_of_sectors(f"l1tex__t_sectors_{of}"))


def _shared(way: str) -> Link:
    wavefronts = f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{way}.sum"
    ends = (SHARED, SM) if way == "ld" else (SM, SHARED)
    return Link(*ends, _sums(wavefronts, factor=WAVEFRONT), _of_peak(wavefronts))


def _l2(way: str) -> tuple[Sum, ...]:
    return _of_sectors(f"lts__t_sectors_srcunit_tex_op_{way}.sum")


def _host(way: str) -> tuple[Sum, ...]:
    return _of_sectors(f"lts__t_sectors_srcunit_tex_aperture_sysmem_op_{way}.sum")


def _dram(way: str) -> tuple[Sum, ...]:
    return (Sum({f"dram__bytes_{way}.sum": 1}, before=12), Sum({f"dram__bytes_op_{way}.sum": 1}, since=12))


READ, WRITTEN = "l1tex__m_xbar2l1tex_read_bytes.sum", "l1tex__m_l1tex2xbar_write_bytes.sum"
LINKS: Mapping[str, Link] = {
    "global_load": Link(L1, SM, _l1("global", "ld")),
    "global_store": Link(SM, L1, _l1("global", "st")),
    "local_load": Link(L1, SM, _l1("local", "ld")),
    "local_store": Link(SM, L1, _l1("local", "st")),
    "shared_load": _shared("ld"),
    "shared_store": _shared("st"),
    "l1": Link(SM, L1, QUANTITIES["l1_bytes"].sums, total=True),
    "l2_read": Link(L2, L1, (*_sums(READ), *_l2("read")), _of_peak(READ), _l2("read")),
    "l2_write": Link(L1, L2, (*_sums(WRITTEN), *_l2("write")), _of_peak(WRITTEN), _l2("write")),
    "l2": Link(
        L1, L2, QUANTITIES["l2_bytes"].sums, _of_peak("lts__t_sectors.avg"), _of_sectors("lts__t_sectors.sum"), True
    ),
    "dram_read": Link(
        DRAM, L2, _dram("read"), _of_peak("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
        _of_sectors("lts__d_sectors_fill_device.sum", "dram__sectors_read.sum", "dram__sectors_op_read.sum"),
    ),
    "dram_write": Link(
        L2, DRAM, _dram("write"), _of_peak("dram__bytes_write.sum", "dram__bytes_op_write.sum"),
        _of_sectors("dram__sectors_write.sum", "dram__sectors_op_write.sum"),
    ),
    "dram": Link(
        L2, DRAM, QUANTITIES["dram_bytes"].sums, _of_peak("gpu__dram_throughput.avg", "dram__throughput.avg"),
        _of_sectors("dram__sectors.sum"), True,
    ),
    "host_read": Link(HOST, L2, _host("read")),
    "host_write": Link(L2, HOST, _host("write")),
}  # fmt: skip


def _quantities_of(name: str, link: Link) -> dict[str, Quantity]:
    found = {name: Quantity("byte", "of a link", link.bytes)}
    if link.peak:
        sums = tuple(Sum({metric: 1}) for metric in link.peak)
        found[f"{name}{PEAK}"] = Quantity("%", "of the peak bandwidth", sums, Kind.OF_TIME)
    if link.otherwise:
        found[f"{name}{OTHERWISE}"] = Quantity("byte", "by another counter", link.otherwise)
    return found


MEMORY: Mapping[str, Quantity] = {
    **{name: one for link, what in LINKS.items() for name, one in _quantities_of(link, what).items()},
    L1_HIT: Quantity(
        "%",
        "sectors that the L1 caches answer",
        _sums("l1tex__t_sector_hit_rate.pct"),
        Kind.RATIO,
        (("l1tex__t_sectors.sum",), ("l1tex__t_bytes.sum",), ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",)),
    ),
    L2_HIT: QUANTITIES["l2_hit_pct"],
}
# By the pipe's name: how metrics call it. Cycles in which a pipe is active account for the rate of its instructions.
PIPE_NAMES: Mapping[str, tuple[str, ...]] = {
    "FMA": ("fma",),
    "ALU": ("alu",),
    "tensor": ("tensor", "tensor_op_hmma", "tensor_op_gmma", "tc"),
    "FP64": ("fp64", "fp64_op_fp64"),
    "FP16": ("fp16", "fma_type_fp16"),
    "XU": ("xu",),
    "LSU": ("lsu",),
    "TEX": ("tex",),
    "TMA": ("tma",),
    "uniform": ("uniform",),
    "ADU": ("adu",),
    "CBU": ("cbu",),
}
BY_CYCLES, BY_INSTRUCTIONS = "cycles", "instructions"
# How a metric of a pipe is called, by what it counts, the preferred one first.
PIPE_FORMS: Mapping[str, str] = {
    BY_CYCLES: "sm__pipe_{}_cycles_active.avg.pct_of_peak_sustained_active",
    BY_INSTRUCTIONS: "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_active",
}
PIPES: Mapping[str, Quantity] = {
    f"{pipe} {counted}": Quantity(
        "%", "of the pipe's peak", _sums(*(form.format(name) for name in names)), Kind.RATIO, ACTIVE
    )
    for pipe, names in PIPE_NAMES.items()
    for counted, form in PIPE_FORMS.items()
}
ISSUING = "selected"
# By the state's name in metrics: what a warp in it waits for.
STATES: Mapping[str, str] = {
    ISSUING: "it issues an instruction",
    "long_scoreboard": "data from memory beyond L1",
    "short_scoreboard": "data from shared memory or special functions",
    "lg_throttle": "room in the queue for global and local memory",
    "mio_throttle": "room in the queue for shared memory and special functions",
    "tex_throttle": "room in the queue for textures",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "barrier": "other warps of its block at a barrier",
    "membar": "a memory barrier",
    "wait": "a fixed latency between instructions",
    "dispatch_stall": "the dispatcher",
    "branch_resolving": "a branch",
    "no_instruction": "the instruction cache",
    "imc_miss": "the constant cache",
    "not_selected": "nothing: another warp issued",
    "drain": "stores to finish before it ends",
    "sleeping": "all its threads, which sleep",
    "gmma": "a warp group's matrix product",
    "misc": "another reason",
}
_STATE_FORMS = (
    "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio",
    "smsp__average_warp_latency_issue_stalled_{}.ratio",
)
ALL_CYCLES = "all"
WARP_STATES: Mapping[str, Quantity] = {
    **{
        name: Quantity("cycles", why, _sums(*(form.format(name) for form in _STATE_FORMS)), Kind.RATIO, ISSUED)
        for name, why in STATES.items()
    },
    ALL_CYCLES: QUANTITIES["warp_cycles"],
}
# Says which section sets collect what the memory chart, pipe utilisation, warp states and occupancy are made of.

OCCUPANCY, MEMORY_CHART, PIPE_SETS, WARP_STATE_SETS = CHARTS = ("occupancy", "memory_chart", "pipes", "warp_states")
# Sections of ncu that collect each of them, and sets of ncu's own that hold these sections. Metrics of occupancy are of
# the launch, so that every set has them.
SECTIONS: Mapping[str, Sequence[str]] = {
    MEMORY_CHART: [f"MemoryWorkloadAnalysis{part}" for part in ("", "_Chart", "_Tables")],
    PIPE_SETS: ["ComputeWorkloadAnalysis"],
    WARP_STATE_SETS: ["WarpStateStats"],
}
OWN_SETS: Mapping[str, Sequence[str]] = {
    "full": (MEMORY_CHART, PIPE_SETS, WARP_STATE_SETS),
    "detailed": (MEMORY_CHART, PIPE_SETS),
}
# The shipped set that collects each of them, or all of them.
SET_OF: Mapping[str, str] = {MEMORY_CHART: "memory", PIPE_SETS: "compute", WARP_STATE_SETS: "stalls"}
SET_OF_ALL = "charts"
_SUMS: Mapping[str, Sequence[Sum]] = {
    MEMORY_CHART: [one for link in LINKS.values() for one in link.bytes],
    PIPE_SETS: [one for quantity in PIPES.values() for one in quantity.sums],
    WARP_STATE_SETS: [one for quantity in WARP_STATES.values() for one in quantity.sums],
}


def charts_of_set(chosen: "SectionSet") -> list[str]:
    """Return what a section set collects of CHARTS, by its sections and metrics.

    >>> charts_of_set({"metrics": ["gpu__time_duration.sum", "dram__bytes_read.sum"]})
    ['occupancy', 'memory_chart']
    >>> charts_of_set({"sections": "regex:.*Stat.*"})
    ['occupancy', 'warp_states']
    """
    return [OCCUPANCY, *(chart for chart in SECTIONS if _collects(chosen, chart))]


def _collects(chosen: "SectionSet", chart: str) -> bool:
    if chart in OWN_SETS.get(chosen.get("set", ""), ()):
        return True
    given = chosen.get("sections", [])
    if isinstance(given, str):
        pattern = given.removeprefix("regex:")
        by_section = any(re.fullmatch(pattern, name) for name in SECTIONS[chart])
    else:
        by_section = bool(set(given) & set(SECTIONS[chart]))
    metrics = set(chosen.get("metrics", []))
    return by_section or any(set(one.factors) <= metrics for one in _SUMS[chart])
