"""Prints what a run is going to make and its expected duration: one line, or one screen for a dry run."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from profzoo import tools
from profzoo.terminal import job_titles, phrases
from profzoo.terminal.job_titles import Task
from profzoo.terminal.progress import Progress

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
        return f"on {phrases.format_count(self.gpus, 'GPU')}" if self.gpus else "on this CPU"


def plan_headline(progress: Progress, place: Place, guessed: float) -> str:
    """Return the plan in one line; empty if it is not worth one.

    guessed: share of the time that is estimated from other machines, 0 to 1.
    """
    measuring = [task for task in progress.tasks.values() if task.measures]
    others = sum(not task.measures and bool(task.outputs) for task in progress.tasks.values())
    if not measuring and others <= FEW:
        return ""
    time = phrases.format_estimate(progress.left_s(0.0))
    if not measuring:
        return f"{phrases.format_count(others, 'post-processing job')}: about {time}"
    cells = phrases.format_count(len(cells_to_measure(measuring)), "cell")
    asked = list(dict.fromkeys(_tool(task) for task in measuring if task.what not in BESIDES))
    tools = phrases.format_count(len(asked), "tool") if len(asked) > 1 else (asked or [measuring[0].what])[0]
    if asked and {name.split()[0] for name in asked} <= set(place.unable):
        return f"{cells}, {tools}: cannot run here"
    basis = ", estimated from other machines" if guessed > 0.5 else ""
    if place.remote:
        total = phrases.format_estimate(
            sum(progress.expected[number] for number, task in progress.tasks.items() if task.measures)
        )
        return f"{cells}, {tools}: about {total} of GPU time, in jobs of the batch system{basis}"
    return f"{cells}, {tools}: about {time} {place}{basis}"


def _tool(task: Task) -> str:
    """Return a measurement's tool without its section set."""
    return task.what if task.rule in job_titles.MEASURING else task.what.split()[0]


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
    order = {
        "weights": 0,
        tools.BASELINE: 1,
        job_titles.EXPORTS: 3,
        **{kind: 4 + at for at, kind in enumerate(job_titles.KINDS.values())},
    }
    rows = []
    for key in sorted(numbers, key=lambda key: (key[0], order.get(key[1], 2), key[1])):
        mine = numbers[key]
        told = Counter(reason for number in mine for reason in set(reasons.get(number, ())))
        why = ", ".join(reason for reason, _ in told.most_common(REASONS_SHOWN))
        time = phrases.format_estimate(sum(progress.expected[number] for number in mine))
        rows.append((key[1], phrases.format_count(len(mine), "job"), f"~{time}", why))
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
    lines = [f"  models: {phrases.join_first_names(models, MODELS_SHOWN)}"] if models else []
    lines += [f"  makes {path}" for path in pages]
    return [part for line in lines for part in _folded(line, width)]


def _folded(line: str, width: int) -> list[str]:
    found = [""]
    for word in line.split():
        if found[-1].strip() and len(found[-1]) + 1 + len(word) > width:
            found.append(f"    {word}")
        else:
            found[-1] = f"{found[-1]} {word}" if found[-1] else f"  {word}"
    return found
