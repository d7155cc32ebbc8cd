"""Counts the steps over which the numbers of a tool's export are summed."""

from typing import TYPE_CHECKING

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.tools.nsys.events.trace import NO_WHOLE_STEP

if TYPE_CHECKING:
    from profzoo.cell.job_types import Sidecar

# Of a sidecar.
NEEDS: fact.Needs = {
    "cell": {"window": fact.SEVERAL, "model?": fact.TEXT, "phase?": fact.TEXT},
    "capture?": fact.TEXT,
    "traced_steps?": fact.COUNT,
}


def count_profiled_steps(sidecar: "Sidecar") -> int:
    """Return the number of steps in an export's sums; of a damaged or whole-run trace, the steps in it.

    Raises:
        DataError: the trace has no steps.
    """
    cell = sidecar["cell"]
    if sidecar.get("capture") != "run" and "traced_steps" not in sidecar:
        return cell["window"]
    if not sidecar["traced_steps"]:
        raise DataError(f"the trace of {cell['model']} {cell['phase']} {NO_WHOLE_STEP}")
    return sidecar["traced_steps"]
