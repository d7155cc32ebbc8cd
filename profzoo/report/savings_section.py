"""The page's first section: what to optimise and what it would save; and the measured trials."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.cell import rerun_commands as command
from profzoo.formatting import duration, part_of, span
from profzoo.io.csv_tables import Row
from profzoo.json_types import TemplateVariables
from profzoo.plans.plan import HELPS
from profzoo.report import step_bars
from profzoo.report.best_plans import BestPlan
from profzoo.report.savings import AT_MOST, Saving, largest_savings, list_run_arguments
from profzoo.report.value_formats import format_interval, format_value
from profzoo.tables.schemas import CELL
from profzoo.trials.best_setting import best_row


def saving_context(promise: Saving) -> TemplateVariables:
    """Format a saving for the template."""
    return {
        "saved": part_of(promise.saved_ns, promise.step_ns),
        "between": _format_interval(promise.low_ns, promise.high_ns),
        "how": promise.how,
        "limit": promise.how == AT_MOST,
        "verdict": promise.verdict,
        "about": promise.about,
        "next": promise.next_step,
        "typed": promise.typed,
        "score": promise.score,
        "unsteady": promise.unsteady,
        "plan": _plan_context(promise.plan) if promise.plan else None,
    }


def _plan_context(plan: BestPlan) -> TemplateVariables:
    return {
        "settings": plan.settings,
        "gain": f"{plan.gain:.2f}",
        "between": format_interval(plan.low, plan.high, "{:.2f}".format),
        "outlook": plan.outlook if plan.outlook != HELPS else "",
        "evidence": plan.evidence,
        "bottlenecks": [
            {"verdict": one.verdict, "share": "" if pd.isna(one.share) else f"{one.share:.0%}", "next": one.next_step}
            for one in plan.bottlenecks
        ],
    }


def make_first_section(promises: Sequence[Saving], tables: Mapping[str, pd.DataFrame]) -> TemplateVariables:
    """Return the template's variables: the first savings, and trials, those with a clearly faster setting first."""
    cards = [
        {**saving_context(one), "model": one.model, "phase": one.phase, "anchor": f"{one.model}-{one.phase}",
         "strip": step_bars.step_parts(tables, one.model, one.phase)}
        for one in largest_savings(list(promises))
    ]  # fmt: skip
    arguments = list_run_arguments(tables["cells"]) if "cells" in tables else {}
    return {"first": cards, "trials": _format_trials(tables.get("trials"), arguments)}


def _format_interval(low: float, high: float) -> str:
    """Format the interval of a saved time in ns; empty if an end is unknown.

    >>> _format_interval(12.9e6, 18.4e6), _format_interval(-16.9e6, 130e6), _format_interval(-9e6, -2e6)
    ('12.9 to 18.4 ms', '16.9 ms slower to 130 ms faster', '2 to 9 ms slower')
    """
    if pd.isna(low) or pd.isna(high):
        return ""
    if high < 0:
        return f"{span(-high, -low)} slower"
    return f"{duration(-low)} slower to {duration(high)} faster" if low < 0 else span(low, high)


def _format_trials(table: pd.DataFrame | None, arguments: Mapping[tuple[str, str], str]) -> list[TemplateVariables]:
    """Return each cell's trials: the best one, and every setting with its outcome.

    arguments: the words that run each cell again, by cell.
    """
    if table is None or table.empty:
        return []
    found = []
    for (model, phase), rows in table.groupby(CELL, sort=False):
        typed = best_row(rows)
        found.append(
            {
                "model": model,
                "phase": phase,
                "anchor": f"{model}-{phase}",
                "best": _format_best(typed, arguments.get((model, phase), f"{model} {phase}")) if typed else None,
                "rows": [_format_trial(row) for row in rows.to_dict("records")],
            }
        )
    return sorted(found, key=lambda one: -one["best"]["gain"] if one["best"] else 0.0)


def _format_best(row: Row, arguments: str) -> TemplateVariables:
    return {
        "gain": row["gain"],
        "times": f"{row['gain']:.2f} times",
        "times_say": f"{duration(row['base_ns'])} → {duration(row['ns'])} per step",
        "words": row["words"],
        "typed": command.format_run(arguments, row["words"]),
    }


def _format_trial(row: Row) -> dict[str, str]:
    known = pd.notna(row["gain_low"])
    return {
        "words": row["words"],
        "gain": format_value(row["gain"], "{:.2f}×".format),
        "between": f"{row['gain_low']:.2f} to {row['gain_high']:.2f}" if known else "",
        "expected": format_value(row["expected"], "{:.2f}×".format),
        "processes": f"{row['processes']:.0f}" if row["processes"] else "",
        "outcome": row["verdict"],
        "numerics": row["numerics"],
        "why": "; ".join(filter(None, [row["why"], row["numerics_why"], row["work"]])),
    }
