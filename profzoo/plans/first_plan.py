"""Makes the first plans of a cell, by its trace and its unprofiled run, which a run tells before ncu has counted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import read_json, write_csv
from profzoo.kernels import kernel_classes
from profzoo.plans.plan_table import PLANS_TABLE, tabulate_plans
from profzoo.tables import cell_tables, kernel_table
from profzoo.tables.across_cells import read_imbalance
from profzoo.tables.schemas import CELL
from profzoo.tools.nsys import tables as nsys_tables
from profzoo.tools.nsys.events import trace
from profzoo.tools.nsys.steps.steps import where_time_goes
from profzoo.verdicts.causes.verdicts import tabulate_verdicts
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.cell_facts import CellFacts, read_cell_facts
from profzoo.what_if.program import Program
from profzoo.what_if.tables import read_lean_programs

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

FIRST_TABLE = Table(
    columns={name: column for name, column in PLANS_TABLE.columns.items() if name not in CELL},
    optional=PLANS_TABLE.optional,
    key=["rank"],
)


@dataclass(frozen=True)
class Traced:
    """What a trace holds of a cell.

    launches: rows of nsys.csv. spent: rows of nsys-steps.csv. steps: number of steps that the launches are of.
    programs: traced steps, by process.
    """

    launches: pd.DataFrame
    spent: pd.DataFrame
    steps: int
    programs: Mapping[int, Program]


def plan_first(
    timed: "tuple[Mapping[str, str], pd.DataFrame, Sidecar]", traced: Traced, facts: CellFacts
) -> pd.DataFrame:
    """Return the plans of a cell (FIRST_TABLE), the best first; none of a cell without work on a GPU.

    timed: the cell, the steps of its unprofiled run, and its sidecar. facts: what that sidecar says of the cell.
    """
    cell, given = timed[0], verdict_rules.load_rules()
    cells = cell_tables.cells([timed])
    steps = cell_tables.steps(cells, [(cell, traced.spent)], read_imbalance([]))
    if steps.empty:
        return FIRST_TABLE.empty()
    classes = kernel_classes.classify_all(traced.launches["kernel"].unique(), {})
    kernels = cell_tables.kernels([(cell, kernel_table.join(traced.launches, traced.steps, [], classes))])
    programs = {(cell["model"], cell["phase"]): traced.programs}
    known = facts.ran_with, given
    verdicts = tabulate_verdicts(
        steps, kernels, None, {}, {}, *known, programs=programs, lines=facts.lines, facts=facts
    )
    tables = {"cells": cells, "steps": steps, "kernels": kernels, "verdicts": verdicts}
    plans = tabulate_plans(tables, {}, *known, programs, facts.lines, failed=facts.failed, noted=facts.noted)
    return plans[[*FIRST_TABLE.columns, *FIRST_TABLE.optional]]


def read_trace(sqlite: str, report_sidecar: str, time: str, time_sidecar: str) -> Traced:
    """Read an export of nsys; report_sidecar, time, time_sidecar: its sidecar, and the unprofiled run with its own.

    Raises:
        DataError: the files do not hold what they should, or the trace has no steps.
    """
    facts = read_json(report_sidecar, {"capture": fact.TEXT, "cell": {"window": fact.SEVERAL}})
    whole_run = facts["capture"] == "run"
    programs = read_lean_programs(sqlite, report_sidecar, time, time_sidecar)
    with trace.open_trace(sqlite) as source:
        held, _ = trace.count_traced_steps(source, whole_run)
        steps = held if whole_run else facts["cell"]["window"]
        if lacking := trace.explain_no_steps(source, whole_run):
            raise DataError(f"{sqlite} {lacking}")
        return Traced(nsys_tables.summarise(source, whole_run), where_time_goes(source, whole_run), steps, programs)


def main(
    sqlite: str,
    report_sidecar: str,
    time: str,
    time_sidecar: str,
    csv: str,
    failed: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Read the trace and the unprofiled run, and write the plans; none where a trace cannot be read.

    Other jobs of the run read the same files, and tell the user what is wrong with them.

    failed: as for `read_cell_facts`.
    """
    (timed,) = cell_tables.read_baseline_steps([time], [time_sidecar])
    try:
        plans = plan_first(
            timed, read_trace(sqlite, report_sidecar, time, time_sidecar), read_cell_facts([time_sidecar], failed)
        )
    except DataError as error:
        print(f"{csv} has no row: {error}")
        plans = FIRST_TABLE.empty()
    write_csv(plans, csv)
