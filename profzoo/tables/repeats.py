"""What processes of one cell, run one after the other, say of its step: typical time, spread, and how steady it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from profzoo.settling import settled

# Beyond these a cell's times are not steady: by how much of the median the middle half of the steps of a process may
# spread, how far apart processes may be, by how much the second half of a window may differ from the first, and how far
# the mean may be above the median.
STEPS_SPREAD, PROCESSES_APART, DRIFT, MEAN_ABOVE = 0.10, 0.05, 0.05, 0.30
# Where others had the CPU for more of a process's time than this, that is the likely cause.
TAKEN = 0.05


@dataclass(frozen=True)
class Repeats:
    """Steps of a cell over processes.

    mean_ns, median_ns: over processes, the mean of their means and the median of their medians. low_ns, high_ns:
    quartiles of all steps. steps, processes: how many. between_share: of the variance of a step's logarithm, the part
    that is between processes; nan for one process. unsteady: why the times are not to be relied on, if so.
    """

    mean_ns: float
    median_ns: float
    low_ns: float
    high_ns: float
    steps: int
    processes: int
    between_share: float
    unsteady: str | None


def processes(steps: pd.DataFrame) -> list[np.ndarray]:
    """Times of settled steps in ns, an array a process: the GPU's clock where it has any, else the host's.

    steps: columns wall_ns and gpu_ns, and `process` where there are several; rows of a process in their order.
    """
    clock = steps["gpu_ns"] if steps["gpu_ns"].notna().any() else steps["wall_ns"]
    groups = clock.groupby(steps["process"]) if "process" in steps else [(0, clock)]
    return [settled(times.to_numpy(dtype=float)) for _, times in groups]


def taken(facts: Mapping[str, Any]) -> float:
    """The part of the time for which others had the CPU of a run, or of that one of its processes that they had most.

    facts: its sidecar; 0 where it does not tell.
    """
    return max((own.get("cpu_taken_share") or 0.0 for own in facts.get("processes", [facts])), default=0.0)


def of(processes: Sequence[np.ndarray], taken: float = 0.0) -> Repeats:
    """Of the times of settled steps in ns, an array a process, each of one step or more; taken: as above.

    >>> found = of([np.array([100.0, 102.0, 98.0]), np.array([100.0, 101.0, 99.0])])
    >>> found.median_ns, found.steps, found.unsteady
    (100.0, 6, None)
    """
    means, medians = (np.array([of_one(steps) for steps in processes]) for of_one in (np.mean, np.median))
    low, high = np.quantile(np.concatenate(processes), [0.25, 0.75])
    return Repeats(
        mean_ns=float(means.mean()),
        median_ns=float(np.median(medians)),
        low_ns=float(low),
        high_ns=float(high),
        steps=sum(map(len, processes)),
        processes=len(processes),
        between_share=between_share(processes),
        unsteady=_because(_unsteady(processes, means, medians), taken),
    )


def between_share(processes: Sequence[np.ndarray]) -> float:
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
    return f"{why}; others had the CPU for up to {taken:.0%} of the time" if why and taken > TAKEN else why


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
