"""Places the memory chart of a cell as a drawing: boxes for the parts of the memory system, lines for its links."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import pandas as pd

from profzoo import formatting
from profzoo.tables.memory_chart import answering_cache
from profzoo.tools.ncu.chart_quantities import DRAM, HOST, L1, L2, LINKS, SHARED, SM

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
