"""Defines what the memory chart, the pipe utilisation and the warp states are made of, by NVIDIA's metrics."""

from collections.abc import Mapping
from dataclasses import dataclass

from profzoo.tools.ncu.quantities import ACTIVE, ISSUED, QUANTITIES, SECTOR
from profzoo.tools.ncu.quantity import Kind, Quantity, Sum

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
# Metrics whose values are numbers in every table.
CHART_NUMBERS = {
    name
    for known in (MEMORY, PIPES, WARP_STATES)
    for quantity in known.values()
    for one in quantity.sums
    for name in one.factors
}
