"""Estimates the duration of jobs from their last run, or else from other jobs of the same kind."""

import json
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from profzoo import schema
from profzoo.io import strict_yaml
from profzoo.terminal.job_titles import Task

SHIPPED = Path(__file__).with_name("costs.yaml")
FILES = (SHIPPED.name,)
# Number of jobs on this machine that count as much as the shipped duration of other machines.
ELSEWHERE = 2
# Seconds of jobs that are not in the table: of a measurement, and of any other job.
UNKNOWN_S, UNKNOWN_LIGHT_S = 10.0, 2.0


@dataclass(frozen=True)
class EarlierTimes:
    """Durations of earlier runs in seconds, by kind of benchmark; gpu: whether to use shipped durations of a GPU."""

    by_kind: Mapping[str, list[float]]
    gpu: bool


@cache
def shipped_durations() -> dict[str, dict[str, float]]:
    """Return durations on other machines in seconds, by `gpu`, `cpu` or `light` and by kind of job."""
    found = strict_yaml.load_yaml(SHIPPED)
    own = [part.get("costs", {}) for part in schema.tool_schemas().values()]
    return {
        where: dict(ChainMap(figures, *(costs.get(where, {}) for costs in own))) for where, figures in found.items()
    }


def read_benchmark(benchmark: Path) -> float | None:
    """Read a job's duration in seconds from Snakemake's benchmark file; None if there is none."""
    try:
        return float(benchmark.read_text().splitlines()[1].split("\t")[0])
    except (OSError, ValueError, IndexError):
        return None


def benchmark_kind(benchmark: str) -> str:
    """Return the part of a benchmark's name that is common to its kind of job.

    >>> tuple(benchmark_kind(f"results/benchmarks/unet/{name}.tsv") for name in ("train.deep.ncu", "weights"))
    ('train.deep.ncu', 'weights')
    """
    return Path(benchmark).stem


def read_benchmarks(folder: Path, gpu: bool) -> EarlierTimes:
    """Read the durations of earlier runs from a folder of benchmarks; gpu: as for EarlierTimes."""
    by_kind: dict[str, list[float]] = {}
    for path in folder.glob("*/*.tsv"):
        if (took := read_benchmark(path)) is not None:
            by_kind.setdefault(benchmark_kind(path.name), []).append(took)
    return EarlierTimes(by_kind, gpu)


def expect_duration(task: Task, earlier: EarlierTimes) -> tuple[float, bool]:
    """Return a job's expected seconds, and whether the estimate comes from this machine."""
    if not task.measures:
        return (
            (shipped_durations()["light"].get(task.rule.split("_")[0], UNKNOWN_LIGHT_S), True)
            if task.outputs
            else (0.0, True)
        )
    if (own := _own(task)) is not None:
        return own, True
    figures = shipped_durations()["gpu" if earlier.gpu else "cpu"]
    elsewhere = figures.get(task.what, figures.get(task.what.split()[0], UNKNOWN_S))
    took = earlier.by_kind.get(benchmark_kind(task.benchmark), []) if task.benchmark else []
    return (sum(took) + ELSEWHERE * elsewhere) / (len(took) + ELSEWHERE), bool(took)


def _own(task: Task) -> float | None:
    """Return the seconds of the job's last run, from its benchmark or else from its sidecar; None if unknown."""
    took = read_benchmark(Path(task.benchmark)) if task.benchmark else None
    if took is None and task.sidecar:
        try:
            return float(json.loads(Path(task.sidecar).read_text())["wall_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return took
