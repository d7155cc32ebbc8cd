"""Chooses the plan that the page shows first for a cell: what was measured to be faster, else the best expectation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from profzoo.cell import rerun_commands
from profzoo.io.csv_tables import Row
from profzoo.plans.plain_words import describe_changes
from profzoo.plans.plan import ADVISABLE, NO_BOTTLENECKS, judge_interval
from profzoo.statistics import speedup
from profzoo.tables.schemas import CELL
from profzoo.trials.best_setting import best_row
from profzoo.verdicts import gain_methods
from profzoo.verdicts.rule_evaluation import CELL_LEVEL
from profzoo.verdicts.verdict import BY_PROFZOO

MEASURED, SIMULATED, AT_MOST = "measured", "simulated", "at most"
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

    how: MEASURED, SIMULATED or AT_MOST. outlook: what the interval says. typed: command to type. bottleneck: the cell's
    first verdict, empty without any. bottlenecks: the first verdicts on the cell.
    """

    settings: str
    changes: str
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
        tried = _rows_of(tables.get("trials"), cell)
        verdicts = _verdicts_on_cell(_rows_of(tables["verdicts"], cell))
        best = best_row(tried) if len(tried) else None
        if best:
            found[cell] = _measured_plan(best, arguments.get(cell, " ".join(cell)), verdicts)
        elif plan := next(_untried_plans(rows, tried), None):
            found[cell] = _expected_plan(plan, verdicts)
    return found


def _rows_of(table: pd.DataFrame | None, cell: tuple[str, str]) -> pd.DataFrame:
    if table is None:
        return pd.DataFrame()
    return table[(table["model"] == cell[0]) & (table["phase"] == cell[1])]


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
        gain=row["gain"],
        low=row["gain_low"],
        high=row["gain_high"],
        how=SIMULATED if row["method"] == gain_methods.SIMULATED else AT_MOST,
        outlook=row["outlook"],
        evidence=row["evidence"],
        score=row["score"],
        typed=row["command"],
        bottleneck=next(iter(verdicts["verdict"]), ""),
        bottlenecks=_list_bottlenecks(verdicts),
    )


def _measured_plan(trial: Row, arguments: str, verdicts: pd.DataFrame) -> BestPlan:
    return BestPlan(
        settings=trial["words"],
        changes=describe_changes(trial["words"]),
        gain=trial["gain"],
        low=trial["gain_low"],
        high=trial["gain_high"],
        how=MEASURED,
        outlook=judge_interval(trial["gain"], trial["gain_low"]),
        evidence=f"trials.csv: {trial['settings']}",
        score="",
        typed=rerun_commands.format_run(arguments, trial["words"]),
        bottleneck=next(iter(verdicts["verdict"]), ""),
        bottlenecks=_list_bottlenecks(verdicts),
    )


def _verdicts_on_cell(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return profzoo's verdicts on the cell itself, the largest gain first."""
    rows = verdicts[(verdicts["level"] == CELL_LEVEL) & (verdicts["by"] == BY_PROFZOO)]
    return rows.sort_values("rank")


def _list_bottlenecks(verdicts: pd.DataFrame) -> tuple[Bottleneck, ...]:
    """Return the first MOST verdicts that name a bottleneck."""
    rows = verdicts[~verdicts["verdict"].isin(NO_BOTTLENECKS)].head(MOST).to_dict("records")
    return tuple(Bottleneck(row["verdict"], row.get("share", float("nan")), row["next_step"]) for row in rows)
