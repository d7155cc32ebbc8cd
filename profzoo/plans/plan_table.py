"""Make tables/plans.csv: for each cell, the settings that are possible, alone and together, the best first."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.fusion import table as fusion
from profzoo.io import csv_tables as reading
from profzoo.io.columns import COUNT, FLAG, NUMBER, TEXT, Column, with_interval
from profzoo.io.common_columns import shared
from profzoo.io.csv_tables import Table
from profzoo.io.scripts import write_csv
from profzoo.plans.cell_plans import list_plans
from profzoo.plans.plan import find_infeasible
from profzoo.range_names import IMPORTED
from profzoo.tables import schemas
from profzoo.tables.cell_tables import cell_key
from profzoo.tables.roofline import read_peaks
from profzoo.tables.schemas import CELL
from profzoo.verdicts import verdict
from profzoo.verdicts.advice_scores import Scores, scores_on
from profzoo.verdicts.causes.cpu_verdicts import CPU
from profzoo.verdicts.causes.verdicts import CellKey, judge_cell
from profzoo.verdicts.rules import rules as verdict_rules
from profzoo.verdicts.rules.cell_facts import NotedFacts, read_cell_facts
from profzoo.verdicts.rules.feasibility import EVERYTHING, refuse_failed
from profzoo.verdicts.rules.rule_types import KnownSettings, Rules
from profzoo.what_if import program
from profzoo.what_if.program import Program

if TYPE_CHECKING:
    from profzoo.cell.job_types import BlockingLine


# What the table of plans holds.

PLANS_TABLE = Table(
    columns={
        **shared("model", "phase"),
        "rank": Column(COUNT, "Place among the plans of the cell, from 1 on; 1 is expected to help most.", "count"),
        "settings": Column(TEXT, "Settings that are applied together, as arguments of `python -m models.run`."),
        "changes": Column(TEXT, "What the settings change, in plain words."),
        **with_interval("gain", Column(
            NUMBER.or_missing, "Expected speedup of the step with all these settings; of a wide interval there is only "
            "the upper end.", "ratio")),
        "outlook": Column(TEXT, "What the interval says: whether the settings are expected to help, or may not help."),
        "verdicts": Column(TEXT, "Verdicts that could advise the settings."),
        "advised": Column(FLAG, "Whether a verdict on the cell advises exactly these settings."),
        "method": Column(
            TEXT, "How the gain is known: by simulating the traced steps with the combined change, or by Amdahl's "
            "law."),
        "evidence": Column(
            TEXT, "What was simulated, and the rows of the table of verdicts that are about these settings."),
        "trials": Column(NUMBER.or_missing, "Trials by which such plans are scored.", "count"),
        "median_error": Column(NUMBER.or_missing, "Median relative error of expected gains in these trials.", "ratio"),
        "covered": Column(
            NUMBER.or_missing, "Part of the trials whose measured gain lay within the expected interval.", "fraction"),
        "score": Column(TEXT, "The score in words."),
        "command": Column(TEXT, "Command that compares the cell with itself under these settings."),
        "not_possible": Column(
            TEXT, "Why the cell cannot have these settings, such as that they failed in a trial; empty where it can."),
    },
    # A table that an earlier version made has none.
    optional={
        "recipe": Column(
            TEXT, "The line of PyTorch that does the same in a program of your own, for each setting, behind the "
            "places in a script that it is about. Empty where the cell cannot have the settings."),
    },
    key=[*CELL, "rank"],
)  # fmt: skip
COLUMNS = [*PLANS_TABLE.columns, *PLANS_TABLE.optional]
# Tables that plans are made of; that of the roofline is there only with counters.
TABLES = ("cells", "steps", "kernels", "verdicts", "roofline")


def tabulate_plans(
    tables: Mapping[str, pd.DataFrame],
    peaks: Mapping[str, float],
    ran_with: Mapping[CellKey, KnownSettings],
    given: Rules,
    programs: Mapping[CellKey, Mapping[int, Program]],
    lines: "Mapping[CellKey, Sequence[BlockingLine]] | None" = None,
    scored: Scores | None = None,
    failed: Mapping[CellKey, Mapping[str, str]] | None = None,
    cast: Mapping[CellKey, pd.DataFrame] | None = None,
    noted: Mapping[CellKey, NotedFacts] | None = None,
) -> pd.DataFrame:
    """Return the table of plans (COLUMNS).

    Args:
        tables: what there is of TABLES, by name.
        peaks: measured rates by name, in flop/s. ran_with: settings of each cell. given: rules. programs: traced steps
            of each cell, by process. scored: records of advice.
        lines: by cell, the lines at which its step waits; cells whose lines are unknown are missing.
        failed: by cell, why settings failed in trials, by their words.
        cast: by cell, rows of fusion-kernels.csv; cells without a trace of their operators are missing.
        noted: by cell, what its processes noted.
    """
    rows = []
    for row in tables["cells"].to_dict("records"):
        cell: CellKey = (row["model"], row["phase"])
        # A report that was made elsewhere has no settings.
        if cell[1] == IMPORTED:
            continue
        own = {name: schemas.rows_of_cell(table, *cell) for name, table in tables.items()}
        settings, on_gpu = ran_with.get(cell, {}), len(own["steps"]) > 0
        broken = (failed or {}).get(cell, {})
        infeasible = find_infeasible(settings, _advisable_words(given, on_gpu))
        infeasible |= refuse_failed(EVERYTHING, broken).refused
        judged = None
        if on_gpu:
            traced, waits = programs.get(cell, {}), (lines or {}).get(cell)
            here = scores_on(row.get("device"), scored)
            more = broken, (cast or {}).get(cell), (noted or {}).get(cell)
            judged = judge_cell(own["steps"], settings, given, peaks, traced, here, waits, *more)
            infeasible |= judged.feasible.refused
        traits = judged.mark_traits(own["kernels"], own.get("roofline")) if judged else own["kernels"]
        words, known = row.get("arguments"), (noted or {}).get(cell, NotedFacts())
        arguments = words if isinstance(words, str) and words else " ".join(cell)
        about = arguments, known.made, known.device
        for rank, plan in enumerate(list_plans(judged, traits, own["verdicts"], infeasible, *about), 1):
            rows.append({**dict(zip(CELL, cell, strict=True)), "rank": rank, **plan.columns()})
    return pd.DataFrame(rows, columns=COLUMNS)


def _advisable_words(given: Rules, on_gpu: bool) -> list[str]:
    """Return the setting words that rules advise, on GPUs or on CPUs."""
    advice = [one for rule in given["rules"] if (rule["of"] != CPU) == on_gpu for one in rule["advice"]]
    return [word for one in advice for word in one.get("settings", "").split()]


def main(
    tables: Mapping[str, str],
    peaks: str | None,
    sidecars: Sequence[str],
    programs: Sequence[str],
    csv: str,
    failed: Mapping[str, Mapping[str, str]] | None = None,
    chain_kernels: Sequence[str] = (),
) -> None:
    """Read the tables (paths by name), sidecars of the unprofiled runs and traced steps, and write the plans.

    failed: as for `read_cell_facts`. chain_kernels: the cells' fusion-kernels.csv.
    """
    read = {
        name: reading.read(path, verdict.VERDICTS_TABLE) if name == "verdicts" else schemas.read_table(name, path)
        for name, path in tables.items()
    }
    known = {cell_key(path): program.read_programs(path) for path in programs}
    facts, rates = read_cell_facts(sidecars, failed), read_peaks(peaks) if peaks else {}
    cast = {cell_key(path): reading.read(path, fusion.KERNELS) for path in chain_kernels}
    told = facts.ran_with, verdict_rules.load_rules(), known, facts.lines
    write_csv(tabulate_plans(read, rates, *told, failed=facts.failed, cast=cast, noted=facts.noted), csv)
