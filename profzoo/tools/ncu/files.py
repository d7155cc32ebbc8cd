"""What ncu leaves under results/."""

from collections.abc import Mapping, Sequence
from typing import Any

from profzoo.tools.ncu.command import CENSUS, of_launches


def exported(own: Mapping[str, Any]) -> Sequence[str]:
    """The default section set's launches, and ncu's own page of details."""
    return ["{phase}.ncu.csv", "{phase}.ncu-details.csv"]


def tabulated(own: Mapping[str, Any]) -> Mapping[str, str]:
    """The census of launches with its sidecar, where all cells have one; what nsys traced is none of ncu's."""
    if own["census"] != "ncu":
        return {}
    census = f"{{phase}}.ncu.{CENSUS}.csv"
    return {"ncu": census, "ncu_sidecar": f"{census}.json"}


def kept(own: Mapping[str, Any]) -> Sequence[str]:
    """The launches of the sets that tables are made of, or what a set of ranges counted, and the page of details."""
    counted = [f"{{phase}}.ncu.{name}.csv" for name in of_launches(own)]
    return [*exported(own), *counted, *tabulated(own).values()]


def parts(own: Mapping[str, Any]) -> Sequence[str]:
    """Names between dots, those of section sets among them."""
    reports = ["ncu-rep", "ncu-more", "ncu-ranks", "ncu-pages", "ncu-ranks-pages"]
    return [*own["sets"], "ncu", "ncu-details", "coverage", "plan", "job", *reports]
