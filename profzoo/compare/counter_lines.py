"""Says in lines what counters changed between two sides, and how to collect them where there are none."""

from collections.abc import Mapping

import pandas as pd

from profzoo.compare.contributions import SIDES
from profzoo.compare.counter_changes import CELL_LEVEL, CHANGED, KERNEL_LEVEL, LAYER_LEVEL, NOT_ALL
from profzoo.compare.counter_quantities import PERCENT, WORDS
from profzoo.io.csv_tables import Row
from profzoo.kernels import short_names
from profzoo.tables.schemas import CELL

# How many layers, or kernels, are named per quantity at most.
SHOWN = 2
PREFIXES = {"P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3}
# The settings with which a comparison, or the run that made a folder of results, counts.
COLLECT = "tool=ncu,nsys,torch ncu='{set: survey}'"
NONE = (
    "counters: not on both sides, so bytes, operations, hit rates and occupancy are not compared; to collect them, "
    f"compare with {COLLECT}, and for a side that is a folder, measure with it"
)
PARTLY = (
    "not all launches were counted on both sides: sums are of those that were, and nothing is decided of the whole; "
    "a larger ncu.budget, or ncu.launches: all, counts more"
)


def format_counters(row: Row, table: pd.DataFrame) -> list[str]:
    """Return lines on the counters of a compared cell: the whole cell, then where the largest changes are.

    row: the cell's row of the table of comparisons. table: the table of counters.
    """
    keys = [*CELL, *SIDES]
    mine = table[(table[keys] == [row[key] for key in keys]).all(axis=1)]
    if mine.empty:
        return []
    whole = mine[mine["level"] == CELL_LEVEL].to_dict("records")
    said = ["      counters: " + ", ".join(_format_value(one) for one in whole)]
    if any(one["change"] == NOT_ALL for one in whole):
        said.append(f"      {PARTLY}")
    names = short_kernel_names(mine)
    for level in (LAYER_LEVEL, KERNEL_LEVEL):
        changed = mine[(mine["level"] == level) & (mine["outcome"] == CHANGED)]
        most = changed.groupby("quantity", sort=False).head(SHOWN)
        said += [f"      changed {level} {line}" for line in _format_changes(most, names)]
    return said


def short_kernel_names(rows: pd.DataFrame) -> dict[str, str]:
    """Return short names of the kernels in rows of the table of counters."""
    return short_names.shorten_names(rows.loc[rows["level"] == KERNEL_LEVEL, "name"].unique())


def format_amount(value: float, unit: str) -> str:
    """Format bytes, operations or a rate, with three digits.

    >>> format_amount(2.5e9, "byte"), format_amount(4.2e9, "flop"), format_amount(61.24, "%")
    ('2.5 GB', '4.2 Gflop', '61.2 %')
    """
    if unit == PERCENT:
        return f"{value:.1f} %"
    suffix = "B" if unit == "byte" else unit
    found = next(((prefix, size) for prefix, size in PREFIXES.items() if value >= size), None)
    return f"{value:.0f} {suffix}" if found is None else f"{value / found[1]:.3g} {found[0]}{suffix}"


def _format_value(row: Row) -> str:
    one, other = (format_amount(row[f"{side}_value"], row["unit"]) for side in SIDES)
    return f"{WORDS[row['quantity']]} {one} -> {other} ({row['outcome']})"


def _format_changes(rows: pd.DataFrame, names: Mapping[str, str]) -> list[str]:
    """Return a line per layer or kernel, with all of its changes; names: short names of kernels."""
    found: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        place = f"{row['range']} {names.get(row['name'], row['name'])}".strip()
        place += f" ({row['change']})" if row["change"] else ""
        found.setdefault(place, []).append(f"{WORDS[row['quantity']]} {format_delta(row)}")
    return [f"{place}: {', '.join(changes)}" for place, changes in found.items()]


def format_delta(row: Row) -> str:
    """Format a difference with its sign; of rates in points."""
    sign = "-" if row["delta"] < 0 else "+"
    amount = format_amount(abs(row["delta"]), row["unit"])
    return sign + (amount.replace(" %", " points") if row["unit"] == PERCENT else amount)
