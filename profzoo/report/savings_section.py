"""The page's first section: what to optimise and what it would save; and the measured trials."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.cell import rerun_commands as command
from profzoo.formatting import duration
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
    ends = (promise.low_ns, promise.high_ns)
    between = "" if any(map(pd.isna, ends)) else f"{_format_time(ends[0])} – {_format_time(ends[1])}"
    return {
        "saved": _format_time(promise.saved_ns),
        "between": f"0 – {_format_time(promise.high_ns)}" if promise.how == AT_MOST and not promise.low_ns else between,
        "how": promise.how,
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
        "gain": f"{plan.gain:.2f} ×",
        "between": format_interval(plan.low, plan.high, "{:.2f}".format),
        "outlook": plan.outlook if plan.outlook != HELPS else "",
        "evidence": plan.evidence,
        "reasons": [
            {"verdict": one.verdict, "share": "" if pd.isna(one.share) else f"{one.share:.0%}", "next": one.next_step}
            for one in plan.reasons
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


def _format_time(ns: float) -> str:
    return f"−{duration(-ns)}" if ns < 0 else duration(ns)


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
        "times": f"{row['gain']:.2f} ×",
        "times_say": f"{duration(row['base_ns'])} → {duration(row['ns'])} per step",
        "words": row["words"],
        "typed": command.format_run(arguments, row["words"]),
    }


def _format_trial(row: Row) -> dict[str, str]:
    known = pd.notna(row["gain_low"])
    return {
        "words": row["words"],
        "gain": format_value(row["gain"], "{:.2f} ×".format),
        "between": f"{row['gain_low']:.2f} – {row['gain_high']:.2f}" if known else "",
        "expected": format_value(row["expected"], "{:.2f} ×".format),
        "processes": f"{row['processes']:.0f}" if row["processes"] else "",
        "verdict": row["verdict"],
        "numbers": row["numerics"],
        "why": "; ".join(filter(None, [row["why"], row["numerics_why"], row["work"]])),
    }
