"""Derives the sidecar of a baseline that was timed in another tool's process, before that tool started."""

from typing import Any

from profzoo import schema
from profzoo.json_types import JsonObject

# Output name of the baseline's sidecar, and key of the facts that differ for the baseline.
TIMED, BASELINE = "timed", "baseline"


def split_sidecar(sidecar: JsonObject, beside: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a process's sidecar into its own, without the baseline's values, and the baseline's.

    beside: file name of the first sidecar. The second sidecar names it under `process`, as they share one process.

    >>> cell = {"warmup": 3, "window": 2, "steps": 26, "profiler": {"baseline": 20}}
    >>> own, timed = split_sidecar({"tool": "torch", "cell": cell, "steps": 2, "baseline": {"steps": 20}}, "x.json")
    >>> own["steps"], timed["steps"], timed["tool"], timed["process"], timed["cell"]
    (2, 20, 'time', {'tool': 'torch', 'sidecar': 'x.json'}, {'warmup': 3, 'window': 20, 'steps': 23})
    """
    own = {key: value for key, value in sidecar.items() if key != BASELINE}
    steps = sidecar[BASELINE]["steps"]
    cell = {key: value for key, value in own["cell"].items() if key != "profiler"}
    cell |= {"window": steps, "steps": cell["warmup"] + steps}
    process = {"tool": own["tool"], "sidecar": beside}
    return own, {**own, **sidecar[BASELINE], "tool": schema.BASELINE, "cell": cell, "process": process}
