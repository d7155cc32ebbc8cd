"""Settings that apply to jobs without making results out of date: time limits, the lock folder, and when to stop.

They reach jobs by an inherited environment variable, because a change of a job's own options makes its results out of
date.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profzoo.errors import ConfigError

LIMITS = "PROFZOO_LIMITS"
# The same for every user and run, whatever their TMPDIR.
FOLDER = "/tmp/profzoo-gpus"
BY_PLAN = "plan"
LONGEST_S = 30 * 24 * 3600
# The limit by plan is TIMES times the estimated time plus MORE_S seconds; without a plan it is UNPLANNED_S seconds.
TIMES, MORE_S, UNPLANNED_S = 10, 3600.0, 24 * 3600.0
# Jobs that belong to no tool, and the tool whose time limit they have.
LIKE = dict.fromkeys(("train", "numerics", "remedies", "peaks", "probe", "links"), "time")


@dataclass(frozen=True)
class Limits:
    """Lock folder, longest wait for GPUs (wait_s), early start of programs (overlap), time limits by tool (time_s).

    Of rounds that go on until they decide: seconds that they may take (budget_s), margin of equivalence, and number of
    comparisons among which a wrong decision is to be improbable.
    """

    locks: Path = Path(FOLDER)
    wait_s: float | None = None
    overlap: bool = False
    time_s: Mapping[str, float | str | None] | None = None
    budget_s: float = 600.0
    margin: float = 0.02
    comparisons: int = 1

    def seconds(self, tool: str, planned_s: float | None) -> float | None:
        """Time limit in seconds for a job of the tool, None for no limit; planned_s: its plan's estimate, if any."""
        given = (self.time_s or {}).get(LIKE.get(tool, tool))
        if given == BY_PLAN:
            return UNPLANNED_S if planned_s is None else TIMES * planned_s + MORE_S
        return None if given is None else float(given)


def export_limits(config: Mapping[str, Any], tools: list[str], comparisons: int = 1) -> None:
    """Export the limits to all jobs that this process starts; comparisons: number of those that are judged together.

    Raises:
        ConfigError: a value is not a time, or the lock folder is a relative path.
    """
    folder, wait = config["locks"]["folder"], config["locks"]["wait"]
    if not Path(folder).is_absolute():
        raise ConfigError(f"locks.folder = {folder!r} differs between working folders: give an absolute path")
    times = {tool: _seconds(config[tool]["time_limit"], f"{tool}.time_limit") for tool in tools}
    overlap = config["locks"]["overlap"]
    told = {
        "locks": folder,
        "wait_s": _seconds(wait, "locks.wait"),
        "overlap": overlap,
        "time_s": times,
        "budget_s": parse_seconds(config["trials"]["budget"], "trials.budget"),
        "margin": config["equivalence_margin"],
        "comparisons": max(comparisons, 1),
    }
    os.environ[LIMITS] = json.dumps(told, sort_keys=True)


def read_limits() -> Limits:
    """Limits that were exported to this process; the defaults if it is run by hand."""
    given = json.loads(os.environ.get(LIMITS, "{}"))
    return Limits(**given | {"locks": Path(given.get("locks", FOLDER))})


def format_timeout(tool: str, seconds: float) -> str:
    """Message for a job of the tool that exceeded its limit of `seconds`."""
    key = LIKE.get(tool, tool)
    return (
        f"{tool} took longer than {seconds:g} s and was ended: see why it hangs, or raise {key}.time_limit (null: none)"
    )


def _seconds(given: str | float | None, key: str) -> float | str | None:
    return given if given is None or given == BY_PLAN else parse_seconds(given, key)


def parse_seconds(given: str | float, key: str) -> float:
    """Parse a time in seconds; key: its name in the configuration.

    Raises:
        ConfigError: the value is not a time.

    >>> parse_seconds("2m", "locks.wait"), parse_seconds("90s", "locks.wait"), parse_seconds(30, "locks.wait")
    (120.0, 90.0, 30.0)
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{,9})?|\.\d{1,9})\s*(s|m|min|h|)", str(given).strip(), re.ASCII)
    if not found:
        raise ConfigError(f"{key} = {given!r} is not a time: give seconds, or such as 120s, 10m or 1h")
    asked = float(found[1]) * {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}[found[2]]
    if not 0 < asked <= LONGEST_S:
        raise ConfigError(f"{key} = {given!r} is {asked:g} s: give more than 0, at most {LONGEST_S} s (30 days)")
    return asked
