"""Estimates the cost of collecting a section set with ncu, from measured costs of it or of its parts (costs.yaml)."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo import schema
from profzoo.io import strict_yaml
from profzoo.tools.ncu import command as ncu

FILES = ("costs.yaml",)
COSTS_FILE = Path(__file__).with_name(FILES[0])
MEASURED, PARTS, PROBED = "measured", "sum of its parts", "probed"


@dataclass(frozen=True)
class Cost:
    """Passes and seconds of one launch in kernel replay; basis: MEASURED, PARTS, an upper bound as parts overlap, or
    PROBED, by a few launches of other kernels on this GPU."""

    passes: int
    seconds: float
    basis: str = MEASURED


@functools.cache
def load_costs() -> Mapping[str, Any]:
    """Load the measured costs."""
    return strict_yaml.load_yaml(COSTS_FILE)


def estimate_cost(chosen: Mapping[str, Any], costs: Mapping[str, Any]) -> Cost:
    """Estimate the cost of one launch under a section set.

    Args:
        costs: as `table` has them. A set that is defined as shipped, or one of ncu's own, is looked up as a whole.
    """
    shipped = schema.load_schema()["properties"]["ncu"]["properties"]["sets"]["default"]
    own = {"set", "sections", "metrics"}
    for known, definition in shipped.items():
        same = {key: chosen[key] for key in own & set(chosen)} == {
            key: definition[key] for key in own & set(definition)
        }
        if same and known in costs["sets"]:
            return Cost(**costs["sets"][known])
    names = _sections(chosen, costs)
    full = costs["ncu_sets"]["full"]
    whole = chosen.get("set") == "full"
    parts = [costs["sections"][name] for name in names if not whole or name in full["without"]]
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


def lacks_cost(chosen: Mapping[str, Any], costs: Mapping[str, Any]) -> bool:
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


def probe_options(own: Mapping[str, Any], name: str) -> list[str]:
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


def _together(parts: Sequence[Mapping[str, Any]], shared: float) -> Cost:
    several = [part for part in parts if part["passes"] > 1]
    if not several:
        return Cost(1, max((part["seconds"] for part in parts), default=0.0), PARTS)
    passes = 1 + sum(part["passes"] - 1 for part in several)
    return Cost(passes, shared + sum(max(part["seconds"] - shared, 0.0) for part in several), PARTS)


def _sections(chosen: Mapping[str, Any], costs: Mapping[str, Any]) -> list[str]:
    """List the sections of a set that have a known cost, without duplicates and without sections of ncu's `full`."""
    wanted = chosen.get("sections", [])
    if isinstance(wanted, str):
        expression = re.compile(wanted.removeprefix("regex:"))
        wanted = [section for section in costs["sections"] if expression.search(section)]
    of_ncu = costs["ncu_sets"].get(chosen.get("set"), [])
    names = [*(of_ncu if isinstance(of_ncu, list) else []), *wanted]
    return [name for name in dict.fromkeys(names) if name in costs["sections"]]
