"""Computes shares of an unprofiled step: GPU work, waiting for other processes, and each cause of idle time."""

from collections.abc import Mapping, Sequence

import pandas as pd

from profzoo.io.csv_tables import Row
from profzoo.tools.nsys.steps import CAUSES, FEEDING

# What the GPU does, what it waits for: in the order in which figures and pages show them.
WORK = ("kernels", "copy", "transfer", "communication")
IDLE = (*(f"idle_{cause}" for cause in CAUSES), "idle_unknown")
PARTS = (*WORK, "waiting", *IDLE)
UNOCCUPIED = ("waiting", *(f"idle_{cause}" for cause in CAUSES))
LAUNCHING = tuple(f"idle_{cause}" for cause in FEEDING)


def step_shares(steps: pd.DataFrame) -> pd.DataFrame:
    """Return PARTS of each row of the table of steps; they add up to one.

    How long the GPU works follows from its time under nsys and the unprofiled step; with what, and what it waits for
    the rest of the time, from the proportions under nsys. `kernels` is time with a kernel that does not communicate,
    `transfer` with nothing but copies of which one is between host and device, `copy` with nothing but others and
    memsets, `communication` with nothing but kernels at work that do, `waiting` with these waiting for other processes.
    `idle_unknown` is idleness of a step whose GPU never idled under nsys.
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
    """Return the share of the step in which the GPU waits for launches, which fewer launches or a graph cure."""
    return shares[list(LAUNCHING)].sum(axis=1)


def least(step: Row, shares: Mapping[str, float], names: Sequence[str]) -> float:
    """Return a lower bound of the step's share that the GPU idles or waits for these causes, at least 0.

    A profiler only adds to what the GPU waits for, so that the other causes together take no more time of the
    unprofiled step than they took under it; what idleness remains is that of these.

    Args:
        step: a row of the table of steps; shares: its PARTS; names: the causes, those of PARTS that are not WORK.

    A step of 3 ms whose GPU idles for half of it, and under the profiler, where it takes 6, for 4 ms by launching and
    0.3 by its input, waits for launches for at least 1.5 - 0.3 ms:

    >>> step = {"step_ns": 3.0, "waiting_ns": 0, "idle_host_ns": 4.0, "idle_input_ns": 0.3}
    >>> step |= {"idle_synchronisation_ns": 0, "idle_latency_ns": 0, "idle_launch_ns": 0}
    >>> round(least(step, {name: 0.0 for name in PARTS} | {"kernels": 0.5}, ["idle_host"]), 3)
    0.4
    """
    idle = 1 - sum(shares[name] for name in WORK)
    others = sum(step[f"{name}_ns"] for name in UNOCCUPIED if name not in names)
    return max(idle - others / step["step_ns"], 0.0)


def amdahl(share: float, cured: float) -> float:
    """Return the speedup when the cured part of a share of the time goes (Amdahl 1967).

    >>> amdahl(0.5, 1)
    2.0
    """
    return 1 / max(1 - share * cured, 1e-9)
