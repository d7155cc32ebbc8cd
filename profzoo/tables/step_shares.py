"""Computes shares of an unprofiled step: GPU work, waiting for other processes, and each cause of idle time."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.io.csv_tables import Row
from profzoo.tools.nsys.steps import CAUSES, FEEDING

# Kinds of GPU work, and causes of waiting, in the order of figures and pages.
WORK = ("kernels", "copy", "transfer", "communication")
IDLE = (*(f"idle_{cause}" for cause in CAUSES), "idle_unknown")
PARTS = (*WORK, "waiting", *IDLE)
UNOCCUPIED = ("waiting", *(f"idle_{cause}" for cause in CAUSES))
LAUNCHING = tuple(f"idle_{cause}" for cause in FEEDING)


def step_shares(steps: pd.DataFrame) -> pd.DataFrame:
    """Return PARTS of each row of the table of steps; they add up to one.

    The GPU's busy share is its busy time under nsys over the unprofiled step. The kinds of work, and the causes of idle
    time, have the proportions that they have under nsys. `kernels` is time with a running kernel that does not
    communicate. In the other parts no such kernel runs: `transfer` has a copy between host and device, `copy` only
    other copies and memsets, `communication` only communication kernels, and `waiting` only communication kernels that
    wait for other processes. `idle_unknown` is idle time if the GPU was never idle under nsys.
    """
    exposed = (steps["communication_ns"] - steps["overlap_ns"] - steps["waiting_ns"]).clip(lower=0)
    copying = steps["copy_ns"] - steps["transfer_ns"]
    working = steps["busy_ns"] - steps["waiting_ns"]
    parts = {
        "kernels": working - exposed - steps["copy_ns"],
        "copy": copying,
        "transfer": steps["transfer_ns"],
        "communication": exposed,
    }
    scale = steps["busy_share"] / working.where(working > 0, 1)
    table = pd.DataFrame({name: ns * scale for name, ns in parts.items()})
    rest = 1 - table.sum(axis=1)
    unoccupied = steps["idle_ns"] + steps["waiting_ns"]
    known = rest / unoccupied.where(unoccupied > 0)
    for name in UNOCCUPIED:
        table[name] = (steps[f"{name}_ns"] * known).fillna(0.0)
    table["idle_unknown"] = rest.where(known.isna(), 0.0)
    return table[list(PARTS)]


def launch_wait_share(shares: pd.DataFrame) -> pd.Series:
    """Return the share of the step in which the GPU waits for launches; fewer launches or a CUDA graph reduce it."""
    return shares[list(LAUNCHING)].sum(axis=1)


def least(step: Row, shares: Mapping[str, float], names: Sequence[str]) -> float:
    """Return a lower bound of the step's share in which the GPU is idle for these causes, at least 0.

    A profiler only lengthens idle time. In the unprofiled step, the other causes therefore take at most as long as
    under the profiler. The rest of the idle time belongs to these causes.

    Args:
        step: a row of the table of steps.
        shares: its PARTS.
        names: the causes; they are among PARTS, but not in WORK.

    The GPU is idle for half of a step of 3 ms. Under the profiler, the step takes 6 ms; its idle time is 4 ms for host
    and 0.3 ms for input. So the unprofiled step is idle for the host for at least 1.5 - 0.3 ms:

    >>> step = {"step_ns": 3.0, "waiting_ns": 0, "idle_host_ns": 4.0, "idle_input_ns": 0.3}
    >>> step |= {"idle_synchronisation_ns": 0, "idle_latency_ns": 0, "idle_launch_ns": 0}
    >>> round(least(step, {name: 0.0 for name in PARTS} | {"kernels": 0.5}, ["idle_host"]), 3)
    0.4
    """
    idle = 1 - sum(shares[name] for name in WORK)
    others = sum(step[f"{name}_ns"] for name in UNOCCUPIED if name not in names)
    return max(idle - others / step["step_ns"], 0.0)


def amdahl(share: float, cured: float) -> float:
    """Return the speedup if a part of a share of the time is saved (Amdahl 1967).

    share: share of the time, 0 to 1. cured: saved part of this share, 0 to 1.

    >>> amdahl(0.5, 1)
    2.0
    """
    return 1 / max(1 - share * cured, 1e-9)
