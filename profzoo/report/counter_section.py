"""The part of a cell's section on ncu's counters: memory chart, pipes, warp states, and what limits occupancy."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import pandas as pd

from profzoo import formatting
from profzoo.figures.palette import OTHER_STATES, STATE_COLOURS, STATE_GROUPS
from profzoo.json_types import TemplateVariables
from profzoo.kernels import short_names
from profzoo.report.value_formats import format_value
from profzoo.tables import schemas
from profzoo.tables.cell_counters import NEARLY_ALL, add_up_links, answering_cache
from profzoo.tools.ncu.quantities import (
    CHARTS,
    DRAM,
    HOST,
    L1,
    L2,
    LINKS,
    MEMORY_CHART,
    OCCUPANCY,
    PIPE_NAMES,
    PIPE_SETS,
    SET_OF_ALL,
    SHARED,
    SM,
    STATES,
    WARP_STATE_SETS,
)

# Places the memory chart of a cell as a drawing: boxes for the parts of the memory system, lines for its links.

WIDTH, HEIGHT = 820, 236
# Left edge, top, width and height of each part.
PLACES: Mapping[str, tuple[int, int, int, int]] = {
    SM: (4, 10, 112, 216),
    L1: (232, 10, 124, 98),
    SHARED: (232, 128, 124, 98),
    L2: (472, 10, 112, 216),
    DRAM: (700, 10, 116, 98),
    HOST: (700, 128, 116, 98),
}
TITLES = {SM: "SM: registers", L1: "L1", SHARED: "shared memory", L2: "L2", DRAM: "DRAM", HOST: "host"}
# Links that are drawn as one line, with the links that they add up; a line of both directions has a third element.
LINES: Sequence[tuple[str, Sequence[str]]] = (
    ("loads", ("global_load", "local_load")),
    ("stores", ("global_store", "local_store")),
    ("loads", ("shared_load",)),
    ("stores", ("shared_store",)),
    ("loads and stores", ("l1",)),
    ("reads", ("l2_read",)),
    ("writes", ("l2_write",)),
    ("all", ("l2",)),
    ("reads", ("dram_read",)),
    ("writes", ("dram_write",)),
    ("all", ("dram",)),
    ("reads", ("host_read",)),
    ("writes", ("host_write",)),
)
# Line widths without and with the whole peak bandwidth, and the length of an arrow's head.
THIN, THICK, HEAD = 1.5, 12.0, 9


class Box(TypedDict):
    """A part of the memory system: its place, its title, and the hit rate of a cache as text, or an empty text."""

    x: int
    y: int
    width: int
    height: int
    title: str
    hits: str


class Line(TypedDict):
    """A link: its ends in the direction of the bytes, its width, its two texts, and whether both directions are in it.

    head: points of the arrow's head, empty for both directions. known: whether its share of the peak is known.
    """

    x: float
    y: float
    end: float
    width: float
    head: str
    text: str
    share: str
    known: bool
    middle: float
    told: str


class Drawing(TypedDict):
    """The drawing of a memory chart, with its description in words."""

    width: int
    height: int
    boxes: list[Box]
    lines: list[Line]
    told: str


def draw_memory(chart: pd.DataFrame) -> Drawing | None:
    """Return the drawing of the rows of one group; None without any row.

    chart: rows of the table of memory charts, of one cell and level.
    """
    rows = chart.set_index("link")
    if rows.empty:
        return None
    drawn = _drawn_lines(rows)
    lines = [_place_line(name, links, rows) for name, links in drawn]
    there = {unit for _, links in drawn for unit in _ends(links[0])}
    hits = {unit: _hit_rate(rows, unit) for unit in (L1, L2)}
    boxes: list[Box] = [
        {"x": x, "y": y, "width": width, "height": height, "title": TITLES[unit], "hits": hits.get(unit, "")}
        for unit, (x, y, width, height) in PLACES.items()
        if unit in there
    ]
    told = "; ".join(line["told"] for line in lines)
    return {"width": WIDTH, "height": HEIGHT, "boxes": boxes, "lines": lines, "told": f"Memory chart: {told}"}


def _drawn_lines(rows: pd.DataFrame) -> list[tuple[str, Sequence[str]]]:
    """Return the lines whose links were counted; both directions together only where no direction is known."""
    known = [(name, links) for name, links in LINES if any(link in rows.index for link in links)]
    directed = {frozenset(_ends(links[0])) for _, links in known if not LINKS[links[0]].total}
    return [
        (name, links) for name, links in known if not (LINKS[links[0]].total and frozenset(_ends(links[0])) in directed)
    ]


def _ends(link: str) -> tuple[str, str]:
    return LINKS[link].source, LINKS[link].target


def _place_line(name: str, links: Sequence[str], rows: pd.DataFrame) -> Line:
    there = [link for link in links if link in rows.index]
    count = float(rows.loc[there, "bytes"].sum())
    peak = float(rows.loc[there, "peak_pct"].sum(min_count=1))
    source, target = _ends(there[0])
    total = LINKS[there[0]].total
    left, right = sorted((PLACES[source], PLACES[target]))
    begin, end = left[0] + left[2], right[0]
    _, top, _, height = min(left, right, key=lambda place: place[3])
    # Reads and loads are above; both go to the left, towards the registers.
    forth = source != min(source, target, key=lambda unit: PLACES[unit][0])
    y = top + height * (0.5 if total else 0.33 if forth else 0.8)
    share = "" if pd.isna(peak) else f"{peak:.0f} % of peak"
    tip = -1 if forth else 1
    width = THIN if pd.isna(peak) else THIN + (THICK - THIN) * min(peak, 100) / 100
    reach = HEAD if not total else 0
    start, stop = (end, begin + reach) if forth else (begin, end - reach)
    half = max(width, 4) / 2 + 3
    head = "" if total else f"{stop},{y - half} {stop + tip * HEAD},{y} {stop},{y + half}"
    text = f"{name} {formatting.size(count)}"
    return {"x": start, "y": y, "end": stop, "width": width, "head": head, "text": text, "share": share,
            "known": bool(share), "middle": (begin + end) / 2,
            "told": f"{TITLES[source]} to {TITLES[target]}, {text}{f', {share}' if share else ''}"}  # fmt: skip


def _hit_rate(rows: pd.DataFrame, unit: str) -> str:
    """Return the hit rate of a cache as text; empty if it was not collected."""
    mine = [link for link in rows.index if answering_cache(link) == unit]
    rates = rows.loc[mine, "hit_pct"].dropna()
    # ncu counts hits and accesses in different replays, so their quotient may be a little above 1.
    return f"hits {min(rates.iloc[0], 100):.0f} %" if len(rates) else ""


WORDS = {
    OCCUPANCY: "occupancy",
    MEMORY_CHART: "memory chart",
    PIPE_SETS: "pipe utilisation",
    WARP_STATE_SETS: "warp states",
}
# Classes of kernels, and kernels, that are shown, those with the most time first.
CLASSES, CONFIGURATIONS = 8, 10
# Groups of links that the table of classes leaves out.
NOT_BY_CLASS = ("DRAM", "host")
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
        "drawing": draw_memory(chart[chart["level"] == "cell"]),
        "bytes": _table_of_bytes(chart[chart["level"] == "class"]),
        "pipes": _table_of_pipes(mine[PIPE_SETS]),
        "states": _strips_of_states(mine[WARP_STATE_SETS]),
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
    values = chart.pivot_table(index="class", columns="link", values="bytes", aggfunc="first")
    sums = add_up_links(values).drop(columns=[*NOT_BY_CLASS], errors="ignore").reindex(classes)
    times, counted = (chart.groupby("class")[name].min() for name in ("total_ns", "counted_share"))
    partly = counted.min() < NEARLY_ALL
    rows = [
        [
            name,
            formatting.format_ns(times[name]),
            *([f"{counted[name] * 100:.0f} %"] if partly else []),
            *(format_value(value, formatting.size) for value in sums.loc[name]),
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
        found.append({"name": name, "strip": strip, "cycles": formatting.number(rows["cycles"].sum()), "most": told})
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
