"""Says in a sentence per kernel where its warps are found most often, what they wait for there, and what is spilled."""

from pathlib import PurePath

import pandas as pd

from profzoo.tools.ncu.chart_quantities import STATES
from profzoo.tools.ncu.source_columns import LOADS, OF_LINE, SAMPLES, STORES

STALL, IDLE = "stall_", "_not_issued"
# A warp in these states waits for nothing.
NO_WAIT = {"selected", "not_selected"}
MOST = 3


def describe_kernels(table: pd.DataFrame, kernels: int = MOST) -> list[str]:
    """Return a sentence about each of the most expensive kernels; table: the table of source lines."""
    found = []
    for _, own in table[table["place"].le(kernels)].groupby("place", sort=True):
        lines = own[own["level"].eq(OF_LINE)]
        rows = lines if len(lines) else own
        parts = [part for part in (_hottest(rows), _spilled(rows)) if part]
        if parts:
            found.append(f"{rows['function'].iloc[0]}: {'; '.join(parts)}")
    return found


def _hottest(rows: pd.DataFrame) -> str:
    if SAMPLES not in rows or not rows[SAMPLES].sum() > 0:
        return ""
    row = rows.loc[rows[SAMPLES].idxmax()]
    told = f"{row['share']:.0%} of its warp samples are {_place(row)}"
    waits = {
        name.removeprefix(STALL).removesuffix(IDLE): row[name]
        for name in rows
        if name.startswith(STALL) and name.endswith(IDLE) and pd.notna(row[name])
    }
    waits = {name: count for name, count in waits.items() if name not in NO_WAIT and count > 0}
    reason = max(waits, key=lambda name: waits[name], default="")
    if not reason:
        return told
    words = f"{STATES[reason]} ({reason})" if reason in STATES else reason.replace("_", " ")
    return f"{told}, where warps wait most for {words}"


def _spilled(rows: pd.DataFrame) -> str:
    if LOADS not in rows:
        return ""
    accesses = rows[LOADS].fillna(0) + rows[STORES].fillna(0)
    if not accesses.sum() > 0:
        return ""
    place = _place(rows.loc[accesses.idxmax()])
    return f"warps access local memory {accesses.sum():,.0f} times, most often {place}"


def _place(row: pd.Series) -> str:
    if row["level"] == OF_LINE:
        return f"at {PurePath(row['file']).name}:{row['line']:.0f}"
    return f"at the instruction {row['opcode']} (offset {int(row['offset_bytes']):#x})"
