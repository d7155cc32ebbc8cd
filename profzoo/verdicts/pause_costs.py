"""Charges pauses of the host with the idle time that they cause, which otherwise looks like waiting for launches.

While another thread holds the interpreter's lock, or Python does other work, the GPU runs out of launches. Idle time
that goes when only these pauses go is due to them, and other verdicts tell of it.
"""

from collections.abc import Mapping

from profzoo.io.csv_tables import Row
from profzoo.tables.step_shares import LAUNCHING
from profzoo.verdicts.gain_models import WITHOUT_HOST_PAUSES, CellSimulation
from profzoo.verdicts.wait_costs import saved_share

UNKNOWN = "idle_unknown"


def charge_pauses(shares: Mapping[str, float], replayed: CellSimulation, step: Row) -> dict[str, float]:
    """Return the shares of the step with the idle time that the host's pauses cause moved from launching to UNKNOWN.

    Args:
        shares: parts of the step as `step_shares` gives them; they add up to one, and so does the result.
        replayed: simulation of the cell's steps. step: the cell's row of the table of steps.
    """
    launching = sum(shares[name] for name in LAUNCHING)
    moved = min(saved_share(replayed, WITHOUT_HOST_PAUSES, step), launching)
    if not moved:
        return dict(shares)
    left = 1 - moved / launching
    return {**shares, **{name: shares[name] * left for name in LAUNCHING}, UNKNOWN: shares[UNKNOWN] + moved}
