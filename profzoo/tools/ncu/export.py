"""Exports a section set of an ncu report to a tidy CSV, with its units in the sidecar."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.scripts import write_csv, write_json
from profzoo.tools.ncu import census_matching, interval_calibration
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import derived_metrics as ncu_metrics
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.ncu.export_schema import is_nsys_census, read_census
from profzoo.tools.ncu.strata import Window
from profzoo.tools.rank_files import files_by_rank

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

# How the name of a page by mangled names ends.
ENDING = ".mangled.csv"
OTHER_CHOICES = (
    "kernels are not in the census of this cell's launches, so the number of their launches is unknown; cuDNN or "
    "cuBLAS chose other kernels in this run, which `deterministic: true` prevents"
)
NOT_AS_PLANNED = (
    "these functions have another number of profiled launches than the plan and the census say, so each launch counts "
    "as the next one of its configuration; `deterministic: true` makes all runs launch the same kernels"
)
NO_STEP = (
    "none of these launches is in a step of the window, so they have no range: ncu did not see the program's NVTX "
    "ranges, or the program launched nothing in its steps"
)
OWN_CENSUS = "; with `ncu.census: ncu`, ncu records all launches instead of nsys"


@dataclass(frozen=True)
class Exported:
    """The exported table of a section set, with its units.

    other_choices: functions of kernels that the census lacks. not_as_planned: functions whose launches were not
    profiled as planned. totals: result of census_matching.estimate_totals. expected: relative error of the totals that
    was planned. by_nsys: whether the census comes from nsys. in_steps: whether any profiled launch is in a step.
    """

    table: pd.DataFrame
    units: Mapping[str, str]
    other_choices: Sequence[str] = field(default_factory=list)
    not_as_planned: Sequence[str] = field(default_factory=list)
    totals: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_nsys: bool = False
    in_steps: bool = True
    expected: float | None = None

    def notes(self) -> list[str]:
        """List the notes to print about this export, one line each."""
        found = ((OTHER_CHOICES, self.other_choices), (NOT_AS_PLANNED, self.not_as_planned))
        cure = OWN_CENSUS if self.by_nsys else ""
        told = [f"{what}{cure}: {'; '.join(functions)}" for what, functions in found if functions]
        unsure = interval_calibration.describe_wider_intervals(self.totals, self.expected)
        return [*([] if self.in_steps else [NO_STEP]), *told, *([unsure] if unsure else [])]


def tabulate_report(
    pages: Mapping[int, Sequence[str]], facts: "Sidecar", census: str | None, launches: str | int
) -> Exported:
    """Make the table of what was profiled.

    pages: by number of ncu's run, from 1, raw, by mangled and by demangled names. facts: the report's sidecar. census:
    CSV of all launches of the window, if these are not in the report itself. launches: those that were profiled,
    `sampled`, `distinct`, `all` or the first N, or `ranges`.
    """
    if launches == "ranges":
        return Exported(*ncu_tables.tidy_ranges(*ncu_tables.read_raw(pages[1][0], True)))
    every = read_census(census) if census else None
    counts = None if every is None else ncu_tables.count_configurations(every)
    runs, kept, in_steps = dict[int, pd.DataFrame](), dict[str, str](), False
    for number, own in pages.items():
        runs[number], units, stepped = _launches(own, counts)
        kept |= units
        in_steps |= stepped
    if every is None:
        return Exported(runs[1] if launches == "all" else runs[1].assign(launches=pd.NA), kept, in_steps=in_steps)
    by_nsys = bool(census and is_nsys_census(census))
    other = list(dict.fromkeys(name for taken in runs.values() for name in ncu_tables.find_other_kernels(taken, every)))
    if launches not in (ncu.SAMPLED, ncu.DISTINCT):
        return Exported(runs[1], kept, other, by_nsys=by_nsys, in_steps=in_steps)
    plan = facts.get("plan")
    planned = plan.get("options", []) if plan else []
    words = ncu.run_options(planned) if ncu.THEN in planned else [facts["command"]]
    window = Window(every)
    table, not_as_planned = census_matching.match_runs(runs, words, window)
    totals = census_matching.estimate_totals(table, window, list(kept))
    return Exported(table, kept, other, not_as_planned, totals, by_nsys, in_steps, plan.get("error") if plan else None)


def _launches(pages: Sequence[str], counts: pd.Series | None) -> tuple[pd.DataFrame, dict[str, str], bool]:
    """Return the launches of one run, the units of their metrics, and whether any launch is in a step.

    Raises:
        DataError: the two pages are not of one report.
    """
    raw, units = ncu_tables.read_raw(pages[0])
    names, _ = ncu_tables.read_raw(pages[1])
    same = ["ID", "Stream", "Grid Size", "Block Size"]
    if not raw[same].equals(names[same]):
        raise DataError(f"{pages[1]} does not hold the launches of {pages[0]}, {len(raw)}: {ncu_tables.AGAIN}")
    return *ncu_tables.tidy_launches(raw, units, names, counts), ncu_tables.any_in_step(raw)


def count_missing_values(table: pd.DataFrame, asked: Collection[str]) -> dict[str, int]:
    """Count, per metric, the launches without a value although other launches have one or the metric was requested."""
    counts = {name: int(table[name].isna().sum()) for name in table if "__" in name}
    return {name: count for name, count in counts.items() if count and (count < len(table) or name in asked)}


def join_processes(
    pages: str, facts: "Sidecar", census: str | None, launches: str | int, say: Callable[[str], object]
) -> Exported:
    """What was profiled in each process of a cell: the same table with host and rank before the other columns.

    pages: folder of the printed pages, each named `{host}.{rank}.{mangled,demangled}.csv`. census: of the first
    process, of whose launches the others have as many. The rest is as of tabulate.

    Raises:
        DataError: a process left no report, or has a metric in another unit than the others.
    """
    frames, notes, units = [], [], dict[str, tuple[int, str]]()
    for host, rank, page in files_by_rank(Path(pages).glob(f"*{ENDING}"), ENDING, len(facts["ranks"]), "report"):
        exported = tabulate_report({1: page_pair(page)}, facts, census, launches)
        notes.append(exported)
        for note in exported.notes():
            say(f"rank {rank}: {note}")
        for name, unit in exported.units.items():
            first, other = units.setdefault(name, (rank, unit))
            if unit != other:
                raise DataError(
                    f"{page}: rank {rank} has {name} in {unit}, rank {first} in {other}: profile them alike"
                )
        exported.table.insert(0, "host", host)
        exported.table.insert(1, "rank", rank)
        frames.append(exported.table)
    other_choices, not_as_planned = (
        list(dict.fromkeys(name for one in notes for name in getattr(one, what)))
        for what in ("other_choices", "not_as_planned")
    )
    table = pd.concat(frames, ignore_index=True)
    kept = {name: unit for name, (_, unit) in units.items()}
    return Exported(table, kept, other_choices, not_as_planned)


def read_runs(pages: str) -> dict[int, Path]:
    """The page by mangled names of each run of ncu: of the first, which bears the report's name, then of 2, 3 ..."""
    named = {path.name.removesuffix(ENDING): path for path in Path(pages).glob(f"*{ENDING}")}
    return dict(sorted((int(name) if name.isdecimal() else 1, path) for name, path in named.items()))


def page_pair(page: Path) -> list[str]:
    """Return the page with mangled names and the page with demangled names, which lies beside it."""
    return [str(page), str(page).removesuffix(ENDING) + ".demangled.csv"]


def main(
    pages: str,
    report_sidecar: str,
    census: str | None,
    launches: str | int,
    metrics: Sequence[str],
    each: bool,
    csv: str,
    sidecar: str,
    say: Callable[[str], object] = print,
) -> None:
    """Write the CSV of what was profiled, and its sidecar.

    pages: folder of the printed pages. each: whether they are of each process of a cell, or of one. census, launches:
    as of tabulate. metrics: those asked for; ncu leaves out without a word what the GPU does not have. The sidecar
    names those that no metric of another name stands for, the census, kernels that it lacks, what was not profiled as
    planned, and in how many launches a metric has no value.
    """
    needs = {"command": fact.TEXTS, **({"ranks": fact.PROCESSES} if each else {})}
    facts = read_facts(report_sidecar, needs)
    if each:
        exported = join_processes(pages, facts, census, launches, lambda note: say(f"{csv}, {note}"))
    else:
        exported = tabulate_report(
            {run: page_pair(page) for run, page in read_runs(pages).items()}, facts, census, launches
        )
        for note in exported.notes():
            say(f"{csv}: {note}")
    table = exported.table
    write_csv(table, csv)
    missing = [name for name in metrics if ":" not in name and not ncu_metrics.has_metric(name, table.columns)]
    said = {
        "units": exported.units,
        "rows": len(table),
        "missing_metrics": missing,
        "no_value": count_missing_values(table, {*exported.units, *metrics}),
        "other_choices": exported.other_choices,
        "not_as_planned": exported.not_as_planned,
        **({"census": Path(census).name} if census else {}),
        **(
            {"totals": exported.totals, "totals_within": interval_calibration.relative_half_widths(exported.totals)}
            if exported.totals
            else {}
        ),
    }
    write_json({**facts, **said}, sidecar)
