"""Computes the GPU time of a chain now and fused, from bytes, measured rates and the shortest launch.

A fused kernel takes as long as its bytes at the measured bandwidth of memory, but no less than the shortest launch, and
no less than the matrix products in it. A chain whose tensors come from the cache moves them faster than memory can; it
is then taken to keep its own rate. The time has an interval. At its lower end it is that, and products take no longer
than their operations at the best rate of any product of the step. At its upper end the fused kernel moves bytes no
faster than the chain does now. Elementwise kernels of some size reach the bandwidth, so the lower end is expected of
them. Sums over rows and normalisations took two to four times as long in traces of an H100 and an H200; with them, the
geometric mean of both ends is expected.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from profzoo.fusion.calls import Call
from profzoo.fusion.chains import Chain
from profzoo.fusion.loops import product_flop
from profzoo.op_costs.tensor_effects import NORM, REDUCTION, SCATTER

DRAM = "dram"
# Work on so many bytes does not fit into the cache of any GPU today (L2 of an H200: 50 MB).
LARGE = 1 << 28
# Of such work without a measured peak, the rate that one in ten exceeds; of launches, the shortest tenth.
FAST, SHORT = 0.9, 0.1
# A product of so many operations keeps a GPU busy.
BUSY_FLOP = 1e9


@dataclass(frozen=True)
class Rates:
    """What a device can do: bytes of memory per ns, ns of the shortest launch, operations of products per ns.

    narrowing: how many times as fast products are expected to be in single precision as in fp64, at least, at most.
    A rate of 0 is not known.
    """

    bytes_per_ns: float
    shortest_ns: float
    flop_per_ns: float
    narrowing: tuple[float, float, float] = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class FusedTime:
    """GPU time in ns of a chain now, and of its fused kernels with both ends of an interval."""

    ns: float
    fused_ns: float
    low: float
    high: float


def measure_rates(calls: Sequence[Call], peaks: Mapping[str, float], tf32: bool = False) -> Rates:
    """Return the rates of the device of a step.

    peaks: measured rates by name, in byte/s and flop/s, may be empty. tf32: whether products in fp32 are in tf32.
    """
    timed = [call for call in calls if call.ns > 0]
    dram = peaks[DRAM] / 1e9 if DRAM in peaks else _fast(timed)
    short = [call.ns / call.count for call in timed if call.fusible]
    flop = [product_flop(call) / call.ns for call in timed if product_flop(call) >= BUSY_FLOP]
    shortest = float(np.quantile(short, SHORT)) if short else 0.0
    return Rates(dram, shortest, max(flop, default=0.0), _narrowing(peaks, tf32))


def _narrowing(peaks: Mapping[str, float], tf32: bool) -> tuple[float, float, float]:
    """Return how many times as fast products are expected to be in single precision as in fp64, at least and at most.

    Products in tf32 reach half of the measured peak at least. 1 stands for rates that are not known.

    >>> peaks = {"fp64": 6e13, "fp32": 5e13, "tf32": 4.2e14}
    >>> _narrowing(peaks, True), _narrowing(peaks, False), _narrowing({}, True)
    ((7.0, 3.5, 7.0), (1.0, 1.0, 7.0), (1.0, 1.0, 1.0))
    """
    double = peaks.get("fp64", 0.0)
    single, tensor = (max(peaks.get(name, 0.0) / double, 1.0) if double else 1.0 for name in ("fp32", "tf32"))
    best = max(single, tensor)
    return (best, max(best / 2, single), best) if tf32 else (single, single, best)


def _fast(calls: Iterable[Call]) -> float:
    rates = [call.effects.bytes / call.ns for call in calls if call.fusible and call.effects.bytes >= LARGE]
    return float(np.quantile(rates, FAST)) if rates else 0.0


def fused_time(chain: Chain, rates: Rates) -> FusedTime:
    """Return the times of a chain; a fused one never takes longer than the chain does now.

    >>> from profzoo.op_costs.tensor_effects import Effects, Tensor
    >>> from dataclasses import replace
    >>> tensor, nothing = Tensor((1000,), 4, "float", 1000), ()
    >>> effects = Effects("pointwise", (tensor,), (tensor,))
    >>> work = Call(0, "mul", effects, (), (), (), "", "", 0, "", "", 0, False, 8.0, (1,))
    >>> two = Chain("elementwise chain", (work, replace(work, place=1)), 8000.0)
    >>> fused_time(two, Rates(2000.0, 1.0, 0.0)), fused_time(two, Rates(2000.0, 5.0, 0.0)).fused_ns
    (FusedTime(ns=16.0, fused_ns=4.0, low=4.0, high=8.0), 5.0)
    """
    if chain.narrowed:
        return narrowed_time(chain, rates)
    if chain.bytes_between and rates.bytes_per_ns:
        return uncertain_time(chain, chain.bytes_between, rates)
    ns, products = chain.ns, sum(call.ns for call in chain.calls if product_flop(call))
    floor = chain.fused_launches * rates.shortest_ns
    own_rate = chain.bytes / ns if ns else 0.0
    best = max(rates.bytes_per_ns, own_rate)
    moved = chain.fused_bytes / best if best else 0.0
    flop = max(chain.flop, sum(map(product_flop, chain.calls)) * bool(chain.kept_ns))
    computed = flop / rates.flop_per_ns if rates.flop_per_ns else 0.0
    least = max(moved, floor, chain.kept_ns, computed)
    if chain.kept_ns:
        rest = sum(call.effects.bytes for call in chain.calls if not product_flop(call))
        slow = chain.kept_ns + (chain.fused_bytes * (ns - products) / rest if rest else 0.0)
    else:
        slow = chain.fused_bytes / own_rate if own_rate else 0.0
    high = max(slow, least)
    summing = any(call.kind in (NORM, REDUCTION) for call in chain.calls) and not chain.kept_ns
    expected = float(np.sqrt(least * high)) if summing else least
    return FusedTime(ns, min(expected, ns), min(max(moved, floor, computed), expected, ns), min(high, ns))


def uncertain_time(chain: Chain, between: tuple[float, float], rates: Rates) -> FusedTime:
    """Return the times of a chain that is replaced by work on a number of bytes which a trace does not show.

    between: the least and the most bytes. They move at the bandwidth of memory.
    """
    floor = chain.fused_launches * rates.shortest_ns
    low, high = between
    ends = (max(moved / rates.bytes_per_ns, floor) for moved in (chain.fused_bytes, low, high))
    return FusedTime(chain.ns, *(min(end, chain.ns) for end in ends))


def narrowed_time(chain: Chain, rates: Rates) -> FusedTime:
    """Return the times of a chain whose calls remain, in single instead of double precision.

    What is no product takes time in proportion to its bytes, but a launch takes no less than the shortest one. Sums
    into places that are chosen by numbers are atomic operations, as many as before: their time lies between half and
    all of it, and the geometric mean is expected. Products are as much faster as the peaks are. The time is lowest with
    tf32 and with all bytes at the bandwidth of memory.
    """
    ns, floor = chain.ns, min(chain.fused_launches * rates.shortest_ns, chain.ns)
    rest = max(ns - chain.kept_ns, 0.0)
    share = chain.fused_bytes / chain.bytes if chain.bytes else 1.0
    moved = min(chain.fused_bytes / rates.bytes_per_ns if rates.bytes_per_ns else rest * share, rest * share)
    expected, slow, fast = (chain.kept_ns / times for times in rates.narrowing)
    atomic = min(sum(call.ns for call in chain.calls if call.kind == SCATTER), rest)
    moving = (rest - atomic) * share
    ends = (expected + moving + atomic * np.sqrt(share), fast + moved, slow + moving + atomic)
    return FusedTime(ns, *(float(min(max(one, floor), ns)) for one in ends))
