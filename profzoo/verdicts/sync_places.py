"""Says in the verdict on communication how gradients are sent, and what keeps that from the backward pass."""

from dataclasses import replace
from typing import TYPE_CHECKING

from profzoo.verdicts.verdict import Verdict

if TYPE_CHECKING:
    from profzoo.cell.job_types import GradientSync

COMMUNICATION = "communication"
# Bytes of a megabyte as the option bucket_cap_mb counts them, and what that option is by default.
MB, USUAL_MB = 2**20, 25


def describe_sync(sync: "GradientSync") -> str:
    """Describe buckets and overlap, and what prevents it.

    >>> sync = {"bucket_bytes": [12582912], "find_unused_parameters": True, "communication_ns": 100, "overlap_ns": 13}
    >>> describe_sync(sync)[:73]
    'gradients are sent in 1 bucket of 12 MB, 13 % of it beside the backward p'
    """
    sizes = sync["bucket_bytes"]
    buckets = f"{len(sizes)} bucket{'s' if len(sizes) > 1 else ''} of {max(sizes, default=0) / MB:,.0f} MB at most"
    if len(sizes) == 1:
        buckets = f"1 bucket of {sizes[0] / MB:,.0f} MB"
    took = sync["communication_ns"]
    beside = f", {min(sync['overlap_ns'] / took, 1) * 100:.0f} % of it beside the backward pass" if took else ""
    told = [f"gradients are sent in {buckets}{beside}"]
    if len(sizes) == 1:
        smaller = max(min(sizes[0] / MB / 4, USUAL_MB), 1)
        told.append(f"one bucket is complete only when all gradients are, so set bucket_cap_mb={smaller:.0f}")
    if sync["find_unused_parameters"]:
        told.append(
            "find_unused_parameters=True looks through the graph in each step, so set it only where it is needed"
        )
    return "; ".join(told)


def name_sync(row: Verdict, sync: "GradientSync | None") -> Verdict:
    """Return a verdict on communication whose next step begins with how gradients are sent; others as they are."""
    if row.about != COMMUNICATION or not sync:
        return row
    return replace(row, next_step=f"{describe_sync(sync)}: {row.next_step}")
