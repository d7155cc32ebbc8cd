"""Finds the interval that belongs to each number of a table, and checks that the number lies inside it."""

from collections.abc import Collection, Mapping

import pandas as pd

from profzoo.io.csv_tables import Table

LOW, HIGH = "_low", "_high"
# Of what is as large as the range, rounding may make a little more or less.
ROUNDING = 1e-9


def interval_columns(names: Collection[str], declared: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Map each number's column to the columns of its lower and upper bound.

    declared: as Table.ranges. All others go by their names: `X_low` and `X_high` are the range of `X`.

    >>> interval_columns(["gain", "gain_low", "gain_high", "low"], {})
    {'gain': ('gain_low', 'gain_high')}
    """
    found = {number: ends for number, ends in declared.items() if {number, *ends} <= set(names)}
    taken = {end for ends in found.values() for end in ends}
    for name in names:
        ends = (f"{name}{LOW}", f"{name}{HIGH}")
        if set(ends) <= set(names) - taken:
            found[name] = ends
    return found


def find_outside_interval(frame: pd.DataFrame, table: Table) -> str | None:
    """Describe the first number outside its interval, or return None; missing values are not checked."""
    for number, (low, high) in interval_columns(list(frame.columns), table.ranges).items():
        value, least, most = (frame[name].astype("float64") for name in (number, low, high))
        slack = ROUNDING * value.abs()
        wrong = (value < least - slack) | (value > most + slack)
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            ends = f"{least.iloc[row]:.6g} to {most.iloc[row]:.6g}"
            return f"row {row + 1}: {number} {value.iloc[row]:.6g} is outside {low} to {high}, {ends}"
    return None
