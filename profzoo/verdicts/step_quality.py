"""Judge whether a step's times may be relied on, and how far the CPU limits its gain."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from profzoo.statistics.process_repeats import TAKEN

STRETCH = "step under nsys / unprofiled"
QUIETER = "raise nsys.window, or stop other programs"


def cpu_limited_gain(step: Mapping[str, Any], most: float, removed: float = 0.0) -> float:
    """Return the largest gain by shorter kernels, at which the step waits for the CPU all the time; at least 1.

    Args:
        step: the cell's row of the table of steps.
        most: slowdown under nsys beyond which the limit is unknown.
        removed: share of the launches that the CPU no longer makes; all launches count as equally long.

    The limit is from times under nsys, which slows the CPU down, so it is rather too low. It is infinite where it is
    not known: where nsys slows the step down by more than `most`, or where `host_ns` is empty.
    """
    if not step["host_ns"] > 0 or removed >= 1 or _stretch(step) > most:
        return float("inf")
    return float(max(step["wall_ns"] / (step["host_ns"] * (1 - removed)), 1.0))


def _stretch(step: Mapping[str, Any]) -> float:
    """Return the time of a step under nsys over the unprofiled time."""
    return float(step["wall_ns"] / step["step_ns"])


def _cpu_taken_share(step: Mapping[str, Any]) -> float:
    """Return the share of the unprofiled time in which other programs used the CPU; 0 where it is unknown."""
    taken = step.get("cpu_taken_share")
    return float(taken) if taken is not None and taken > 0 else 0.0


def disturbed_share(step: Mapping[str, Any], floors: Mapping[str, float]) -> float:
    """Return the share of the mean unprofiled step that other programs, or a few long steps, may have added.

    >>> round(disturbed_share({"cpu_taken_share": 0.2, "step_ns": 2.0, "step_median_ns": 1.0}, {"steady": 1.3}), 3)
    0.6
    """
    taken, unsteady = _cpu_taken_share(step), step["step_ns"] / step["step_median_ns"]
    left = (1 - taken if taken > TAKEN else 1.0) / (unsteady if unsteady > floors["steady"] else 1.0)
    return float(1 - left)


def find_doubt(step: pd.Series, floors: Mapping[str, float]) -> tuple[dict[str, Any], str, str] | None:
    """Return why a step's idle time may have an outside cause: measured columns, the reason, advice; None if not."""
    stretch, unsteady, taken = _stretch(step), step["step_ns"] / step["step_median_ns"], _cpu_taken_share(step)
    if stretch > floors["stretch"]:
        measured = {"metric": STRETCH, "value": stretch, "threshold": floors["stretch"]}
        return measured, f"the step takes {stretch:.1f} times as long under nsys", QUIETER
    if taken > TAKEN:
        measured = {"metric": "CPU time that others took", "value": taken, "threshold": TAKEN}
        said = f"other programs used the CPU for up to {taken:.0%} of the time of the unprofiled run"
        return measured, said, "stop other programs and measure again"
    if unsteady > floors["steady"]:
        measured = {"metric": "unprofiled step, mean / median", "value": unsteady, "threshold": floors["steady"]}
        advice = "stop other programs and measure again; data that arrives in bursts looks the same"
        return measured, f"the mean of the unprofiled steps is {unsteady:.1f} times their median", advice
    return None
