"""Summarises the steps of a cell over several processes: typical time, spread, and whether the times are steady."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from profzoo.formatting import percent
from profzoo.statistics.percentiles import drop_warmup

# A cell's times are unsteady beyond any of these relative limits: interquartile range of a process's steps over their
# median; distance between the medians of processes; change from the first half of the window to the second; excess of
# the mean over the median.
STEPS_SPREAD, PROCESSES_APART, DRIFT, MEAN_ABOVE = 0.10, 0.05, 0.05, 0.30
# If other programs used the CPU for more than this share of a process's time, its steps may be longer by
# PROCESSES_APART. The steps may still look alike, because a constant load on the CPU leaves no other trace.
TAKEN = 0.05
# Number of consecutive parts of the window from which the interval of a single process's mean is computed.
BATCHES = 5
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Repeats:
    """Summary of a cell's steps over its processes; times in ns.

    Attributes:
        mean_ns: mean of the processes' means.
        mean_low_ns, mean_high_ns: 95 % confidence interval of the mean, from mean_interval.
        median_ns: median of the processes' medians.
        lower_quartile_ns, upper_quartile_ns: quartiles of all steps, with equal weight for every process.
        steps, processes: their numbers.
        between_share: share of the variance of a step's logarithm that lies between processes, 0 to 1; NaN for one
            process.
        taken_share: share of the time in which other programs used the CPU, 0 to 1.
        unsteady: why the times are not to be relied on; None if they are steady.
    """

    mean_ns: float
    mean_low_ns: float
    mean_high_ns: float
    median_ns: float
    lower_quartile_ns: float
    upper_quartile_ns: float
    steps: int
    processes: int
    between_share: float
    taken_share: float
    unsteady: str | None


def processes(steps: pd.DataFrame) -> list[np.ndarray]:
    """Return the times in ns of the steps in steady state, one array per process.

    The GPU's clock is used if any step has a GPU time. Of processes that were compared on a CPU, it is the time on a
    core, so that other programs do not count. Otherwise it is the host's clock.

    steps: one row per step, in order, with `wall_ns` and `gpu_ns`, and `process` if there are several.
    """
    on_gpu = steps["gpu_ns"].notna().any()
    groups = [rows for _, rows in steps.groupby("process")] if "process" in steps else [steps]
    compared = ["own_ns" in rows and not on_gpu and bool(rows["own_ns"].notna().all()) for rows in groups]
    clocks = ["gpu_ns" if on_gpu else "own_ns" if own else "wall_ns" for own in compared]
    return [
        drop_warmup(rows[clock].to_numpy(dtype=float), first_only=own)
        for rows, clock, own in zip(groups, clocks, compared, strict=True)
    ]


def cpu_taken_shares(facts: Mapping[str, Any]) -> float:
    """Return the share of a run's time in which other programs used the CPU, 0 to 1; NaN if unknown.

    Of several processes it is the largest share. facts: the run's sidecar.

    >>> several = {"processes": [{"cpu_taken_share": 0.1}, {"cpu_taken_share": 0.3}]}
    >>> cpu_taken_shares(several), cpu_taken_shares({"cpu_taken_share": None})
    (0.3, nan)
    """
    shares = (own.get("cpu_taken_share") for own in facts.get("processes", [facts]))
    return max((float(share) for share in shares if share is not None), default=float("nan"))


def summarise_processes(processes: Sequence[np.ndarray], taken: float = float("nan")) -> Repeats:
    """Summarise the steps of several processes.

    Args:
        processes: times in ns of the steps in steady state, one array per process, each with at least one step.
        taken: share of the time in which other programs used the CPU, from cpu_taken_shares.

    >>> found = summarise_processes([np.array([100.0, 102.0, 98.0]), np.array([100.0, 101.0, 99.0])])
    >>> found.median_ns, found.steps, found.unsteady
    (100.0, 6, None)
    """
    means, medians = (np.array([of_one(steps) for steps in processes]) for of_one in (np.mean, np.median))
    low, high = mean_interval(processes)
    lower, upper = np.quantile(_alike(processes), [0.25, 0.75])
    return Repeats(
        mean_ns=float(means.mean()),
        mean_low_ns=low,
        mean_high_ns=high,
        median_ns=float(np.median(medians)),
        lower_quartile_ns=float(lower),
        upper_quartile_ns=float(upper),
        steps=sum(map(len, processes)),
        processes=len(processes),
        between_share=between_process_share(processes),
        taken_share=taken,
        unsteady=_because(_unsteady(processes, means, medians), taken),
    )


def mean_interval(processes: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the 95 % confidence interval of the mean step in ns; NaN for a single step.

    The interval uses Student's t. With several processes it is computed from their means. With one process it is
    computed from the means of BATCHES parts of the window, because neighbouring steps are alike (method of batch means;
    Law, Simulation Modeling and Analysis, 2015, 9.5.3). The lower end is at least the shortest step.

    Two processes of 100 and 102 ns have a standard error of 1 ns and one degree of freedom, for which t is 12.7. The
    shortest step takes 99 ns:

    >>> [round(end, 1) for end in mean_interval([np.array([99.0, 101.0]), np.array([101.0, 103.0])])]
    [99.0, 113.7]
    """
    several = len(processes) > 1
    parts = processes if several else np.array_split(processes[0], min(BATCHES, len(processes[0])))
    means = np.array([part.mean() for part in parts])
    if len(means) < 2:
        return float("nan"), float("nan")
    # Imported here, because it takes long and most importers only read results.
    from scipy import special  # type: ignore[import-untyped]

    middle = float(means.mean()) if several else float(processes[0].mean())
    half = float(special.stdtrit(len(means) - 1, (1 + CONFIDENCE) / 2) * means.std(ddof=1) / np.sqrt(len(means)))
    shortest = min(float(steps.min()) for steps in processes)
    return max(middle - half, shortest), middle + half


def _alike(processes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the steps of all processes; a process with fewer steps contributes as many quantiles of its steps."""
    most = max(map(len, processes))
    places = np.linspace(0, 1, most)
    return np.concatenate([one if len(one) == most else np.quantile(one, places) for one in processes])


def between_process_share(processes: Sequence[np.ndarray]) -> float:
    """Return the share of the variance of a step's logarithm that lies between processes, 0 to 1.

    It is the intraclass correlation of a one-way analysis of variance with groups of unequal sizes (Searle, Casella and
    McCulloch, Variance Components, 1992, chapter 3). The result is NaN with fewer than two processes, or without more
    steps than processes. processes: times of steps in ns, one array per process.
    """
    logs = [np.log(steps) for steps in processes]
    sizes = np.array([len(steps) for steps in logs], dtype=float)
    groups, total = len(logs), sizes.sum()
    if groups < 2 or total <= groups:
        return float("nan")
    means = np.array([steps.mean() for steps in logs])
    grand = float((sizes * means).sum() / total)
    within = sum(float(((steps - mean) ** 2).sum()) for steps, mean in zip(logs, means, strict=True)) / (total - groups)
    among = float((sizes * (means - grand) ** 2).sum()) / (groups - 1)
    typical = (total - (sizes**2).sum() / total) / (groups - 1)
    between = max(among - within, 0.0) / typical
    return between / (between + within) if between + within else 0.0


def _because(why: str | None, taken: float) -> str | None:
    """Add other programs' use of the CPU to the reason why times are unsteady; None if there is no reason."""
    others = f"other programs used the CPU up to {percent(taken, TAKEN)} of the time" if taken > TAKEN else None
    return "; ".join(filter(None, (why, others))) or None


def _unsteady(processes: Sequence[np.ndarray], means: np.ndarray, medians: np.ndarray) -> str | None:
    apart = medians.max() / medians.min() - 1
    if apart > PROCESSES_APART:
        return f"the slowest process takes {percent(apart, PROCESSES_APART)} longer than the fastest"
    spread = max(
        float(np.subtract(*np.quantile(steps, [0.75, 0.25]))) / median
        for steps, median in zip(processes, medians, strict=True)
    )
    if spread > STEPS_SPREAD:
        return f"the middle half of the steps spreads by {percent(spread, STEPS_SPREAD)}"
    halves = [np.array_split(steps, 2) for steps in processes if len(steps) > 3]
    drifts = [float(np.median(late) / np.median(early)) - 1 for early, late in halves]
    most = max(drifts, key=abs, default=0.0)
    if abs(most) > DRIFT:
        changes = f"{'-' if most < 0 else '+'}{percent(abs(most), DRIFT)}"
        return f"the time per step changes by {changes} from the first half of the window to the second"
    above = float((means / medians).max()) - 1
    if above > MEAN_ABOVE:
        return f"some steps take much longer, so that the mean is {percent(above, MEAN_ABOVE)} above the median"
    return None
