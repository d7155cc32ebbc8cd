"""Lists the cells with the most time to gain: of each its best plan, or the verdict that saves more."""

from dataclasses import dataclass
from pathlib import Path

from profzoo import formatting
from profzoo.plans.plan import ADVISABLE, HELPS, NO_BOTTLENECKS
from profzoo.range_names import IMPORTED
from profzoo.terminal.table_rows import read_cell_verdicts, read_rows
from profzoo.verdicts.gain_methods import AMDAHL, SIMULATED

SHOWN = 3
# The most verdicts that are named as bottlenecks of a cell.
MOST = 3
CELLS = "cells.csv"
Cell = tuple[str, str]


@dataclass(frozen=True)
class LargestGain:
    """What a cell may gain, in words, and the command to type (empty without one); saved_ns: time per step."""

    says: str
    command: str
    saved_ns: float
    unsteady: str


def list_largest_gains(verdicts: Path, plans: Path | None) -> list[LargestGain]:
    """Return what the SHOWN cells with the most time per step to gain can gain; cells with unsteady times come last.

    As on the page, what a program would have to change comes before a plan where it saves more by simulation. An upper
    limit never does.

    verdicts, plans: paths of these tables, beside the table of cells; without plans, verdicts stand for them.
    """
    cells = {(row["model"], row["phase"]): row for row in read_rows(verdicts.with_name(CELLS))}
    steps = {cell: step for cell, row in cells.items() if (step := _number(row.get("step_ns")))}
    of_cells = read_cell_verdicts(verdicts)
    found: dict[Cell, LargestGain] = {}
    for row in read_rows(plans) if plans else []:
        cell, gain = (row["model"], row["phase"]), _number(row.get("gain"))
        # The first that may be advised is the best one.
        if cell in steps and cell not in found and gain and gain > 1 and row["outlook"] in ADVISABLE:
            mine = (one["verdict"] for one in of_cells if (one["model"], one["phase"]) == cell)
            bottlenecks = [verdict for verdict in mine if verdict not in NO_BOTTLENECKS]
            found[cell] = _of_plan(row, steps[cell], gain, bottlenecks, cells[cell].get("unsteady") or "")
    with_plan = set(found)
    for row in of_cells:
        cell, gain = (row["model"], row["phase"]), _number(row.get("gain"))
        counts = cell not in with_plan or (row.get("method") == SIMULATED and not row.get("settings"))
        if cell in steps and counts and gain and gain > 1:
            one = _of_verdict(row, steps[cell], gain, cells[cell].get("unsteady") or "")
            if cell not in found or one.saved_ns > found[cell].saved_ns:
                found[cell] = one
    return sorted(found.values(), key=lambda one: (bool(one.unsteady), -one.saved_ns))[:SHOWN]


def _of_plan(row: dict[str, str], step: float, gain: float, bottlenecks: list[str], unsteady: str) -> LargestGain:
    saved = step * (1 - 1 / gain)
    low, high = _number(row.get("gain_low")), _number(row.get("gain_high"))
    between = f" ({low:.2f} to {high:.2f})" if low and high else ""
    how = "at most" if row["method"] == AMDAHL else "expected to run"
    says = f"{row['model']} {row['phase']}: {row['settings']}, {how} {gain:.2f} times as fast{between}"
    says += f", which saves {formatting.part_of(saved, step)} per step"
    says += f"; bottlenecks: {', '.join(bottlenecks[:MOST])}" if bottlenecks else ""
    says += f"; {row['outlook']}" if row["outlook"] != HELPS else ""
    return LargestGain(_with_doubt(says, unsteady), row["command"], saved, unsteady)


def _of_verdict(row: dict[str, str], step: float, gain: float, unsteady: str) -> LargestGain:
    saved = step * (1 - 1 / gain)
    # Of what ran elsewhere, no setting is profzoo's.
    settings = row.get("settings") if row["phase"] != IMPORTED else ""
    advice = settings or row.get("next_step", "").partition(";")[0]
    saves = "saves" if row.get("method") == SIMULATED else "saves up to"
    says = f"{row['model']} {row['phase']}: {row['verdict']}, {saves} {formatting.part_of(saved, step)} per step"
    return LargestGain(_with_doubt(f"{says}: {advice}" if advice else says, unsteady), "", saved, unsteady)


def _with_doubt(says: str, unsteady: str) -> str:
    return f"{says} (unsteady times: {unsteady})" if unsteady else says


def _number(value: str | None) -> float | None:
    try:
        return float(value) if value else None
    except ValueError:
        return None
