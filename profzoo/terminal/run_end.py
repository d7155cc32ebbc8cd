"""Summarizes a finished run: first failure, new results, the report's place, and the largest expected gains."""

import csv
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from profzoo import formatting
from profzoo.collect import failure_summary
from profzoo.terminal import phrases
from profzoo.terminal.job_titles import Task
from profzoo.terminal.progress import Progress

VERDICTS_SHOWN = 3
INDENT = 8
VERDICTS, CELLS = "verdicts.csv", "cells.csv"


def format_run_end(progress: Progress, seconds: float, width: int, ended: bool = False) -> list[str]:
    """Return the summary lines; empty if the run made nothing worth reporting.

    seconds: duration of the run; width: characters that a line may have; ended: whether the user ended the run.
    """
    done = [progress.tasks[number] for number in progress.took]
    lines = [_row("first", _first(progress))] if len(progress.failed) > 1 else []
    if new := _new(done):
        lines.append(_row("new", f"{new}; in {phrases.format_duration(seconds)}"))
    pages = [path for task in done if task.what == "pages" for path in task.outputs]
    for task in done:
        if task.rule == "tabulate_verdicts":
            lines += _best(Path(next(path for path in task.outputs if path.endswith(VERDICTS))))
    if ended:
        lines.append(_row("ended", "by you: finished results are kept; the same command continues from here"))
    folded = [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=" " * INDENT)]
    # Paths are not wrapped, so that they can be copied.
    return [*folded, *(_row("report", path) for path in pages)]


def _row(name: str, what: str) -> str:
    return f"{name:<{INDENT}}{what}"


def _first(progress: Progress) -> str:
    task = progress.tasks[progress.failed[0]]
    return f"to fail: {task.name}: {progress.said.get(progress.failed[0]) or failure_summary.read_cause(task.logs)}"


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


def _best(verdicts: Path) -> list[str]:
    """Return lines on the cells with the most time per step to gain, by their largest verdict; unsteady ones last."""
    cells = {(row["model"], row["phase"]): row for row in _rows(verdicts.with_name(CELLS))}
    steps = {cell: _number(row.get("step_ns")) for cell, row in cells.items()}
    unsteady = {cell: row.get("unsteady") or "" for cell, row in cells.items()}
    best: dict[tuple[str, str], tuple[float, float, dict[str, str]]] = {}
    for row in _rows(verdicts):
        cell, gain = (row["model"], row["phase"]), _number(row.get("gain"))
        step = steps.get(cell)
        if row.get("level") == "cell" and row.get("by", "profzoo") == "profzoo" and step and gain and gain > 1:
            won = step * (1 - 1 / gain)
            if cell not in best or won > best[cell][0]:
                best[cell] = (won, step, row)
    largest = sorted(best.items(), key=lambda one: (bool(unsteady[one[0]]), -one[1][0]))[:VERDICTS_SHOWN]
    return [
        _row("" if place else "to win", _verdict(cell, *found, unsteady[cell]))
        for place, (cell, found) in enumerate(largest)
    ]


def _verdict(cell: tuple[str, str], won: float, step: float, row: dict[str, str], unsteady: str) -> str:
    advice = row.get("settings") or row.get("next_step", "").partition(";")[0]
    saved = f"up to {formatting.duration(won)} of {formatting.duration(step)} per step"
    what = f"{' '.join(cell)}: {row['verdict']}, {saved}"
    said = f"{what}: {advice}" if advice else what
    return f"{said} (unsteady times: {unsteady})" if unsteady else said


def _rows(path: Path) -> Iterable[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, csv.Error):
        return []


def _number(value: str | None) -> float | None:
    try:
        return float(value) if value else None
    except ValueError:
        return None
