"""Says which section sets collect what the memory chart, pipe utilisation, warp states and occupancy are made of."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from profzoo.tools.ncu.chart_quantities import LINKS
from profzoo.tools.ncu.chart_quantities import PIPES as PIPE_QUANTITIES
from profzoo.tools.ncu.chart_quantities import WARP_STATES as STATE_QUANTITIES
from profzoo.tools.ncu.quantity import Sum

if TYPE_CHECKING:
    from profzoo.cell.tool_types import SectionSet

OCCUPANCY, MEMORY_CHART, PIPES, WARP_STATES = CHARTS = ("occupancy", "memory_chart", "pipes", "warp_states")
# Sections of ncu that collect each of them, and sets of ncu's own that hold these sections. Metrics of occupancy are of
# the launch, so that every set has them.
SECTIONS: Mapping[str, Sequence[str]] = {
    MEMORY_CHART: [f"MemoryWorkloadAnalysis{part}" for part in ("", "_Chart", "_Tables")],
    PIPES: ["ComputeWorkloadAnalysis"],
    WARP_STATES: ["WarpStateStats"],
}
OWN_SETS: Mapping[str, Sequence[str]] = {
    "full": (MEMORY_CHART, PIPES, WARP_STATES),
    "detailed": (MEMORY_CHART, PIPES),
}
# The shipped set that collects each of them, or all of them.
SET_OF: Mapping[str, str] = {MEMORY_CHART: "memory", PIPES: "compute", WARP_STATES: "stalls"}
SET_OF_ALL = "charts"
_SUMS: Mapping[str, Sequence[Sum]] = {
    MEMORY_CHART: [one for link in LINKS.values() for one in link.bytes],
    PIPES: [one for quantity in PIPE_QUANTITIES.values() for one in quantity.sums],
    WARP_STATES: [one for quantity in STATE_QUANTITIES.values() for one in quantity.sums],
}


def charts_of_set(chosen: "SectionSet") -> list[str]:
    """Return what a section set collects of CHARTS, by its sections and metrics.

    >>> charts_of_set({"metrics": ["gpu__time_duration.sum", "dram__bytes_read.sum"]})
    ['occupancy', 'memory_chart']
    >>> charts_of_set({"sections": "regex:.*Stat.*"})
    ['occupancy', 'warp_states']
    """
    return [OCCUPANCY, *(chart for chart in SECTIONS if _collects(chosen, chart))]


def _collects(chosen: "SectionSet", chart: str) -> bool:
    if chart in OWN_SETS.get(chosen.get("set", ""), ()):
        return True
    given = chosen.get("sections", [])
    if isinstance(given, str):
        pattern = given.removeprefix("regex:")
        by_section = any(re.fullmatch(pattern, name) for name in SECTIONS[chart])
    else:
        by_section = bool(set(given) & set(SECTIONS[chart]))
    metrics = set(chosen.get("metrics", []))
    return by_section or any(set(one.factors) <= metrics for one in _SUMS[chart])
