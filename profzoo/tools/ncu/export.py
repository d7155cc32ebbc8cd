"""Exports a section set of an ncu report to a tidy CSV, with its units in the sidecar."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.scripts import write_csv, write_json
from profzoo.tools.defaults import files_by_rank
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu import estimates as ncu_metrics
from profzoo.tools.ncu import launch_selection
from profzoo.tools.ncu import raw_page as ncu_tables
from profzoo.tools.ncu.estimates import ALIKE, GPU_TIME, Estimates, Window, interval_half_width
from profzoo.tools.ncu.export_schema import is_nsys_census, read_census
from profzoo.tools.ncu.known_operations import fill_operations
from profzoo.tools.ncu.quantities import QUANTITIES
from profzoo.tools.ncu.raw_page import CONFIGURATION as KEYS
from profzoo.tools.ncu.single_passes import asked_products, complete_products, join_runs

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar


# Matches profiled launches with the census and computes how many launches each one stands for.

# Columns that are added to the table of a section set, after `launches`.
COLUMNS = ["run", "launch", "as_planned", "stratum", "multiplicity", "time_spread"]


def match_runs(
    runs: Mapping[int, pd.DataFrame], words: Sequence[Sequence[str]], window: Window
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of all runs with COLUMNS, and the functions whose launches were not profiled as planned.

    Args:
        runs: profiled launches of each run, in order, by number of the run from 1; a run may have profiled nothing.
        words: options of ncu for each run.
        window: all launches of the census.

    `id` is unique. `launch` is the position in the census, from 0, found by the order within the configuration; it is
    empty for kernels that the census lacks. `as_planned` is false if the number of profiled launches of the
    configuration differs from the plan; the row is then taken to be the next launch of its configuration. Rows with the
    same `stratum` represent the same launches. `multiplicity` is the number of launches that a row represents, and
    `time_spread` is the longest over the shortest time of these.
    """
    frames: list[pd.DataFrame] = []
    functions: list[str] = []
    for number, own in enumerate(words, 1):
        expected = launch_selection.profiled_launches(window.launches, own)
        taken = runs.get(number, expected.iloc[:0])
        unlike = launch_selection.differing_configurations(taken, expected)
        functions += _functions(taken, expected, unlike, window.launches)
        if number not in runs:
            continue
        doubtful = _among(taken, unlike)
        # A kernel that the census lacks has no match.
        launch = _places(taken, expected).where(~doubtful, _places(taken, window.launches))
        # Numbers of further runs go on from those of the first, which ncu's own pages of details name.
        first = 0 if number == 1 else 1 + max(int(frame["id"].max()) for frame in frames) if frames else 0
        told = {"id": taken["id"] + first, "run": number, "launch": launch.astype("Int64"), "as_planned": ~doubtful}
        frames.append(taken.assign(**told))
    table = pd.concat(frames, ignore_index=True)
    return _in_front(_weighed(table, window)), list(dict.fromkeys(functions))


def _functions(
    taken: pd.DataFrame, expected: pd.DataFrame, unlike: pd.MultiIndex, census: pd.DataFrame
) -> Sequence[str]:
    """Return the functions of the kernels of these configurations, without kernels that the census lacks."""
    either = pd.concat([frame[[*KEYS, "function"]] for frame in (taken, expected)], ignore_index=True)
    found = either.loc[_among(either, unlike) & either["mangled"].isin(census["mangled"]), "function"]
    return list(found)


def _weighed(table: pd.DataFrame, window: Window) -> pd.DataFrame:
    """Return the rows with stratum and multiplicity."""
    known = table["launch"].notna()
    found = Estimates(window, table.loc[known, "launch"].to_numpy(dtype=int), pd.DataFrame(index=table.index[known]))
    labels = found.labels()
    times = window.launches[GPU_TIME].groupby(labels)
    stratum = pd.Series(labels[table.loc[known, "launch"].to_numpy(dtype=int)], table.index[known])
    table.loc[known, "stratum"] = stratum
    table.loc[known, "multiplicity"] = found.weights()
    table.loc[known, "time_spread"] = stratum.map(times.max() / times.min()).round(4)
    return table.astype({"stratum": "Int64"})


def _in_front(table: pd.DataFrame) -> pd.DataFrame:
    place = table.columns.get_loc("launches") + 1
    rest = [name for name in table.columns if name not in COLUMNS]
    return table[[*rest[:place], *COLUMNS, *rest[place:]]]


def _among(table: pd.DataFrame, configurations: pd.MultiIndex) -> pd.Series:
    """Return a mask of the rows that have one of these launch configurations."""
    return pd.Series(pd.MultiIndex.from_frame(table[KEYS]).isin(configurations), table.index)


def _places(taken: pd.DataFrame, launches: pd.DataFrame) -> pd.Series:
    """Return the position of each row's launch: the n-th row of a configuration is its n-th launch."""
    numbered = [frame[KEYS].assign(number=frame.groupby(KEYS, dropna=False).cumcount()) for frame in (taken, launches)]
    known = numbered[1].assign(place=launches.index)
    merged = numbered[0].merge(known, how="left", on=[*KEYS, "number"])
    return pd.Series(merged["place"].to_numpy(), taken.index)


def estimate_totals(table: pd.DataFrame, window: Window, metrics: Sequence[str]) -> dict[str, list[float]]:
    """Estimate [total, low, high] over the window for each additive metric, with a 90 % confidence interval.

    table: result of match_runs; metrics: names of collected metrics.
    """
    known = table["launch"].notna()
    summed = [name for name in metrics if name.endswith(".sum") and pd.api.types.is_numeric_dtype(table[name])]
    values = table.loc[known, summed].astype("float64").dropna(axis=1)
    found = Estimates(window, table.loc[known, "launch"].to_numpy(dtype=int), values)
    whole = found.totals(np.zeros(len(window.launches), dtype=int)).iloc[0]
    said = {}
    for name in values:
        wide = float(interval_half_width(np.array([whole[f"{name}_se"]]), np.array([whole[f"{name}_freedom"]]))[0])
        said[name] = [float(whole[name]), max(float(whole[name]) - wide, 0.0), float(whole[name]) + wide]
    return said


# Compares the confidence intervals of totals with the error that was expected when the launches were chosen.

# A plan expects errors of traffic and of work. Operations of all types are added up, because some types hardly occur.
TRAFFIC = ("dram_bytes", "l2_bytes")
FLOP = [name for name, quantity in QUANTITIES.items() if quantity.unit == "flop"]
# Intervals that are wider than expected by up to this factor are not reported.
CLEARLY = 1.5


def relative_half_widths(totals: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return half the width of each total's interval, relative to the total, by quantity.

    totals: for each metric its total and both ends of the interval, in that order.

    >>> relative_half_widths({"dram__bytes_read.sum": [90, 81, 99], "dram__bytes_write.sum": [10, 9, 11]})
    {'dram_bytes': 0.1}
    """
    found = {}
    for name, quantities in {**{one: [one] for one in TRAFFIC}, "operations": FLOP}.items():
        parts = [_of_quantity(one, totals) for one in quantities]
        total, wide = (sum(part[place] for part in parts) for place in (0, 1))
        if total > 0:
            found[name] = wide / total
    return found


def _of_quantity(name: str, totals: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return the total of a quantity and half its interval, as if all its metrics erred in the same direction."""
    sums = (one.factors for one in QUANTITIES[name].sums)
    factors = next((one for one in sums if set(one) <= set(totals)), {})
    total = sum(factor * totals[metric][0] for metric, factor in factors.items())
    return total, sum(factor * (totals[metric][2] - totals[metric][0]) for metric, factor in factors.items())


def describe_wider_intervals(totals: Mapping[str, Sequence[float]], expected: float | None) -> str | None:
    """Return a note if totals are clearly less certain than expected, else None.

    Differences within what a single launch varies by from run to run are not reported.

    Args:
        totals: for each metric its total and both ends of the interval, in that order.
        expected: relative error that was expected; 0 if every launch was to be profiled, None if unknown.

    >>> describe_wider_intervals({"lts__t_bytes.sum": [100, 80, 120]}, 0.042)[:62]
    'totals of l2_bytes are known to 20.0%, not to 4.2% as planned,'
    """
    widths = relative_half_widths(totals)
    if not expected or not widths:
        return None
    name = max(widths, key=lambda one: widths[one])
    if widths[name] <= CLEARLY * max(expected, ALIKE):
        return None
    return (
        f"totals of {name} are known to {widths[name]:.1%}, not to {expected:.1%} as planned, because launches of "
        "similar times did different work; `ncu.launches: all` profiles every launch, a smaller ncu.error more of them"
    )


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
    left_out: float = 0.0

    def notes(self) -> list[str]:
        """List the notes to print about this export, one line each."""
        found = ((OTHER_CHOICES, self.other_choices), (NOT_AS_PLANNED, self.not_as_planned))
        cure = OWN_CENSUS if self.by_nsys else ""
        told = [f"{what}{cure}: {'; '.join(functions)}" for what, functions in found if functions]
        unsure = describe_wider_intervals(self.totals, self.expected)
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
    first = len(words) - (plan.get("joined", 0) if plan else 0)
    left_out = 0.0
    own_runs = {number: rows for number, rows in runs.items() if number <= first}
    table, not_as_planned = match_runs(own_runs, words[:first], window)
    if plan and "joined" in plan:
        further = [number for number in runs if number > first]
        table = join_runs(table, [match_runs({1: runs[one]}, [words[one - 1]], window)[0] for one in further])
        if known := plan.get("known"):
            table, kept = fill_operations(table, known), {**kept, **known["units"]}
        asked = asked_products(facts["command"])
        table, beyond = complete_products(table, asked)
        left_out = float((beyond * table["multiplicity"].fillna(1)).sum())
        unit = next((kept[name] for name in asked if name in kept), "")
        kept = {**{name: unit for name in asked if name in table}, **kept}
    totals = estimate_totals(table, window, list(kept))
    if not in_steps:
        # An ncu that attaches to a process gets no NVTX ranges. Each launch has the range that the census gives it.
        found = table["launch"].map(every["range"])
        table["range"], in_steps = found.fillna(""), bool(found.fillna("").ne("").any())
    expected = plan.get("error") if plan else None
    return Exported(table, kept, other, not_as_planned, totals, by_nsys, in_steps, expected, left_out)


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
        **({"left_out_flop": exported.left_out} if exported.left_out else {}),
        **(
            {"totals": exported.totals, "totals_within": relative_half_widths(exported.totals)}
            if exported.totals
            else {}
        ),
    }
    write_json({**facts, **said}, sidecar)
