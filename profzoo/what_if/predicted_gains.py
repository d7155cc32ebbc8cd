"""Predicts what a change to a program gains: the step's time before over after, with an interval."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from profzoo.range_names import PARTS
from profzoo.tools.ncu.raw_page import CONFIGURATION
from profzoo.tools.nsys.events.launches import unpack_configurations
from profzoo.tools.nsys.steps import ranks
from profzoo.what_if import changes
from profzoo.what_if.graph_obstacles import steps_differ
from profzoo.what_if.program import CALL, Program
from profzoo.what_if.simulator import simulate, step_times
from profzoo.what_if.trace_events import COPY, KERNEL, SET

# Finds the operations of a program that correspond to rows of a kernel table.


class Operations:
    """The kernels of a program by launch configuration and range."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def keys(self) -> pd.DataFrame:
        """Return one row per operation with `range` and CONFIGURATION."""
        gpu = self.program.gpu
        columns = unpack_configurations(gpu)
        names = pd.Series(columns["mangled"]).map(self.program.kernels).fillna("")
        parts = np.array(["", *PARTS])[self.program.host["part"].to_numpy()[gpu["host"]]]
        return pd.DataFrame({**columns, "mangled": names, "range": parts})[["range", *CONFIGURATION]]

    @cached_property
    def kernels(self) -> np.ndarray:
        """Return one flag per operation: it is a kernel, and does not communicate."""
        gpu = self.program.gpu
        return (gpu["kind"] == KERNEL).to_numpy() & ~gpu["talking"].to_numpy(dtype=bool)

    def of(self, rows: pd.DataFrame) -> np.ndarray:
        """Return for each operation the index of its row in `rows`, -1 if no row matches.

        If a configuration was launched more often than the rows say, only so many operations match, evenly spread.

        Args:
            rows: rows of a table of kernels: CONFIGURATION, `launches` per step and, if the table has it, `range`.
        """
        ranged = "range" in rows and {*rows["range"]} <= self._ranges
        by = ["range", *CONFIGURATION] if ranged else CONFIGURATION
        codes, keys = self._of_range if ranged else self._of_any_range
        # Rows with equal keys, such as several operators of a layer, share the first of them.
        first: dict[tuple, int] = {}
        alike = [first.setdefault(key, place) for place, key in enumerate(_list_keys(rows[by]))]
        found = np.array([first.get(key, -1) for key in keys], dtype=np.int64)[codes]
        found = np.where(self.kernels, found, -1)
        wanted = rows["launches"].to_numpy(dtype=float)
        wanted = np.bincount(alike, weights=wanted, minlength=len(rows)) * self.program.steps
        return np.where(spread_evenly(found, wanted), found, -1)

    @cached_property
    def _ranges(self) -> set[str]:
        """Return the ranges of the trace; operations of a CUDA graph have none."""
        return {*self.keys["range"][self.kernels]}

    @cached_property
    def _of_range(self) -> tuple[np.ndarray, list[tuple]]:
        """Return the number of each operation's key, and all keys: range and configuration."""
        return _number_keys(self.keys)

    @cached_property
    def _of_any_range(self) -> tuple[np.ndarray, list[tuple]]:
        """Return the same without the range."""
        return _number_keys(self.keys[CONFIGURATION])


def _number_keys(frame: pd.DataFrame) -> tuple[np.ndarray, list[tuple]]:
    """Return the number of each row among the distinct rows, and these as tuples."""
    codes = frame.groupby([*frame.columns], sort=False).ngroup()
    return codes.to_numpy(), _list_keys(frame[~codes.duplicated()])


def _list_keys(frame: pd.DataFrame) -> list[tuple]:
    """Return the rows of a frame as tuples of Python's own types."""
    return list(zip(*(frame[name].to_list() for name in frame), strict=True))


def spread_evenly(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Select `wanted` operations of each row, evenly spread; found: per operation the index of its row, or -1.

    >>> spread_evenly(np.array([0, 0, 1, 0, 0]), np.array([2.0, 9.0]))
    array([False,  True,  True, False,  True])
    """
    there = found >= 0
    counts = np.bincount(found[there], minlength=len(wanted))
    part = np.minimum(wanted / np.maximum(counts, 1), 1.0)[found]
    rank = pd.Series(found).groupby(found).cumcount().to_numpy()
    # The small term makes three times one third reach 1 in spite of rounding.
    return there & (np.floor((rank + 1) * part + 1e-9) > np.floor(rank * part + 1e-9))


# Fits how long a process waits for others in communication, which the tracer of all processes lengthens.

# Steps of the bisection; the share of waiting is then known to one in a thousand.
HALVINGS = 10


def find_waiting_share(table: pd.DataFrame) -> float:
    """Return the part of the first process's communication in which it waits for others, 0 to 1.

    The process that communicates for the shortest time waits for none.

    table: a row per process of the cell, profzoo.tools.nsys.steps.ranks.TABLE.

    >>> find_waiting_share(pd.DataFrame({"rank": [1, 0], "communication_ns": [3.0, 4.0]}))
    0.25
    """
    communication = table.sort_values("rank")["communication_ns"]
    own = float(communication.iloc[0])
    return float(ranks.find_waits(communication).iloc[0]) / own if own > 0 else 0.0


def keep_waits(program: Program, kept: float) -> Program:
    """Return the program with a part of its waits for other processes, 0 to 1."""
    waiting = program.waiting or 0.0
    left = 1 - waiting * (1 - kept)
    talks = program.gpu["talking"].to_numpy(dtype=bool)
    shorter = changes.speed_up_kernels(program, talks, 1 / max(left, 1e-3))
    return replace(shorter, waiting=waiting * kept / max(left, 1e-3))


def fit_waits(program: Program, step_ns: float, slowest: float) -> Program:
    """Shorten waits for other processes until the step is no longer than the unprofiled one, if that is enough.

    A tracer slows the CPU of every process. Where the CPU is slow, processes come to their communication at different
    times, and the earlier ones wait in it. The GPU's time then is longer than it is without the tracer.

    Args:
        step_ns: the unprofiled step in ns.
        slowest: largest slowdown of the CPU to assume: with a CPU so much faster, the GPU alone is the limit.
    """
    if not program.waiting:
        return program

    def step(kept: float) -> float:
        fast = changes.speed_up_host(keep_waits(program, kept), slowest)
        return float(step_times(fast, simulate(fast)).mean())

    if step(1.0) <= step_ns:
        return program
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if step(middle) > step_ns else (middle, high)
    return keep_waits(program, low)


def move_waits(program: Program, gone: np.ndarray, to: np.ndarray) -> Program:
    """Lengthen operations that stay by the waits for other processes in those that are left out.

    Args:
        program: the program, which still has the operations that are left out.
        gone: one flag per operation: it is left out.
        to: for each operation, the number of the operation that takes over its wait; -1 for none.
    """
    ns = program.gpu["ns"].to_numpy(dtype=float).copy()
    moved = gone & (to >= 0)
    np.add.at(ns, to[moved], (program.waiting or 0.0) * ns[moved])
    return replace(program, gpu=program.gpu.assign(ns=ns))


# Changes a program so that gradients are sent once per update of the weights, and not after each backward pass.
#
# A step that accumulates gradients has several backward passes before its optimizer. DistributedDataParallel sends the
# gradients in each of them, unless it runs under `no_sync`: only what the last one sends is needed.

# A kernel that multiplies all elements by one number.
SCALING = r"[AB]UnaryFunctor.*MulFunctor"
# Copying a gradient and multiplying it into a bucket read and write the same bytes. Their durations differ at most by
# this factor.
ALIKE = 2.5
# Numbers of these parts in the column `part`, and of launches outside of all parts.
NONE, BACKWARD, OPTIMIZER = 0, PARTS.index("backward") + 1, PARTS.index("optimizer") + 1


def find_early_sends(program: Program) -> np.ndarray:
    """Return one flag per operation: it sends gradients in a backward pass behind which another one sends them again.

    Backward passes are told apart by launches of another part of the step between them. An optimizer between them uses
    the gradients: then the earlier ones are needed.
    """
    talks, passes = _find_sending(program)
    last = _find_last(program, passes)
    return talks & (passes >= 0) & ~np.isin(passes, last)


def count_sending_passes(program: Program) -> float:
    """Return the median number of backward passes per step that send gradients."""
    _, passes = _find_sending(program)
    steps = program.host["step"].to_numpy()[program.gpu["host"]]
    counts = [len(np.unique(passes[(steps == step) & (passes >= 0)])) for step in range(program.steps)]
    return float(np.median(counts)) if counts else 0.0


def send_once(program: Program) -> Program:
    """Leave out what backward passes send, except for the last one before an optimizer, with the calls for it.

    Other processes are as late as before. So the process waits as long for them, in the next send that stays.
    """
    early = find_early_sends(program)
    if not early.any():
        return program
    stays = np.where(_find_communication(program) & ~early, np.arange(len(early)), len(early))
    following = np.minimum.accumulate(stays[::-1])[::-1]
    to = np.where(following < len(early), following, -1)
    packing = find_packing(program, early)
    return changes.fuse(move_waits(program, early, to), early | packing)


def find_packing(program: Program, early: np.ndarray) -> np.ndarray:
    """Return one flag per operation: it packs gradients for one of these sends, or copies their mean back.

    DistributedDataParallel multiplies each gradient by one over the number of processes into a bucket. At the end of
    the backward pass it copies the buckets into the gradients again, unless these are views of them (torch's
    `Reducer::mark_variable_ready_dense` and `Reducer::finalize_bucket_dense`). A copy on the GPU behind the last send
    of the pass is taken for such a copy back. The multiplication that goes with it is the one of the pass whose
    duration is nearest to that of the copy. It must not differ by more than the factor ALIKE.

    early: one flag per operation, of find_early_sends.
    """
    gpu = program.gpu
    passes = _number_passes(program)[gpu["host"].to_numpy()]
    ns = gpu["ns"].to_numpy(dtype=float)
    copies = (gpu["kind"] == COPY).to_numpy() & ~gpu["crossing"].to_numpy(dtype=bool)
    names = pd.Series(unpack_configurations(gpu)["mangled"]).map(program.kernels).fillna("")
    scales = (gpu["kind"] == KERNEL).to_numpy() & names.str.contains(SCALING).to_numpy()
    found = np.zeros(len(gpu), dtype=bool)
    for number in np.unique(passes[early & (passes >= 0)]):
        mine = np.flatnonzero(passes == number)
        back = mine[copies[mine] & (mine > mine[early[mine]].max())]
        into = mine[scales[mine]]
        for one in back[np.argsort(-ns[back], kind="stable")]:
            found[one] = True
            apart = np.abs(np.log(np.maximum(ns[into], 1) / max(ns[one], 1)))
            if len(into) and apart.min() <= np.log(ALIKE):
                found[into[apart.argmin()]] = True
                into = np.delete(into, apart.argmin())
    return found


def _find_sending(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Return per operation whether it communicates, and the number of its backward pass; -1 for others."""
    numbers = _number_passes(program)[program.gpu["host"].to_numpy()]
    talks = _find_communication(program)
    return talks, np.where(talks, numbers, -1)


def _find_communication(program: Program) -> np.ndarray:
    """Return one flag per operation: it communicates, and no change has removed it."""
    return program.gpu["talking"].to_numpy(dtype=bool) & ~program.gpu["gone"].to_numpy(dtype=bool)


def _number_passes(program: Program) -> np.ndarray:
    """Return per host row the number of the backward pass that it belongs to, -1 for none; each step has its own."""
    host = program.host
    part = np.where((host["kind"] == CALL).to_numpy(), host["part"].to_numpy(), NONE)
    step = host["step"].to_numpy()
    known = np.flatnonzero(part != NONE)
    begins = np.ones(len(known), dtype=bool)
    begins[1:] = (part[known][1:] != part[known][:-1]) | (step[known][1:] != step[known][:-1])
    numbers = np.full(len(host), -1)
    numbers[known] = np.where(part[known] == BACKWARD, np.cumsum(begins), -1)
    return numbers


def _find_last(program: Program, passes: np.ndarray) -> np.ndarray:
    """Return the numbers of the backward passes that are the last to send in their step, or before an optimizer."""
    host = program.host
    calls = program.gpu["host"].to_numpy()
    part, step = host["part"].to_numpy(), host["step"].to_numpy()
    # How many times an optimizer has begun by each row: passes with equal counts are of one update.
    optimizes = (part == OPTIMIZER) & (host["kind"] == CALL).to_numpy()
    updates = np.cumsum(optimizes & ~np.append(False, optimizes[:-1]))
    mine = np.flatnonzero(passes >= 0)
    keys = step[calls[mine]] * (int(updates.max(initial=0)) + 1) + updates[calls[mine]]
    return np.array([passes[mine][keys == key].max() for key in np.unique(keys)], dtype=np.int64)


# Largest slowdown of the CPU that tracing is assumed to cause.
SLOWEST = 5.0
# A step within AS_FAST of the fastest possible counts as the fastest. A simulated step comes within CLOSE of the
# measured one. Both are relative.
AS_FAST, CLOSE = 0.01, 0.03
# Kernels up to this length take about as long as their launch alone; fusing one with its neighbour saves nearly all.
SHORT_NS = 5_000


@dataclass(frozen=True)
class Gain:
    """A step's ns before and after a change, and their ratio with its interval, NaN for a single step.

    whole: whether both ends of the interval are to be told; otherwise only the upper one is.
    """

    step_ns: float
    predicted_ns: float
    gain: float
    low: float
    high: float
    whole: bool = True

    @property
    def told_low(self) -> float | None:
        """Return the lower end of the interval if it is to be told."""
        return self.low if self.whole else None


def predict_gain(before: Program, after: Program, error: float = 0.0, confidence: float = 0.9) -> Gain:
    """Return how many times as fast the steps are after a change.

    Args:
        error: relative error of past predictions of this kind, at the same confidence; it widens the interval.
        confidence: confidence of the interval, 0 to 1.
    """
    unchanged, changed = (step_times(one, simulate(one)) for one in (before, after))
    return gain_of_steps(unchanged, changed, error, confidence, steps_differ(before))


def gain_of_steps(
    before: np.ndarray,
    after: np.ndarray,
    error: float = 0.0,
    confidence: float = 0.9,
    differ: bool = False,
    above: float | None = None,
) -> Gain:
    """Return the gain from the steps' times before and after the change.

    The interval is the one of a ratio of sums over steps (Cochran, Sampling Techniques, 1977, 6.3), with Student's t.
    Where steps do different work, their times are skewed, and a few of them show too little of the spread. Each end is
    then moved on by as much as one more step, like the traced one that moves it most, would move the gain.

    Args:
        before, after: times in ns, shape (steps,), of the same steps.
        error, confidence: as for predict_gain.
        differ: whether the steps launch differently.
        above: relative error of past predictions that were exceeded, for the upper end; None if it is `error` too.

    >>> found = gain_of_steps(np.array([30.0, 32.0, 28.0]), np.array([20.0, 21.0, 19.0]))
    >>> found.gain, round(found.low, 2), round(found.high, 2)
    (1.5, 1.46, 1.54)
    """
    count, ratio = len(before), float(before.sum() / after.sum())
    low = high = np.nan
    if count > 1:
        # Imported here, because it takes long and most importers read gains from tables.
        from scipy import special  # type: ignore[import-untyped]

        rest = before - ratio * after
        deviation = np.sqrt((rest**2).sum() / (count * (count - 1))) / before.mean()
        half = float(special.stdtrit(count - 1, (1 + confidence) / 2) * deviation)
        one_more = np.log((before.sum() + before) / (after.sum() + after) / ratio) * differ
        ends = (-one_more.min(), error), (one_more.max(), error if above is None else above)
        down, up = (np.hypot(half + max(more, 0.0), np.log1p(one)) for more, one in ends)
        low, high = ratio * np.exp(-down), ratio * np.exp(up)
    return Gain(float(before.mean()), float(after.mean()), ratio, float(low), float(high))


def remove_tracing(program: Program, step_ns: float, slowdown: float = 1.0) -> tuple[Program, float]:
    """Return the program without the tracer's overhead, and how many times slower the tracer made the CPU.

    A tracer lengthens calls, but hardly the GPU's operations. Therefore the CPU is made faster until the simulated step
    is as long as the unprofiled one. If the GPU alone takes longer than that, the process waits less for others, where
    it does. If it still does, the CPU is made faster only until the step is within AS_FAST of the fastest possible.

    Args:
        step_ns: the unprofiled step in ns.
        slowdown: slowdown of the CPU as known from another source. It is used if it is larger and the simulated step
            stays as long as the unprofiled one, because the GPU is the limit.
    """
    program = fit_waits(program, step_ns, SLOWEST)

    def step(times: float) -> float:
        faster = changes.speed_up_host(program, times)
        return float(step_times(faster, simulate(faster)).mean())

    wanted, times = max(step_ns, step(SLOWEST) * (1 + AS_FAST)), 1.0
    if step(1.0) > wanted:
        low, high = 1.0, SLOWEST
        while high / low > 1.003:
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if step(middle) > wanted else (low, middle)
        times = float(np.sqrt(low * high))
    slowdown = min(slowdown, SLOWEST)
    # If the CPU is the limit, the known slowdown would make the step shorter than the unprofiled one.
    if slowdown > times * (1 + CLOSE) and step(slowdown) >= (1 - CLOSE) * step_ns:
        times = slowdown
    return (changes.speed_up_host(program, times) if times > 1 else program), times


def _kernels(program: Program) -> np.ndarray:
    return (program.gpu["kind"] == KERNEL).to_numpy() & ~program.gpu["talking"].to_numpy(dtype=bool)


def _short(program: Program) -> np.ndarray:
    return _kernels(program) & (program.gpu["ns"] <= SHORT_NS).to_numpy()


def _second(program: Program) -> np.ndarray:
    """Return flags of every second operation that has a launching call of its own."""
    single = program.gpu["kind"].isin([KERNEL, COPY, SET]).to_numpy() & ~program.gpu["node"].to_numpy()
    return single & (np.cumsum(single) % 2 == 0) & ~program.gpu["talking"].to_numpy(dtype=bool)


# The changes that are simulated for every program, by name.
PANEL: Mapping[str, Callable[[Program], Program]] = {
    "kernels_2x": lambda program: changes.speed_up_kernels(program, _kernels(program), 2),
    "host_2x": lambda program: changes.speed_up_host(program, 2),
    "half_the_operators": lambda program: changes.fuse(program, _second(program), 0),
    "short_kernels_fused": lambda program: changes.fuse(program, _short(program), 1),
    "graph": changes.capture_as_graph,
    "input_ready": changes.prefetch_input,
    "waits_removed": changes.remove_waits,
    "communication_overlapped": changes.overlap_communication,
}
# Changes that relieve the CPU; host_time.py names the one that gains most.
OF_HOST = ("host_2x", "half_the_operators", "short_kernels_fused", "graph")
