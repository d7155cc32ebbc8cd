"""Print a comparison: `python -m profzoo.compare.cli TABLE [--fail-on slower]`, one line per cell.

The exit code is 3 if a candidate is slower, or computes something else, and `--fail-on` names that.
"""

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

from profzoo.compare import comparison_table, contributions, counter_changes, numerics
from profzoo.errors import DataError
from profzoo.formatting import format_ns, ratio
from profzoo.io import csv_tables as reading
from profzoo.kernels import short_names
from profzoo.statistics import speedup
from profzoo.tables.schemas import CELL

# Exit code if a candidate is slower or computes something else, for continuous integration.
EXIT_FAILING = 3
# What a comparison may fail on: a candidate that is slower, one that computes something else, or either.
EITHER = "either"
FAILING = (speedup.SLOWER, numerics.DIFFERENT, EITHER)
# How many parts, and kernels, are named.
SHOWN = 3
# How the name of a device begins that is a CPU.
ON_CPU = "CPU"


def format_comparison(
    table: pd.DataFrame, seen: pd.DataFrame | None = None, counted: pd.DataFrame | None = None
) -> list[str]:
    """Return lines: differences besides the times, then each cell with both times, outcome, speedup and interval.

    seen: the table of parts; the largest ones stand below cells that are faster or slower. counted: the table of
    counters; what changed stands below each cell that has any.
    """
    said = []
    for (baseline, candidate), rows in table.groupby(["baseline", "candidate"], sort=False):
        said.append(f"{candidate} against {baseline}: {describe_method(rows)}")
        said += [f"  differs: {text}" for text in describe_differences(rows)]
        said += [f"  {text}" for text in note_times_per_sample(rows)]
        names = [f"{row.model} {row.phase}" for row in rows.itertuples()]
        width = max(map(len, names))
        for name, row in zip(names, rows.to_dict("records"), strict=True):
            said += [_format_cell(name.ljust(width), row), *_format_largest_parts(row, seen)]
            said += [] if counted is None else counter_changes.format_counters(row, counted)
        said.append("  " + count_outcomes(rows))
    return said


def describe_method(rows: pd.DataFrame) -> str:
    """Describe how two sides were measured: number of processes, unit of the times, whether they alternated.

    rows: rows of the comparison table with these two sides.
    """
    turn = (
        "alternating" if rows["alternating"].all() else "measured at different times, so drift counts as a difference"
    )
    per = " or ".join(f"per {one}" for one in dict.fromkeys(rows["per"]))
    return f"{_format_counts(rows['processes'])} processes each, times {per}, {turn}"


def note_times_per_sample(rows: pd.DataFrame) -> list[str]:
    """Return lines that name the cells compared by time per sample, and why."""
    cells = rows[rows["per"] == comparison_table.SAMPLE]
    return [
        f"times are per sample, because a step has {one:g} samples on the reference side and {other:g} in the candidate"
        + _name_cells(mine, rows)
        for (one, other), mine in cells.groupby(["baseline_items", "candidate_items"], sort=False)
    ]


def describe_differences(rows: pd.DataFrame) -> list[str]:
    """Return lines on differences between two sides besides their times, with the cells if not all differ."""
    return [
        f"{text or 'no known setting'}{_name_cells(cells, rows)}" for text, cells in rows.groupby("differs", sort=False)
    ]


def count_outcomes(rows: pd.DataFrame) -> str:
    """Return the number of cells with each outcome."""
    return ", ".join(f"{count} {verdict}" for verdict, count in rows["verdict"].value_counts().items())


def _format_counts(counts: pd.Series) -> str:
    low, high = counts.min(), counts.max()
    return str(low) if low == high else f"{low} to {high}"


def _name_cells(cells: pd.DataFrame, rows: pd.DataFrame) -> str:
    """Name the cells in brackets, unless they are all cells."""
    if len(cells) == len(rows):
        return ""
    names = [f"{row.model} {row.phase}" for row in cells.itertuples()]
    return f" ({', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''})"


def _format_cell(name: str, row: dict) -> str:
    times = f"{format_ns(row['baseline_ns']):>9} -> {format_ns(row['candidate_ns']):>9}"
    times += " per sample" if row["per"] == comparison_table.SAMPLE else ""
    ends = 1 / row["ratio_high"], 1 / row["ratio_low"]
    gain, interval = ratio(1 / row["ratio"], *ends, row["margin"])
    energy = ""
    if pd.notna(row["energy_ratio"]):
        used, between = ratio(row["energy_ratio"], row["energy_low"], row["energy_high"])
        energy = f", {used} times the energy per sample {between}".rstrip()
    missing = ""
    if row["verdict"] == speedup.UNDECIDED and row["missing_rounds"] > 0:
        missing = (
            f" (about {row['missing_rounds']:.0f} more rounds of both, {format_ns(row['missing_ns'])}, would decide)"
        )
    unsteady = f"; unsteady: {row['unsteady']}" if row["unsteady"] else ""
    interval = interval or "(one process, so no interval)"
    numbers = numerics.describe_numerics(row)
    outcome = speedup.describe_outcome(row["verdict"], *ends)
    said = f"{outcome}, {gain} times as fast {interval}{missing}{energy}{unsteady}"
    return "; ".join(filter(None, [f"  {name}  {times}  {said}", numbers]))


def _format_largest_parts(row: dict, seen: pd.DataFrame | None) -> list[str]:
    """Return lines on launches if the numbers differ, and on the largest differences of time, as far as traced.

    These are by part of the step, layer and kernel.
    """
    if seen is None or row["verdict"] not in (speedup.FASTER, speedup.SLOWER, numerics.DIFFERENT):
        return []
    mine = seen[
        (seen[[*CELL, *contributions.SIDES]] == [row[key] for key in (*CELL, *contributions.SIDES)]).all(axis=1)
    ]
    said = _format_launches(mine) if row["numerics"] == numerics.DIFFERENT else []
    for level in (contributions.PART_LEVEL, contributions.LAYER_LEVEL, contributions.KERNEL_LEVEL):
        if most := mine[mine["level"] == level].head(SHOWN).to_dict("records"):
            said.append("      " + ", ".join(_format_part(one, part_names(mine)) for one in most))
    return said


def _format_launches(mine: pd.DataFrame) -> list[str]:
    """Return a line on launches by class of kernels, those first whose number differs most; empty without a trace."""
    classes = mine[(mine["level"] == contributions.CLASS_LEVEL) & mine["baseline_launches"].notna()]
    if classes.empty:
        return []
    order = (classes["candidate_launches"] - classes["baseline_launches"]).abs().sort_values(ascending=False).index
    most = ", ".join(
        f"{row['name']} {row['baseline_launches']:g} -> {row['candidate_launches']:g}"
        for row in classes.loc[order].head(SHOWN).to_dict("records")
    )
    one, other = classes["baseline_launches"].sum(), classes["candidate_launches"].sum()
    return [f"      launches {one:g} -> {other:g}: {most}"]


def part_names(rows: pd.DataFrame) -> dict[str, str]:
    """Return short, readable names of parts and kernels by their names in the table of parts."""
    kernels = rows.loc[rows["level"] == contributions.KERNEL_LEVEL, "name"]
    own = rows.loc[rows["level"] == contributions.PART_LEVEL, "name"]
    return {name: name.replace("_", " ") for name in own} | short_names.shorten_names(kernels)


def _format_part(row: dict, names: dict[str, str]) -> str:
    sign = "-" if row["delta_ns"] < 0 else "+"
    name = f"{row['range']} {names.get(row['name'], row['name'])}".strip()
    return f"{name} {sign}{format_ns(abs(row['delta_ns']))}" + (f" ({row['change']})" if row["change"] else "")


def find_failing(table: pd.DataFrame, fail_on: str) -> pd.Series:
    """Return which rows fail; fail_on: one of FAILING."""
    slower, different = table["verdict"] == speedup.SLOWER, table["numerics"] == numerics.DIFFERENT
    return {speedup.SLOWER: slower, numerics.DIFFERENT: different}.get(fail_on, slower | different)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m profzoo.compare.cli", description=__doc__)
    parser.add_argument("table", metavar="CSV", help="the table of a comparison")
    parser.add_argument("--parts", metavar="CSV", help="the table of where differences lie")
    parser.add_argument("--counters", metavar="CSV", help="the table of what changed in counters")
    parser.add_argument("--page", metavar="HTML", help="the page with more details, which the last line names")
    parser.add_argument("--fail-on", choices=FAILING, help="exit with 3 if that holds for any cell")
    options = parser.parse_args(arguments)
    try:
        table = reading.read(options.table, comparison_table.COMPARISON_TABLE)
        seen = reading.read(options.parts, contributions.PARTS_TABLE) if options.parts else None
        counted = reading.read(options.counters, counter_changes.COUNTERS_TABLE) if options.counters else None
    except DataError as error:
        print(f"profzoo: {error}", file=sys.stderr)
        return 1
    said = format_comparison(table, seen, counted)
    # Nothing counts on a CPU.
    if (counted is None or counted.empty) and not table["device"].str.startswith(ON_CPU).all():
        said.append(counter_changes.NONE)
    print("\n".join([*said, *([f"details: {options.page}"] if options.page else [])]))
    return EXIT_FAILING if options.fail_on and find_failing(table, options.fail_on).any() else 0


if __name__ == "__main__":
    sys.exit(main())
