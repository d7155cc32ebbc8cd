"""The part of a cell's section on ncu's counters: memory chart, pipes, warp states, and what limits occupancy."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from profzoo import formatting
from profzoo.figures.palette import OTHER_STATES, STATE_COLOURS, STATE_GROUPS
from profzoo.json_types import TemplateVariables
from profzoo.kernels import short_names
from profzoo.report import memory_drawing
from profzoo.report.value_formats import format_value
from profzoo.tables import schemas
from profzoo.tables.counter_groups import NEARLY_ALL
from profzoo.tools.ncu.chart_quantities import PIPE_NAMES, STATES
from profzoo.tools.ncu.chart_sets import CHARTS, MEMORY_CHART, OCCUPANCY, PIPES, SET_OF_ALL, WARP_STATES

WORDS = {OCCUPANCY: "occupancy", MEMORY_CHART: "memory chart", PIPES: "pipe utilisation", WARP_STATES: "warp states"}
# Classes of kernels, and kernels, that are shown, those with the most time first.
CLASSES, CONFIGURATIONS = 8, 10
# Columns of the table of classes: links that are added up.
LINKS: Mapping[str, tuple[str, ...]] = {
    "L1 loads": ("global_load", "local_load"),
    "L1 stores": ("global_store", "local_store"),
    "L1": ("l1",),
    "shared memory": ("shared_load", "shared_store"),
    "L2 reads": ("l2_read",),
    "L2 writes": ("l2_write",),
    "L2": ("l2",),
    "DRAM reads": ("dram_read",),
    "DRAM writes": ("dram_write",),
}
# The smallest part of a strip that is shown, in %, and pipes that are hardly used.
LEAST_PERCENT, LEAST_BUSY = 0.5, 0.5


def describe_counters(tables: Mapping[str, pd.DataFrame], cell: tuple[str, str]) -> TemplateVariables | None:
    """Return the template's variables of a cell's counters; None if ncu is not among the tools.

    tables: by name, all cells' tables of CHARTS, if there are any.
    """
    if not set(CHARTS) <= set(tables):
        return None
    mine = {name: schemas.rows_of_cell(tables[name], *cell) for name in CHARTS}
    missing = [name for name in CHARTS if mine[name].empty]
    if len(missing) == len(CHARTS):
        return None
    chart = mine[MEMORY_CHART]
    return {
        "drawing": memory_drawing.draw_memory(chart[chart["level"] == "cell"]),
        "bytes": _table_of_bytes(chart[chart["level"] == "class"]),
        "pipes": _table_of_pipes(mine[PIPES]),
        "states": _strips_of_states(mine[WARP_STATES]),
        "occupancy": _rows_of_occupancy(mine[OCCUPANCY]),
        "counted": _describe_coverage(mine),
        "missing": [WORDS[name] for name in missing],
        "collect": f"ncu='{{set: {SET_OF_ALL}}}'",
    }


def _describe_coverage(mine: Mapping[str, pd.DataFrame]) -> str:
    """Return which share of the cell's GPU time was counted, as text; empty if all of it was, or if nothing says."""
    shares = [table.loc[table["level"] == "cell", "counted_share"] for table in mine.values() if "level" in table]
    least = pd.concat(shares).min() if shares else None
    return "" if least is None or pd.isna(least) or least >= NEARLY_ALL else f"{least * 100:.0f} %"


def _table_of_bytes(chart: pd.DataFrame) -> TemplateVariables | None:
    """Return columns and rows of bytes by class of kernels; None without any."""
    if chart.empty:
        return None
    classes = list(dict.fromkeys(chart["class"]))[:CLASSES]
    values = chart.pivot_table(index="class", columns="link", values="bytes", aggfunc="first").reindex(classes)
    sums = {name: values[[link for link in links if link in values]].sum(axis=1, min_count=1)
            for name, links in LINKS.items() if any(link in values for link in links)}  # fmt: skip
    for cache, directed in (("L1", "L1 loads"), ("L2", "L2 reads")):
        if directed in sums:
            sums.pop(cache, None)
    times, counted = (chart.groupby("class")[name].min() for name in ("total_ns", "counted_share"))
    partly = counted.min() < NEARLY_ALL
    rows = [
        [
            name,
            formatting.duration(times[name]),
            *([f"{counted[name] * 100:.0f} %"] if partly else []),
            *(format_value(one[name], formatting.size) for one in sums.values()),
        ]
        for name in classes
    ]
    return {"columns": ["class", "GPU time", *(["counted"] if partly else []), *sums], "rows": rows}


def _table_of_pipes(pipes: pd.DataFrame) -> TemplateVariables | None:
    """Return columns and rows of pipe utilisation, for the cell and its classes; None without any."""
    if pipes.empty:
        return None
    named = pipes.assign(row=pipes["class"].where(pipes["level"] == "class", "all kernels"))
    order = list(dict.fromkeys(named["row"]))[: CLASSES + 1]
    values = named.pivot_table(index="row", columns="pipe", values="busy_pct", aggfunc="first").reindex(order)
    used = [pipe for pipe in PIPE_NAMES if pipe in values and values[pipe].max() >= LEAST_BUSY]
    rows = [[name, *(format_value(values.loc[name, pipe], "{:.0f} %".format) for pipe in used)] for name in order]
    return {"columns": ["class", *used], "rows": rows}


def _strips_of_states(states: pd.DataFrame) -> list[TemplateVariables]:
    """Return strips of warp states, for the cell and its classes, each with the time between two instructions."""
    if states.empty:
        return []
    named = states.assign(row=states["class"].where(states["level"] == "class", "all kernels"),
                          group=states["state"].map(STATE_GROUPS).fillna(OTHER_STATES))  # fmt: skip
    found: list[TemplateVariables] = []
    for name, rows in list(named.groupby("row", sort=False))[: CLASSES + 1]:
        shares = rows.groupby("group")["share"].sum() * 100
        strip = [
            {"part": group, "percent": float(shares[group]), "colour": colour}
            for group, colour in STATE_COLOURS.items()
            if group in shares and shares[group] >= LEAST_PERCENT
        ]
        most = rows.iloc[0]
        told = f"{most['state']} {most['share']:.0%}: {STATES.get(most['state'], 'not collected')}"
        found.append({"name": name, "strip": strip, "cycles": f"{rows['cycles'].sum():.3g}", "most": told})
    return found


def _rows_of_occupancy(occupancy: pd.DataFrame) -> list[TemplateVariables]:
    """Return the kernels with the most time: occupancy, limiter, and what changes would give."""
    whole = occupancy["total_ns"].sum()
    # Occupancy does not depend on the grid.
    same = ["kernel", "threads", "registers", "shared_bytes", "limiter"]
    achieved = occupancy["total_ns"].where(occupancy["achieved_pct"].notna()) * occupancy["achieved_pct"]
    groups = occupancy.assign(_weighted=achieved, _counted=occupancy["total_ns"].where(achieved.notna())).groupby(same)
    rows = groups.first().drop(columns="total_ns").join(groups["total_ns"].sum()).reset_index()
    sums = groups[["_weighted", "_counted"]].sum(min_count=1).reset_index(drop=True)
    rows["achieved_pct"] = sums["_weighted"] / sums["_counted"]
    rows = rows.sort_values("total_ns", ascending=False, kind="stable").head(CONFIGURATIONS)
    names = short_names.shorten_names(rows["kernel"])
    percent = "{:.3g} %".format
    return [
        {
            "name": names[row["kernel"]],
            "whole": row["kernel"],
            "block": f"{row['threads']:.0f} threads, {row['registers']:.0f} registers",
            "share": format_value(row["total_ns"] / whole if whole else None, "{:.1%}".format),
            "theoretical": percent(row["theoretical_pct"]),
            "achieved": format_value(row["achieved_pct"], percent),
            "limiter": row["limiter"],
            "changes": _describe_changes(row),
        }
        for row in rows.to_dict("records")
    ]


def _describe_changes(row: Mapping[Any, Any]) -> str:
    """Return what would let more warps fit, as text; empty if nothing would alone.

    >>> none = dict.fromkeys(["shared_next_bytes", "threads_best"])
    >>> _describe_changes({"registers_next": 128, "registers_next_pct": 25.0, **none})
    '128 registers: 25 %'
    """
    said = []
    if pd.notna(row["registers_next"]):
        said.append(f"{row['registers_next']:.0f} registers: {row['registers_next_pct']:.0f} %")
    if pd.notna(row["shared_next_bytes"]):
        own = row["shared_next_bytes"] - row["reserved_bytes"]
        said.append(f"{own:,.0f} bytes of shared memory: {row['shared_next_pct']:.0f} %")
    if pd.notna(row["threads_best"]):
        said.append(f"{row['threads_best']:.0f} threads: {row['threads_best_pct']:.0f} %")
    return "; ".join(said)
