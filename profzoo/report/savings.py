"""Savings: the time per step that each plan or piece of advice would save, how it is known, and the command to type."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.cell import rerun_commands as command
from profzoo.compare import numerics
from profzoo.io.csv_tables import Row
from profzoo.range_names import IMPORTED
from profzoo.report.best_plans import AT_MOST, MEASURED, SIMULATED, BestPlan, choose_best_plans
from profzoo.statistics import speedup
from profzoo.verdicts import gain_methods
from profzoo.verdicts.verdict import BY_PROFZOO

LEVELS = ("cell", "layer")
# Savings shown in the first section.
FIRST_COUNT = 5


@dataclass(frozen=True)
class Saving:
    """Saving by a plan or by advice on a cell, or on its layer `about` (empty for the cell); times in ns per step.

    saved_ns, low_ns, high_ns: saved time with its interval. how: MEASURED, SIMULATED or AT_MOST. typed: command to
    type. score: how right such advice has been, if known. unsteady: why the cell's times are not to be relied on; empty
    if they are. plan: the settings that save the time; None for advice of a single verdict. step_ns: the cell's step.
    """

    model: str
    phase: str
    about: str
    verdict: str
    next_step: str
    saved_ns: float
    low_ns: float
    high_ns: float
    how: str
    typed: str
    score: str = ""
    unsteady: str = ""
    plan: BestPlan | None = None
    step_ns: float = np.nan

    @property
    def cell(self) -> tuple[str, str]:
        """Return model and phase."""
        return self.model, self.phase


def list_savings(tables: Mapping[str, pd.DataFrame]) -> list[Saving]:
    """Return the savings by plans and by advice on cells and layers, the largest first, unsteady cells last.

    Unsteady cells come last, because times that other programs disturbed are the longest. For a cell with a plan, the
    settings that verdicts advise are no savings of their own, as the plan is the best of all settings. tables: cells,
    verdicts and, if there are any, plans and trials.
    """
    step_ns = {(row.model, row.phase): row.step_ns for row in tables["cells"].itertuples()}
    arguments = list_run_arguments(tables["cells"])
    trials = _measured_trials(tables.get("trials"))
    advice = tables["verdicts"]
    ours = advice[(advice["by"] == BY_PROFZOO) & advice["level"].isin(LEVELS) & (advice["gain"] > 1)]
    plans = choose_best_plans(tables, arguments) if "plans" in tables else {}
    found = [_saving_of_plan(cell, plan, step_ns[cell]) for cell, plan in plans.items() if cell in step_ns]
    trials = {key: row for key, row in trials.items() if key[:2] not in plans}
    for row in ours.to_dict("records"):
        cell = (row["model"], row["phase"])
        settable = row["level"] == "cell" and isinstance(row["settings"], str) and row["settings"]
        if cell in step_ns and not (settable and cell in plans):
            words = row["settings"] if row["level"] == "cell" and isinstance(row["settings"], str) else ""
            typed = _make_command(arguments[cell], words) if cell[1] != IMPORTED else ""
            found.append(_make_saving(row, step_ns[cell], trials.get((*cell, words)) if words else None, typed))
    found += _savings_by_trials_only(trials, step_ns, arguments, {(*one.cell, one.typed) for one in found})
    unsteady = {(row["model"], row["phase"]): unsteady_reason(row) for row in tables["cells"].to_dict("records")}
    found = [replace(one, unsteady=unsteady[one.cell], step_ns=step_ns[one.cell]) for one in found]
    return sorted(found, key=_sorting_key)


def unsteady_reason(cell: Row) -> str:
    """Return why the times of a row of the table of cells are unsteady; empty if they are steady."""
    return said if isinstance(said := cell.get("unsteady"), str) else ""


def list_run_arguments(cells: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return, by cell, the arguments of `python -m models.run` that run it again; cells: the table of that name."""
    told = cells["arguments"] if "arguments" in cells else pd.Series("", cells.index)
    # Of a table that an earlier version made there are none.
    return {
        (model, phase): words if isinstance(words, str) and words else f"{model} {phase}"
        for model, phase, words in zip(cells["model"], cells["phase"], told, strict=True)
    }


def first_savings(promises: list[Saving]) -> list[Saving]:
    """Return the first saving of each cell, the largest first.

    That is the cell's largest saving, but an upper limit does not come before a plan, which has an expected gain.
    """
    best: dict[tuple[str, str], Saving] = {}
    for one in promises:
        known = best.setdefault(one.cell, one)
        if one.plan and known.how == AT_MOST:
            best[one.cell] = one
    return sorted(best.values(), key=_sorting_key)


def largest_savings(promises: list[Saving], count: int = FIRST_COUNT) -> list[Saving]:
    """Return the largest savings: first one per cell, then more of the same cells."""
    chosen = first_savings(promises)
    return (chosen + [one for one in promises if one not in chosen])[:count]


def _sorting_key(one: Saving) -> tuple[bool, float]:
    return bool(one.unsteady), -one.saved_ns


def _saving_of_plan(cell: tuple[str, str], plan: BestPlan, step_ns: float) -> Saving:
    saved, least, most = (_saved_ns(step_ns, value) for value in (plan.gain, plan.low, plan.high))
    told = (*cell, "", plan.bottleneck or plan.outlook, plan.changes)
    return Saving(*told, saved, least, most, plan.how, plan.typed, plan.score, plan=plan)


def _make_saving(
    row: Row,
    step_ns: float,
    trial: Row | None,
    typed: str,
) -> Saving:
    gain, low, high = row["gain"], row["gain_low"], row["gain_high"]
    how = SIMULATED if row["method"] == gain_methods.SIMULATED else AT_MOST
    if trial:
        gain, low, high, how = trial["gain"], trial["gain_low"], trial["gain_high"], MEASURED
    saved, least, most = (_saved_ns(step_ns, value) for value in (gain, low, high))
    about = f"{row['module']} {row['direction']}" if row["level"] == "layer" else ""
    score = row.get("score")
    told = (row["model"], row["phase"], about, row["verdict"], row["next_step"])
    return Saving(*told, saved, least, most, how, typed, score if isinstance(score, str) else "")


def _make_command(arguments: str, words: str) -> str:
    """Return the command that tests the advice: a run with its settings, or trials of all settings."""
    return command.format_run(arguments, words) if words else command.trials_command(arguments)


def _saved_ns(step_ns: float, gain: float) -> float:
    """Return the time saved per step, in ns; nan if the gain is unknown.

    >>> _saved_ns(10.0, 2.0)
    5.0
    """
    return step_ns * (1 - 1 / gain) if gain > 0 else np.nan


def _measured_trials(table: pd.DataFrame | None) -> dict[tuple[str, str, str], Row]:
    """Return trials that ran and did not compute something else, by model, phase and setting words."""
    if table is None:
        return {}
    ran = table[table["gain"].notna() & (table["numerics"] != numerics.DIFFERENT)]
    return {(row["model"], row["phase"], row["words"]): row for row in ran.to_dict("records")}


def _savings_by_trials_only(
    trials: Mapping[tuple[str, str, str], Row],
    step_ns: Mapping[tuple[str, str], float],
    arguments: Mapping[tuple[str, str], str],
    known: set[tuple[str, str, str]],
) -> Iterator[Saving]:
    """Yield savings by settings that no advice names and that trials measured as faster."""
    for (model, phase, words), row in trials.items():
        if row["verdict"] != speedup.FASTER or (model, phase) not in step_ns:
            continue
        typed = _make_command(arguments[model, phase], words)
        if (model, phase, typed) in known:
            continue
        saved, low, high = (_saved_ns(step_ns[model, phase], row[name]) for name in ("gain", "gain_low", "gain_high"))
        said = f"use {row['settings']}: a trial measured it as faster"
        yield Saving(model, phase, "", "faster with a setting", said, saved, low, high, MEASURED, typed)
