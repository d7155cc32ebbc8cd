"""Savings: the time per step that each plan or piece of advice would save, how it is known, and the command to type."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from profzoo.cell import rerun_commands
from profzoo.compare import numerics
from profzoo.formatting import describe_clock, format_ns, gains, part_of, span
from profzoo.io.csv_tables import Row
from profzoo.json_types import TemplateVariables
from profzoo.plans.plan import ADVISABLE, HELPS, NO_BOTTLENECKS, judge_interval
from profzoo.plans.recipes import describe_changes, explain_recipes, find_verdict_recipe, format_recipes
from profzoo.range_names import IMPORTED
from profzoo.report import value_formats
from profzoo.report.value_formats import format_gain, format_value, gain_fields
from profzoo.statistics import speedup
from profzoo.tables.schemas import CELL, rows_of_cell
from profzoo.trials.trial_table import best_row
from profzoo.verdicts import SIMULATED as REPLAYED
from profzoo.verdicts.rules.rule_evaluation import CELL_LEVEL
from profzoo.verdicts.verdict import BY_PROFZOO

# Chooses the plan that the page shows first for a cell: what was measured to be faster, else the best expectation.

MEASURED, SIMULATED, AT_MOST = "measured", "simulated", "at most"
UNSETTLED = f"measured as faster, but {speedup.NOT_SETTLED}: more rounds may show otherwise"
# The most bottlenecks that are named beside a plan.
MOST = 4


@dataclass(frozen=True)
class Bottleneck:
    """A verdict on the cell; share: of the step, NaN if unknown."""

    verdict: str
    share: float
    next_step: str


@dataclass(frozen=True)
class BestPlan:
    """The plan that is shown first for a cell.

    recipe: what the settings are in a program of one's own, in short. how: MEASURED, SIMULATED or AT_MOST. outlook:
    what the interval says. typed: command to type. bottleneck: the cell's first verdict, empty without any.
    bottlenecks: the first verdicts on the cell.
    """

    settings: str
    changes: str
    recipe: str
    gain: float
    low: float
    high: float
    how: str
    outlook: str
    evidence: str
    score: str
    typed: str
    bottleneck: str
    bottlenecks: tuple[Bottleneck, ...]


def choose_best_plans(
    tables: Mapping[str, pd.DataFrame], arguments: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], BestPlan]:
    """Return the first plan of each cell that has one.

    A setting that trials measured as clearly faster comes before any expectation. A plan that trials measured has the
    measured gain, and is left out if it failed or is not faster.

    Args:
        tables: plans, verdicts and, if there are any, trials.
        arguments: words that run each cell again, by cell.
    """
    found: dict[tuple[str, str], BestPlan] = {}
    for cell, rows in tables["plans"].groupby(CELL, sort=False):
        tried = rows_of_cell(tables["trials"], *cell) if "trials" in tables else pd.DataFrame()
        verdicts = _verdicts_on_cell(rows_of_cell(tables["verdicts"], *cell))
        best = best_row(tried) if len(tried) else None
        if best:
            words = arguments.get(cell, " ".join(cell))
            found[cell] = _measured_plan(best, words, _recipe_of_trial(best["words"], rows), verdicts)
        elif plan := next(_untried_plans(rows, tried), None):
            found[cell] = _expected_plan(plan, verdicts)
    return found


def _untried_plans(plans: pd.DataFrame, tried: pd.DataFrame) -> Iterator[Row]:
    """Yield the plans that may be advised, in their order, without those about which trials know better."""
    known = {frozenset(str(row["words"]).split()): row for row in tried.to_dict("records")}
    for row in plans.sort_values("rank").to_dict("records"):
        trial = known.get(frozenset(row["settings"].split()))
        undecided = trial is None or (trial["verdict"] == speedup.UNDECIDED and not trial["gain"] <= 1)
        if undecided and row["outlook"] in ADVISABLE and row["gain"] > 1:
            yield row


def _expected_plan(row: Row, verdicts: pd.DataFrame) -> BestPlan:
    return BestPlan(
        settings=row["settings"],
        changes=row["changes"],
        recipe=read_text(row, "recipe"),
        gain=row["gain"],
        low=row["gain_low"],
        high=row["gain_high"],
        how=SIMULATED if row["method"] == REPLAYED else AT_MOST,
        outlook=row["outlook"],
        evidence=row["evidence"],
        score=row["score"],
        typed=row["command"],
        bottleneck=next(iter(verdicts["verdict"]), ""),
        bottlenecks=_list_bottlenecks(verdicts),
    )


def _measured_plan(trial: Row, arguments: str, recipe: str, verdicts: pd.DataFrame) -> BestPlan:
    settled = speedup.is_settled(trial["gain_low"], trial["gain_high"])
    return BestPlan(
        settings=trial["words"],
        changes=describe_changes(trial["words"]),
        recipe=recipe,
        gain=trial["gain"],
        low=trial["gain_low"],
        high=trial["gain_high"],
        how=MEASURED,
        outlook=UNSETTLED if not settled else judge_interval(trial["gain"], trial["gain_low"]),
        evidence=f"trials.csv: {trial['settings']}",
        score="",
        typed=rerun_commands.format_run(arguments, trial["words"]),
        bottleneck=next(iter(verdicts["verdict"]), ""),
        bottlenecks=_list_bottlenecks(verdicts),
    )


def _recipe_of_trial(words: str, plans: pd.DataFrame) -> str:
    """Return the recipe of settings that were tried: of the plan that has the same, which knows the places, if any."""
    known = (row for row in plans.to_dict("records") if {*row["settings"].split()} == {*words.split()})
    return next((read_text(row, "recipe") for row in known), "") or format_recipes(words)


def read_text(row: Row, name: str) -> str:
    """Return a text of a row; empty if it has none, as in a table that an earlier version wrote."""
    return text if isinstance(text := row.get(name), str) else ""


def _verdicts_on_cell(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return profzoo's verdicts on the cell itself, in their order."""
    rows = verdicts[(verdicts["level"] == CELL_LEVEL) & (verdicts["by"] == BY_PROFZOO)]
    return rows.sort_values("rank")


def _list_bottlenecks(verdicts: pd.DataFrame) -> tuple[Bottleneck, ...]:
    """Return the first MOST verdicts that name a bottleneck."""
    rows = verdicts[~verdicts["verdict"].isin(NO_BOTTLENECKS)].head(MOST).to_dict("records")
    return tuple(Bottleneck(row["verdict"], row.get("share", float("nan")), row["next_step"]) for row in rows)


LEVELS = ("cell", "layer")
# Savings shown in the first section.
FIRST_COUNT = 5


@dataclass(frozen=True)
class Saving:
    """Saving by a plan or by advice on a cell, or on its layer `about` (empty for the cell); times in ns per step.

    saved_ns, low_ns, high_ns: saved time with its interval. how: MEASURED, SIMULATED or AT_MOST. typed: command to
    type. score: how right such advice has been, if known. unsteady: why the cell's times are not to be relied on; empty
    if they are. plan: the settings that save the time; None for advice of a single verdict. step_ns: the cell's step.
    function: name of the kernel or operator that the advice is about, if it is about one. rank: place of the verdict
    among those on the cell, from 1 on; 0 for anything else.
    timed_under: the tool under which the step was timed, where its report was made elsewhere; empty for others.
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
    function: str = ""
    timed_under: str = ""
    rank: int = 0

    @property
    def cell(self) -> tuple[str, str]:
        """Return model and phase."""
        return self.model, self.phase


def list_savings(tables: Mapping[str, pd.DataFrame], tools: Sequence[str] = ()) -> list[Saving]:
    """Return the savings by plans and by advice on cells and layers, the largest first, unsteady cells last.

    Unsteady cells come last, because times that other programs disturbed are the longest. For a cell with a plan, the
    settings that verdicts advise are not savings of their own, as the plan is the best of all settings. tables: cells,
    verdicts and, if there are any, plans and trials. tools: with which the cells were measured, for commands.
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
        words = read_text(row, "settings") if row["level"] == "cell" else ""
        if cell in step_ns and not (words and cell in plans):
            typed = _make_command(arguments[cell], words, tools) if cell[1] != IMPORTED else ""
            found.append(_make_saving(row, step_ns[cell], trials.get((*cell, words)) if words else None, typed))
    found += _savings_by_trials_only(trials, step_ns, arguments, {(*one.cell, one.typed) for one in found})
    cells = {(row["model"], row["phase"]): row for row in tables["cells"].to_dict("records")}
    unsteady, tool = (
        {cell: read_text(own, name) for cell, own in cells.items()} for name in ("unsteady", "timed_under")
    )
    found = [replace(one, unsteady=unsteady[one.cell], timed_under=tool[one.cell]) for one in found]
    return sorted((replace(one, step_ns=step_ns[one.cell]) for one in found), key=_sorting_key)


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

    That is the cell's largest saving, but an upper limit does not come before a plan that is expected to help, nor one
    in a layer before any plan. Where it is a verdict's on the cell and was not measured, the first verdict on the cell
    takes its place, which may explain it.
    """
    best: dict[tuple[str, str], Saving] = {}
    for one in promises:
        known = best.setdefault(one.cell, one)
        if one.plan and known.how == AT_MOST and (known.about or one.plan.outlook == HELPS):
            best[one.cell] = one
    ranked = sorted((one for one in reversed(promises) if one.rank), key=lambda one: -one.rank)
    best |= {one.cell: one for one in ranked if best[one.cell].rank and best[one.cell].how != MEASURED}
    return sorted(best.values(), key=_sorting_key)


def largest_savings(promises: list[Saving], count: int = FIRST_COUNT) -> list[Saving]:
    """Return the largest savings: first one per cell, then more of the same cells, but no parts of other savings."""
    chosen = first_savings(promises)
    more = [one for one in promises if one not in chosen and not any(_contains(other, one) for other in promises)]
    return (chosen + more)[:count]


def _contains(whole: Saving, one: Saving) -> bool:
    """Whether a saving in a layer is a part of a saving of its cell: by the same verdict on the same operator."""
    same = whole.cell == one.cell and whole.verdict == one.verdict and whole.function == one.function
    return same and bool(one.about and one.function) and not whole.about


def _sorting_key(one: Saving) -> tuple[bool, float]:
    return bool(one.unsteady), -one.saved_ns


def _saving_of_plan(cell: tuple[str, str], plan: BestPlan, step_ns: float) -> Saving:
    saved, least, most = (_saved_ns(step_ns, value) for value in (plan.gain, plan.low, plan.high))
    told = (*cell, "", plan.bottleneck or plan.outlook, plan.changes)
    return Saving(*told, saved, least, most, plan.how, plan.typed, plan.score, plan=plan)


def _make_saving(row: Row, step_ns: float, trial: Row | None, typed: str) -> Saving:
    gain, low, high = row["gain"], row["gain_low"], row["gain_high"]
    how = SIMULATED if row["method"] == REPLAYED else AT_MOST
    if trial:
        gain, low, high, how = trial["gain"], trial["gain_low"], trial["gain_high"], MEASURED
    saved, least, most = (_saved_ns(step_ns, value) for value in (gain, low, high))
    about = f"{row['module']} {row['direction']}" if row["level"] == "layer" else ""
    told = (row["model"], row["phase"], about, row["verdict"], row["next_step"])
    score, function = read_text(row, "score"), read_text(row, "function")
    rank = 0 if about else int(row["rank"])
    return Saving(*told, saved, least, most, how, typed, score, function=function, rank=rank)


def _make_command(arguments: str, words: str, tools: Sequence[str] = ()) -> str:
    """Return the command that tests the advice: a run with its settings, or trials of all settings."""
    if words:
        return rerun_commands.format_run(arguments, words)
    return rerun_commands.trials_command(arguments, tools)


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


# The page's first section: what to optimise and what it would save; and the measured trials.


def saving_context(promise: Saving) -> TemplateVariables:
    """Format a saving for the template."""
    return {
        "saved": part_of(promise.saved_ns, promise.step_ns),
        "between": _format_interval(promise.low_ns, promise.high_ns),
        "how": promise.how,
        "limit": promise.how == AT_MOST,
        "clock": describe_clock(promise.timed_under),
        "verdict": promise.verdict,
        "about": promise.about,
        "next": promise.next_step,
        "typed": promise.typed,
        "score": promise.score,
        "unsteady": promise.unsteady,
        "plan": _plan_context(promise.plan) if promise.plan else None,
    }


def recipe_context(settings: str, short: str, typed: str) -> TemplateVariables:
    """Return what settings are in a program of one's own, for the template; short: of `format_recipes`, or empty.

    typed: the command that tests them, which tells whether the cell is a script.
    """
    return {
        "settings": settings,
        "leads": bool(short) and rerun_commands.runs_script(typed),
        "short": short,
        "parts": [vars(one) for one in explain_recipes(settings, short)],
    }


def verdict_recipe_context(verdict: str) -> TemplateVariables:
    """Return the lines that a verdict on written code advises, for the template; without parts for other verdicts."""
    found = find_verdict_recipe(verdict)
    return {"short": found.short, "leads": True, "parts": [vars(found)]} if found else {"parts": []}


def _plan_context(plan: BestPlan) -> TemplateVariables:
    return {
        "recipe": recipe_context(plan.settings, plan.recipe, plan.typed),
        **dict(zip(("gain", "between"), format_gain(plan.gain, plan.low, plan.high), strict=True)),
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
         "strip": value_formats.step_parts(tables, one.model, one.phase)}
        for one in largest_savings(list(promises))
    ]  # fmt: skip
    arguments = list_run_arguments(tables["cells"]) if "cells" in tables else {}
    return {"first": cards, "trials": _format_trials(tables.get("trials"), arguments)}


def _format_interval(low: float, high: float) -> str:
    """Format the interval of a saved time in ns; empty if its upper end is unknown.

    >>> _format_interval(12.9e6, 18.4e6), _format_interval(-16.9e6, 130e6), _format_interval(-9e6, -2e6)
    ('12.9 to 18.4 ms', '16.9 ms slower to 130 ms faster', '2 to 9 ms slower')
    >>> _format_interval(float("nan"), 18.4e6)
    'at most 18.4 ms'
    """
    if pd.isna(high) or (pd.isna(low) and high <= 0):
        return ""
    if pd.isna(low):
        return f"{AT_MOST} {format_ns(high)}"
    if high < 0:
        return f"{span(-high, -low)} slower"
    return f"{format_ns(-low)} slower to {format_ns(high)} faster" if low < 0 else span(low, high)


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
        "times": f"{gains(row['gain'])[0]} times",
        "times_say": f"{format_ns(row['base_ns'])} → {format_ns(row['ns'])} per step",
        "words": row["words"],
        "typed": rerun_commands.format_run(arguments, row["words"]),
    }


def _format_trial(row: Row) -> dict[str, str]:
    return {
        "words": row["words"],
        **gain_fields(row),
        "expected": format_value(row["expected"], lambda expected: f"{gains(expected)[0]}×"),
        "processes": f"{row['processes']:.0f}" if row["processes"] else "",
        "outcome": speedup.describe_outcome(row["verdict"], row["gain_low"], row["gain_high"]),
        "numerics": row["numerics"],
        "why": "; ".join(filter(None, [row["why"], row["numerics_why"], row["work"]])),
    }
