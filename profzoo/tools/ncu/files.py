"""Names the files that ncu leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from profzoo import tools
from profzoo.tools.ncu import TOOL
from profzoo.tools.ncu.census import NCU, OF_NSYS, TOLD
from profzoo.tools.ncu.command import CENSUS, launch_sets
from profzoo.tools.ncu.quantities import CHARTS, charts_of_set

if TYPE_CHECKING:
    from profzoo.cell.tool_types import NcuSettings

COUNTED = f"{TOOL}{tools.COUNTED}"


def exported_files(own: "NcuSettings") -> Sequence[str]:
    """The default section set's launches, and ncu's own page of details."""
    return ["{phase}.ncu.csv", "{phase}.ncu-details.csv"]


def table_inputs(own: "NcuSettings") -> Mapping[str, str]:
    """The census of launches with its sidecar, where all cells have one; else the sidecar of what ncu counted."""
    if own["census"] != NCU:
        return {COUNTED: f"{{phase}}.ncu.{own['set']}.csv.json"} if own["set"] in launch_sets(own) else {}
    census = f"{{phase}}.ncu.{CENSUS}.csv"
    return {"ncu": census, "ncu_sidecar": f"{census}.json"}


def provided_files(own: "NcuSettings") -> Mapping[str, str]:
    """Return counters, advice, coverage and charts of the default set's launches; empty if the set measures ranges."""
    if own["set"] not in launch_sets(own):
        return {}
    launches = "{phase}.ncu.csv"
    counted = {} if own["set"] == CENSUS else {"counters": launches}
    advice = {"advice": "{phase}.ncu-details.csv", "advised_launches": launches}
    charts = {name: chart_file(name) for name in charts_of_set(own["sets"][own["set"]])}
    return counted | charts | advice | {"coverage": f"{{phase}}.ncu.{own['set']}.coverage.csv"}


def required_files(own: "NcuSettings") -> Sequence[str]:
    """The launches of the sets that tables are made of, or what a set of ranges counted, and the page of details."""
    counted = [f"{{phase}}.ncu.{name}.csv" for name in launch_sets(own)]
    # By which launches its counters are held against nsys' times.
    census = [f"{{phase}}{end}" for end in (OF_NSYS, TOLD)] if own["census"] != NCU and counted else []
    return [*exported_files(own), *counted, *census, *table_inputs(own).values()]


def name_parts(own: "NcuSettings") -> Sequence[str]:
    """Names between dots, those of section sets among them."""
    reports = ["ncu-rep", "ncu-more", "ncu-ranks", "ncu-pages", "ncu-ranks-pages"]
    # What nsys traced of launches is exported for ncu alone.
    pages = ["ncu-details", "ncu-source", "ncu-instances", "ncu-timeline"]
    charts = [chart_file(name).split(".")[1] for name in CHARTS]
    return [*own["sets"], *charts, "ncu", *pages, "nsys-launches", "coverage", "plan", "job", *reports]


def chart_file(name: str) -> str:
    """Return the pattern of a cell's table of chart_sets.CHARTS.

    >>> chart_file("warp_states")
    '{phase}.warp-states.csv'
    """
    return f"{{phase}}.{name.replace('_', '-')}.csv"
