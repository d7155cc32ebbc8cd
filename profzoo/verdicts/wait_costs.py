"""Charges a step's waits with all that they cost: also with idle time after them, which the host needs to catch up.

While the host waits, the queue of the GPU runs empty, and the GPU then idles until the host has launched more. Such
idle time looks like waiting for launches. What-if simulation tells them apart: idle time that goes when only the waits
go is due to the waits.
"""

from collections.abc import Mapping
from dataclasses import replace

from profzoo.io.csv_tables import Row
from profzoo.tables.step_shares import LAUNCHING
from profzoo.verdicts.feasibility import POSSIBLE
from profzoo.verdicts.gain_models import GRAPH, WITHOUT_PAUSES, WITHOUT_WAITS, CellSimulation, RequestedChange
from profzoo.verdicts.verdict import Verdict

SYNCHRONISATION = "idle_synchronisation"
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

    Idle time that goes only when calls that free memory go too is the allocator's: it is moved to `idle_unknown`, as
    another verdict tells of it.
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
        "idle_unknown": shares["idle_unknown"] + of_frees,
    }


def add_graph_gain(row: Verdict, replayed: CellSimulation | None, step: Row, error: float) -> Verdict:
    """Return a verdict on waits that says what a CUDA graph gains besides, where one becomes possible without them.

    error: relative error that nine of ten such predictions stayed below in trials.
    """
    if replayed is None or not row.next_step.endswith(POSSIBLE):
        return row
    both = replayed.gain_together([RequestedChange(WITHOUT_WAITS), RequestedChange(GRAPH)], step, error)
    if both is None:
        return row
    said = f"expected with both: {both.gain:.2f} times as fast [{both.low:.2f}, {both.high:.2f}]"
    return replace(row, next_step=f"{row.next_step} ({said})")
