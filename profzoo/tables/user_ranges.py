"""Declares the table of ranges that a program opened itself, and adds up launches along their tree."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.launches.joined_step import UNALIGNED
from profzoo.range_names import REST
from profzoo.tables import dictionary
from profzoo.tables.layers import COUNTED, ROUNDING, STEP

# How a program opened its ranges.
NVTX, RECORD_FUNCTION = "nvtx", "record_function"
# What of a step is in none of them.
OUTSIDE = f"({REST})"
OWN = ["launches", "self_ns", "total_ns"]
LEADING = ["api", "range", "parent", "tool", "clock", "calls", "cpu_ns", *OWN, "share"]
COLUMNS = [*LEADING, *COUNTED]
_TEXTS = ("api", "range", "parent", "tool", "clock", "bound")
# Columns of the table across cells that are there only with such ranges, and what they are of a cell's own.
FORMER = {"calls_per_step": "calls", "cpu_ns_per_step": "cpu_ns", "self_ns_per_step": "self_ns"}
ADDED = ["api", "parent", *FORMER, "share", *COUNTED]


def _adds_up(table: pd.DataFrame) -> str | None:
    """Return what is wrong with a tree in which a range takes other time than itself and the ranges in it."""
    known = table[table["total_ns"].notna()]
    for api, rows in known.groupby("api", sort=False):
        below = rows.groupby("parent")["total_ns"].sum().reindex(rows["range"]).fillna(0).to_numpy()
        wrong = (rows["self_ns"] + below - rows["total_ns"]).abs() > ROUNDING * rows["total_ns"].max()
        if wrong.any():
            name = rows["range"].to_numpy()[int(wrong.to_numpy().argmax())]
            return f"{name} of {api}: total_ns is not that of itself and the ranges in it: rows are missing"
    return None


TABLE = Table(
    columns={
        name: column_types.TEXT if name in _TEXTS else column_types.or_missing(column_types.AMOUNT) for name in COLUMNS
    },
    key=["api", "range"],
    holds=_adds_up,
    about=dictionary.USER_RANGES,
)


def tree_parents(paths: pd.DataFrame) -> dict[str, str]:
    """Return the parent of each range of a tree whose root is STEP, children behind parents.

    paths: `range` and `parent`, a row per path, in the order in which they were first opened.
    """
    children: dict[str, list[str]] = {}
    for name, parent in zip(paths["range"], paths["parent"], strict=True):
        if name != STEP:
            children.setdefault(parent or STEP, []).append(name)
    found = {STEP: ""}
    waiting = [(STEP, name) for name in reversed(children.get(STEP, []))]
    while waiting:
        parent, name = waiting.pop()
        found[name] = parent
        waiting += [(name, inner) for inner in reversed(children.get(name, []))]
    return found | {OUTSIDE: STEP}


def list_chain(name: str, parents: Mapping[str, str]) -> list[str]:
    """Return all ranges that enclose one, from the root on, and itself.

    >>> list_chain("a > b", {"(step)": "", "a": "(step)", "a > b": "a"})
    ['(step)', 'a', 'a > b']
    """
    chain = [name]
    while parents[chain[-1]]:
        chain.append(parents[chain[-1]])
    return chain[::-1]


def add_up(paths: pd.DataFrame, steps: int, own: pd.DataFrame | None, counted: pd.DataFrame | None) -> pd.DataFrame:
    """Return one row per range, per step, with COLUMNS but `api`, `tool` and `clock`.

    Args:
        paths: NODES of tools.user_ranges, summed over so many steps; own: `launches` and `total_ns` per step by range,
            of launches made in the range itself, empty for those outside of all; None where nothing ran on a GPU.
            counted: COUNTED by `range`, of all launches in it.
    """
    parents = tree_parents(paths)
    if own is not None:
        own = own.rename(index={"": OUTSIDE})
    # What one tool has and another has not the like of, in times or in counters alone.
    named = [*([] if own is None else own.index), *([] if counted is None else counted["range"])]
    parents |= {UNALIGNED: STEP} if UNALIGNED in named else {}
    table = pd.DataFrame({"range": list(parents), "parent": list(parents.values())})
    known = paths.set_index("range")[["calls", "cpu_ns"]] / steps
    table = table.join(known, on="range")
    table = table.assign(**dict.fromkeys([*OWN, "share"], np.nan) if own is None else _sums(table, own))
    if counted is not None:
        table = table.merge(counted, on="range", how="left")
    table = table.reindex(columns=[name for name in COLUMNS if name not in ("api", "tool", "clock")])
    return table.assign(bound=table["bound"].astype("object").fillna(""))


def _sums(table: pd.DataFrame, own: pd.DataFrame) -> dict[str, list[float] | pd.Series]:
    """Return OWN and `share` of each row, whose children come behind it."""
    rows = own.reindex(table["range"]).fillna(0.0)
    place = {name: index for index, name in enumerate(table["range"])}
    launches, times = rows["launches"].tolist(), rows["total_ns"].tolist()
    for index in range(len(table) - 1, 0, -1):
        parent = place[table["parent"].iloc[index]]
        launches[parent] += launches[index]
        times[parent] += times[index]
    share = pd.Series(times, index=table.index) / max(times[0], 1)
    return {"launches": launches, "self_ns": rows["total_ns"].tolist(), "total_ns": times, "share": share}


def append_user_ranges(parts: pd.DataFrame, own: Iterable[tuple[Mapping[str, str], pd.DataFrame]]) -> pd.DataFrame:
    """Return the table of ranges across cells with the program's own behind parts of the step; the same without any.

    parts: of cell_tables.ranges; own: each cell with its rows of TABLE.
    """
    frames = [rows.assign(**cell) for cell, rows in own if len(rows)]
    if not frames:
        return parts
    table = pd.concat(frames, ignore_index=True)
    table = table.assign(**{name: table[former] for name, former in FORMER.items()})
    table = table.rename(columns={"total_ns": "ns_per_step", "launches": "launches_per_step"})
    columns = [*parts.columns, *ADDED]
    found = pd.concat([parts, table[columns]], ignore_index=True)[columns]
    texts = [name for name in ADDED if name in _TEXTS]
    return found.assign(**{name: found[name].astype("object").fillna("") for name in texts})


def select_parts(ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of the step from the table of ranges across cells, without ranges of the program's own."""
    return ranges[ranges["api"] == ""].drop(columns=ADDED, errors="ignore") if "api" in ranges else ranges


def find_repeated(ranges: pd.DataFrame) -> str | None:
    """Say which row of the table of ranges across cells is there twice; None for none."""
    by = ["model", "phase", "tool", "range", *(["api"] if "api" in ranges else [])]
    twice = ranges.duplicated(by)
    return f"row {int(twice.argmax()) + 1} is there twice" if twice.any() else None
