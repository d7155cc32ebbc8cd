"""Reads what section sets have cost on a GPU so far, from the plans and wall times in the sidecars of reports."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.tools.ncu import command as ncu
from profzoo.tools.ncu.costs import Cost

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar
    from profzoo.cell.tool_types import SectionSet

HERE = "measured here"
# What of ncu's options says what is collected.
COLLECTING = ("--set", "--section", "--metrics")


@dataclass(frozen=True)
class Outcome:
    """A run of ncu that a plan was made for: what it collected, and seconds of its launches as shipped costs have them
    and as they came to be."""

    collected: tuple[tuple[str, str], ...]
    launches: int
    shipped_s: float
    took_s: float


def collection_key(options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the options that decide what ncu collects, in a fixed order.

    >>> collection_key(["--metrics", "b,a", "--cache-control", "none", "--section", "X"])
    (('--metrics', 'a'), ('--metrics', 'b'), ('--section', 'X'))
    """
    named = [(word, value) for word, value in itertools.pairwise(options) if word in COLLECTING]
    return tuple(sorted((word, one) for word, value in named for one in value.split(",")))


def read_history(results: Path, gpu: str) -> list[Outcome]:
    """Read the outcomes of plans on GPUs of this name, from all cells under results/; unreadable files are skipped."""
    found = []
    for path in sorted(results.glob("*/*.ncu-rep.json")):
        try:
            facts = read_facts(path)
            if facts.get("gpu") == gpu and (outcome := _of(facts)):
                found.append(outcome)
        except (AttributeError, DataError, KeyError, TypeError, ValueError, OSError):
            continue
    return found


def _of(facts: "Sidecar") -> Outcome | None:
    """None for what no plan was made for, for other replay than that of kernels, and for what was over at once."""
    plan = facts.get("plan", {})
    if plan.get("replay") != "kernel" or not plan.get("launches"):
        return None
    shipped = plan["shipped_s"] if "shipped_s" in plan else plan["launch_s"]
    # What the plan has besides launches it has from the census of the cell itself.
    besides = plan["estimate_s"] - plan["launches"] * plan["launch_s"]
    took = facts["wall_s"] - besides
    if took <= 0:
        return None
    return Outcome(collection_key(facts["options"]), plan["launches"], plan["launches"] * shipped, took)


def estimate_price(chosen: "SectionSet", shipped: Cost, known: Sequence[Outcome], probed: Cost | None = None) -> Cost:
    """Estimate the cost of a launch under a section set: from its own earlier runs; else from a probe; else the
    shipped cost, scaled by how much other sets exceeded their shipped costs."""
    asked = collection_key(ncu.section_options(chosen, ncu.SHARED_MEMORY))
    if same := [one for one in known if one.collected == asked]:
        return Cost(
            (probed or shipped).passes, sum(one.took_s for one in same) / sum(one.launches for one in same), HERE
        )
    if probed:
        return probed
    if not known:
        return shipped
    ratio = sum(one.took_s for one in known) / sum(one.shipped_s for one in known)
    return replace(shipped, seconds=shipped.seconds * ratio)
