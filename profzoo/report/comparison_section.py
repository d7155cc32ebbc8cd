"""The report's section on a comparison: differences besides times, each cell's outcome, and the largest parts."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from profzoo.compare import cli, comparison_table, contributions, counter_changes, numerics
from profzoo.compare.counter_quantities import PERCENT, WORDS
from profzoo.formatting import fixed, format_ns, number, ratio
from profzoo.io.csv_tables import Row
from profzoo.json_types import TemplateVariables
from profzoo.report.value_formats import Field, Formatter, is_cpu_device, make_field
from profzoo.statistics import speedup
from profzoo.tables.schemas import CELL

# At each level the TOP parts of a cell are shown, unless they are less than LEAST of the reference side's step.
LEAST_SHOWN_SHARE = 0.001
TOP, LEVELS = 3, (contributions.PART_LEVEL, contributions.LAYER_LEVEL, contributions.KERNEL_LEVEL)
# As in the figure.
MARKS = {
    speedup.FASTER: "▶",
    speedup.EQUIVALENT: "■",
    speedup.SLOWER: "◀",
    speedup.UNDECIDED: "○",
    numerics.DIFFERENT: "≠",
}


def _format_interval(row: Row, off: str, of: str) -> str:
    return ratio(row[off], row[f"{of}_low"], row[f"{of}_high"])[1]


GAIN, GAIN_INTERVAL = "gain", "95 % interval"
# Heading of each column, how its value follows from a row, and how it is formatted.
COLUMNS: dict[str, tuple[Callable[[Row], Any], Formatter]] = {
    "model": (lambda row: row["model"], str),
    "phase": (lambda row: row["phase"], str),
    "candidate": (lambda row: row["candidate"], str),
    "outcome": (
        lambda row: speedup.describe_outcome(row["verdict"], row["ratio_low"], row["ratio_high"]),
        lambda outcome: f"{MARKS[outcome.partition(',')[0]]} {outcome}",
    ),
    GAIN: (lambda row: 1 / row["ratio"], lambda gain: f"{fixed(gain, 1, 3)}×"),
    GAIN_INTERVAL: (
        lambda row: ratio(1 / row["ratio"], 1 / row["ratio_high"], 1 / row["ratio_low"], row["margin"])[1],
        str,
    ),
    "numerics": (lambda row: row["numerics"], str),
    "why": (lambda row: "; ".join(filter(None, [row["numerics_why"], row["work"]])), str),
    "time, reference side": (lambda row: row["baseline_ns"], format_ns),
    "time, candidate": (lambda row: row["candidate_ns"], format_ns),
    "times": (lambda row: f"per {comparison_table.SAMPLE}" if row["per"] == comparison_table.SAMPLE else "", str),
    "processes": (lambda row: row["processes"], "{:.0f}".format),
    "energy ratio": (lambda row: row["energy_ratio"], lambda used: f"{fixed(used, 1, 3)}×"),
    "energy interval": (lambda row: _format_interval(row, "energy_ratio", "energy"), str),
    "J per sample, reference side": (lambda row: row["baseline_item_j"], number),
    "J per sample, candidate": (lambda row: row["candidate_item_j"], number),
    "unsteady": (lambda row: row["unsteady"], str),
}
PART_COLUMNS: dict[str, tuple[str, Formatter]] = {
    "model": ("model", str),
    "phase": ("phase", str),
    "candidate": ("candidate", str),
    "level": ("level", str),
    "range": ("range", str),
    "name": ("name", str),
    "change": ("delta_ns", lambda ns: f"{'−' if ns < 0 else '+'}{format_ns(abs(ns))}"),
    "of the step": ("delta_share", "{:+.1%}".format),
    "launches": ("change", str),
}
COUNTER_COLUMNS: dict[str, tuple[Callable[[Row], Any], Formatter]] = {
    "model": (lambda row: row["model"], str),
    "phase": (lambda row: row["phase"], str),
    "candidate": (lambda row: row["candidate"], str),
    "level": (lambda row: row["level"], str),
    "range": (lambda row: row["range"], str),
    "name": (lambda row: row["name"], str),
    "counter": (lambda row: WORDS[row["quantity"]], str),
    "outcome": (lambda row: row["outcome"], str),
    "reference side": (lambda row: _format_counted(row, "baseline"), str),
    "candidate side": (lambda row: _format_counted(row, "candidate"), str),
    "difference": (lambda row: counter_changes.format_delta(row), str),
    "of the cell": (lambda row: row["delta_share"], "{:+.1%}".format),
    "launches": (lambda row: row["change"], str),
}
# Levels of counters that the page shows: all of the cell, and of others the largest changes of each counter.
COUNTED_LEVELS = (counter_changes.CLASS_LEVEL, counter_changes.LAYER_LEVEL, counter_changes.KERNEL_LEVEL)
# Columns that may take several lines, and all that are aligned left.
LONG_TEXT_COLUMNS = ("why", "unsteady", "name")
TEXT_COLUMNS = (*CELL, *LONG_TEXT_COLUMNS, "candidate", "outcome", "numerics", "level", "range", "launches", "counter")


def comparison_context(tables: Mapping[str, pd.DataFrame]) -> TemplateVariables:
    """Return the template's variables of a comparison; `comparison` is None if there is none.

    tables: `compare`, and `compare_parts` if the differences were split into parts.
    """
    if "compare" not in tables:
        return {"comparison": None}
    table = tables["compare"]
    rows = [[make_field(value(row), form) for value, form in COLUMNS.values()] for row in table.to_dict("records")]
    return {
        "comparison": {
            "sides": [
                _describe_sides(pair, rows) for pair, rows in table.groupby(list(contributions.SIDES), sort=False)
            ],
            "margin": f"{table['margin'].max():.0%}" if len(table) else "",
            **_drop_empty_columns(list(COLUMNS), rows, "columns", "rows"),
            **_drop_empty_columns(
                list(PART_COLUMNS), _largest_changes(table, tables.get("compare_parts")), "part_columns", "parts"
            ),
            **_drop_empty_columns(
                list(COUNTER_COLUMNS), _changed_counters(tables.get("compare_counters")), "counter_columns", "counters"
            ),
            "uncounted": counter_changes.NONE if _lacks_counters(tables) else "",
        }
    }


def _lacks_counters(tables: Mapping[str, pd.DataFrame]) -> bool:
    """Return whether cells on a GPU were compared without counters."""
    counted, on_cpu = tables.get("compare_counters"), tables["compare"]["device"].map(is_cpu_device)
    return (counted is None or counted.empty) and not on_cpu.all()


def _changed_counters(counted: pd.DataFrame | None) -> list[list[Field]]:
    """Return all counters of each cell, and the TOP changes of each counter by class, layer and kernel."""
    if counted is None or counted.empty:
        return []
    identity = [*CELL, *contributions.SIDES]
    whole = counted[counted["level"] == counter_changes.CELL_LEVEL]
    changed = counted[counted["level"].isin(COUNTED_LEVELS) & (counted["outcome"] == counter_changes.CHANGED)]
    most = changed[changed.groupby([*identity, "level", "quantity"], sort=False).cumcount() < TOP]
    rows = pd.concat([whole, most]).sort_index()
    rows = rows.assign(name=rows["name"].replace(counter_changes.short_kernel_names(rows)))
    return [
        [make_field(value(row), form) for value, form in COUNTER_COLUMNS.values()] for row in rows.to_dict("records")
    ]


def _format_counted(row: Row, side: str) -> str:
    """Format a value of one side with its interval."""
    value, low, high = (
        counter_changes.format_amount(row[f"{side}{end}"], row["unit"])
        for end in ("_value", "_value_low", "_value_high")
    )
    unit = " %" if row["unit"] == PERCENT else ""
    return f"{value} [{low.removesuffix(unit)}, {high}]" if low != high else value


def _describe_sides(pair: tuple[str, str], rows: pd.DataFrame) -> TemplateVariables:
    baseline, candidate = pair
    return {
        "baseline": baseline,
        "candidate": candidate,
        "how": cli.describe_method(rows),
        "differs": [*cli.describe_differences(rows), *cli.note_times_per_sample(rows)],
        "counted": cli.count_outcomes(rows),
    }


def _drop_empty_columns(names: list[str], rows: list[list[Field]], heading: str, body: str) -> TemplateVariables:
    """Drop empty columns and the column of a single candidate; return headings, rows and which columns are texts."""
    values = [{row[index]["value"] for row in rows} for index in range(len(names))]
    kept = [index for index, name in enumerate(names) if values[index] - {""} and
            not (name == "candidate" and len(values[index]) == 1)]  # fmt: skip
    return {
        heading: [names[index] for index in kept],
        f"{heading}_texts": [place for place, index in enumerate(kept) if names[index] in TEXT_COLUMNS],
        f"{heading}_names": [place for place, index in enumerate(kept) if names[index] in LONG_TEXT_COLUMNS],
        body: [[row[index] for index in kept] for row in rows],
    }


def _largest_changes(table: pd.DataFrame, seen: pd.DataFrame | None) -> list[list[Field]]:
    """Return the TOP changes per level of each cell that is faster or slower, in the order of the table."""
    if seen is None:
        return []
    identity = [*CELL, *contributions.SIDES]
    differing = table.loc[table["verdict"].isin([speedup.FASTER, speedup.SLOWER, numerics.DIFFERENT]), identity]
    most = seen[seen["level"].isin(LEVELS) & (seen["delta_share"].abs() >= LEAST_SHOWN_SHARE)]
    most = most[most.groupby([*identity, "level"], sort=False).cumcount() < TOP]
    found = differing.merge(most, on=identity, how="inner")
    found = found.assign(name=found["name"].replace(cli.part_names(found)))
    return [[make_field(row[name], form) for name, form in PART_COLUMNS.values()] for row in found.to_dict("records")]
