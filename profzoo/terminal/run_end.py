"""Summarizes a finished run: first failure, new results, the report's place, and the largest expected gains."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from profzoo.collect import failure_summary
from profzoo.terminal import phrases
from profzoo.terminal.cell_verdicts import list_cell_verdicts
from profzoo.terminal.differing_steps import list_differing_cells
from profzoo.terminal.job_titles import Task
from profzoo.terminal.largest_gains import list_largest_gains
from profzoo.terminal.progress import Progress

INDENT = 8
# Table of how the launches of steps differ.
REPETITION = "repetition.csv"


def format_run_end(progress: Progress, seconds: float, width: int, ended: bool = False) -> list[str]:
    """Return the summary lines; empty if the run made nothing worth reporting.

    seconds: duration of the run; width: characters that a line may have; ended: whether the user ended the run.
    """
    done = [progress.tasks[number] for number in progress.took]
    lines = [_row("failed", _first(progress))] if len(progress.failed) > 1 else []
    if new := _new(done):
        lines.append(_row("new", f"{new}; in {phrases.format_duration(seconds)}"))
    folders = [path for task in done if task.rule == "convert_tables" for path in task.outputs]
    pages = [path for task in done if task.what == "pages" for path in task.outputs]
    verdicts, plans = (_table_of(done, rule) for rule in ("tabulate_verdicts", "tabulate_plans"))
    gains = list_largest_gains(verdicts, plans) if verdicts else []
    if verdicts and not gains:
        lines += [_row("" if place else "verdict", says) for place, says in enumerate(list_cell_verdicts(verdicts))]
    told = "by you: finished results are kept, and the same command continues the run"
    ends = [_row("ended", told)] if ended else []
    tables = [Path(path) for task in done if task.rule == "tabulate" for path in task.outputs]
    differing = [says for path in tables if path.name == REPETITION for says in list_differing_cells(path)]
    differ = [_row("" if place else "differ", says) for place, says in enumerate(differing)]
    expected = [
        part
        for place, gain in enumerate(gains)
        for part in (*_fold([_row("" if place else "gains", gain.says)], width), *_whole_lines(gain.command))
    ]
    # Paths and commands are not wrapped, so that they can be copied.
    found = [*(_row("tables", f"{path}/") for path in folders), *(_row("report", path) for path in pages)]
    return [*_fold(lines, width), *expected, *_fold([*differ, *ends], width), *found]


def _fold(lines: Iterable[str], width: int) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=" " * INDENT)]


def _whole_lines(command: str) -> list[str]:
    return [_row("", command)] if command else []


def _table_of(done: Iterable[Task], rule: str) -> Path | None:
    """Return the table that a finished job made; None if no such job finished."""
    return next((Path(path) for task in done if task.rule == rule for path in task.outputs), None)


def _row(name: str, what: str) -> str:
    return f"{name:<{INDENT}}{what}"


def _first(progress: Progress) -> str:
    task = progress.tasks[progress.failed[0]]
    return f"first: {task.name}: {progress.said.get(progress.failed[0]) or failure_summary.read_cause(task.logs)}"


def _new(done: Sequence[Task]) -> str:
    """Describe new results by tool and kind.

    >>> made = [Task("profile_nsys", "unet train", "nsys", True), Task("draw_figure", "", "figures", False, ("a",))]
    >>> _new(made)
    'unet train under nsys; 1 figure'
    """
    cells: dict[str, list[str]] = {}
    for task in done:
        if task.measures and task.what != "weights":
            cells.setdefault(task.what, []).append(task.cell)
    tools: dict[tuple[str, ...], list[str]] = {}
    for what, names in cells.items():
        tools.setdefault(tuple(sorted(names)), []).append(what)
    measured = [
        f"{names[0] if len(names) == 1 else phrases.format_count(len(names), 'cell')} under {phrases.list_names(under)}"
        for names, under in tools.items()
    ]
    parts = [", ".join(measured)] if measured else []
    for kind, thing in (("tables", "table"), ("figures", "figure")):
        number = sum(len(task.outputs) if kind == "tables" else 1 for task in done if task.what == kind)
        parts += [phrases.format_count(number, thing)] if number else []
    return "; ".join(parts)
