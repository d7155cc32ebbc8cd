"""What processes of one cell, run one after the other, say of its step: typical time, spread, and how steady it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from profzoo.statistics.steady_state import drop_warmup

# Beyond these a cell's times are not steady: by how much of the median the middle half of the steps of a process may
# spread, how far apart processes may be, by how much the second half of a window may differ from the first, and how far
# the mean may be above the median.
STEPS_SPREAD, PROCESSES_APART, DRIFT, MEAN_ABOVE = 0.10, 0.05, 0.05, 0.30
# Where others had the CPU for more of a process's time than this, its steps may be longer by as much as processes may
# be apart, however alike they are: who takes a CPU evenly leaves no other trace.
TAKEN = 0.05
# Of one process the mean's interval goes by so many parts of its window, one after the other.
BATCHES = 5
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Repeats:
    """Steps of a cell over processes.

    mean_ns, median_ns: over processes, the mean of their means and the median of their medians. mean_low_ns,
    mean_high_ns: the interval of the mean, as `interval` says. lower_quartile_ns, upper_quartile_ns: of all steps, each
    process counting alike, so that the median lies between them. steps, processes: how many. between_share: of the
    variance of a step's logarithm, the part that is between processes; nan for one process. taken_share: the part of
    the time for which others had the CPU. unsteady: why the times are not to be relied on, if so.
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
    """Times of settled steps in ns, an array a process: the GPU's clock where it has any, else the host's.

    steps: columns wall_ns and gpu_ns, and `process` where there are several; rows of a process in their order.
    """
    clock = steps["gpu_ns"] if steps["gpu_ns"].notna().any() else steps["wall_ns"]
    groups = clock.groupby(steps["process"]) if "process" in steps else [(0, clock)]
    return [drop_warmup(times.to_numpy(dtype=float)) for _, times in groups]


def cpu_taken_shares(facts: Mapping[str, Any]) -> float:
    """The part of the time for which others had the CPU of a run, or of that one of its processes that they had most.

    facts: its sidecar; nan where it does not tell.

    >>> several = {"processes": [{"cpu_taken_share": 0.1}, {"cpu_taken_share": 0.3}]}
    >>> cpu_taken_shares(several), cpu_taken_shares({"cpu_taken_share": None})
    (0.3, nan)
    """
    shares = (own.get("cpu_taken_share") for own in facts.get("processes", [facts]))
    return max((float(share) for share in shares if share is not None), default=float("nan"))


def summarise_processes(processes: Sequence[np.ndarray], taken: float = float("nan")) -> Repeats:
    """Of the times of settled steps in ns, an array a process, each of one step or more; taken: as above.

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
    """The ends, in ns, between which the mean step lies in 95 of 100 cases; nan of a single step.

    By Student's t over the means of processes where there are several, else over those of BATCHES parts of the window,
    as steps next to each other are alike (method of batch means; Law, Simulation Modeling and Analysis, 2015, 9.5.3).
    No lower than the shortest step.

    Two processes of 100 and 102 ns have a standard error of 1 ns and one degree of freedom, of which t is 12.7; the
    shortest step takes 99:

    >>> [round(end, 1) for end in mean_interval([np.array([99.0, 101.0]), np.array([101.0, 103.0])])]
    [99.0, 113.7]
    """
    several = len(processes) > 1
    parts = processes if several else np.array_split(processes[0], min(BATCHES, len(processes[0])))
    means = np.array([part.mean() for part in parts])
    if len(means) < 2:
        return float("nan"), float("nan")
    # Here, as it takes half a second, and most who import this read what others made.
    from scipy import stats  # type: ignore[import-untyped]

    middle = float(means.mean()) if several else float(processes[0].mean())
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means)))
    shortest = min(float(steps.min()) for steps in processes)
    return max(middle - half, shortest), middle + half


def _alike(processes: Sequence[np.ndarray]) -> np.ndarray:
    """The steps of all processes; one that has fewer than another by as many of its quantiles."""
    most = max(map(len, processes))
    places = np.linspace(0, 1, most)
    return np.concatenate([one if len(one) == most else np.quantile(one, places) for one in processes])


def between_process_share(processes: Sequence[np.ndarray]) -> float:
    """The share of the variance of a step's logarithm that is between processes, from 0 to 1.

    The intraclass correlation of a one-way analysis of variance, groups of unlike sizes (Searle, Casella and McCulloch
    1992, chapter 3). nan where there are fewer than two processes, or no more steps than processes.
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
    """Why times are not steady, by what was taken alone too."""
    others = f"other programs used the CPU up to {taken:.0%} of the time" if taken > TAKEN else None
    return "; ".join(filter(None, (why, others))) or None


def _unsteady(processes: Sequence[np.ndarray], means: np.ndarray, medians: np.ndarray) -> str | None:
    apart = medians.max() / medians.min() - 1
    if apart > PROCESSES_APART:
        return f"processes are {apart:.0%} apart"
    spread = max(
        float(np.subtract(*np.quantile(steps, [0.75, 0.25]))) / median
        for steps, median in zip(processes, medians, strict=True)
    )
    if spread > STEPS_SPREAD:
        return f"the middle half of the steps spreads by {spread:.0%}"
    halves = [np.array_split(steps, 2) for steps in processes if len(steps) > 3]
    drifts = [float(np.median(late) / np.median(early)) - 1 for early, late in halves]
    most = max(drifts, key=abs, default=0.0)
    if abs(most) > DRIFT:
        return f"steps of the second half take {most:+.0%} of time"
    above = float((means / medians).max()) - 1
    if above > MEAN_ABOVE:
        return f"some steps take much longer, so that the mean is {above:.0%} above the median"
    return None
