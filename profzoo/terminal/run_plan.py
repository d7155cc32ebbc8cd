"""Prints what a run is going to make and its expected duration: one line, or one screen for a dry run."""

import json
import math
import textwrap
from collections import ChainMap, Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from profzoo import tools
from profzoo.cell import schema
from profzoo.formatting import format_count, format_estimate, join_first_names
from profzoo.io import strict_yaml
from profzoo.tools import BASELINE

# Names jobs of the workflow for readers: cell and tool of a measurement, or the kind of another job's outputs.

# Measuring rules besides the rules of tools: their names for readers, and the phase if no wildcard holds it.
MEASURING: Mapping[str, tuple[str, str]] = {
    "train_weights": ("weights", "train"),
    "time_training": (BASELINE, "train"),
    "time_inference": (BASELINE, "inference"),
    "time_in_turn": ("comparison", ""),
    "repeat_steps": ("numerics", ""),
    "predict_memory": ("remedies", "train"),
    "measure_peaks": ("peaks", ""),
    "measure_links": ("links", ""),
    "probe_ncu": ("probe", ""),
    (TRYING := "try_settings"): ("trials", ""),
}
# Beginning of the names of tools' rules, such as profile_ncu and profile_ncu_sampled.
OF_TOOLS = "profile_"
# Kinds of outputs of other jobs, by the first word of their rules.
KINDS = {"tabulate": "tables", "expect": "tables", "draw": "figures", "write": "pages"}
EXPORTS = "exports"


@dataclass(frozen=True)
class Task:
    """Describes a job for readers.

    cell: the cell, such as `unet train`; empty for a job on all cells. what: the tool (`nsys`, `ncu deep`), or the kind
    of its outputs. measures: whether it is a measurement. outputs, sidecar, benchmark, logs: paths of its files.
    """

    rule: str
    cell: str
    what: str
    measures: bool
    outputs: tuple[str, ...] = ()
    sidecar: str = ""
    benchmark: str = ""
    logs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return cell and tool, with which lines about the job begin."""
        return f"{self.cell}  {self.what}" if self.cell else self.what


def rule_kind(rule: str) -> tuple[str, str, bool]:
    """Return a rule's name for readers, its phase if no wildcard holds it, and whether it measures.

    >>> rule_kind("profile_ncu_sampled"), rule_kind("time_training"), rule_kind("draw_figure")
    (('ncu', '', True), ('time', 'train', True), ('figures', '', False))
    """
    if rule in MEASURING:
        return *MEASURING[rule], True
    first, *rest = rule.split("_")
    return (rest[0], "", True) if rule.startswith(OF_TOOLS) else (KINDS.get(first, EXPORTS), "", False)


def describe_job(job: Any) -> Task:
    """Describe one of Snakemake's jobs, without its params, because these take long to compute for a whole zoo."""
    rule, wildcards = job.rule.name, dict(job.wildcards_dict)
    what, phase, measures = rule_kind(rule)
    named = [wildcards.get("model", wildcards.get("gpu", "")), wildcards.get("phase", phase)]
    files: dict[str, tuple[str, ...]] = {name: tuple(map(str, getattr(job, name))) for name in ("output", "log")}
    return Task(
        rule,
        " ".join(filter(None, named)),
        f"{what} {wildcards['set']}" if measures and "set" in wildcards else what,
        measures,
        files["output"],
        str(getattr(job.output, "sidecar", "")) if measures else "",
        str(job.benchmark or ""),
        files["log"],
    )


def cell_folder(task: Task) -> Path:
    """Return the folder of a measured cell's files."""
    return Path(task.sidecar).parent


# Estimates the duration of jobs from their last run, or else from other jobs of the same kind.

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


def expect_duration(task: Task, earlier: EarlierTimes, budget_s: float = math.inf) -> tuple[float, bool]:
    """Return a job's expected seconds, and whether the estimate comes from this machine; budget_s: of trials."""
    if task.rule == TRYING and budget_s < shipped_durations()["cpu"][task.what]:
        return budget_s, True
    if not task.measures:
        light = shipped_durations()["light"].get(task.rule.split("_")[0], UNKNOWN_LIGHT_S)
        return light if task.outputs else 0.0, True
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


# Tracks a run's progress and estimates its remaining time from the durations of its own jobs.

# Seconds that are added to measured and expected time, so that a single long job does not change the whole estimate.
DOUBT_S = 20.0


@dataclass
class Progress:
    """The jobs of a run, by Snakemake's number of the job.

    tasks: descriptions. expected: expected seconds. measured_at_once, at_once: how many measurements, and how many jobs
    at all, run at the same time. followers: jobs that use a job's outputs. said: messages of a batch system about jobs.
    began: start times. took: durations in seconds. failed: failed jobs, in order.
    """

    tasks: Mapping[int, Task]
    expected: Mapping[int, float]
    measured_at_once: int = 1
    at_once: int = 1
    followers: Mapping[int, Collection[int]] = field(default_factory=dict)
    said: Mapping[int, str] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)
    took: dict[int, float] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)

    def start(self, number: int, now: float) -> None:
        """Record that a job has started."""
        self.began[number] = now

    def finish(self, number: int, now: float) -> float:
        """Record that a job has finished, perhaps at its second attempt; return its duration in seconds."""
        if number in self.failed:
            self.failed.remove(number)
        self.took[number] = now - self.began.get(number, now)
        return self.took[number]

    def fail(self, number: int) -> None:
        """Record that a job has failed; a job that fails twice counts once."""
        if number not in self.failed:
            self.failed.append(number)

    def lost(self) -> set[int]:
        """Return the jobs that failed, and the jobs that cannot run because of them."""
        found: set[int] = set()
        ahead = list(self.failed)
        while ahead:
            if (number := ahead.pop()) not in found:
                found.add(number)
                ahead += self.followers.get(number, ())
        return found

    def counted(self, measures: bool) -> tuple[int, int]:
        """Return the numbers of finished and of all measurements (measures) or other jobs.

        Measurements that failed or cannot run count as finished; other jobs that cannot run are left out.
        """
        lost = self.lost()
        mine = {number for number, task in self.tasks.items() if task.measures == measures and task.outputs}
        mine -= set() if measures else lost
        return sum(number in self.took or number in lost for number in mine), len(mine)

    def left_s(self, now: float) -> float:
        """Estimate the seconds until all jobs have finished."""
        measured, others = self._left_s(True, now), self._left_s(False, now)
        return max(measured / self.measured_at_once, (measured + others) / self.at_once)

    def _left_s(self, measures: bool, now: float) -> float:
        lost = self.lost()
        mine = [number for number, task in self.tasks.items() if task.measures == measures and number not in lost]
        over = [number for number in mine if number in self.took]
        planned = sum(self.expected[number] for number in over)
        pace = (sum(self.took[number] for number in over) + DOUBT_S) / (planned + DOUBT_S)
        left = 0.0
        for number in mine:
            if number not in self.took:
                spent = now - self.began[number] if number in self.began else 0.0
                left += max(0.0, pace * self.expected[number] - spent)
        return left


# Measurements that run in addition to the requested ones.
BESIDES = ("weights", tools.BASELINE, "peaks", "links", "probe")
# A run of at most this many jobs, none of them a measurement, gets no headline.
FEW = 3
MODELS_SHOWN = 24
REASONS_SHOWN = 2


@dataclass(frozen=True)
class Place:
    """Where jobs run.

    gpus: number of GPUs that are used at a time. remote: whether a batch system runs the jobs. unable: reasons why
    tools of the run cannot run here, by tool.
    """

    gpus: int
    remote: bool
    unable: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Describe the place in words.

        >>> str(Place(2, False))
        'on 2 GPUs'
        """
        return f"on {format_count(self.gpus, 'GPU')}" if self.gpus else "on this CPU"


def plan_headline(progress: Progress, place: Place, guessed: float) -> str:
    """Return the plan in one line; empty if it is not worth one.

    guessed: share of the time that is estimated from other machines, 0 to 1.
    """
    measuring = [task for task in progress.tasks.values() if task.measures]
    others = sum(not task.measures and bool(task.outputs) for task in progress.tasks.values())
    if not measuring and others <= FEW:
        return ""
    time = format_estimate(progress.left_s(0.0))
    if not measuring:
        return f"{format_count(others, 'post-processing job')}: about {time}"
    cells = format_count(len(cells_to_measure(measuring)), "cell")
    asked = list(dict.fromkeys(_tool(task) for task in measuring if task.what not in BESIDES))
    tools = format_count(len(asked), "tool") if len(asked) > 1 else (asked or [measuring[0].what])[0]
    needed = {name.split()[0] for name in asked} or {task.what for task in measuring if task.what != "weights"}
    if needed and needed <= set(place.unable):
        return f"{cells}, {tools}: cannot run here"
    basis = ", estimated from other machines" if guessed > 0.5 else ""
    if place.remote:
        total = sum(progress.expected[number] for number, task in progress.tasks.items() if task.measures)
        return f"{cells}, {tools}: about {format_estimate(total)} of GPU time, in jobs of the batch system{basis}"
    return f"{cells}, {tools}: about {time} {place}{basis}"


def _tool(task: Task) -> str:
    """Return a measurement's tool without its section set."""
    return task.what if task.rule in MEASURING else task.what.split()[0]


def cells_to_measure(measuring: Collection[Task]) -> list[str]:
    """Return the measured cells, each once; weights are not counted."""
    cells = dict.fromkeys(task.cell for task in measuring if task.what not in ("weights", "peaks", "links", "probe"))
    return list(cells or dict.fromkeys(task.cell for task in measuring))


def dry_run_screen(progress: Progress, reasons: Mapping[int, Sequence[str]], width: int) -> list[str]:
    """Return one line per tool and per kind of other job, with number of jobs, time and reasons.

    reasons: why each job would run, by its number; width: characters that a line may have.
    """
    numbers: dict[tuple[bool, str], list[int]] = {}
    for number, task in progress.tasks.items():
        if task.outputs:
            numbers.setdefault((not task.measures, task.what), []).append(number)
    order = {"weights": 0, tools.BASELINE: 1, EXPORTS: 3, **{kind: 4 + at for at, kind in enumerate(KINDS.values())}}
    rows = []
    for key in sorted(numbers, key=lambda key: (key[0], order.get(key[1], 2), key[1])):
        mine = numbers[key]
        told = Counter(reason for number in mine for reason in set(reasons.get(number, ())))
        why = ", ".join(reason for reason, _ in told.most_common(REASONS_SHOWN))
        time = format_estimate(sum(progress.expected[number] for number in mine))
        rows.append((key[1], format_count(len(mine), "job"), f"~{time}", why))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines = [
        f"  {what:<{widths[0]}}  {count:>{widths[1]}}  {time:>{widths[2]}}  {why}".rstrip()[:width]
        for what, count, time, why in rows
    ]
    return [*lines, *_about(progress, width)]


def _about(progress: Progress, width: int) -> list[str]:
    """Return lines with the models of the run, and with the pages that it makes."""
    done = progress.tasks.values()
    models = sorted({cell.split()[0] for cell in cells_to_measure([task for task in done if task.measures]) if cell})
    pages = [path for task in done if task.what == "pages" for path in task.outputs]
    lines = [f"models: {join_first_names(models, MODELS_SHOWN)}"] if models else []
    lines += [f"makes {path}" for path in pages]
    fold = textwrap.TextWrapper(
        width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [part for line in lines for part in fold.wrap(line)]
