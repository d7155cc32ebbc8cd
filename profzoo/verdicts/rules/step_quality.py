"""Judge whether a step's times may be relied on, what its idle time is due to, and how far the CPU limits its gain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from profzoo.formatting import fixed, percent
from profzoo.io.csv_tables import Row
from profzoo.statistics.process_repeats import TAKEN
from profzoo.tables.cell_tables import LAUNCHING
from profzoo.verdicts.gain_models import (
    WITHOUT_HOST_PAUSES,
    WITHOUT_PAUSES,
    WITHOUT_TUNING,
    WITHOUT_WAITS,
    CellSimulation,
    RequestedChange,
)
from profzoo.verdicts.rules.rule_types import Floors
from profzoo.verdicts.verdict import UNDECIDED, Verdict

STRETCH = "step under nsys / unprofiled"
QUIETER = "raise nsys.window, or stop other programs"
NO_STEPS = (
    "no step repeats in this report, so that its times are of all of it, with start and end, and nothing is known per "
    "step: name the ranges that are its steps (`step=NAME`), or record several steps"
)
OF_STEP, OF_TRACE = "share of the step", "share of the whole report"


@dataclass(frozen=True)
class Doubt:
    """A reason why a step's times may not be relied on: what was measured against its threshold, and what to do."""

    metric: str
    value: float
    threshold: float
    why: str
    advice: str


def cpu_limited_gain(step: Row, most: float, removed: float = 0.0) -> float:
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


def _stretch(step: Row) -> float:
    """Return the time of a step under nsys over the unprofiled time."""
    return float(step["wall_ns"] / step["step_ns"])


def _cpu_taken_share(step: Row) -> float:
    """Return the share of the unprofiled time in which other programs used the CPU; 0 where it is unknown."""
    taken = step.get("cpu_taken_share")
    return float(taken) if taken is not None and taken > 0 else 0.0


def disturbed_share(step: Row, floors: Floors) -> float:
    """Return the share of the mean unprofiled step that other programs, or a few long steps, may have added.

    >>> round(disturbed_share({"cpu_taken_share": 0.2, "step_ns": 2.0, "step_median_ns": 1.0}, {"steady": 1.3}), 3)
    0.6
    """
    taken, unsteady = _cpu_taken_share(step), step["step_ns"] / step["step_median_ns"]
    left = (1 - taken if taken > TAKEN else 1.0) / (unsteady if unsteady > floors["steady"] else 1.0)
    return float(1 - left)


def find_doubt(step: pd.Series, floors: Floors) -> Doubt | None:
    """Return why a step's idle time may have an outside cause; None if it has none."""
    stretch, unsteady, taken = _stretch(step), step["step_ns"] / step["step_median_ns"], _cpu_taken_share(step)
    if stretch > floors["stretch"]:
        why = f"the step takes {fixed(stretch, floors['stretch'], 1)} times as long under nsys"
        return Doubt(STRETCH, stretch, floors["stretch"], why, QUIETER)
    if taken > TAKEN:
        why = f"other programs used the CPU for up to {percent(taken, TAKEN)} of the time of the unprofiled run"
        return Doubt("CPU time of other programs", taken, TAKEN, why, "stop other programs and measure again")
    if unsteady > floors["steady"]:
        why = f"the mean of the unprofiled steps is {fixed(unsteady, floors['steady'], 1)} times their median"
        advice = "stop other programs and measure again; data that arrives in bursts looks the same"
        return Doubt("unprofiled step, mean / median", unsteady, floors["steady"], why, advice)
    return None


def no_steps_row(count: float) -> Verdict:
    """Return the only verdict on a cell in whose report no step repeats; count: its steps."""
    return Verdict(
        level="cell",
        verdict=UNDECIDED,
        metric="steps that repeat",
        value=count,
        threshold=2.0,
        evidence="cells.csv: whole, steps",
        next_step=NO_STEPS,
    )


def without_gain(row: Verdict) -> Verdict:
    """Return a verdict on a kernel or layer of a report without steps: what it is, and no gain per step."""
    return replace(
        row,
        metric=row.metric.replace(OF_STEP, OF_TRACE),
        cured=None,
        gain=None,
        gain_low=None,
        gain_high=None,
        limit=None,
        method=None,
        trials=None,
        median_error=None,
        slowed_down=None,
        covered=None,
        score=None,
        settings=None,
    )


# Charges a step's waits with all that they cost: also with idle time after them, which the host needs to catch up.
#
# While the host waits, the queue of the GPU runs empty, and the GPU then idles until the host has launched more. Such
# idle time looks like waiting for launches. What-if simulation tells them apart: idle time that goes when only the
# waits go is due to the waits.

SYNCHRONISATION, UNKNOWN = "idle_synchronisation", "idle_unknown"
# Shares that rules are about and that charging the waits changes.
CHARGED = (SYNCHRONISATION, "idle_launching")


def saved_share(replayed: CellSimulation, change: str, step: Row) -> float:
    """Return the share of the step, 0 to 1, that a change to all of it saves by simulation."""
    found = replayed.gain(RequestedChange(change), step, 0.0)
    return max(1 - 1 / found.gain, 0.0) if found else 0.0


def charge_waits(shares: Mapping[str, float], replayed: CellSimulation, step: Row) -> dict[str, float]:
    """Return the shares of the step with the idle time that its waits cause moved from launching to the waits.

    Args:
        shares: parts of the step as `step_shares` gives them; they add up to one, and so does the result.
        replayed: simulation of the cell's steps. step: the cell's row of the table of steps.

    Idle time that goes only when calls that free memory go too is the allocator's: it is moved to UNKNOWN, as another
    verdict tells of it.
    """
    launching = sum(shares[name] for name in LAUNCHING)
    waits, pauses = (saved_share(replayed, change, step) for change in (WITHOUT_WAITS, WITHOUT_PAUSES))
    of_waits = min(max(waits - shares[SYNCHRONISATION], 0.0), launching)
    of_frees = min(max(pauses - max(waits, shares[SYNCHRONISATION]), 0.0), launching - of_waits)
    if not of_waits + of_frees:
        return dict(shares)
    left = 1 - (of_waits + of_frees) / launching
    return {
        **shares,
        **{name: shares[name] * left for name in LAUNCHING},
        SYNCHRONISATION: shares[SYNCHRONISATION] + of_waits,
        UNKNOWN: shares[UNKNOWN] + of_frees,
    }


def charge_tuning(shares: Mapping[str, float], replayed: CellSimulation, step: Row) -> dict[str, float]:
    """Return the shares of the step with the idle time that goes with a tuner moved to UNKNOWN.

    The tuner waits for what it tries, and its work on the host looks like late launches; another verdict tells of it.
    Arguments as for charge_waits.
    """
    saved = saved_share(replayed, WITHOUT_TUNING, step) - replayed.tried_share()
    return _move_to_unknown(shares, saved, (*LAUNCHING, SYNCHRONISATION))


def _move_to_unknown(shares: Mapping[str, float], saved: float, names: Sequence[str]) -> dict[str, float]:
    """Return the shares with as much of these as is saved moved to UNKNOWN, from each in proportion."""
    held = sum(shares[name] for name in names)
    moved = min(max(saved, 0.0), held)
    if not moved:
        return dict(shares)
    left = 1 - moved / held
    return {**shares, **{name: shares[name] * left for name in names}, UNKNOWN: shares[UNKNOWN] + moved}


# Charges pauses of the host with the idle time that they cause, which otherwise looks like waiting for launches.
#
# While another thread holds the interpreter's lock, or Python does other work, the GPU runs out of launches. Idle time
# that goes when only these pauses go is due to them, and other verdicts tell of it.


def charge_pauses(shares: Mapping[str, float], replayed: CellSimulation, step: Row) -> dict[str, float]:
    """Return the shares of the step with the idle time that the host's pauses cause moved from launching to UNKNOWN.

    Args:
        shares: parts of the step as `step_shares` gives them; they add up to one, and so does the result.
        replayed: simulation of the cell's steps. step: the cell's row of the table of steps.
    """
    return _move_to_unknown(shares, saved_share(replayed, WITHOUT_HOST_PAUSES, step), LAUNCHING)
