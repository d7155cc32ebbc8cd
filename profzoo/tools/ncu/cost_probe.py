"""Reads the cost of a launch under a section set from a probe: a few other kernels that ncu profiled on this GPU."""

from pathlib import Path

from profzoo.errors import DataError
from profzoo.io import sidecars as fact
from profzoo.io.scripts import read_json
from profzoo.tools.ncu import raw_page
from profzoo.tools.ncu.costs import PROBED, Cost

PASSES = "profiler__replayer_passes"


def read_probe_cost(page: str | Path, sidecar: str | Path, gpu: str | None) -> Cost | None:
    """Return the cost measured by a probe, from its raw page and sidecar; None if it ran on another GPU.

    Raises:
        DataError: the page has no launch, or does not say how many passes it took.
    """
    said = read_json(sidecar, {"launch_s": fact.NUMBER})
    if said.get("gpu") != gpu:
        return None
    raw, _ = raw_page.read_raw(page)
    if PASSES not in raw or not raw[PASSES].str.fullmatch("[0-9]+").all():
        raise DataError(f"{page} does not say in how many passes launches were profiled: {raw_page.ODD}")
    return Cost(int(raw[PASSES].astype(int).max()), float(said["launch_s"]), PROBED)
