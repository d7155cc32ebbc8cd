"""Estimates the cost of collecting a section set with ncu, from measured costs of it or of its parts (costs.yaml)."""

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from profzoo.cell import schema
from profzoo.cell.sidecar_files import read_facts
from profzoo.errors import DataError
from profzoo.io import strict_yaml
from profzoo.tools.ncu import command as ncu

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar
    from profzoo.cell.tool_types import NcuSettings, SectionSet

FILES = ("costs.yaml",)
COSTS_FILE = Path(__file__).with_name(FILES[0])
MEASURED, PARTS, PROBED = "measured", "sum of its parts", "probed"


@dataclass(frozen=True)
class Cost:
    """Passes and seconds of one launch in kernel replay.

    basis: MEASURED; PARTS, an upper bound, because the parts of a set share passes; or PROBED, from a few launches of
    other kernels on this GPU.
    """

    passes: int
    seconds: float
    basis: str = MEASURED


class LaunchCost(TypedDict):
    """Measured cost of one launch."""

    passes: int
    # In kernel replay.
    seconds: float


class MetricsCost(LaunchCost):
    """Measured cost of one launch with metrics of a group."""

    # Regular expression for the names of the group's metrics.
    match: str


class WholeSetCost(LaunchCost):
    """Measured cost of one launch with ncu's own set `full`."""

    # Sections that the set lacks.
    without: Sequence[str]


class NcuSets(TypedDict):
    """Sections of ncu's own sets; of `full` its cost as a whole."""

    full: WholeSetCost
    basic: Sequence[str]
    detailed: Sequence[str]
    nvlink: Sequence[str]
    pmsampling: Sequence[str]
    roofline: Sequence[str]


class Costs(TypedDict):
    """The content of costs.yaml."""

    # By section set, and by section of ncu.
    sets: Mapping[str, LaunchCost]
    sections: Mapping[str, LaunchCost]
    # The first group whose expression matches a metric is the metric's group.
    metrics: Sequence[MetricsCost]
    ncu_sets: NcuSets
    # What each shipped section set is for.
    answers: Mapping[str, str]
    # Seconds of a launch whose operations alone are counted.
    alone_s: float
    # Seconds of a launch beside its passes, of one that is not profiled, and of one in a pass of application replay.
    multi_pass_s: float
    passed_over_s: float
    application_pass_s: float
    # Seconds that a process takes longer under nsys than under ncu.
    nsys_more_s: float
    # Seconds that a fork saves of a process under ncu, and that it takes at least.
    import_s: float
    attach_s: float


@functools.cache
def load_costs() -> Costs:
    """Load the measured costs."""
    return strict_yaml.load_yaml(COSTS_FILE)


def estimate_cost(chosen: "SectionSet", costs: Costs) -> Cost:
    """Estimate the cost of one launch under a section set.

    Args:
        costs: as `table` has them. A set that is defined as shipped, or one of ncu's own, is looked up as a whole.
    """
    shipped = schema.load_schema()["properties"]["ncu"]["properties"]["sets"]["default"]
    for known, definition in shipped.items():
        if _collected(chosen) == _collected(definition) and known in costs["sets"]:
            return Cost(**costs["sets"][known])
    names = _sections(chosen, costs)
    full = costs["ncu_sets"]["full"]
    whole = chosen.get("set") == "full"
    parts: list[LaunchCost] = [costs["sections"][name] for name in names if not whole or name in full["without"]]
    groups = (next(group for group in costs["metrics"] if re.search(group["match"], metric))
              for metric in chosen.get("metrics", []))  # fmt: skip
    counted = list({group["match"]: group for group in groups}.values())
    parts += counted
    price = _together([*parts, *([full] if whole else [])], costs["multi_pass_s"])
    beyond = set(names) & set(full["without"]) or any(group["passes"] > 1 for group in counted)
    if not whole and not beyond:
        # Parts of a set cost no more than all of it.
        price = Cost(min(price.passes, full["passes"]), min(price.seconds, full["seconds"]), PARTS)
    return price


def _collected(chosen: "SectionSet") -> list[object]:
    """List what a section set collects, for comparisons."""
    return [chosen.get("set"), chosen.get("sections"), chosen.get("metrics")]


def lacks_cost(chosen: "SectionSet", costs: Costs) -> bool:
    """Return whether a section set contains metrics or sections without a measured cost.

    >>> costs = load_costs()
    >>> tuple(lacks_cost({"metrics": [name]}, costs) for name in ("gpu__time_duration.sum", "smsp__inst_issued.sum"))
    (False, True)
    """
    if estimate_cost(chosen, costs).basis == MEASURED:
        return False
    *measured, _ = costs["metrics"]
    metrics = [name for name in chosen.get("metrics", []) if not any(re.search(one["match"], name) for one in measured)]
    sections = chosen.get("sections", [])
    named = [] if isinstance(sections, str) else [name for name in sections if name not in costs["sections"]]
    return bool(metrics or named or chosen.get("set", "full") not in costs["ncu_sets"])


def probe_options(own: "NcuSettings", name: str) -> list[str]:
    """Return ncu's options that collect a section set for the few launches of a probe; own: the configuration's `ncu`.

    >>> from profzoo.config import configuration
    >>> words = probe_options(configuration.normalise_config({"ncu": {"launches": "all"}})["ncu"], "traffic")
    >>> words[:4], words[-2]
    (['--force-overwrite', '--profile-from-start', 'off', '--replay-mode'], '--metrics')
    """
    chosen = own["sets"][name]
    words = ["--force-overwrite", "--profile-from-start", "off", "--replay-mode", "kernel", "--nvtx"]
    words += ["--cache-control", chosen.get("cache_control", own["cache_control"])]
    words += ["--clock-control", own["clock_control"], "--import-sass", "no"]
    return words + ncu.section_options(chosen, ncu.SHARED_MEMORY)


def _together(parts: Sequence[LaunchCost], shared: float) -> Cost:
    several = [part for part in parts if part["passes"] > 1]
    if not several:
        return Cost(1, max((part["seconds"] for part in parts), default=0.0), PARTS)
    passes = 1 + sum(part["passes"] - 1 for part in several)
    return Cost(passes, shared + sum(max(part["seconds"] - shared, 0.0) for part in several), PARTS)


def _sections(chosen: "SectionSet", costs: Costs) -> list[str]:
    """List the sections of a set that have a known cost, without duplicates and without sections of ncu's `full`."""
    wanted = chosen.get("sections", [])
    if isinstance(wanted, str):
        expression = re.compile(wanted.removeprefix("regex:"))
        wanted = [section for section in costs["sections"] if expression.search(section)]
    of_ncu = costs["ncu_sets"].get(chosen.get("set", ""), [])
    names = [*(of_ncu if isinstance(of_ncu, list) else []), *wanted]
    return [name for name in dict.fromkeys(names) if name in costs["sections"]]


# Reads what section sets have cost on a GPU so far, from the plans and wall times in the sidecars of reports.

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
    """None for what no plan was made for, for other replay than that of kernels, where operations were counted in runs
    of their own, and for what was over at once."""
    plan = facts.get("plan", {})
    if plan.get("replay") != "kernel" or not plan.get("launches") or "joined" in plan:
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
