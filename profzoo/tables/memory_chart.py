"""Makes a cell's memory chart as a table: bytes between parts of the memory system, hit rates, share of the peak."""

import numpy as np
import pandas as pd

from profzoo.io import column_types
from profzoo.io.csv_tables import Table
from profzoo.kernels.counters import HIGH, LOW
from profzoo.tables import counter_dictionary
from profzoo.tables.counter_groups import COVERED, LEADING
from profzoo.tools.ncu.chart_quantities import L1, L1_HIT, L2, L2_HIT, LINKS, OTHERWISE, PEAK

HITS = {L1: L1_HIT, L2: L2_HIT}
COLUMNS = [
    *LEADING, "link", "source", "target", "bytes", "bytes_low", "bytes_high", "bytes_per_s", "peak_pct", "hit_pct",
    "otherwise_bytes", "counted_share",
]  # fmt: skip
TEXTS = ("level", "class", "link", "source", "target")
TABLE = Table(
    columns={
        name: column_types.TEXT if name in TEXTS else column_types.or_missing(column_types.AMOUNT) for name in COLUMNS
    },
    key=["level", "class", "link"],
    about=counter_dictionary.MEMORY_CHART,
)


def make_memory_chart(sums: pd.DataFrame) -> pd.DataFrame:
    """Return COLUMNS, one row per group and link whose bytes were counted.

    sums: result of counter_groups.sum_by_group for chart_quantities.MEMORY.
    """
    frames = []
    for name, link in LINKS.items():
        if name not in sums:
            continue
        rows = sums[sums[name].notna()]
        found = rows[LEADING].assign(link=name, source=link.source, target=link.target, bytes=rows[name])
        ends = {"bytes_low": f"{name}{LOW}", "bytes_high": f"{name}{HIGH}", "peak_pct": f"{name}{PEAK}",
                "otherwise_bytes": f"{name}{OTHERWISE}", "counted_share": f"{name}{COVERED}",
                 "hit_pct": HITS.get(answering_cache(name), "")}  # fmt: skip
        found = found.assign(**{column: rows.get(one, np.nan) for column, one in ends.items()})
        counted_ns = found["total_ns"] * found["counted_share"]
        found["bytes_per_s"] = found["bytes"] / counted_ns.where(counted_ns > 0) * 1e9
        frames.append(found)
    if not frames:
        return TABLE.empty()
    order = {name: place for place, name in enumerate(LINKS)}
    whole = pd.concat(frames)
    places = whole.reset_index().assign(place=whole["link"].map(order).to_numpy()).sort_values(["index", "place"])
    return places.reindex(columns=COLUMNS).reset_index(drop=True)


def answering_cache(name: str) -> str:
    """Return the cache that answers what a link asks for; empty for links of shared memory, DRAM and the host."""
    link = LINKS[name]
    if L1 in (link.source, link.target) and L2 not in (link.source, link.target):
        return L1
    return L2 if L1 in (link.source, link.target) else ""
