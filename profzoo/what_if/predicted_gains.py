"""Predicts what a change to a program gains: the step's time before over after, with an interval."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from profzoo.what_if import changes, communication_overlap, process_waits
from profzoo.what_if.graph_obstacles import steps_differ
from profzoo.what_if.program import Program
from profzoo.what_if.simulator import simulate, step_times
from profzoo.what_if.trace_events import COPY, KERNEL, SET

# Largest slowdown of the CPU that tracing is assumed to cause.
SLOWEST = 5.0
# A step within AS_FAST of the fastest possible counts as the fastest. A simulated step comes within CLOSE of the
# measured one. Both are relative.
AS_FAST, CLOSE = 0.01, 0.03
# Kernels up to this length take about as long as their launch alone; fusing one with its neighbour saves nearly all.
SHORT_NS = 5_000


@dataclass(frozen=True)
class Gain:
    """A step's ns before and after a change, and their ratio with its interval, NaN for a single step."""

    step_ns: float
    predicted_ns: float
    gain: float
    low: float
    high: float


def predict_gain(
    before: Program, after: Program, error: float = 0.0, confidence: float = 0.9, unchanged: np.ndarray | None = None
) -> Gain:
    """Return how many times as fast the steps are after a change.

    Args:
        error: relative error of past predictions of this kind, at the same confidence; it widens the interval.
        confidence: confidence of the interval, 0 to 1.
        unchanged: ns of the steps before, shape (steps,), where they were simulated already.
    """
    if unchanged is None:
        unchanged = step_times(before, simulate(before))
    return gain_of_steps(unchanged, step_times(after, simulate(after)), error, confidence, steps_differ(before))


def gain_of_steps(
    before: np.ndarray, after: np.ndarray, error: float = 0.0, confidence: float = 0.9, differ: bool = False
) -> Gain:
    """Return the gain from the steps' times before and after the change.

    The interval is the one of a ratio of sums over steps (Cochran, Sampling Techniques, 1977, 6.3), with Student's t.
    Where steps do different work, their times are skewed, and a few of them show too little of the spread. Each end is
    then moved on by as much as one more step, like the traced one that moves it most, would move the gain.

    Args:
        before, after: times in ns, shape (steps,), of the same steps.
        error, confidence: as for predict_gain.
        differ: whether the steps launch differently.

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
        down, up = (np.hypot(half + max(more, 0.0), np.log1p(error)) for more in (-one_more.min(), one_more.max()))
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
    program = process_waits.fit_waits(program, step_ns, SLOWEST)

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
    "communication_overlapped": communication_overlap.overlap_communication,
}
# Changes that relieve the CPU; host_time.py names the one that gains most.
OF_HOST = ("host_2x", "half_the_operators", "short_kernels_fused", "graph")
