"""Simulates a traced step with chains fused: one launch stays with the fused time, the others go with their calls."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from profzoo.fusion.autocast import narrow_calls
from profzoo.fusion.calls import Call, TracedStep
from profzoo.fusion.chains import Chain
from profzoo.fusion.loops import EXPERTS, TIMES, product_flop
from profzoo.fusion.patterns import NORMS
from profzoo.launches import joined_step
from profzoo.launches.alignment import NONE, align
from profzoo.launches.joined_step import OWNER
from profzoo.op_costs.tensor_effects import NORM, REDUCTION, SCATTER
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.nsys.events.launches import PACKS
from profzoo.what_if import changes, dependencies
from profzoo.what_if.changes import remove_blocking_calls
from profzoo.what_if.predicted_gains import Operations, spread_evenly
from profzoo.what_if.program import Program, replace_tables
from profzoo.what_if.trace_events import KERNEL

# Computes the GPU time of a chain now and fused, from bytes, measured rates and the shortest launch.
#
# A fused kernel takes as long as its bytes at the measured bandwidth of memory, but no less than the shortest launch,
# and no less than the matrix products in it. A chain whose tensors come from the cache moves them faster than memory
# can; it is then taken to keep its own rate. The time has an interval. At its lower end it is that, and products take
# no longer than their operations at the best rate of any product of the step. At its upper end the fused kernel moves
# bytes no faster than the chain does now. Elementwise kernels of some size reach the bandwidth, so the lower end is
# expected of them. Sums over rows and normalisations took two to four times as long in traces of an H100 and an H200;
# with them, the geometric mean of both ends is expected.

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

    What is not a product takes time in proportion to its bytes, but a launch takes no less than the shortest one. Sums
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


# Finds the launches of chains in a trace of nsys, whose steps can be simulated.

# Which chain a launch is of, and whether it stays as the launch of the fused kernel.
NUMBER, STAYS = "chain", "stays"
KEYS = ["range", *CONFIGURATION]
# Place of a launch in the step, and how many launches the step has.
PLACE, OF = "place", "of_launches"
# Whether the host's waits between launches of the chain disappear with it.
WAITS = "waits"
# Whether one call of a library makes all launches of the chain that remain.
TOGETHER = "together"
# What a launch moves in fp32 and under autocast to bf16, in ns at the bandwidth of memory; and casts before it.
MOVED, NARROW, CASTS, CASTS_NS = AUTOCAST = ["bytes_ns", "bf16_ns", "casts", "casts_ns"]
KERNELS = [NUMBER, PLACE, OF, *KEYS, "ns", STAYS, WAITS, TOGETHER, *AUTOCAST]


def tabulate_autocast(step: TracedStep, peaks: Mapping[str, float]) -> pd.DataFrame:
    """Return AUTOCAST of each launch of a step: what its operator does, divided by the launches' times.

    peaks: measured rates by name, in byte/s, may be empty; then some launch of the step has the highest rate.
    """
    rates, found = measure_rates(step.calls, peaks), np.zeros((len(step.launches), len(AUTOCAST)))
    reached = max((call.effects.bytes / call.ns for call in step.calls if call.ns > 0), default=1.0)
    rate, ns = rates.bytes_per_ns or reached or 1.0, step.launches["ns"].to_numpy(dtype=float)
    needed = step.launches["needed_bytes"].fillna(0.0).to_numpy(dtype=float)
    for call, one in zip(step.calls, narrow_calls(step.flow), strict=True):
        rows = list(call.launches)
        # A cast moves bytes, but takes no less than any launch.
        casts_ns = max(one.cast_bytes / rate, one.casts * rates.shortest_ns)
        # What some operators write is not known of the call, but of its layer.
        own = call.effects.bytes if call.writes else max(call.effects.bytes, needed[rows].sum())
        left = one.bytes / call.effects.bytes if call.effects.bytes else 1.0
        whole = np.array([own / rate, own * left / rate, one.casts, casts_ns])
        found[rows] = np.outer(ns[rows] / max(ns[rows].sum(), 1e-9), whole)
    return pd.DataFrame(found, step.launches.index, AUTOCAST)


def join_chains(
    step: TracedStep, numbered: Sequence[tuple[int, Chain]], nsys: pd.DataFrame, cast: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return KERNELS: a row per launch of a typical step of nsys, with its ns as a mean over steps.

    Where steps launch differently, that is the step of nsys with most launches in common with the step of the chains.

    Columns: `stays`, 1 if the launch remains as that of a fused kernel, else 0; `waits`, 1 if the host's waits between
    launches of the chain disappear with it, else 0. A batched product of all experts need not know how many rows each
    has, and norms that are taken at once can be read at once. `together`, 1 if one call makes the launches that remain,
    else 0: a recurrence over all time steps is one call of cuDNN.

    Args:
        numbered: chains of the step, each with a number, which several may share.
        nsys: launches by step, from tools.nsys.launches_by_step.
        cast: from tabulate_autocast; nothing is known of launches that are not in the step.
    """
    launches = step.launches
    number, stays = pd.Series("", launches.index), pd.Series("", launches.index)
    for name, chain in numbered:
        mine = launches_of(chain)
        number.iloc[mine] = str(name)
        stays.iloc[_longest(mine, launches["ns"], chain)] = STAYS
    blank = pd.Series("", launches.index)
    # Owners are what is carried over to matching launches.
    own = launches.assign(**dict.fromkeys(OWNER, blank)).assign(
        operator=number, shapes=stays, caller=[str(place) for place in range(len(launches))]
    )
    if joined_step.traced_steps_differ(nsys):
        nsys = joined_step.select_most_alike(nsys, own)
    found = joined_step.join_nsys_launches(nsys, own).launches
    columns = {PLACE: found["launch"], OF: len(found), STAYS: found["shapes"].eq(STAYS).astype("int64")}
    waiting = [(name, chain) for name, chain in numbered if chain.pattern in (EXPERTS, NORMS)]
    rows = _with_loops(found.assign(**columns), [one for one in waiting if one[1].pattern == EXPERTS])
    numbers = pd.to_numeric(rows["operator"]).astype("Int64")
    known = pd.to_numeric(rows["caller"])
    rows[AUTOCAST] = (pd.DataFrame(columns=AUTOCAST) if cast is None else cast).reindex(known).to_numpy(dtype=float)
    waits = numbers.isin({name for name, _ in waiting}).astype("int64")
    recurrent = {name for name, chain in numbered if chain.pattern == TIMES}
    together = numbers.isin(recurrent).astype("int64")
    return rows.assign(**{NUMBER: numbers, WAITS: waits, TOGETHER: together})[KERNELS].reset_index(drop=True)


def launches_of(chain: Chain) -> list[int]:
    """Return the positions of a chain's launches in the step."""
    return [launch for call in chain.calls for launch in call.launches]


def _longest(launches: Sequence[int], ns: pd.Series, chain: Chain) -> list[int]:
    """Return those of the launches that remain when the chain is fused, the longest ones; ns: of all launches."""
    values = ns.to_numpy(dtype=float)
    return sorted(launches, key=lambda launch: -values[launch])[: round(chain.fused_launches)]


def _with_loops(found: pd.DataFrame, loops: Sequence[tuple[int, Chain]]) -> pd.DataFrame:
    """Return launches of nsys's step with all that lie within loops over experts given to these.

    How many rows an expert has differs between steps, and so do the shapes of its launches, which then match nothing.
    But the launches before and behind a loop match.

    Args:
        found: launches with `caller`, the place of the match in torch's step, empty without one.
        loops: the chains with their numbers.
    """
    places = pd.to_numeric(found["caller"]).to_numpy(dtype=float)
    operator, stays = found["operator"].to_numpy(dtype=object).copy(), found[STAYS].to_numpy().copy()
    for name, chain in loops:
        mine = launches_of(chain)
        before, behind = np.flatnonzero(places < min(mine)), np.flatnonzero(places > max(mine))
        first = int(before.max()) + 1 if before.size else 0
        last = int(behind[behind >= first].min()) if (behind >= first).any() else len(found)
        inside = [row for row in range(first, last) if operator[row] in ("", str(name))]
        operator[inside], stays[inside] = str(name), 0
        stays[_longest(inside, found["ns"], chain)] = 1
    return found.assign(operator=operator, **{STAYS: stays})


# Finds loops in steps whose launches differ: what lies between the launches before and behind a loop, which match.


def find_loops_of_each_step(operations: Operations, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return for each operation a row of its loop, -1 for none, and whether it stays as the launch of a batched kernel.

    Each step is aligned with one that has as many launches as the step that the rows are of; without such a step
    nothing is found. Operations that several loops could have go to the first of them.

    Args:
        operations: of the traced steps.
        rows: launches of loops in one step, from joining.join_chains.
    """
    gpu = operations.program.gpu
    found, stays = np.full(len(gpu), -1, dtype=np.int64), np.zeros(len(gpu), dtype=bool)
    ns, is_kernel = gpu["ns"].to_numpy(dtype=float), (gpu["kind"] == KERNEL).to_numpy()
    kept = rows.groupby(NUMBER)[STAYS].sum()
    for kernels, partner in _align_steps(operations, int(rows[OF].iloc[0])):
        taken: dict[int, list[int]] = {}
        for number, row, first, last in _loops(rows, partner, len(kernels)):
            if first < last:
                # Copies and fills between the kernels of a loop are of the loop too.
                inside = [one for one in range(kernels[first], kernels[last - 1] + 1) if found[one] < 0]
                found[inside] = row
                taken.setdefault(number, []).extend(inside)
        for number, several in taken.items():
            longest = sorted(several, key=lambda one: (not is_kernel[one], -ns[one]))
            stays[longest[: int(kept[number])]] = True
    return found, stays


@lru_cache(maxsize=1)
def _align_steps(operations: Operations, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the kernels of each step, and the place among them of each launch of a step with so many launches."""
    program = operations.program
    kernels = np.flatnonzero((program.gpu["kind"] == KERNEL).to_numpy())
    codes = program.gpu.iloc[kernels].groupby(PACKS, sort=False).ngroup().to_numpy()
    steps = program.host["step"].to_numpy()[program.gpu["host"].to_numpy()[kernels]]
    own = [np.flatnonzero(steps == step) for step in range(program.steps)]
    like = next((one for one in own if len(one) == size), None)
    return [] if like is None else [(kernels[mine], align(codes[like], codes[mine]).partner) for mine in own]


def _loops(rows: pd.DataFrame, partner: np.ndarray, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number and a row of each loop, and where it begins and ends in another step.

    partner: place in the other step of each launch of the step that the rows are of, NONE without a match; size: number
    of launches of the other step.
    """
    matched = np.flatnonzero(partner != NONE)
    ordered = rows.assign(row=np.arange(len(rows))).sort_values(PLACE)
    breaks = (ordered[NUMBER].diff().ne(0) | ordered[PLACE].diff().ne(1)).cumsum()
    for _, run in ordered.groupby(breaks):
        before, behind = matched[matched < run[PLACE].min()], matched[matched > run[PLACE].max()]
        first = int(partner[before[-1]]) + 1 if len(before) else 0
        last = int(partner[behind[0]]) if len(behind) else size
        yield int(run[NUMBER].iloc[0]), int(run["row"].iloc[0]), first, last


# The least share of the chains' time that must be found in the trace for a prediction.
LEAST_FOUND_SHARE = 0.8
# Operations of a chain with no more than so many others between, such as copies to the host, follow one another.
APART = 3
# The least share of the steps that have as many launches as the step that the chains were found in.
ALIKE = 0.5


@dataclass(frozen=True)
class LeanProgram:
    """A program without the launches that go when chains are fused.

    Attributes:
        program: the program, in which launches that stay still take their own time.
        kernels: rows of the chains' kernels, from joining.join_chains.
        places: per operation its row, -1 for none; of `kernels`, or of these by configuration.
        stays: one flag per operation: it is the launch of a fused kernel.
        by_configuration: whether operations were found by range and launch configuration.
    """

    program: Program
    kernels: pd.DataFrame
    places: np.ndarray
    stays: np.ndarray
    by_configuration: bool

    @cached_property
    def staying_ns(self) -> pd.Series:
        """Return the GPU time per step of the launches that stay, by number of the chain; NaN where none takes time."""
        found = (self.kernels["ns"] * self.kernels[STAYS]).groupby(self.kernels[NUMBER]).sum()
        return found.where(found > 0)

    def take(self, fused_ns: pd.Series) -> Program:
        """Return the program with the time of the fused kernels; fused_ns: GPU time per step by number of the chain."""
        ratios = self.kernels[NUMBER].map(fused_ns / self.staying_ns).fillna(1.0)
        if self.by_configuration:
            ratios = _by_configuration(self.kernels.assign(ratio=ratios))["ratio"]
        ratio = ratios.to_numpy(dtype=float)[self.places]
        times = 1 / np.where(self.stays, np.maximum(ratio, 1e-9), 1.0)
        return changes.speed_up_kernels(self.program, self.stays, times)


def fuse_chains(operations: Operations, kernels: pd.DataFrame, fused_ns: pd.Series) -> Program | None:
    """Return the program with chains fused; None if it lacks the launches that they consist of.

    Args:
        operations, kernels: as for leave_out_fused.
        fused_ns: GPU time per step of the fused kernels, by number of the chain.
    """
    lean = leave_out_fused(operations, kernels)
    return lean.take(fused_ns) if lean else None


def leave_out_fused(operations: Operations, kernels: pd.DataFrame) -> LeanProgram | None:
    """Return the program without what fusing chains spares; None if it lacks the launches that they consist of.

    Launches are found by their place in the step. In programs whose steps differ, loops are found by the launches
    before and behind them, and other chains by range and launch configuration.

    Args:
        operations: of the program.
        kernels: rows of the chains' kernels, from joining.join_chains.
    """
    program, rows = operations.program, kernels
    if kernels.empty or not len(program.gpu):
        return None
    waiting, (places, stays) = WAITS in rows and bool(rows[WAITS].any()), _by_place(operations, rows)
    found = _are_found(program, places >= 0, rows["ns"].sum())
    if not found and waiting:
        places, stays = find_loops_of_each_step(operations, rows)
        # Other steps may have more to do in a loop than the one that the rows are of.
        found = bool((places >= 0).any())
    if by_configuration := not found:
        rows = _by_configuration(rows.assign(ratio=1.0))
        places = operations.of(rows)
        stays = (places >= 0) & spread_evenly(places, rows[STAYS].to_numpy(dtype=float) * program.steps)
        if not _are_found(program, places >= 0, (rows["ns"] * rows["launches"]).sum()):
            return None
    fused = changes.fuse(program, (places >= 0) & ~stays, 1.0)
    together = _in_one_call(fused, stays, places, rows) if TOGETHER in rows and rows[TOGETHER].any() else fused
    lean = _without_waits(together, places, rows) if waiting and not by_configuration else together
    return LeanProgram(lean, kernels, places, stays, by_configuration)


def _in_one_call(program: Program, stays: np.ndarray, places: np.ndarray, rows: pd.DataFrame) -> Program:
    """Return the program in which one call per step makes the launches that stay of a chain which a library computes.

    The host then runs one operator before the first of them, and none before the others, whose launches alone remain.
    What takes longer than an operator is other work and stays.
    """
    chosen = np.flatnonzero(stays & (rows[TOGETHER].to_numpy()[places] > 0))
    calls = program.gpu["host"].to_numpy()[chosen]
    steps, numbers = program.host["step"].to_numpy()[calls], rows[NUMBER].to_numpy()[places[chosen]]
    later = np.zeros(len(program.host), dtype=bool)
    later[calls[pd.DataFrame({"step": steps, "number": numbers}).duplicated().to_numpy()]] = True
    before = changes.find_belonging(program, later)
    gap, own = (program.host[name].to_numpy(dtype=float) for name in ("gap", "own"))
    left = np.maximum(gap - changes.OPERATOR_NS, np.minimum(program.host["input"], gap))
    return replace_tables(
        program, host={"gap": np.where(before, left, gap), "own": np.where(before & ~later, 0.0, own)}
    )


def _without_waits(program: Program, places: np.ndarray, rows: pd.DataFrame) -> Program:
    """Return the program without the host's waits, and the reading of values, between launches of such a chain."""
    chosen = np.flatnonzero((places >= 0) & (rows[WAITS].to_numpy()[places] > 0))
    calls, numbers = program.gpu["host"].to_numpy()[chosen], rows[NUMBER].to_numpy()[places[chosen]]
    steps = program.host["step"].to_numpy()[calls]
    near = (np.diff(chosen) <= APART) & (np.diff(numbers) == 0) & (np.diff(steps) == 0)
    edges = np.zeros(len(program.host) + 1, dtype=np.int64)
    np.add.at(edges, calls[:-1][near], 1)
    np.add.at(edges, calls[1:][near], -1)
    inside = np.cumsum(edges)[:-1] > 0
    return remove_blocking_calls(program, inside & (program.host["wait"] != dependencies.NOTHING).to_numpy())


def _are_found(program: Program, chosen: np.ndarray, ns: float) -> bool:
    """Return whether operations take about as long as the chains do; ns: of the chains per step."""
    found = program.gpu["ns"].to_numpy(dtype=float)[chosen].sum() / program.steps
    return bool(LEAST_FOUND_SHARE * ns <= found <= ns / LEAST_FOUND_SHARE)


def _by_place(operations: Operations, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return for each operation its row by its place in its step, -1 for none, and whether it stays."""
    program = operations.program
    kernels, steps, place, sizes = _place_kernels(operations)
    alike = sizes == rows[OF].iloc[0]
    found = np.full(len(program.gpu), -1, dtype=np.int64)
    if len(np.unique(steps[alike])) >= ALIKE * program.steps:
        row_of = np.full(int(rows[OF].iloc[0]), -1, dtype=np.int64)
        row_of[rows[PLACE].to_numpy(dtype=np.int64)] = np.arange(len(rows))
        found[kernels[alike]] = row_of[place[alike]]
    return found, (found >= 0) & (rows[STAYS].to_numpy()[found] > 0)


@lru_cache(maxsize=1)
def _place_kernels(operations: Operations) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the kernels, and of each its step, its place among the kernels of the step, and the number of these."""
    gpu = operations.program.gpu
    kernels = np.flatnonzero((gpu["kind"] == KERNEL).to_numpy())
    steps = pd.Series(operations.program.host["step"].to_numpy()[gpu["host"].to_numpy()[kernels]])
    of_step = steps.groupby(steps)
    return kernels, steps.to_numpy(), of_step.cumcount().to_numpy(), of_step.transform("size").to_numpy()


def _by_configuration(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row per range and configuration: launches per step, ns of one, how many stay, and their mean ratio."""
    table = rows.assign(launches=1.0, weighed=rows["ratio"] * rows[STAYS])
    grouped = table.groupby(KEYS, sort=False, dropna=False)
    sums = grouped[["launches", STAYS, "weighed"]].sum().join(grouped["ns"].mean()).reset_index()
    return sums.assign(ratio=(sums["weighed"] / sums[STAYS].where(sums[STAYS] > 0)).fillna(1.0))
