"""Makes a cell's table of warp states: what warps wait for between two instructions, for the cell and each class."""

import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.tables import counter_dictionary
from profzoo.tables.counter_groups import COVERED, LEADING
from profzoo.tools.ncu.chart_quantities import ALL_CYCLES, STATES

# Cycles in states that the section set did not collect.
UNKNOWN = "unknown"
COLUMNS = [*LEADING, "state", "cycles", "share", "warp_cycles", "counted_share"]
TEXTS = ("level", "class", "state")
# Cycles are printed with two digits behind the point, each state by itself.
ROUNDING_CYCLES = 0.005
# Relative difference between the sum of the states and all cycles that is no unknown state.
ROUNDING = 0.01


def _adds_up(table: pd.DataFrame) -> str | None:
    """Return what is wrong with a table in which the states of a group do not add up to all of its time."""
    whole = table.groupby(["level", "class"])["share"].sum()
    wrong = (whole - 1).abs() > 1e-6
    return (
        f"shares of {' '.join(whole.index[wrong.argmax()])} add up to {whole[wrong].iloc[0]:.4f}"
        if wrong.any()
        else None
    )


TABLE = Table(
    columns={
        name: column_types.TEXT if name in TEXTS else column_types.or_missing(column_types.AMOUNT) for name in COLUMNS
    },
    key=["level", "class", "state"],
    holds=_adds_up,
    about=counter_dictionary.WARP_STATES,
)


def make_warp_states(sums: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS, one row per group and state, those with the most cycles first; shares of a group add up to 1.

    Cycles that ncu counted between two instructions, and that no collected state has, are in the state UNKNOWN.

    sums: result of counter_groups.sum_by_group for chart_quantities.WARP_STATES.
    """
    states = [name for name in STATES if name in sums]
    frames = []
    for _, row in sums.iterrows():
        cycles = row[states].astype("float64").dropna()
        if cycles.empty or not cycles.sum() > 0:
            continue
        covered, counted = row[f"{cycles.index[0]}{COVERED}"], row.get(ALL_CYCLES)
        whole = float(counted) if counted is not None and pd.notna(counted) else float("nan")
        left = whole - cycles.sum()
        if left > max(ROUNDING * whole, ROUNDING_CYCLES * len(cycles)):
            cycles[UNKNOWN] = left
        shares = cycles / cycles.sum()
        frames += [
            {**row[LEADING].to_dict(), "state": name, "cycles": value, "share": shares[name], "warp_cycles": whole,
             "counted_share": covered}
            for name, value in cycles.sort_values(ascending=False, kind="stable").items()
            if value > 0
        ]  # fmt: skip
    return pd.DataFrame(frames)[COLUMNS] if frames else TABLE.empty()
